#include "support/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <stdexcept>
#include <utility>

#include "base/half.h"
#include "codec/codec.h"
#include "format/gguf.h"

namespace ts::test {
namespace {

/// Normal numbers from the generator's bits alone, so that every C++ library gives the same file.
class Normal {
 public:
  explicit Normal(uint64_t seed) : bits_(seed) {}
  float next() {
    double sum = 0;
    for (int i = 0; i < 12; ++i)
      sum += static_cast<double>(bits_() >> 11) * 0x1p-53;
    return static_cast<float>(sum - 6.0);
  }
  uint64_t bits() { return bits_(); }

 private:
  std::mt19937_64 bits_;
};

std::vector<float> gaussian(Normal& normal, int64_t count, double sigma, double mean = 0) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = static_cast<float>(mean + sigma * static_cast<double>(normal.next()));
  return values;
}

std::vector<float> ternary_values(Normal& normal, int64_t n_in, int64_t n_out, double sigma) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(n_in * n_out));
  for (int64_t row = 0; row < n_out; ++row) {
    float scale = 0;
    for (int64_t i = 0; i < n_in; ++i) {
      if (i % 128 == 0) {
        const double spread = 1.0 + 0.25 * static_cast<double>(normal.bits() % 5);
        scale = half_to_float(float_to_half(static_cast<float>(sigma * spread)));
      }
      // The first weight of a group is never 0: an all-zero group has no scale to recover.
      const int code = i % 128 == 0 ? 1 : static_cast<int>(normal.bits() % 3) - 1;
      values.push_back(scale * static_cast<float>(code));
    }
  }
  return values;
}

}  // namespace

TinyModel tiny_family(const std::string& architecture) {
  TinyModel m;
  m.architecture = architecture;
  if (architecture == "qwen3") m.head_dim = 128;
  if (architecture == "gemma3") {
    m.n_layers = 3;
    m.head_dim = 128;
    m.n_kv_heads = 1;
    m.tied = true;
    m.sliding_window = 5;
  }
  return m;
}

std::vector<TinyTensor> tiny_tensors(const TinyModel& m) {
  Normal normal(m.seed);
  std::vector<TinyTensor> tensors;
  const auto matrix = [&](const std::string& name, int64_t n_in, int64_t n_out, TypeId type,
                          bool ternary) {
    const double sigma = 1.0 / std::sqrt(static_cast<double>(n_in));
    tensors.push_back({name, type, Shape{n_in, n_out},
                       ternary ? ternary_values(normal, n_in, n_out, sigma)
                               : gaussian(normal, n_in * n_out, sigma)});
  };
  const auto weight = [&](const std::string& name, int64_t n_in, int64_t n_out) {
    matrix(name, n_in, n_out, m.matrix_type, m.ternary);
  };
  const auto norm = [&](const std::string& name, int64_t n) {
    tensors.push_back({name, TypeId::kF32, Shape{n}, gaussian(normal, n, 0.2, 1.0)});
  };
  const auto bias = [&](const std::string& name, int64_t n) {
    tensors.push_back({name, TypeId::kF32, Shape{n}, gaussian(normal, n, 0.3)});
  };
  const bool gemma = m.architecture == "gemma3";
  const bool hybrid = m.architecture == "qwen35";
  const bool head_norms = gemma || hybrid || m.architecture == "qwen3";
  const bool qkv_bias = m.architecture == "qwen2" || m.biases;
  // Rows of the embedding have about unit variance per element after gemma's scaling, too.
  const int64_t e = m.d_model;
  const bool ternary_embedding = m.ternary && find_codec(m.embedding_type)->is_ternary();
  matrix("token_embd.weight", e, m.n_vocab, m.embedding_type, ternary_embedding);
  norm("output_norm.weight", e);
  if (!m.tied) weight("output.weight", e, m.n_vocab);
  for (int64_t i = 0; i < m.n_layers; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    const int64_t q = m.n_heads * m.head_dim, kv = m.n_kv_heads * m.head_dim;
    norm(p + "attn_norm.weight", e);
    if (hybrid) norm(p + "post_attention_norm.weight", e);
    if (hybrid && (i + 1) % m.interval != 0) {
      const int64_t channels = (2 * m.n_k_heads + m.n_v_heads) * m.state_size;
      const int64_t values = m.n_v_heads * m.state_size;
      weight(p + "attn_qkv.weight", e, channels);
      weight(p + "attn_gate.weight", e, values);
      matrix(p + "ssm_alpha.weight", e, m.n_v_heads, TypeId::kBF16, false);
      matrix(p + "ssm_beta.weight", e, m.n_v_heads, TypeId::kBF16, false);
      matrix(p + "ssm_conv1d.weight", m.conv_kernel, channels, TypeId::kF32, false);
      bias(p + "ssm_dt.bias", m.n_v_heads);
      // From heads that remember long to heads that forget at once.
      std::vector<float> decay = gaussian(normal, m.n_v_heads, 1.0);
      for (float& a : decay)
        a = -std::exp(2.0F * a - 2.0F);
      tensors.push_back({p + "ssm_a", TypeId::kF32, Shape{m.n_v_heads}, decay});
      norm(p + "ssm_norm.weight", m.state_size);
      weight(p + "ssm_out.weight", values, e);
      weight(p + "ffn_gate.weight", e, m.d_ff);
      weight(p + "ffn_up.weight", e, m.d_ff);
      weight(p + "ffn_down.weight", m.d_ff, e);
      continue;
    }
    weight(p + "attn_q.weight", e, hybrid ? 2 * q : q);
    weight(p + "attn_k.weight", e, kv);
    weight(p + "attn_v.weight", e, kv);
    weight(p + "attn_output.weight", q, e);
    if (qkv_bias) {
      bias(p + "attn_q.bias", q);
      bias(p + "attn_k.bias", kv);
      bias(p + "attn_v.bias", kv);
    }
    if (m.biases) {
      bias(p + "attn_output.bias", e);
      bias(p + "ffn_gate.bias", m.d_ff);
      bias(p + "ffn_up.bias", m.d_ff);
      bias(p + "ffn_down.bias", e);
    }
    if (head_norms) {
      norm(p + "attn_q_norm.weight", m.head_dim);
      norm(p + "attn_k_norm.weight", m.head_dim);
    }
    if (gemma) norm(p + "post_attention_norm.weight", e);
    if (!hybrid) norm(p + "ffn_norm.weight", e);
    weight(p + "ffn_gate.weight", e, m.d_ff);
    weight(p + "ffn_up.weight", e, m.d_ff);
    weight(p + "ffn_down.weight", m.d_ff, e);
    if (gemma) norm(p + "post_ffw_norm.weight", e);
  }
  if (m.edit_tensors) m.edit_tensors(tensors);
  return tensors;
}

Metadata tiny_metadata(const TinyModel& m) {
  Metadata md;
  const auto u32 = [&](const std::string& key, int64_t v) {
    md.set(m.architecture + "." + key, MetadataValue::u32(static_cast<uint32_t>(v)));
  };
  const auto f32 = [&](const std::string& key, float v) {
    md.set(m.architecture + "." + key, MetadataValue::f32(v));
  };
  md.set("general.architecture", MetadataValue::string(m.architecture));
  md.set("general.name", MetadataValue::string("tiny " + m.architecture));
  u32("block_count", m.n_layers);
  u32("context_length", m.context);
  u32("embedding_length", m.d_model);
  u32("feed_forward_length", m.d_ff);
  u32("attention.head_count", m.n_heads);
  u32("attention.head_count_kv", m.n_kv_heads);
  u32("attention.key_length", m.head_dim);
  u32("attention.value_length", m.head_dim);
  f32("attention.layer_norm_rms_epsilon", 1e-5F);
  if (m.architecture == "gemma3") {
    f32("rope.freq_base", 1e6F);
    if (m.sliding_window > 0) {
      u32("attention.sliding_window", m.sliding_window);
      u32("attention.sliding_window_pattern", m.sliding_pattern);
    }
  }
  if (m.architecture == "qwen35") {
    f32("attention.layer_norm_rms_epsilon", 1e-6F);
    f32("rope.freq_base", 1e6F);
    u32("rope.dimension_count", m.n_rot);
    u32("full_attention_interval", m.interval);
    u32("ssm.conv_kernel", m.conv_kernel);
    u32("ssm.state_size", m.state_size);
    u32("ssm.group_count", m.n_k_heads);
    u32("ssm.time_step_rank", m.n_v_heads);
    u32("ssm.inner_size", m.n_v_heads * m.state_size);
  }
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int64_t> types = {2, 3, 3};
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (size_t b = 0; b < 256; ++b) {
    tokens.push_back(std::string("<0x") + kHex[b / 16] + kHex[b % 16] + ">");
    types.push_back(6);
  }
  while (static_cast<int64_t>(tokens.size()) < m.n_vocab) {
    tokens.push_back("t" + std::to_string(tokens.size()));
    types.push_back(1);
  }
  if (static_cast<int64_t>(tokens.size()) != m.n_vocab)
    throw std::invalid_argument("a tiny model needs a vocabulary of at least 259 tokens");
  std::vector<float> scores(tokens.size());
  for (size_t i = 0; i < scores.size(); ++i)
    scores[i] = -static_cast<float>(i);
  md.set("tokenizer.ggml.model", MetadataValue::string("llama"));
  md.set("tokenizer.ggml.tokens", MetadataValue::strings(std::move(tokens)));
  md.set("tokenizer.ggml.scores", MetadataValue::f32_array(std::move(scores)));
  md.set("tokenizer.ggml.token_type", MetadataValue::i32_array(std::move(types)));
  md.set("tokenizer.ggml.bos_token_id", MetadataValue::u32(1));
  md.set("tokenizer.ggml.eos_token_id", MetadataValue::u32(2));
  if (m.edit_metadata) m.edit_metadata(md);
  return md;
}

void write_tiny_model(const TinyModel& model, const std::filesystem::path& path) {
  GgufWriter writer(path, true);
  writer.metadata() = tiny_metadata(model);
  const std::vector<TinyTensor> tensors = tiny_tensors(model);
  for (const TinyTensor& t : tensors)
    writer.add_tensor(t.name, t.type, t.shape);
  writer.begin_data();
  for (const TinyTensor& t : tensors) {
    const Codec& codec = *find_codec(t.type);
    const auto width = static_cast<size_t>(t.shape[0]);
    std::vector<std::byte> row(codec.row_bytes(width));
    for (int64_t r = 0; r < t.shape.n_rows(); ++r) {
      codec.encode(t.values.data() + static_cast<size_t>(r) * width, row.data(), width);
      writer.write(row);
    }
  }
  writer.finish();
}

}  // namespace ts::test
