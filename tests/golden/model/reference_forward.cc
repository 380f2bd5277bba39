#include "reference_forward.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <string>

#include "codec/codec.h"
#include "format/gguf.h"

namespace ts::test {
namespace {

using Vec = std::vector<double>;

class Reference {
 public:
  explicit Reference(const std::filesystem::path& path) : file_(GgufFile::open(path)) {
    arch_ = *file_->metadata().get_string("general.architecture");
    for (const TensorEntry& t : file_->tensors()) {
      std::vector<float> values(static_cast<size_t>(t.shape.n_elems()));
      find_codec(t.type)->decode(t.data.data(), values.data(), values.size());
      tensors_[t.name] = Vec(values.begin(), values.end());
      rows_[t.name] = t.shape.n_rows();
    }
    n_layers_ = integer("block_count", 0);
    d_ = integer("embedding_length", 0);
    heads_ = integer("attention.head_count", 0);
    kv_heads_ = integer("attention.head_count_kv", heads_);
    head_ = integer("attention.key_length", d_ / heads_);
    rot_ = integer("rope.dimension_count", head_);
    eps_ = number("attention.layer_norm_rms_epsilon", 0);
  }

  std::vector<Vec> run(std::span<const int32_t> ids) {
    std::vector<Vec> x;
    for (const int32_t id : ids) {
      Vec row(d_);
      for (int64_t i = 0; i < d_; ++i)
        row[i] = tensors_.at("token_embd.weight")[id * d_ + i] * (gemma() ? std::sqrt(d_) : 1.0);
      x.push_back(row);
    }
    for (int64_t layer = 0; layer < n_layers_; ++layer)
      run_layer(layer, x);
    std::vector<Vec> logits;
    for (const Vec& row : x) {
      const bool tied = tensors_.count("output.weight") == 0;
      Vec out = times(tied ? "token_embd" : "output", norm(row, "output_norm.weight"));
      const double cap = number("final_logit_softcapping", 0);
      for (double& v : out) {
        if (cap != 0) v = cap * std::tanh(v / cap);
      }
      logits.push_back(out);
    }
    return logits;
  }

 private:
  bool gemma() const { return arch_ == "gemma3"; }
  int64_t integer(const std::string& key, int64_t fallback) const {
    return file_->metadata().get_int(arch_ + "." + key, 0, INT32_MAX).value_or(fallback);
  }
  double number(const std::string& key, double fallback) const {
    return file_->metadata().get_float(arch_ + "." + key).value_or(fallback);
  }

  Vec times(const std::string& name, const Vec& x) const {
    const Vec& w = tensors_.at(name + ".weight");
    Vec y(static_cast<size_t>(rows_.at(name + ".weight")));
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i)
        y[o] += w[o * x.size() + i] * x[i];
    }
    if (const auto b = tensors_.find(name + ".bias"); b != tensors_.end()) {
      for (size_t o = 0; o < y.size(); ++o)
        y[o] += b->second[o];
    }
    return y;
  }

  Vec norm(const Vec& x, const std::string& name) const {
    const Vec& w = tensors_.at(name);
    Vec y = x;
    for (size_t begin = 0; begin < x.size(); begin += w.size()) {
      double sum = 0;
      for (size_t i = 0; i < w.size(); ++i)
        sum += x[begin + i] * x[begin + i];
      const double scale = 1.0 / std::sqrt(sum / static_cast<double>(w.size()) + eps_);
      for (size_t i = 0; i < w.size(); ++i)
        y[begin + i] = x[begin + i] * scale * w[i];
    }
    return y;
  }

  bool local(int64_t layer) const {
    if (integer("attention.sliding_window", 0) == 0) return false;
    const int64_t period = integer("attention.sliding_window_pattern", 6);
    return layer % period < period - 1;
  }

  /// Angle of pair j at a position, and the factor of cos and sin.
  std::pair<double, double> angle(int64_t layer, int64_t position, int64_t j) const {
    double base = number("rope.freq_base", 10000.0);
    if (gemma() && local(layer)) base = number("rope.freq_base_swa", 10000.0);
    double theta = static_cast<double>(position) *
                   std::pow(base, -2.0 * static_cast<double>(j) / static_cast<double>(rot_));
    if (const auto f = tensors_.find("rope_freqs.weight"); f != tensors_.end())
      theta /= f->second[static_cast<size_t>(j)];
    const std::string type =
        file_->metadata().get_string(arch_ + ".rope.scaling.type").value_or("none");
    const double factor = number("rope.scaling.factor", 1.0);
    if (gemma() && local(layer)) return {theta, 1.0};
    if (type == "linear") return {theta / factor, 1.0};
    if (type != "yarn") return {theta, 1.0};
    const double original = number("rope.scaling.original_context_length", 0);
    const auto turning = [&](double turns) {
      return static_cast<double>(rot_) * std::log(original / (2 * std::numbers::pi * turns)) /
             (2 * std::log(base));
    };
    const double low = std::max(0.0, std::floor(turning(32)));
    const double high = std::min(static_cast<double>(rot_ - 1), std::ceil(turning(1)));
    const double ramp =
        std::min(1.0, std::max(0.0, (static_cast<double>(j) - low) / std::max(0.001, high - low)));
    return {theta / factor * ramp + theta * (1 - ramp), 1.0 + 0.1 * std::log(factor)};
  }

  void turn(int64_t layer, int64_t position, Vec& x) const {
    for (size_t head = 0; head < x.size(); head += static_cast<size_t>(head_)) {
      for (int64_t j = 0; j < rot_ / 2; ++j) {
        const auto [theta, factor] = angle(layer, position, j);
        const size_t a = head + static_cast<size_t>(arch_ == "llama" ? 2 * j : j);
        const size_t b = head + static_cast<size_t>(arch_ == "llama" ? 2 * j + 1 : j + rot_ / 2);
        const double xa = x[a], xb = x[b];
        x[a] = factor * (xa * std::cos(theta) - xb * std::sin(theta));
        x[b] = factor * (xa * std::sin(theta) + xb * std::cos(theta));
      }
    }
  }

  bool hybrid() const { return arch_ == "qwen35"; }

  static double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

  /// One gated delta net over all rows h (normalised); its output before the residual.
  std::vector<Vec> delta_net(const std::string& p, const std::vector<Vec>& h) const {
    const auto dim = static_cast<size_t>(integer("ssm.state_size", 0));
    const auto n_k = static_cast<size_t>(integer("ssm.group_count", 0));
    const auto n_v = static_cast<size_t>(integer("ssm.time_step_rank", 0));
    const auto taps = static_cast<size_t>(integer("ssm.conv_kernel", 0));
    const Vec& conv = tensors_.at(p + "ssm_conv1d.weight");
    std::vector<Vec> u, out;
    std::vector<Vec> states(n_v, Vec(dim * dim));  // [value][key]
    for (size_t t = 0; t < h.size(); ++t) {
      u.push_back(times(p + "attn_qkv", h[t]));
      const Vec z = times(p + "attn_gate", h[t]);
      const Vec a = times(p + "ssm_alpha", h[t]), b = times(p + "ssm_beta", h[t]);
      Vec c(u[t].size());
      for (size_t channel = 0; channel < c.size(); ++channel) {
        for (size_t back = 0; back < taps && back <= t; ++back)
          c[channel] += conv[channel * taps + taps - 1 - back] * u[t - back][channel];
        c[channel] *= sigmoid(c[channel]);
      }
      const auto unit = [&](size_t begin) {
        Vec part(c.begin() + static_cast<std::ptrdiff_t>(begin),
                 c.begin() + static_cast<std::ptrdiff_t>(begin + dim));
        double squares = 0;
        for (const double v : part)
          squares += v * v;
        for (double& v : part)
          v /= std::max(std::sqrt(squares), eps_);
        return part;
      };
      Vec y(n_v * dim);
      for (size_t head = 0; head < n_v; ++head) {
        const Vec q = unit(head % n_k * dim), k = unit((n_k + head % n_k) * dim);
        const double drive = a[head] + tensors_.at(p + "ssm_dt.bias")[head];
        const double decay = std::exp(tensors_.at(p + "ssm_a")[head] * std::log1p(std::exp(drive)));
        Vec& s = states[head];
        Vec o(dim);
        for (size_t j = 0; j < dim; ++j) {
          double read = 0;
          for (size_t i = 0; i < dim; ++i)
            read += (s[j * dim + i] *= decay) * k[i];
          const double d = sigmoid(b[head]) * (c[(2 * n_k + head) * dim + j] - read);
          for (size_t i = 0; i < dim; ++i)
            o[j] += (s[j * dim + i] += d * k[i]) * q[i] / std::sqrt(static_cast<double>(dim));
        }
        o = norm(o, p + "ssm_norm.weight");
        for (size_t j = 0; j < dim; ++j)
          y[head * dim + j] = o[j] * z[head * dim + j] * sigmoid(z[head * dim + j]);
      }
      out.push_back(times(p + "ssm_out", y));
    }
    return out;
  }

  void run_layer(int64_t layer, std::vector<Vec>& x) const {
    const std::string p = "blk." + std::to_string(layer) + ".";
    if (tensors_.count(p + "ssm_a") != 0) {
      std::vector<Vec> h;
      for (const Vec& row : x)
        h.push_back(norm(row, p + "attn_norm.weight"));
      const std::vector<Vec> mixed = delta_net(p, h);
      for (size_t t = 0; t < x.size(); ++t) {
        add(x[t], mixed[t], "");
        feed_forward(p, x[t]);
      }
      return;
    }
    std::vector<Vec> qs, ks, vs, gates;
    for (size_t t = 0; t < x.size(); ++t) {
      const Vec a = norm(x[t], p + "attn_norm.weight");
      Vec q = times(p + "attn_q", a), k = times(p + "attn_k", a);
      if (hybrid()) {  // per head: query, then gate
        Vec query, gate;
        for (size_t i = 0; i < q.size(); ++i)
          (i / static_cast<size_t>(head_) % 2 == 0 ? query : gate).push_back(q[i]);
        q = query;
        gates.push_back(gate);
      }
      if (tensors_.count(p + "attn_q_norm.weight") != 0) {
        q = norm(q, p + "attn_q_norm.weight");
        k = norm(k, p + "attn_k_norm.weight");
      }
      turn(layer, static_cast<int64_t>(t), q);
      turn(layer, static_cast<int64_t>(t), k);
      qs.push_back(q);
      ks.push_back(k);
      vs.push_back(times(p + "attn_v", a));
    }
    for (size_t t = 0; t < x.size(); ++t) {
      Vec attended(static_cast<size_t>(heads_ * head_));
      for (int64_t h = 0; h < heads_; ++h)
        attend(layer, t, h, qs[t], ks, vs, attended);
      for (size_t i = 0; hybrid() && i < attended.size(); ++i)
        attended[i] *= sigmoid(gates[t][i]);
      add(x[t], times(p + "attn_output", attended),
          hybrid() ? "" : p + "post_attention_norm.weight");
      feed_forward(p, x[t]);
    }
  }

  void feed_forward(const std::string& p, Vec& x) const {
    const Vec f = norm(x, p + (hybrid() ? "post_attention_norm.weight" : "ffn_norm.weight"));
    Vec gate = times(p + "ffn_gate", f);
    const Vec up = times(p + "ffn_up", f);
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i];
      const double unit =
          gemma()
              ? 0.5 * g *
                    (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g)))
              : g * sigmoid(g);
      gate[i] = unit * up[i];
    }
    add(x, times(p + "ffn_down", gate), p + "post_ffw_norm.weight");
  }

  void attend(int64_t layer, size_t t, int64_t h, const Vec& q, const std::vector<Vec>& ks,
              const std::vector<Vec>& vs, Vec& attended) const {
    const int64_t kv = h / (heads_ / kv_heads_);
    const auto window = static_cast<size_t>(integer("attention.sliding_window", 0));
    Vec scores(t + 1);
    double largest = -1e300, total = 0;
    size_t first = 0;
    if (local(layer) && t + 1 > window) first = t + 1 - window;
    for (size_t s = first; s <= t; ++s) {
      for (int64_t i = 0; i < head_; ++i)
        scores[s] += q[h * head_ + i] * ks[s][kv * head_ + i];
      scores[s] /= std::sqrt(static_cast<double>(head_));
      largest = std::max(largest, scores[s]);
    }
    for (size_t s = first; s <= t; ++s)
      total += scores[s] = std::exp(scores[s] - largest);
    for (size_t s = first; s <= t; ++s) {
      for (int64_t i = 0; i < head_; ++i)
        attended[h * head_ + i] += scores[s] / total * vs[s][kv * head_ + i];
    }
  }

  /// x += y, y first normed where the family has such a norm.
  void add(Vec& x, Vec y, const std::string& post_norm) const {
    if (tensors_.count(post_norm) != 0) y = norm(y, post_norm);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] += y[i];
  }

  std::shared_ptr<const GgufFile> file_;
  std::string arch_;
  std::map<std::string, Vec> tensors_;
  std::map<std::string, int64_t> rows_;
  int64_t n_layers_ = 0, d_ = 0, heads_ = 0, kv_heads_ = 0, head_ = 0, rot_ = 0;
  double eps_ = 0;
};

}  // namespace

std::vector<double> reference_logits(const std::filesystem::path& path,
                                     std::span<const int32_t> ids) {
  std::vector<double> all;
  for (const std::vector<double>& row : Reference(path).run(ids))
    all.insert(all.end(), row.begin(), row.end());
  return all;
}

}  // namespace ts::test
