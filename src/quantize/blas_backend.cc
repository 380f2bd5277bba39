#include "quantize/blas_backend.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <tensorsharp/error.hpp>

#include "base/thread_pool.h"
#include "quantize/blas.h"
#include "quantize/operation_gradients.h"

namespace ts {

/// Outputs computed in one piece: enough for BLAS to be efficient, few enough to share the work.
constexpr int64_t kPieceRows = 192;

class BlasBackend final : public ReplayingBackend {
 public:
  explicit BlasBackend(std::shared_ptr<Backend> inner)
      : ReplayingBackend(std::move(inner)), pool_(inner_->n_threads()) {
    blas::use_one_thread();
  }

  std::shared_ptr<const Weight> upload(const TensorView& tensor,
                                       std::shared_ptr<const void> keep_alive, WeightUse use,
                                       const ReleaseBytes& release) override {
    auto weight = inner_->upload(tensor, std::move(keep_alive), use, release);
    if (tensor.type == TypeId::kF32)
      f32_[weight.get()] = reinterpret_cast<const float*>(tensor.data.data());
    return weight;
  }

  void replay(PassMemo* memo, bool record) override {
    memo_ = memo;
    record_ = record;
    next_ = 0;
  }

  void watch_attention(std::vector<float>* shares) override { watched_ = shares; }

  void linear(std::span<const LinearJob> jobs, Activation& x) override {
    if (take(jobs)) return;
    compute(jobs, x);
    for (const LinearJob& job : jobs)
      keep(job.y);
    next_ += jobs.size();
  }

  void attention(const AttentionArgs& args, KvCache& cache) override {
    remembered(args.out, [&] {
      if (args.first_position != 0 || args.q.rows < 2) {
        inner_->attention(args, cache);
        return;
      }
      const std::lock_guard lock(mutex_);
      attend(args);
    });
  }
  void causal_conv(Mat x, const float* w, RecurrentState& state) override {
    remembered(x, [&] { inner_->causal_conv(x, w, state); });
  }
  void delta_rule(const DeltaRuleArgs& args, RecurrentState& state) override {
    remembered(args.out, [&] { inner_->delta_rule(args, state); });
  }

 private:
  void compute(std::span<const LinearJob> jobs, Activation& x) {
    const Mat rows = x.rows();
    for (const LinearJob& job : jobs) {
      const auto found = f32_.find(job.weight);
      if (found == f32_.end() || job.input != nullptr || job.output != nullptr || rows.rows < 2)
        inner_->linear(std::span(&job, 1), x);
      else
        multiply(job, found->second, rows);
    }
  }

  /// Fills the outputs of all jobs from the memo, if it has them.
  bool take(std::span<const LinearJob> jobs) {
    if (memo_ == nullptr || next_ + jobs.size() > memo_->ends_.size()) return false;
    for (const LinearJob& job : jobs)
      copy_out(next_++, job.y);
    return true;
  }
  template <class Compute>
  void remembered(Mat out, const Compute& computed) {
    if (memo_ != nullptr && next_ < memo_->ends_.size()) {
      copy_out(next_++, out);
      return;
    }
    computed();
    keep(out);
    ++next_;
  }
  void copy_out(size_t result, Mat y) const {
    const size_t begin = result == 0 ? 0 : memo_->ends_[result - 1];
    const auto cols = static_cast<size_t>(y.cols);
    if (memo_->ends_[result] - begin != static_cast<size_t>(y.rows) * cols)
      throw InternalError("a pass differs from the one whose results it takes");
    for (int64_t r = 0; r < y.rows; ++r)
      std::copy_n(memo_->values_.data() + begin + static_cast<size_t>(r) * cols, cols, y.row(r));
  }
  void keep(Mat y) {
    if (memo_ == nullptr || !record_) return;
    for (int64_t r = 0; r < y.rows; ++r)
      memo_->values_.insert(memo_->values_.end(), y.row(r), y.row(r) + y.cols);
    memo_->ends_.push_back(memo_->values_.size());
  }

  /// A whole text at once. Nothing comes after it, so keys and values are not stored.
  void attend(const AttentionArgs& args) {
    const AttentionShape shape = attention_shape(args);
    const auto map = static_cast<size_t>(shape.n_tokens * shape.n_tokens);
    if (watched_ != nullptr) watched_->resize(static_cast<size_t>(shape.n_heads) * map);
    pool_.parallel_for(shape.n_heads, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> shares(map);
      for (int64_t h = begin; h < end; ++h) {
        const int64_t kv = h / (shape.n_heads / shape.n_kv_heads) * shape.head_dim;
        attention_shares(shape, args.q.row(0) + h * shape.head_dim, args.q.stride,
                         args.k.row(0) + kv, args.k.stride, shares.data());
        blas::gemm(shape.n_tokens, shape.head_dim, shape.n_tokens, 1.0F, shares.data(),
                   shape.n_tokens, args.v.row(0) + kv, args.v.stride, 0.0F,
                   args.out.row(0) + h * shape.head_dim, args.out.stride);
        if (watched_ != nullptr)
          std::copy(shares.begin(), shares.end(),
                    watched_->begin() + h * static_cast<int64_t>(map));
      }
    });
  }

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

  std::mutex mutex_;
  ThreadPool pool_;
  std::unordered_map<const Weight*, const float*> f32_;
  PassMemo* memo_ = nullptr;
  bool record_ = false;
  std::vector<float>* watched_ = nullptr;
  size_t next_ = 0;  ///< costly operation of the pass
};

std::shared_ptr<ReplayingBackend> make_blas_backend(std::shared_ptr<Backend> inner) {
  return std::make_shared<BlasBackend>(std::move(inner));
}

}  // namespace ts
