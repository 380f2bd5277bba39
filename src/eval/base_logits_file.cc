#include "eval/base_logits_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/checked_math.h"

namespace ts {
namespace {

constexpr char kMagic[8] = {'_', 'l', 'o', 'g', 'i', 't', 's', '_'};
constexpr uint64_t kHeaderBytes = sizeof(kMagic) + 12;
constexpr float kLogitRange = 16;
constexpr size_t kRowHead = 4;  // uint16 units before the codes: two floats

uint64_t row_units(int64_t n_vocab) noexcept {
  return 2 * ((static_cast<uint64_t>(n_vocab) + 1) / 2) + kRowHead;
}

template <typename T>
T read_at(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

}  // namespace

bool is_base_logits_file(const std::filesystem::path& path) noexcept {
  try {
    std::ifstream in(path, std::ios::binary);
    char head[sizeof(kMagic)] = {};
    return in.read(head, sizeof(head)) && std::memcmp(head, kMagic, sizeof(head)) == 0;
  } catch (...) {
    return false;
  }
}

void BaseLogitsReader::fail(const std::string& what) const {
  throw FormatError(fmt::format("{}: {}\n  Make it anew with 'eval kl --save-base'.",
                                file_->path().string(), what));
}

BaseLogitsReader::BaseLogitsReader(const std::filesystem::path& path)
    : file_(MappedFile::open(path)) {
  const auto bytes = file_->bytes();
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0)
    fail("not a file of base probabilities: it does not begin with \"_logits_\" and a header");
  const auto n_ctx = read_at<uint32_t>(bytes, 8);
  const auto n_vocab = read_at<int32_t>(bytes, 12);
  const auto n_windows = read_at<int32_t>(bytes, 16);
  if (n_ctx < 4 || n_ctx > uint32_t{1} << 28 || n_vocab < 1 || n_windows < 1)
    fail(
        fmt::format("the header says {} tokens a window, {} in the vocabulary, {} windows; such a "
                    "file cannot be",
                    n_ctx, n_vocab, n_windows));
  n_ctx_ = n_ctx;
  n_vocab_ = n_vocab;
  n_windows_ = n_windows;
  row_bytes_ = row_units(n_vocab) * sizeof(uint16_t);
  // At most 2^28 * 2^31 * 4, which fits; the rows may not.
  const uint64_t n_tokens = static_cast<uint64_t>(n_windows) * n_ctx;
  rows_offset_ = kHeaderBytes + n_tokens * sizeof(int32_t);
  const uint64_t n_rows =
      static_cast<uint64_t>(n_windows) * static_cast<uint64_t>(rows_per_window());
  const auto rows_bytes = checked_mul(n_rows, row_bytes_);
  const auto expected = rows_bytes ? checked_add(*rows_bytes, rows_offset_) : std::nullopt;
  if (!expected || *expected != bytes.size())
    fail(
        fmt::format("{} bytes, expected {} for {} windows of {} tokens and a vocabulary of {}: it "
                    "is {}",
                    bytes.size(), expected ? fmt::to_string(*expected) : "far more", n_windows,
                    n_ctx, n_vocab, expected && bytes.size() > *expected ? "too long" : "cut off"));
  tokens_.resize(n_tokens);
  std::memcpy(tokens_.data(), bytes.data() + kHeaderBytes, n_tokens * sizeof(int32_t));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i] < 0 || tokens_[i] >= n_vocab)
      fail(fmt::format("token {} of window {} is {}, outside the vocabulary of {}", i % n_ctx,
                       i / n_ctx, tokens_[i], n_vocab));
  }
}

void BaseLogitsReader::read_row(int64_t window, int64_t row,
                                std::span<float> log_probabilities) const {
  if (window < 0 || window >= n_windows_ || row < 0 || row >= rows_per_window() ||
      log_probabilities.size() != static_cast<size_t>(n_vocab_))
    throw InternalError(fmt::format("no row {} of window {} in {}", row, window, path().string()));
  const uint64_t offset =
      rows_offset_ + static_cast<uint64_t>(window * rows_per_window() + row) * row_bytes_;
  const auto bytes = file_->bytes();
  const auto scale = read_at<float>(bytes, offset);
  const auto minimum = read_at<float>(bytes, offset + sizeof(float));
  const auto where = [&] { return fmt::format("window {}, scored position {}", window, row); };
  if (!std::isfinite(scale) || !std::isfinite(minimum) || scale < 0)
    fail(fmt::format("{}: scale {} and minimum {} are not those of probabilities", where(), scale,
                     minimum));
  const std::byte* codes = bytes.data() + offset + kRowHead * sizeof(uint16_t);
  double sum = 0;
  for (size_t i = 0; i < log_probabilities.size(); ++i) {
    uint16_t code;
    std::memcpy(&code, codes + i * sizeof(code), sizeof(code));
    log_probabilities[i] = scale * static_cast<float>(code) + minimum;
    sum += std::exp(log_probabilities[i]);
  }
  // The floor adds at most n_vocab * e^-16: 0.03 for the largest vocabularies.
  if (!(sum > 0.9 && sum < 1.1))
    fail(fmt::format("{}: the probabilities add up to {:.4g}", where(), sum));
}

BaseLogitsWriter::BaseLogitsWriter(const std::filesystem::path& path, bool overwrite, int64_t n_ctx,
                                   int64_t n_vocab, std::span<const int32_t> tokens)
    : file_(path, overwrite), n_vocab_(n_vocab), row_(row_units(n_vocab)) {
  const int64_t n_windows = static_cast<int64_t>(tokens.size()) / n_ctx;
  if (n_windows > std::numeric_limits<int32_t>::max() ||
      n_vocab > std::numeric_limits<int32_t>::max())
    throw InvalidArgument(
        fmt::format("{}: {} windows and a vocabulary of {} are more than the layout can count",
                    path.string(), n_windows, n_vocab));
  n_rows_left_ = n_windows * (n_ctx - 1 - n_ctx / 2);
  const auto rows_bytes =
      checked_mul(static_cast<uint64_t>(n_rows_left_), row_.size() * sizeof(uint16_t));
  file_.require_space(rows_bytes ? *rows_bytes + kHeaderBytes + tokens.size_bytes() : UINT64_MAX);
  const auto append = [this](auto value) { file_.write(std::as_bytes(std::span(&value, 1))); };
  file_.write(std::as_bytes(std::span(kMagic)));
  append(static_cast<uint32_t>(n_ctx));
  append(static_cast<int32_t>(n_vocab));
  append(static_cast<int32_t>(n_windows));
  file_.write(std::as_bytes(tokens));
}

void BaseLogitsWriter::write(std::span<const float> logits, double log_sum) {
  if (--n_rows_left_ < 0 || logits.size() != static_cast<size_t>(n_vocab_))
    throw InternalError("a row too many, or of another length, for the file of base probabilities");
  const auto [least, most] = std::minmax_element(logits.begin(), logits.end());
  const float lowest = std::max(*least, *most - kLogitRange);
  const float scale = (*most - lowest) / 65535.0F;
  const auto minimum = static_cast<float>(static_cast<double>(lowest) - log_sum);
  std::memcpy(row_.data(), &scale, sizeof(scale));
  std::memcpy(row_.data() + 2, &minimum, sizeof(minimum));
  const float inverse = scale > 0 ? 1 / scale : 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float code = std::nearbyint(inverse * (logits[i] - lowest));
    row_[kRowHead + i] = static_cast<uint16_t>(std::clamp(code, 0.0F, 65535.0F));
  }
  file_.write(std::as_bytes(std::span(row_)));
}

void BaseLogitsWriter::finish() {
  if (n_rows_left_ != 0)
    throw InternalError(
        fmt::format("{} rows are missing in the file of base probabilities", n_rows_left_));
  file_.commit();
}

}  // namespace ts
