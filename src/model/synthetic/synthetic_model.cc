#include "model/synthetic/synthetic_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/page_buffer.h"
#include "base/quote_text.h"
#include "base/thread_pool.h"
#include "codec/codec.h"
#include "model/hadamard_contract.h"
#include "model/synthetic/random_bits.h"
#include "model/synthetic/vocabulary.h"

namespace ts {
namespace {

constexpr uint64_t kBytesAtOnce = uint64_t{4} << 20;        // between looks at the interrupt flag
constexpr uint64_t kImageBytesAtOnce = uint64_t{64} << 20;  // of all threads together

/// The type of the matrices, checked against every width they have.
const Codec& matrix_type(const SyntheticShape& shape, const std::string& scheme) {
  const Codec* codec = find_codec(scheme);
  const bool plain = codec != nullptr && codec->block_elems == 1;
  if (codec == nullptr || (codec->pack == nullptr && codec->encode == nullptr) ||
      (plain && codec->id != TypeId::kF32 && codec->id != TypeId::kF16 &&
       codec->id != TypeId::kBF16))
    throw InvalidArgument(fmt::format(
        "{}: weights cannot be made of type {}; expected a type name such as ptq1_0, pq2_0, q2_0, "
        "q8_0 or f16",
        shape.name, quote_text(scheme)));
  for (const int64_t width : {shape.d_model, shape.d_ff, shape.n_heads * shape.head_dim,
                              shape.delta_net.n_value_heads * shape.delta_net.head_dim}) {
    if (width % codec->block_elems == 0) continue;
    throw InvalidArgument(
        fmt::format("{} has rows of {} values, which blocks of {} ({}) do not divide; {} would fit",
                    shape.name, width, codec->block_elems, codec->name,
                    width % 64 == 0 ? "q2_0" : (width % 32 == 0 ? "q8_0" : "f16")));
  }
  return *codec;
}

MetadataValue u32(int64_t value) {
  return MetadataValue::u32(static_cast<uint32_t>(value));
}

}  // namespace

SyntheticModel::SyntheticModel(const SyntheticShape& shape, const SyntheticOptions& options)
    : name_(shape.name), seed_(options.seed), n_layers_(options.n_layers.value_or(shape.n_layers)) {
  if (n_layers_ < 1 || n_layers_ > shape.n_layers)
    throw InvalidArgument(fmt::format("{} has {} layers, not {}; expected a number from 1 to {}",
                                      shape.name, shape.n_layers, n_layers_, shape.n_layers));
  const Codec& codec =
      matrix_type(shape, options.scheme.empty() ? std::string(shape.scheme) : options.scheme);
  scheme_ = codec.name;
  if (n_layers_ < shape.n_layers)
    name_ += fmt::format(" ({} of {} layers)", n_layers_, shape.n_layers);
  metadata_ = Metadata(name_);
  add_tensors(shape, codec);
  add_metadata(shape, codec);
  // A ternary model of this family is stored in a rotated basis; other types have no reason to be.
  if (codec.is_ternary()) add_rotation(shape);
  add_synthetic_tokenizer(shape.vocabulary, metadata_);
}

void SyntheticModel::add(std::string name, TypeId type, const Shape& shape,
                         SyntheticContent content) {
  tensors_.push_back({checked_gguf_tensor(name_, std::move(name), type, shape), content});
  tensor_bytes_ += tensors_.back().info.bytes;
  n_parameters_ += shape.n_elems();
}

void SyntheticModel::add_tensors(const SyntheticShape& s, const Codec& codec) {
  const int64_t n_vocab = s.vocabulary.n_tokens, attention_width = s.n_heads * s.head_dim;
  const int64_t kv_width = s.n_kv_heads * s.head_dim;
  const auto matrix = [&](std::string name, int64_t n_in, int64_t n_out) {
    add(std::move(name) + ".weight", codec.id, {n_in, n_out}, SyntheticContent::kMatrix);
  };
  const auto norm = [&](std::string name, int64_t size) {
    add(std::move(name) + ".weight", TypeId::kF32, {size}, SyntheticContent::kNorm);
  };
  if (!s.tied_output) matrix("output", s.d_model, n_vocab);
  norm("output_norm", s.d_model);
  matrix("token_embd", s.d_model, n_vocab);
  for (int64_t i = 0; i < n_layers_; ++i) {
    const std::string p = fmt::format("blk.{}.", i);
    norm(p + "attn_norm", s.d_model);
    if (s.has_attention(i)) {
      // The hybrid family computes a gate for each query element together with the queries.
      matrix(p + "attn_q", s.d_model, attention_width * (s.is_hybrid() ? 2 : 1));
      matrix(p + "attn_k", s.d_model, kv_width);
      matrix(p + "attn_v", s.d_model, kv_width);
      matrix(p + "attn_output", attention_width, s.d_model);
      if (s.architecture != "llama") {
        norm(p + "attn_q_norm", s.head_dim);
        norm(p + "attn_k_norm", s.head_dim);
      }
    } else {
      const SyntheticDeltaNet& d = s.delta_net;
      const int64_t value_width = d.n_value_heads * d.head_dim;
      const int64_t n_channels = 2 * d.n_key_heads * d.head_dim + value_width;
      matrix(p + "attn_qkv", s.d_model, n_channels);
      matrix(p + "attn_gate", s.d_model, value_width);
      add(p + "ssm_conv1d.weight", TypeId::kF32, {d.conv_kernel, n_channels},
          SyntheticContent::kConvolution);
      for (const char* gate : {"ssm_alpha.weight", "ssm_beta.weight"})
        add(p + gate, TypeId::kBF16, {s.d_model, d.n_value_heads}, SyntheticContent::kMatrix);
      add(p + "ssm_dt.bias", TypeId::kF32, {d.n_value_heads}, SyntheticContent::kTimeStepBias);
      add(p + "ssm_a", TypeId::kF32, {d.n_value_heads}, SyntheticContent::kDecayRate);
      norm(p + "ssm_norm", d.head_dim);
      matrix(p + "ssm_out", value_width, s.d_model);
    }
    norm(p + (s.is_hybrid() ? "post_attention_norm" : "ffn_norm"), s.d_model);
    matrix(p + "ffn_gate", s.d_model, s.d_ff);
    matrix(p + "ffn_up", s.d_model, s.d_ff);
    matrix(p + "ffn_down", s.d_ff, s.d_model);
  }
}

void SyntheticModel::add_metadata(const SyntheticShape& s, const Codec& codec) {
  metadata_.set("general.architecture", MetadataValue::string(std::string(s.architecture)));
  metadata_.set("general.type", MetadataValue::string("model"));
  metadata_.set("general.name", MetadataValue::string("synthetic " + name_));
  metadata_.set("general.description",
                MetadataValue::string(fmt::format("random weights, seed {}", seed_)));
  metadata_.set("general.quantization_version", MetadataValue::u32(2));
  if (codec.file_type >= 0) metadata_.set("general.file_type", u32(codec.file_type));
  metadata_.set("general.sampling.temp", MetadataValue::f32(1.0F));
  metadata_.set("general.sampling.top_k", MetadataValue::i32(20));
  metadata_.set("general.sampling.top_p", MetadataValue::f32(0.95F));

  const auto set = [&](std::string_view suffix, MetadataValue value) {
    metadata_.set(fmt::format("{}.{}", s.architecture, suffix), std::move(value));
  };
  set("block_count", u32(n_layers_));
  set("context_length", u32(s.context));
  set("embedding_length", u32(s.d_model));
  set("feed_forward_length", u32(s.d_ff));
  set("attention.head_count", u32(s.n_heads));
  set("attention.head_count_kv", u32(s.n_kv_heads));
  set("attention.key_length", u32(s.head_dim));
  set("attention.value_length", u32(s.head_dim));
  set("attention.layer_norm_rms_epsilon", MetadataValue::f32(s.norm_eps));
  set("rope.freq_base", MetadataValue::f32(s.rope_base));
  set("rope.dimension_count", u32(s.n_rot));
  if (s.rope_sections[0] != 0)
    set("rope.dimension_sections",
        MetadataValue::i32_array({s.rope_sections.begin(), s.rope_sections.end()}));
  if (!s.is_hybrid()) return;
  const SyntheticDeltaNet& d = s.delta_net;
  set("full_attention_interval", u32(d.attention_interval));
  set("ssm.conv_kernel", u32(d.conv_kernel));
  set("ssm.state_size", u32(d.head_dim));
  set("ssm.group_count", u32(d.n_key_heads));
  set("ssm.time_step_rank", u32(d.n_value_heads));
  set("ssm.inner_size", u32(d.n_value_heads * d.head_dim));
}

void SyntheticModel::add_rotation(const SyntheticShape& shape) {
  RotationDeclaration rotation;
  rotation.block = shape.hadamard_block;
  for (const SyntheticTensor& tensor : tensors_) {
    if (tensor.content != SyntheticContent::kMatrix || tensor.info.type == TypeId::kBF16) continue;
    if (tensor.info.name != "token_embd.weight") rotation.inputs.push_back(tensor.info.name);
    rotation.signs[tensor.info.shape[0]];
  }
  RandomBits bits(seed_of(seed_, "signs"));
  for (auto& [width, signs] : rotation.signs) {
    for (int64_t i = 0; i < width; ++i)
      signs.push_back(bits.next() & 1 ? 1 : -1);
  }
  rotation.embedding = true;
  rotation.grouped = shape.is_hybrid();
  rotation.tied = shape.tied_output;
  declare_rotation(rotation, metadata_);
}

uint64_t SyntheticModel::write(const std::filesystem::path& path, bool overwrite,
                               const Progress& progress) const {
  GgufWriter writer(path, overwrite);
  for (const auto& [key, value] : metadata_.entries())
    writer.metadata().set(key, value);
  for (const SyntheticTensor& t : tensors_)
    writer.add_tensor(t.info.name, t.info.type, t.info.shape);
  writer.begin_data();  // a full disk shows here, before any work
  const SyntheticWeights weights(tensors_, seed_, progress);
  std::vector<std::byte> buffer;
  uint64_t done = 0;
  for (const SyntheticTensor& t : tensors_) {
    const int64_t n_rows = t.info.shape.n_rows();
    const uint64_t row_bytes = t.info.bytes / static_cast<uint64_t>(n_rows);
    const int64_t step = static_cast<int64_t>(std::max<uint64_t>(1, kBytesAtOnce / row_bytes));
    for (int64_t row = 0; row < n_rows; row += step) {
      progress("writing", done, tensor_bytes_);
      const int64_t n = std::min(step, n_rows - row);
      buffer.resize(static_cast<uint64_t>(n) * row_bytes);
      weights.fill(t, row, n, buffer);
      writer.write(buffer);
      done += buffer.size();
    }
  }
  progress("syncing to disk", done, tensor_bytes_);
  return writer.finish();
}

SyntheticImage::SyntheticImage(const SyntheticModel& model, bool huge_pages) {
  std::vector<GgufOutputTensor> infos;
  for (const SyntheticTensor& t : model.tensors())
    infos.push_back(t.info);
  layout_ = lay_out_gguf(model.name(), model.metadata(), infos);
  bytes_ = MappedFile::in_memory(model.name(), layout_.file_bytes(), huge_pages);
  std::memcpy(bytes_->writable_bytes().data(), layout_.header.data(), layout_.header.size());
  file_ = GgufFile::open(bytes_);
}

void SyntheticImage::fill(const SyntheticModel& model, int n_threads, const Progress& progress) {
  const SyntheticWeights weights(model.tensors(), model.seed(), progress);
  ThreadPool threads(n_threads);
  const std::span<std::byte> data = bytes_->writable_bytes().subspan(layout_.header.size());
  uint64_t done = 0;
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const SyntheticTensor& t = model.tensors()[i];
    const auto tensor_data = data.subspan(layout_.offsets[i], t.info.bytes);
    const int64_t n_rows = t.info.shape.n_rows();
    const uint64_t row_bytes = t.info.bytes / static_cast<uint64_t>(n_rows);
    const int64_t step = static_cast<int64_t>(std::max<uint64_t>(1, kImageBytesAtOnce / row_bytes));
    for (int64_t row = 0; row < n_rows; row += step) {
      progress("making weights", done, model.tensor_bytes());
      const int64_t n = std::min(step, n_rows - row);
      threads.parallel_for(n, 16, [&](int64_t begin, int64_t end) {
        const auto rows = tensor_data.subspan(static_cast<uint64_t>(row + begin) * row_bytes,
                                              static_cast<uint64_t>(end - begin) * row_bytes);
        prepare_to_write(rows);
        weights.fill(t, row + begin, end - begin, rows);
      });
      done += static_cast<uint64_t>(n) * row_bytes;
    }
  }
}

}  // namespace ts
