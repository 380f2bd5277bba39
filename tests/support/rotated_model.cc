#include "support/rotated_model.h"

#include <cstddef>
#include <random>
#include <utility>

#include "codec/codec.h"
#include "hadamard/transform.h"

namespace ts::test {
namespace {

/// A matrix that may be stored rotated.
bool is_matrix(const TinyTensor& t) {
  return t.shape.n_dims == 2 && t.name.find("ssm_alpha") == std::string::npos &&
         t.name.find("ssm_beta") == std::string::npos &&
         t.name.find("ssm_conv1d") == std::string::npos;
}

bool is_listed(const TinyTensor& t, const RotationChoice& choice) {
  if (!is_matrix(t) || t.name == "token_embd.weight") return false;
  return t.name != "output.weight" || choice.head;
}

/// What a reader of the file gets.
std::vector<double> stored_values(const TinyTensor& t) {
  const Codec& codec = *find_codec(t.type);
  const auto width = static_cast<size_t>(t.shape[0]);
  std::vector<std::byte> packed(codec.row_bytes(width));
  std::vector<float> row(width);
  std::vector<double> values;
  for (size_t r = 0; r < static_cast<size_t>(t.shape.n_rows()); ++r) {
    codec.encode(t.values.data() + r * width, packed.data(), width);
    codec.decode(packed.data(), row.data(), width);
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

/// Rows w' -> w = s . (H w'), or with the mistake H (s . w').
void unrotate(std::vector<double>& values, int64_t width, int64_t block,
              const std::vector<int8_t>& signs, bool signs_last) {
  const auto flip = [&] {
    for (size_t i = 0; i < values.size() && !signs.empty(); ++i)
      values[i] *= signs[i % static_cast<size_t>(width)];
  };
  if (signs_last) flip();
  transform_blocks(values.data(), values.size(), static_cast<size_t>(block));
  if (!signs_last) flip();
}

/// Columns from grouped to tiled value heads: grouped head k * repeats + r is tiled r * n_k + k.
void tile_heads(std::vector<double>& values, const TinyModel& m) {
  const auto n_k = static_cast<size_t>(m.n_k_heads), n_v = static_cast<size_t>(m.n_v_heads);
  const auto dim = static_cast<size_t>(m.state_size);
  const std::vector<double> grouped = values;
  for (size_t row = 0; row < values.size(); row += n_v * dim) {
    for (size_t head = 0; head < n_v; ++head) {
      const size_t from = head % n_k * (n_v / n_k) + head / n_k;
      for (size_t d = 0; d < dim; ++d)
        values[row + head * dim + d] = grouped[row + from * dim + d];
    }
  }
}

}  // namespace

std::map<int64_t, std::vector<int8_t>> rotation_signs(const TinyModel& model,
                                                      const RotationChoice& choice) {
  std::map<int64_t, std::vector<int8_t>> signs;
  if (!choice.explicit_signs) return signs;
  for (const TinyTensor& t : tiny_tensors(model)) {
    const int64_t width = t.shape[0];
    if (!is_matrix(t) || signs.contains(width)) continue;
    std::mt19937_64 bits(choice.seed + static_cast<uint64_t>(width));
    for (int64_t i = 0; i < width; ++i)
      signs[width].push_back(bits() % 2 == 0 ? 1 : -1);
  }
  return signs;
}

TinyModel stored_rotated(TinyModel model, const RotationChoice& choice) {
  std::vector<std::string> names;
  for (const TinyTensor& t : tiny_tensors(model)) {
    if (is_listed(t, choice)) names.push_back(t.name);
  }
  const auto signs = rotation_signs(model, choice);
  const auto before = model.edit_metadata;
  const bool tied = model.tied && choice.embedding;
  const bool grouped = choice.grouped && model.architecture == "qwen35";
  model.edit_metadata = [=](Metadata& md) {
    if (before) before(md);
    const std::string p = "prism.hadamard.";
    md.set(p + "version", MetadataValue::u32(tied ? 2 : 1));
    md.set(p + "block_size", MetadataValue::u32(static_cast<uint32_t>(choice.block)));
    md.set(p + "transform", MetadataValue::string("normalized-sylvester-walsh-hadamard"));
    md.set(p + "axis", MetadataValue::string("input-last-dimension"));
    md.set(p + "sign_mode", MetadataValue::string(signs.empty() ? "identity" : "explicit"));
    if (!signs.empty()) {
      std::vector<int64_t> widths, values;
      for (const auto& [width, of_width] : signs) {
        widths.push_back(width);
        values.insert(values.end(), of_width.begin(), of_width.end());
      }
      md.set(p + "sign_widths", MetadataValue::i32_array(widths));
      md.set(p + "sign_values", MetadataValue::i32_array(values));
    }
    md.set(p + "weight_names", MetadataValue::strings(names));
    if (choice.embedding)
      md.set(p + "inverse_weight_names", MetadataValue::strings({"token_embd.weight"}));
    if (tied) md.set(p + "tied_output", MetadataValue::boolean(true));
    if (grouped) md.set(p + "gdn_v_grouped", MetadataValue::boolean(true));
  };
  return model;
}

TinyModel unrotated_twin(TinyModel model, const RotationChoice& choice, Mistake mistake) {
  const auto signs = rotation_signs(model, choice);
  const auto before = model.edit_tensors;
  const TinyModel shape = model;
  model.edit_tensors = [=](std::vector<TinyTensor>& tensors) {
    if (before) before(tensors);
    std::vector<TinyTensor> separate_head;
    for (TinyTensor& t : tensors) {
      if (!is_matrix(t)) continue;
      const bool embedding = t.name == "token_embd.weight";
      const std::vector<double> stored = stored_values(t);
      std::vector<double> values = stored;
      const auto found = signs.find(t.shape[0]);
      const std::vector<int8_t> of_width =
          found == signs.end() ? std::vector<int8_t>{} : found->second;
      std::vector<double> right = stored;
      unrotate(right, t.shape[0], choice.block, of_width, false);
      bool rotated = embedding ? choice.embedding : is_listed(t, choice);
      if (mistake == Mistake::kNothingRotated) rotated = false;
      if (mistake == Mistake::kNoInverseOfEmbedding && embedding) rotated = false;
      if (mistake == Mistake::kHeadNotRotated && t.name == "output.weight") rotated = false;
      if (rotated)
        unrotate(values, t.shape[0], choice.block, of_width, mistake == Mistake::kSignsLast);
      if (t.name.find(".ssm_out.") != std::string::npos && choice.grouped && rotated &&
          mistake != Mistake::kHeadsTiled)
        tile_heads(values, shape);
      // Where look-up and head share the rows, a mistake in one of them alone shows as two tables.
      if (embedding && shape.tied) {
        if (mistake == Mistake::kNoInverseOfEmbedding)
          separate_head.push_back(
              {"output.weight", TypeId::kF32, t.shape, {right.begin(), right.end()}});
        if (mistake == Mistake::kHeadNotRotated)
          separate_head.push_back(
              {"output.weight", TypeId::kF32, t.shape, {stored.begin(), stored.end()}});
      }
      t.type = TypeId::kF32;
      t.values.assign(values.begin(), values.end());
    }
    for (TinyTensor& t : separate_head)
      tensors.push_back(std::move(t));
  };
  return model;
}

}  // namespace ts::test
