#include "quantize/blas_backend.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <tensorsharp/error.hpp>

#include "base/thread_pool.h"
#include "quantize/blas.h"

namespace ts {
namespace {

/// Outputs computed in one piece: enough for BLAS to be efficient, few enough to share the work.
constexpr int64_t kPieceRows = 96;

class BlasBackend final : public Backend {
 public:
  explicit BlasBackend(std::shared_ptr<Backend> inner)
      : inner_(std::move(inner)), pool_(inner_->n_threads()) {
    blas::use_one_thread();
  }

  std::string_view name() const override { return inner_->name(); }
  std::string_view isa() const override { return inner_->isa(); }
  int n_threads() const override { return inner_->n_threads(); }
  bool exact() const override { return inner_->exact(); }

  std::shared_ptr<const Weight> upload(const TensorView& tensor,
                                       std::shared_ptr<const void> keep_alive, WeightUse use,
                                       const ReleaseBytes& release) override {
    auto weight = inner_->upload(tensor, std::move(keep_alive), use, release);
    if (tensor.type == TypeId::kF32)
      f32_[weight.get()] = reinterpret_cast<const float*>(tensor.data.data());
    return weight;
  }

  void linear(std::span<const LinearJob> jobs, Activation& x) override {
    const Mat rows = x.rows();
    for (const LinearJob& job : jobs) {
      const auto found = f32_.find(job.weight);
      if (found == f32_.end() || job.input != nullptr || job.output != nullptr || rows.rows < 2)
        inner_->linear(std::span(&job, 1), x);
      else
        multiply(job, found->second, rows);
    }
  }

  // All the rest is forwarded.
  std::shared_ptr<Buffer> allocate(size_t n_floats, std::string_view what) override {
    return inner_->allocate(n_floats, what);
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape, KvType type) override {
    return inner_->make_kv_cache(shape, type);
  }
  std::vector<std::byte> read_kv(const KvCache& cache, int64_t begin, int64_t end) override {
    return inner_->read_kv(cache, begin, end);
  }
  void write_kv(KvCache& cache, int64_t begin, std::span<const std::byte> bytes) override {
    inner_->write_kv(cache, begin, bytes);
  }
  std::unique_ptr<RecurrentState> make_recurrent_state(const RecurrentShape& shape) override {
    return inner_->make_recurrent_state(shape);
  }
  std::vector<std::byte> read_recurrent(const RecurrentState& state) override {
    return inner_->read_recurrent(state);
  }
  void write_recurrent(RecurrentState& state, std::span<const std::byte> bytes) override {
    inner_->write_recurrent(state, bytes);
  }
  void reset_recurrent(RecurrentState& state) override { inner_->reset_recurrent(state); }
  void embed(const Weight& table, std::span<const int32_t> ids, float scale, Mat y,
             const Rotation* rotation) override {
    inner_->embed(table, ids, scale, y, rotation);
  }
  void rms_norm(Mat x, const float* w, int64_t group, float eps, Mat y) override {
    inner_->rms_norm(x, w, group, eps, y);
  }
  void rms_norm(Mat x, const float* w, float eps, Activation& y) override {
    inner_->rms_norm(x, w, eps, y);
  }
  void rope(Mat x, int64_t n_heads, int64_t head_dim, int64_t first_position,
            const Rope& rope) override {
    inner_->rope(x, n_heads, head_dim, first_position, rope);
  }
  void attention(const AttentionArgs& args, KvCache& cache) override {
    inner_->attention(args, cache);
  }
  void split_query_gate(Mat p, int64_t head_dim, Mat query, Mat gate) override {
    inner_->split_query_gate(p, head_dim, query, gate);
  }
  void causal_conv(Mat x, const float* w, RecurrentState& state) override {
    inner_->causal_conv(x, w, state);
  }
  void delta_rule(const DeltaRuleArgs& args, RecurrentState& state) override {
    inner_->delta_rule(args, state);
  }
  void gated_rms_norm(Mat x, const float* w, int64_t group, float eps, Mat gate, Mat y) override {
    inner_->gated_rms_norm(x, w, group, eps, gate, y);
  }
  void gated_unit(GatedUnit unit, Mat gate, Mat up, Mat out) override {
    inner_->gated_unit(unit, gate, up, out);
  }
  void add(Mat x, Mat y) override { inner_->add(x, y); }
  void softcap(Mat x, float cap) override { inner_->softcap(x, cap); }

 private:
  void multiply(const LinearJob& job, const float* weight, const Mat& x) {
    const int64_t n_in = x.cols, n_out = job.weight->n_rows();
    if (n_in != job.weight->n_cols() || job.y.rows != x.rows || job.y.cols != n_out)
      throw InternalError("shapes of a product do not fit");
    const std::lock_guard lock(mutex_);
    pool_.parallel_for((n_out + kPieceRows - 1) / kPieceRows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t first = piece * kPieceRows, count = std::min(kPieceRows, n_out - first);
        blas::gemm_bt(x.rows, count, n_in, 1.0F, x.row(0), x.stride, weight + first * n_in, n_in,
                      0.0F, job.y.row(0) + first, job.y.stride);
        if (job.bias == nullptr) continue;
        for (int64_t r = 0; r < x.rows; ++r) {
          float* y = job.y.row(r) + first;
          for (int64_t c = 0; c < count; ++c)
            y[c] += job.bias[first + c];
        }
      }
    });
  }

  std::shared_ptr<Backend> inner_;
  std::mutex mutex_;
  ThreadPool pool_;
  std::unordered_map<const Weight*, const float*> f32_;
};

}  // namespace

std::shared_ptr<Backend> make_blas_backend(std::shared_ptr<Backend> inner) {
  return std::make_shared<BlasBackend>(std::move(inner));
}

}  // namespace ts
