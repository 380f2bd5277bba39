#include "convert/hf_weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tensorsharp/error.hpp>

#include "base/half.h"
#include "base/quote_text.h"

namespace ts {
namespace {

constexpr int64_t kDigitsPerByte = 4;

std::string describe(const SafetensorsEntry& entry) {
  return fmt::format("{}: {} ({} [{}])", entry.file.string(), quote_text(entry.name), entry.dtype,
                     fmt::join(entry.shape, ", "));
}

/// All values of a scale tensor, checked to be finite and above zero.
std::vector<float> read_scales(const SafetensorsEntry& entry) {
  std::vector<float> values(static_cast<size_t>(entry.n_elems()));
  Safetensors::read_f32(entry, 0, values);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(std::isfinite(values[i]) && values[i] >= 0))
      throw FormatError(
          fmt::format("{}: scale {} is {}, expected a finite number of at least 0\n"
                      "the checkpoint is damaged",
                      describe(entry), i, values[i]));
  }
  return values;
}

const SafetensorsEntry* find_scale(const Safetensors& file, const std::string& weight) {
  for (const char* suffix : {"_scale_inv", "_scale"}) {
    if (const auto* entry = file.find(weight + suffix)) return entry;
  }
  return nullptr;
}

bool is_fp8(const SafetensorsEntry& entry) {
  return entry.dtype == "F8_E4M3" || entry.dtype == "F8_E5M2";
}

bool is_float(const SafetensorsEntry& entry) {
  return entry.dtype == "F32" || entry.dtype == "F16" || entry.dtype == "BF16" ||
         entry.dtype == "F64";
}

/// Factors that digits are multiplied with.
std::vector<float> read_factors(const SafetensorsEntry& scale, bool divides) {
  auto factors = read_scales(scale);
  if (!divides) return factors;
  for (float& factor : factors) {
    if (factor == 0)
      throw FormatError(describe(scale) + ": a scale that weights are divided by is 0");
    factor = 1.0F / factor;
  }
  return factors;
}

[[noreturn]] void throw_scale_shape(const SafetensorsEntry& scale, int64_t n_rows, int64_t n_cols,
                                    const std::string& expected) {
  throw FormatError(fmt::format("{}: the scales do not fit a weight of {} rows and {} columns\n{}",
                                describe(scale), n_rows, n_cols, expected));
}

/// Despite the name weight_scale_inv the scale multiplies.
RowSourcePtr scaled_fp8(RowSourcePtr rows, const SafetensorsEntry& scale,
                        const HfQuantization& quantization) {
  const int64_t n_rows = rows->n_rows(), n_cols = rows->n_cols(), n = scale.n_elems();
  auto values = read_scales(scale);
  if (quantization.block_rows > 0) {
    const int64_t down = (n_rows + quantization.block_rows - 1) / quantization.block_rows;
    const int64_t across = (n_cols + quantization.block_cols - 1) / quantization.block_cols;
    if (scale.shape != std::vector<int64_t>{down, across})
      throw_scale_shape(scale, n_rows, n_cols,
                        fmt::format("expected [{}, {}] for blocks of {} x {}", down, across,
                                    quantization.block_rows, quantization.block_cols));
    return block_scaled_rows(std::move(rows), std::move(values), quantization.block_rows,
                             quantization.block_cols);
  }
  if (n == 1) return block_scaled_rows(std::move(rows), std::move(values), n_rows, n_cols);
  if (n == n_rows && !scale.shape.empty() && scale.shape[0] == n_rows)
    return block_scaled_rows(std::move(rows), std::move(values), 1, n_cols);
  throw_scale_shape(scale, n_rows, n_cols, "expected one scale, or one per row");
}

/// BitNet's packing: byte i of a column holds the digits of rows i, R + i, 2R + i and 3R + i of
/// that column (R stored rows), two bits each from the lowest, as digit + 1.
class BitnetRows final : public RowSource {
 public:
  BitnetRows(const SafetensorsEntry& entry, std::vector<float> factors)
      : RowSource(entry.shape[0] * kDigitsPerByte, entry.shape[1]),
        entry_(entry),
        factors_(std::move(factors)) {}
  void read_row(int64_t row, std::span<float> out) const override {
    const int64_t stored_rows = n_rows() / kDigitsPerByte;
    const auto shift = static_cast<unsigned>(2 * (row / stored_rows));
    const std::byte* bytes =
        entry_.data.data() + static_cast<size_t>(row % stored_rows) * out.size();
    const float factor = factors_[factors_.size() == 1 ? 0 : static_cast<size_t>(row)];
    for (size_t c = 0; c < out.size(); ++c) {
      const int code = (std::to_integer<int>(bytes[c]) >> shift) & 3;
      if (code == 3)
        throw FormatError(
            fmt::format("{}: row {}, column {} holds the digit 2, expected -1, 0 or 1",
                        describe(entry_), row, c));
      out[c] = static_cast<float>(code - 1) * factor;
    }
  }
  void release() const noexcept override { drop_pages(entry_.data); }

 private:
  const SafetensorsEntry& entry_;
  std::vector<float> factors_;
};

/// Float weights that the model itself rounds to digits: round(w / mean|w|) * mean|w|, digits
/// limited to -1..1, the product in the precision of the checkpoint.
class OnlineDigitRows final : public RowSource {
 public:
  OnlineDigitRows(RowSourcePtr inner, bool bf16)
      : RowSource(inner->n_rows(), inner->n_cols()), inner_(std::move(inner)) {
    std::vector<float> row(static_cast<size_t>(n_cols()));
    double sum = 0;
    for (int64_t r = 0; r < n_rows(); ++r) {
      inner_->read_row(r, row);
      for (const float value : row)
        sum += std::abs(static_cast<double>(value));
    }
    const double mean = sum / static_cast<double>(n_rows() * n_cols());
    mean_ = std::max(static_cast<float>(mean), 1e-5F);
    magnitude_ = bf16 ? bf16_to_float(float_to_bf16(mean_)) : mean_;
  }
  void read_row(int64_t row, std::span<float> out) const override {
    inner_->read_row(row, out);
    for (float& value : out)
      value = std::clamp(std::nearbyint(value / mean_), -1.0F, 1.0F) * magnitude_;
  }
  void release() const noexcept override { inner_->release(); }

 private:
  RowSourcePtr inner_;
  float mean_ = 0, magnitude_ = 0;
};

HfWeight open_bitnet(const Safetensors& file, const SafetensorsEntry& entry,
                     const HfQuantization& quantization) {
  const auto* scale = file.find(entry.name + "_scale");
  if (scale == nullptr)
    throw FormatError(fmt::format("{}: packed digits without a scale; expected the tensor {}_scale",
                                  describe(entry), entry.name));
  if (entry.shape.size() != 2)
    throw FormatError(describe(entry) + ": packed digits must be a matrix");
  HfWeight weight{{entry.name, scale->name}, entry.dtype, entry.shape, {}, true};
  weight.shape[0] *= kDigitsPerByte;
  auto factors = read_factors(*scale, quantization.bitnet_divides);
  if (factors.size() != 1 && factors.size() != static_cast<size_t>(weight.shape[0]))
    throw_scale_shape(*scale, weight.shape[0], weight.shape[1],
                      "expected one scale, or one per row");
  weight.rows = std::make_shared<BitnetRows>(entry, std::move(factors));
  return weight;
}

}  // namespace

HfQuantization read_hf_quantization(const HfConfig& config) {
  HfQuantization result;
  if (config.find("quantization") != nullptr && config.find("quantization_config") == nullptr)
    config.refuse("quantization",
                  "packed for MLX (integer weights with scales and biases)\n"
                  "use the checkpoint it was made from");
  const nlohmann::json* settings = config.find("quantization_config");
  if (settings == nullptr) return result;
  const std::string where = "quantization_config.";
  const std::string method = config.string_in(*settings, where, "quant_method").value_or("unknown");
  for (const char* key : {"modules_to_not_convert", "ignore"}) {
    const nlohmann::json* names = member(*settings, key);
    if (names == nullptr || !names->is_array()) continue;
    for (const auto& name : *names) {
      if (name.is_string()) result.excluded.push_back(name.get<std::string>());
    }
  }
  if (method == "fp8") {
    result.method = HfQuantization::Method::kFp8;
    if (const nlohmann::json* block = member(*settings, "weight_block_size")) {
      const bool valid = block->is_array() && block->size() == 2 &&
                         std::all_of(block->begin(), block->end(), [](const auto& size) {
                           return size.is_number_integer() && size > 0 && size <= (1 << 24);
                         });
      if (!valid)
        config.fail(where + "weight_block_size",
                    "found " + show_json(*block) + ", expected two sizes above 0");
      result.block_rows = (*block)[0].get<int64_t>();
      result.block_cols = (*block)[1].get<int64_t>();
    }
  } else if (method == "compressed-tensors" &&
             config.string_in(*settings, where, "format") == "float-quantized") {
    result.method = HfQuantization::Method::kFp8;
  } else if (method == "bitnet") {
    result.method = HfQuantization::Method::kBitnet;
    result.bitnet_online =
        config.string_in(*settings, where, "quantization_mode").value_or("offline") == "online";
    // The class "bitlinear" (the default) divides its output by the scale, "autobitlinear"
    // multiplies.
    result.bitnet_divides =
        config.string_in(*settings, where, "linear_class").value_or("bitlinear") == "bitlinear";
  } else {
    config.refuse(where + "quant_method",
                  fmt::format("checkpoints packed with {} are not read\n"
                              "use the checkpoint it was made from (BF16, F16 or fp8)",
                              quote_text(method)));
  }
  return result;
}

HfWeight open_hf_weight(const Safetensors& file, const SafetensorsEntry& entry,
                        const HfQuantization& quantization, bool is_matrix) {
  const bool excluded = std::any_of(
      quantization.excluded.begin(), quantization.excluded.end(),
      [&](const std::string& part) { return entry.name.find(part) != std::string::npos; });
  using Method = HfQuantization::Method;
  if (quantization.method == Method::kBitnet && entry.dtype == "U8")
    return open_bitnet(file, entry, quantization);
  if (!is_float(entry) && !is_fp8(entry))
    throw Unsupported(fmt::format(
        "{}: weights of type {} are not read\nuse a checkpoint in BF16, F16, F32 or fp8",
        describe(entry), entry.dtype));
  HfWeight weight{{entry.name}, entry.dtype, entry.shape, {}, false};
  if (weight.shape.size() == 3 && weight.shape[2] == 1 && weight.shape[1] != 1)
    throw Unsupported(describe(entry) +
                      ": a convolution stored the other way round, as exports for MLX have it "
                      "(their norms differ, too)\nuse the checkpoint it was made from");
  if (weight.shape.size() == 3 && weight.shape[1] == 1)
    weight.shape.erase(weight.shape.begin() + 1);
  if (weight.shape.empty() || weight.shape.size() > 2 || entry.n_elems() == 0)
    throw FormatError(describe(entry) + ": expected a vector or a matrix");

  const bool matrix = weight.shape.size() == 2;
  weight.rows = safetensors_rows(entry, matrix ? weight.shape[0] : 1, weight.shape.back());
  if (is_fp8(entry)) {
    weight.unpacked = true;
    if (quantization.method == Method::kFp8) {
      const auto* scale = find_scale(file, entry.name);
      if (scale == nullptr)
        throw FormatError(
            fmt::format("{}: fp8 weight without a scale; expected {}_scale_inv or "
                        "{}_scale",
                        describe(entry), entry.name, entry.name));
      weight.sources.push_back(scale->name);
      weight.rows = scaled_fp8(weight.rows, *scale, quantization);
    }
  } else if (quantization.method == Method::kBitnet && is_matrix && !excluded) {
    if (quantization.bitnet_online) {
      weight.unpacked = true;
      weight.rows = std::make_shared<OnlineDigitRows>(weight.rows, entry.dtype == "BF16");
    } else if (const auto* scale = file.find(entry.name + "_scale")) {
      weight.unpacked = true;
      weight.sources.push_back(scale->name);
      auto factors = read_factors(*scale, quantization.bitnet_divides);
      if (factors.size() != 1)
        throw_scale_shape(*scale, entry.shape[0], entry.shape.back(), "expected one scale");
      weight.rows = block_scaled_rows(weight.rows, std::move(factors), weight.rows->n_rows(),
                                      weight.rows->n_cols());
    }
  }
  return weight;
}

bool is_unused_scale(std::string_view name) {
  for (const std::string_view suffix :
       {".activation_scale", ".input_scale", ".k_scale", ".v_scale"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

}  // namespace ts
