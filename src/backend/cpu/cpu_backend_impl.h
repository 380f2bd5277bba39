/// The CPU backend's class; the operations are in cpu_backend.cc, linear.cc, attention.cc and
/// delta_rule.cc.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_weight.h"
#include "backend/cpu/derived_rows.h"
#include "backend/cpu/kernel_choices.h"
#include "backend/cpu/kv_store.h"
#include "backend/cpu/rope_tables.h"
#include "backend/cpu/tile_arena.h"
#include "base/aligned_buffer.h"
#include "base/profile.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace ts {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const CpuBackendOptions& options, int n_threads, const Kernels& kernels);

  std::string_view name() const override { return "cpu"; }
  std::string_view isa() const override { return kernels_.table.isa; }
  int n_threads() const override { return pool_.n_threads(); }
  bool exact() const override { return exact_; }
  const Kernels& kernels() const noexcept { return kernels_; }

  std::shared_ptr<Buffer> allocate(size_t n_floats, std::string_view what) override;
  std::shared_ptr<const Weight> upload(const TensorView& tensor,
                                       std::shared_ptr<const void> keep_alive, WeightUse use,
                                       const ReleaseBytes& release) override;
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape, KvType type) override;
  std::vector<std::byte> read_kv(const KvCache& cache, int64_t begin, int64_t end) override;
  void write_kv(KvCache& cache, int64_t begin, std::span<const std::byte> bytes) override;

  std::unique_ptr<RecurrentState> make_recurrent_state(const RecurrentShape& shape) override;
  std::vector<std::byte> read_recurrent(const RecurrentState& state) override;
  void write_recurrent(RecurrentState& state, std::span<const std::byte> bytes) override;
  void reset_recurrent(RecurrentState& state) override;

  void linear(std::span<const LinearJob> jobs, Activation& x) override;
  void embed(const Weight& table, std::span<const int32_t> ids, float scale, Mat y,
             const Rotation* rotation) override;
  void rms_norm(Mat x, const float* w, int64_t group, float eps, Mat y) override;
  void rms_norm(Mat x, const float* w, float eps, Activation& y) override;
  void rope(Mat x, int64_t n_heads, int64_t head_dim, int64_t first_position,
            const Rope& rope) override;
  void attention(const AttentionArgs& args, KvCache& cache) override;
  void split_query_gate(Mat p, int64_t head_dim, Mat query, Mat gate) override;
  void causal_conv(Mat x, const float* w, RecurrentState& state) override;
  void delta_rule(const DeltaRuleArgs& args, RecurrentState& state) override;
  void gated_rms_norm(Mat x, const float* w, int64_t group, float eps, Mat gate,
                      Activation& y) override;
  void gated_unit(GatedUnit unit, Mat gate, Mat up, Mat out) override;
  void add(Mat x, Mat y) override;
  void softcap(Mat x, float cap) override;

 private:
  /// Runs fn(row_begin, row_end) over rows; on the calling thread alone when the whole operation is
  /// too small (`row_cost` in rough nanoseconds) to be worth waking the team.
  template <typename F>
  void for_rows(int64_t n_rows, double row_cost_ns, F&& fn) {
    constexpr double kWorthWakingNs = 8000;
    if (static_cast<double>(n_rows) * row_cost_ns < kWorthWakingNs)
      fn(int64_t{0}, n_rows);
    else
      pool_.parallel_for(n_rows, 1, fn);
  }
  /// At least `bytes` of scratch for every thread; contents are lost. ResourceExhausted.
  void reserve_scratch(size_t bytes, std::string_view what);
  std::byte* scratch(int thread) noexcept { return scratch_[static_cast<size_t>(thread)].data(); }
  /// The rows of x in one form, with product tables if asked for and they are few, made unless they
  /// are there. ResourceExhausted.
  const DerivedRows& derived(Activation& x, const Rotation* rotation, size_t group,
                             bool tables = false);
  /// Room for the form of all rows of x.
  static void reserve_form(DerivedRows& form, Mat rows);
  /// Measured earlier or now; the usual one where measuring is off or not worth it.
  KernelChoice choose_kernels(const CpuWeight& weight, bool can_repack);
  /// Forms that the rows of an activation will probably be read in, with room for all rows.
  struct ExpectedForms {
    std::vector<DerivedRows*> forms;
    double row_cost_ns = 0;
  };
  static ExpectedForms expected_forms(Activation& activation);
  static void mark_made(const ExpectedForms& expected, Activation& activation);
  /// Computes the rows of y with make_row(r) and, while a row is in the first-level cache, its
  /// expected forms. `row_cost_ns` is that of make_row alone. Named in a profile without and with
  /// forms.
  template <typename F>
  void make_rows(Activation& y, double row_cost_ns, const char* name, const char* name_with_forms,
                 F&& make_row) {
    const ExpectedForms expected = expected_forms(y);
    const profile::Scope timer(expected.forms.empty() ? name : name_with_forms);
    const Mat rows = y.rows();
    for_rows(rows.rows, row_cost_ns + expected.row_cost_ns, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        make_row(r);
        for (DerivedRows* form : expected.forms) {
          for (size_t part = 0; part < form->n_parts(); ++part)
            form->fill(kernels_.table, static_cast<size_t>(r), part, rows.row(r));
        }
      }
    });
    mark_made(expected, y);
  }
  /// Replaces the mapped bytes of a weight by tiles. ResourceExhausted.
  void repack(CpuWeight& weight, const ReleaseBytes& release);
  /// y = R_out^T y (+ bias).
  void rotate_output(const LinearJob& job);
  void attend_rows(const AttentionArgs& args, const CpuKvCache& cache);
  void attend_blocks(const AttentionArgs& args, const CpuKvCache& cache);

  const Kernels& kernels_;
  const bool exact_;
  const bool repack_;
  const bool huge_pages_;
  std::mutex mutex_;  ///< one operation at a time: scratch and tables below are shared
  ThreadPool pool_;
  std::optional<KernelChoices> choices_;
  TileArena tiles_;
  std::vector<AlignedBuffer<std::byte>> scratch_;
  AlignedBuffer<float> partials_;
  RopeTables rope_tables_;
};

}  // namespace ts
