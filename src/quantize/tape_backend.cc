#include "quantize/tape_backend.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <tensorsharp/error.hpp>

#include "base/thread_pool.h"
#include "quantize/operation_gradients.h"

namespace ts {
namespace {

using Values = std::vector<float>;

Values dense_copy(const Mat& m) {
  Values values(static_cast<size_t>(m.rows * m.cols));
  for (int64_t r = 0; r < m.rows; ++r)
    std::copy_n(m.row(r), m.cols, values.data() + r * m.cols);
  return values;
}

[[noreturn]] void refuse(const char* what) {
  throw Unsupported(std::string("tuning has no gradient for ") + what +
                    "; use method gptq for this architecture");
}

}  // namespace

/// The gradients of all places in a backend's buffers.
class TapeBackend::Places {
 public:
  /// The gradient of what an operation wrote to `m`; before the operation the place held something
  /// else, so the gradient there becomes 0.
  Values take(const Mat& m) {
    Values values = read(m);
    for (int64_t r = 0; r < m.rows; ++r)
      std::fill_n(at(m, r), m.cols, 0.0F);
    return values;
  }
  Values read(const Mat& m) {
    Values values(static_cast<size_t>(m.rows * m.cols));
    for (int64_t r = 0; r < m.rows; ++r)
      std::copy_n(at(m, r), m.cols, values.data() + r * m.cols);
    return values;
  }
  void add(const Mat& m, std::span<const float> values) {
    for (int64_t r = 0; r < m.rows; ++r) {
      float* to = at(m, r);
      const float* from = values.data() + r * m.cols;
      for (int64_t c = 0; c < m.cols; ++c)
        to[c] += from[c];
    }
  }

 private:
  float* at(const Mat& m, int64_t row) {
    Values& values = by_buffer_[m.buffer];
    if (values.empty()) values.resize(m.buffer->n_floats());
    return values.data() + m.offset + static_cast<size_t>(row * m.stride);
  }
  std::unordered_map<const Buffer*, Values> by_buffer_;
};

struct TapeBackend::Tape {
  explicit Tape(int n_threads) : pool(n_threads) {}
  using Step = std::function<void(Places&, GradientSink&)>;
  std::vector<Step> steps;
  ThreadPool pool;
};

TapeBackend::TapeBackend(std::shared_ptr<Backend> inner) : ForwardingBackend(std::move(inner)) {}
TapeBackend::~TapeBackend() = default;

const float* TapeBackend::replaced(const float* vector) const {
  const auto found = replaced_.find(vector);
  return found == replaced_.end() ? vector : found->second;
}

void TapeBackend::replace_vector(const float* vector, const float* values) {
  replaced_[vector] = values;
}

void TapeBackend::begin_recording() {
  if (tape_ == nullptr) tape_ = std::make_unique<Tape>(n_threads());
  tape_->steps.clear();
}

void TapeBackend::end_recording() {
  tape_.reset();
}

void TapeBackend::backward(Mat out, std::span<const float> gradient, GradientSink& sink) {
  Places places;
  places.add(out, gradient);
  for (auto step = tape_->steps.rbegin(); step != tape_->steps.rend(); ++step)
    (*step)(places, sink);
  tape_->steps.clear();
}

std::shared_ptr<const Weight> TapeBackend::upload(const TensorView& tensor,
                                                  std::shared_ptr<const void> keep_alive,
                                                  WeightUse use, const ReleaseBytes& release) {
  auto weight = inner_->upload(tensor, std::move(keep_alive), use, release);
  if (tensor.type == TypeId::kF32)
    f32_[weight.get()] = reinterpret_cast<const float*>(tensor.data.data());
  return weight;
}

void TapeBackend::linear(std::span<const LinearJob> jobs, Activation& x) {
  std::vector<LinearJob> with(jobs.begin(), jobs.end());
  for (LinearJob& job : with)
    job.bias = replaced(job.bias);
  if (tape_ == nullptr) {
    inner_->linear(with, x);
    return;
  }
  const Mat rows = x.rows();
  const auto input = std::make_shared<const Values>(dense_copy(rows));
  for (const LinearJob& job : jobs) {
    const auto found = f32_.find(job.weight);
    if (found == f32_.end() || job.input != nullptr || job.output != nullptr)
      refuse("matrices that are not f32");
    const float* weight = found->second;
    tape_->steps.emplace_back([this, job, rows, input, weight](Places& places, GradientSink& sink) {
      const Values dy = places.take(job.y);
      Values dx(input->size());
      linear_input_gradient(rows.rows, job.y.cols, rows.cols, dy.data(), weight, dx.data(),
                            tape_->pool);
      places.add(rows, dx);
      sink.matrix(weight, *input, dy, rows.rows);
      if (job.bias == nullptr) return;
      std::vector<double> sums(static_cast<size_t>(job.y.cols));
      for (size_t i = 0; i < dy.size(); ++i)
        sums[i % sums.size()] += static_cast<double>(dy[i]);
      sink.vector(job.bias, sums);
    });
  }
  inner_->linear(with, x);
}

void TapeBackend::rms_norm(Mat x, const float* w, int64_t group, float eps, Mat y) {
  const float* gains = replaced(w);
  if (tape_ != nullptr) {
    tape_->steps.emplace_back(
        [x, y, w, gains, group, eps, input = dense_copy(x)](Places& places, GradientSink& sink) {
          const Values dy = places.take(y);
          Values dx(input.size());
          std::vector<double> dw(static_cast<size_t>(group));
          rms_norm_gradient(input, {gains, static_cast<size_t>(group)}, eps, dy, dx, dw);
          places.add(x, dx);
          sink.vector(w, dw);
        });
  }
  inner_->rms_norm(x, gains, group, eps, y);
}

void TapeBackend::rms_norm(Mat x, const float* w, float eps, Activation& y) {
  const float* gains = replaced(w);
  if (tape_ == nullptr) {
    inner_->rms_norm(x, gains, eps, y);
    return;
  }
  rms_norm(x, w, x.cols, eps, y.rows());
}

void TapeBackend::rope(Mat x, int64_t n_heads, int64_t head_dim, int64_t first_position,
                       const Rope& rope) {
  if (tape_ != nullptr) {
    tape_->steps.emplace_back(
        [x, n_heads, head_dim, first_position, &rope](Places& places, GradientSink&) {
          Values d = places.take(x);
          rope_gradient(d, n_heads, head_dim, first_position, rope);
          places.add(x, d);
        });
  }
  inner_->rope(x, n_heads, head_dim, first_position, rope);
}

void TapeBackend::attention(const AttentionArgs& args, KvCache& cache) {
  if (tape_ != nullptr) {
    if (args.first_position != 0) throw InternalError("a recorded pass begins within a text");
    const AttentionShape shape = attention_shape(args);
    tape_->steps.emplace_back([this, args, shape, q = dense_copy(args.q), k = dense_copy(args.k),
                               v = dense_copy(args.v)](Places& places, GradientSink&) {
      const Values dy = places.take(args.out);
      Values dq(q.size()), dk(k.size()), dv(v.size());
      attention_gradient(shape, q.data(), k.data(), v.data(), dy.data(), dq.data(), dk.data(),
                         dv.data(), tape_->pool);
      places.add(args.q, dq);
      places.add(args.k, dk);
      places.add(args.v, dv);
    });
  }
  inner_->attention(args, cache);
}

void TapeBackend::gated_unit(GatedUnit unit, Mat gate, Mat up, Mat out) {
  if (tape_ != nullptr) {
    tape_->steps.emplace_back([unit, gate, up, out, g = dense_copy(gate), u = dense_copy(up)](
                                  Places& places, GradientSink&) {
      const Values dy = places.take(out);
      Values dg(g.size()), du(u.size());
      gated_unit_gradient(unit, g, u, dy, dg, du);
      places.add(gate, dg);
      places.add(up, du);
    });
  }
  inner_->gated_unit(unit, gate, up, out);
}

void TapeBackend::add(Mat x, Mat y) {
  if (tape_ != nullptr)
    tape_->steps.emplace_back(
        [x, y](Places& places, GradientSink&) { places.add(y, places.read(x)); });
  inner_->add(x, y);
}

void TapeBackend::split_query_gate(Mat p, int64_t head_dim, Mat query, Mat gate) {
  if (tape_ != nullptr) refuse("gated attention");
  inner_->split_query_gate(p, head_dim, query, gate);
}
void TapeBackend::causal_conv(Mat x, const float* w, RecurrentState& state) {
  if (tape_ != nullptr) refuse("recurrent layers");
  inner_->causal_conv(x, w, state);
}
void TapeBackend::delta_rule(const DeltaRuleArgs& args, RecurrentState& state) {
  if (tape_ != nullptr) refuse("recurrent layers");
  inner_->delta_rule(args, state);
}
void TapeBackend::gated_rms_norm(Mat x, const float* w, int64_t group, float eps, Mat gate,
                                 Activation& y) {
  if (tape_ != nullptr) refuse("recurrent layers");
  inner_->gated_rms_norm(x, w, group, eps, gate, y);
}
void TapeBackend::softcap(Mat x, float cap) {
  if (tape_ != nullptr) refuse("capped logits");
  inner_->softcap(x, cap);
}

}  // namespace ts
