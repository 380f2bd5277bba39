/// A backend that hands every operation to another one: a base for those that change a few.
#pragma once

#include <memory>
#include <utility>

#include "backend/backend.h"

namespace ts {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  std::string_view isa() const override { return inner_->isa(); }
  int n_threads() const override { return inner_->n_threads(); }
  bool exact() const override { return inner_->exact(); }
  std::shared_ptr<Buffer> allocate(size_t n_floats, std::string_view what) override {
    return inner_->allocate(n_floats, what);
  }
  std::shared_ptr<const Weight> upload(const TensorView& tensor,
                                       std::shared_ptr<const void> keep_alive, WeightUse use,
                                       const ReleaseBytes& release) override {
    return inner_->upload(tensor, std::move(keep_alive), use, release);
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
  void linear(std::span<const LinearJob> jobs, Activation& x) override { inner_->linear(jobs, x); }
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
  void gated_rms_norm(Mat x, const float* w, int64_t group, float eps, Mat gate,
                      Activation& y) override {
    inner_->gated_rms_norm(x, w, group, eps, gate, y);
  }
  void gated_unit(GatedUnit unit, Mat gate, Mat up, Mat out) override {
    inner_->gated_unit(unit, gate, up, out);
  }
  void add(Mat x, Mat y) override { inner_->add(x, y); }
  void softcap(Mat x, float cap) override { inner_->softcap(x, cap); }

 protected:
  std::shared_ptr<Backend> inner_;
};

}  // namespace ts
