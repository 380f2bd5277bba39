#include "format/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>

#include "base/checked_math.h"
#include "base/json.h"
#include "base/quote_text.h"
#include "format/file_kind.h"

namespace ts {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxRank = 64;
constexpr int kMaxIgnoredDepth = 64;

/// Reads the header as a stream of parse events, so that no tree of a header of up to 100 MB is
/// built and repeated keys are seen.
class HeaderEvents : public nlohmann::json_sax<Json> {
 public:
  HeaderEvents(std::string_view text, const std::string& name, SafetensorsHeader& header)
      : text_(text), file_(name), header_(header) {}

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a bool"); }
  bool number_integer(number_integer_t) override {
    // The parser hands over only negative numbers here.
    return scalar("a negative number");
  }
  bool number_float(number_float_t, const string_t&) override {
    return scalar("a number that is not an integer");
  }
  bool binary(binary_t&) override { return false; }
  bool number_unsigned(number_unsigned_t v) override {
    if (state_ == State::kShape) {
      if (v > static_cast<uint64_t>(INT64_MAX)) fail_tensor("has a dimension beyond 64 bits");
      if (tensor_.shape.size() == kMaxRank) {
        fail_tensor(fmt::format("has more than {} dimensions", kMaxRank));
      }
      tensor_.shape.push_back(static_cast<int64_t>(v));
      return true;
    }
    if (state_ == State::kOffsets) {
      if (n_offsets_ == 2) fail_tensor("has more than two 'data_offsets'");
      (n_offsets_++ == 0 ? tensor_.begin : tensor_.end) = v;
      return true;
    }
    return scalar("a number");
  }
  bool string(string_t& v) override {
    if (state_ == State::kEntry && field_ == "dtype") {
      tensor_.dtype = std::move(v);
      return true;
    }
    if (state_ == State::kMetadata) {
      header_.metadata[field_] = std::move(v);
      return true;
    }
    return scalar("a string");
  }

  bool start_object(size_t) override {
    if (ignored_depth_ > 0 || is_ignored_field()) return enter_ignored();
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kTop:
        state_ = tensor_.name == "__metadata__" ? State::kMetadata : State::kEntry;
        fields_.clear();
        n_offsets_ = 0;
        return true;
      default:
        return scalar("an object");
    }
  }
  bool end_object() override {
    if (ignored_depth_ > 0) return leave_ignored();
    if (state_ == State::kEntry) {
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (fields_.count(field) == 0) fail_tensor(fmt::format("has no '{}'", field));
      }
      header_.tensors.push_back(std::exchange(tensor_, {}));
    }
    state_ = state_ == State::kTop ? State::kStart : State::kTop;
    return true;
  }
  bool start_array(size_t) override {
    if (ignored_depth_ > 0 || is_ignored_field()) return enter_ignored();
    if (state_ == State::kEntry && field_ == "shape") {
      state_ = State::kShape;
      return true;
    }
    if (state_ == State::kEntry && field_ == "data_offsets") {
      state_ = State::kOffsets;
      return true;
    }
    return scalar("an array");
  }
  bool end_array() override {
    if (ignored_depth_ > 0) return leave_ignored();
    if (state_ == State::kOffsets && n_offsets_ != 2) {
      fail_tensor("has fewer than two 'data_offsets'");
    }
    state_ = State::kEntry;
    return true;
  }
  bool key(string_t& v) override {
    if (ignored_depth_ > 0) return true;
    if (state_ == State::kTop) {
      if (!names_.insert(v).second) {
        throw FormatError(
            fmt::format("{}: tensor {} is listed twice in the header; the file is "
                        "malformed",
                        file_, quote_text(v)));
      }
      tensor_ = {};
      tensor_.name = std::move(v);
      return true;
    }
    if (!fields_.insert(v).second) {
      fail_tensor(fmt::format("has the field {} twice", quote_text(v)));
    }
    field_ = std::move(v);
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    throw FormatError(
        fmt::format("{}: the safetensors header is not valid JSON at byte {}: {}; the "
                    "file is damaged: download it again",
                    file_, 8 + (position > 0 ? position - 1 : 0), json_reason(error.what())));
  }

 private:
  enum class State { kStart, kTop, kEntry, kMetadata, kShape, kOffsets };

  [[noreturn]] void fail_tensor(const std::string& problem) const {
    throw FormatError(fmt::format("{}: tensor {} {}; the file is malformed", file_,
                                  quote_text(tensor_.name), problem));
  }
  /// Unknown fields of an entry are ignored, whatever they hold.
  bool is_ignored_field() const {
    return state_ == State::kEntry && field_ != "dtype" && field_ != "shape" &&
           field_ != "data_offsets";
  }
  bool enter_ignored() {
    if (++ignored_depth_ > kMaxIgnoredDepth) {
      fail_tensor(fmt::format("has a field {} nested more than {} deep", quote_text(field_),
                              kMaxIgnoredDepth));
    }
    return true;
  }
  bool leave_ignored() {
    --ignored_depth_;
    return true;
  }
  /// A value where another kind is expected, unless it is part of an ignored field.
  bool scalar(const char* found) const {
    if (ignored_depth_ > 0 || is_ignored_field()) return true;
    switch (state_) {
      case State::kStart:
        throw FormatError(
            fmt::format("{}: the safetensors header is {}, expected a JSON object", file_, found));
      case State::kTop:
        fail_tensor(fmt::format("is {}, expected an object", found));
      case State::kMetadata:
        throw FormatError(fmt::format("{}: '__metadata__' field {} is {}, expected a string", file_,
                                      quote_text(field_), found));
      case State::kShape:
        fail_tensor(fmt::format("has {} in its 'shape', expected integers of 0 or more", found));
      case State::kOffsets:
        fail_tensor(
            fmt::format("has {} in its 'data_offsets', expected integers of 0 or more", found));
      case State::kEntry:
        break;
    }
    fail_tensor(fmt::format("has {} as its '{}', expected {}", found, field_,
                            field_ == "dtype" ? "a string" : "an array of integers"));
  }

  std::string_view text_;
  const std::string& file_;
  SafetensorsHeader& header_;
  State state_ = State::kStart;
  SafetensorsInfo tensor_;
  std::string field_;
  int n_offsets_ = 0;
  int ignored_depth_ = 0;
  std::unordered_set<std::string> names_, fields_;
};

[[noreturn]] void fail(const std::string& name, const std::string& problem) {
  throw FormatError(name + ": " + problem);
}

/// Finds the header's text, or says what the file is instead.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& name) {
  const auto foreign = [&] {
    const auto head = bytes.first(std::min<size_t>(bytes.size(), 512));
    const std::string what = describe_foreign_file(head, bytes.size());
    if (!what.empty() && what != "it is a safetensors file") {
      fail(name, "not a safetensors file: " + what);
    }
  };
  uint64_t length = 0;
  if (bytes.size() < sizeof(length)) {
    foreign();
    fail(name, fmt::format("{} bytes are too few for a safetensors file; download it again",
                           bytes.size()));
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  const uint64_t left = bytes.size() - sizeof(length);
  if (length < 2 || length > kSafetensorsMaxHeaderBytes) {
    foreign();
    fail(name, fmt::format("its safetensors header would have {} bytes, expected 2 to {}; this is "
                           "no safetensors file or it is damaged",
                           length, kSafetensorsMaxHeaderBytes));
  }
  if (length > left) {
    foreign();
    fail(name, fmt::format("its safetensors header needs {} bytes but {} are left; the file is cut "
                           "off: download it again",
                           length, left));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(length),
                              static_cast<size_t>(length));
  if (text.front() != '{') {
    foreign();
    fail(name, fmt::format("its safetensors header starts with {}, expected '{{'; this is no "
                           "safetensors file or it is damaged",
                           quote_text(text.substr(0, 1))));
  }
  const size_t last = text.find_last_not_of(' ');
  if (text[last] != '}') {
    fail(name,
         fmt::format("its safetensors header ends with {}, expected '}}' and spaces; the file "
                     "is damaged: download it again",
                     quote_text(text.substr(last, 1))));
  }
  return text;
}

void check_size(const SafetensorsInfo& tensor, uint64_t data_bytes, const std::string& name) {
  const std::string what = fmt::format("tensor {}", quote_text(tensor.name));
  if (tensor.begin > tensor.end) {
    fail(name, fmt::format("{} ends at byte {} before it begins at {}; the file is malformed", what,
                           tensor.end, tensor.begin));
  }
  if (tensor.end > data_bytes) {
    fail(name, fmt::format("{} needs the data up to byte {} but the file has {}; it is cut off: "
                           "download it again",
                           what, tensor.end, data_bytes));
  }
  std::optional<uint64_t> elems = 1;
  for (const int64_t extent : tensor.shape) {
    elems = checked_mul(*elems, static_cast<uint64_t>(extent));
    if (!elems || *elems > static_cast<uint64_t>(INT64_MAX)) {
      fail(name,
           fmt::format("{} has a shape {} of more elements than 64 bits can count; the file is "
                       "damaged",
                       what, fmt::format("[{}]", fmt::join(tensor.shape, ", "))));
    }
  }
  const uint64_t bits = safetensors_dtype_bits(tensor.dtype);
  if (bits == 0) return;
  const auto total_bits = checked_mul(*elems, bits);
  if (!total_bits || *total_bits % 8 != 0 || *total_bits / 8 != tensor.end - tensor.begin) {
    fail(name,
         fmt::format("{} of dtype {} and shape [{}] has {} bytes, expected {}; the file is "
                     "malformed",
                     what, tensor.dtype, fmt::join(tensor.shape, ", "), tensor.end - tensor.begin,
                     total_bits ? fmt::format("{}", static_cast<double>(*total_bits) / 8)
                                : std::string("more than 64 bits can count")));
  }
}

/// Sorts the tensors by place and checks that they cover the data without overlap or hole.
void check_tiling(std::vector<SafetensorsInfo>& tensors, uint64_t data_bytes,
                  const std::string& name) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t at = 0;
  const SafetensorsInfo* before = nullptr;
  for (const SafetensorsInfo& tensor : tensors) {
    if (tensor.begin < at) {
      fail(name,
           fmt::format("tensors {} (bytes {} to {}) and {} (bytes {} to {}) overlap; the file "
                       "is malformed",
                       quote_text(before->name), before->begin, before->end,
                       quote_text(tensor.name), tensor.begin, tensor.end));
    }
    if (tensor.begin > at) {
      fail(name,
           fmt::format("bytes {} to {} of the data, before tensor {}, belong to no tensor; the "
                       "file is malformed",
                       at, tensor.begin, quote_text(tensor.name)));
    }
    at = tensor.end;
    before = &tensor;
  }
  if (at != data_bytes) {
    fail(name, fmt::format("{} bytes follow the last tensor and belong to none; the file is "
                           "malformed",
                           data_bytes - at));
  }
}

}  // namespace

uint64_t safetensors_dtype_bits(std::string_view dtype) noexcept {
  struct Row {
    std::string_view name;
    uint64_t bits;
  };
  static constexpr Row kRows[] = {
      {"F64", 64},    {"F32", 32},    {"F16", 16}, {"BF16", 16},   {"F8_E4M3", 8},
      {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
      {"I64", 64},    {"U64", 64},    {"I32", 32}, {"U32", 32},    {"I16", 16},
      {"U16", 16},    {"I8", 8},      {"U8", 8},   {"BOOL", 8},    {"C64", 64},
  };
  for (const Row& row : kRows) {
    if (row.name == dtype) return row.bits;
  }
  return 0;
}

SafetensorsHeader read_safetensors_header(std::span<const std::byte> bytes,
                                          const std::string& name) {
  const std::string_view text = header_text(bytes, name);
  SafetensorsHeader header;
  HeaderEvents events(text, name, header);
  Json::sax_parse(text.begin(), text.end(), &events);
  header.data_start = 8 + text.size();
  const uint64_t data_bytes = bytes.size() - header.data_start;
  for (const SafetensorsInfo& tensor : header.tensors)
    check_size(tensor, data_bytes, name);
  check_tiling(header.tensors, data_bytes, name);
  return header;
}

}  // namespace ts
