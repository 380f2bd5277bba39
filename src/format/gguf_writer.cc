#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/checked_math.h"
#include "base/quote_text.h"
#include "codec/codec.h"
#include "format/gguf.h"
#include "format/gguf_header.h"

namespace ts {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kVersion = 3;

/// Appends little-endian fields to a string.
class HeaderWriter {
 public:
  template <typename T>
  void put(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out_.append(bytes, sizeof(T));
  }
  void put_string(std::string_view text) {
    put<uint64_t>(text.size());
    out_.append(text);
  }
  void put_value(const std::string& key, const MetadataValue& value) {
    put<uint32_t>(static_cast<uint32_t>(value.type));
    if (value.type == MetadataType::kArray) {
      const auto& array = std::get<MetadataArray>(value.value);
      put<uint32_t>(static_cast<uint32_t>(array.element_type));
      put<uint64_t>(array.size());
      std::visit(
          [&](const auto& elements) {
            for (const auto& element : elements)
              put_scalar(key, array.element_type, element);
          },
          array.data);
    } else {
      std::visit([&](const auto& v) { put_scalar(key, value.type, v); }, value.value);
    }
  }
  std::string take() noexcept { return std::move(out_); }

 private:
  template <typename Stored, typename Given>
  void put_int(const std::string& key, Given value) {
    if (!std::in_range<Stored>(value)) {
      throw InvalidArgument(
          fmt::format("metadata key {}: {} does not fit its type", quote_text(key), value));
    }
    put(static_cast<Stored>(value));
  }

  template <typename Given>
  void put_scalar(const std::string& key, MetadataType type, const Given& value) {
    if constexpr (std::is_same_v<Given, int64_t> || std::is_same_v<Given, uint64_t>) {
      switch (type) {
        case MetadataType::kUint8:
          return put_int<uint8_t>(key, value);
        case MetadataType::kInt8:
          return put_int<int8_t>(key, value);
        case MetadataType::kUint16:
          return put_int<uint16_t>(key, value);
        case MetadataType::kInt16:
          return put_int<int16_t>(key, value);
        case MetadataType::kUint32:
          return put_int<uint32_t>(key, value);
        case MetadataType::kInt32:
          return put_int<int32_t>(key, value);
        case MetadataType::kUint64:
          return put_int<uint64_t>(key, value);
        case MetadataType::kInt64:
          return put_int<int64_t>(key, value);
        default:
          break;
      }
    } else if constexpr (std::is_same_v<Given, float> || std::is_same_v<Given, double>) {
      if (type == MetadataType::kFloat32) return put(static_cast<float>(value));
      if (type == MetadataType::kFloat64) return put(static_cast<double>(value));
    } else if constexpr (std::is_same_v<Given, bool>) {
      if (type == MetadataType::kBool) return put<uint8_t>(value ? 1 : 0);
    } else if constexpr (std::is_same_v<Given, std::string>) {
      if (type == MetadataType::kString) return put_string(value);
    }
    throw InternalError(fmt::format("metadata key {}: the value does not match its type {}",
                                    quote_text(key), describe_type(type)));
  }

  std::string out_;
};

}  // namespace

GgufOutputTensor checked_gguf_tensor(const std::string& file, std::string name, TypeId type,
                                     const Shape& shape) {
  if (const std::string problem = gguf_name_problem(name); !problem.empty()) {
    throw InvalidArgument(
        fmt::format("{}: the tensor name {} {}", file, quote_text(name), problem));
  }
  const std::string what = fmt::format("{}: tensor {}", file, quote_text(name));
  const Codec& codec = require_codec(type, what);
  const auto elems = shape.checked_elems();
  if (shape.n_dims < 1 || !elems || *elems == 0) {
    throw InvalidArgument(
        fmt::format("{}: the shape {} is not one of positive dimensions", what, shape.to_string()));
  }
  const auto bytes = tensor_bytes(codec, shape);
  if (!bytes) {
    throw InvalidArgument(
        fmt::format("{}: rows of {} values are not a whole number of {} blocks of {}", what,
                    shape[0], codec.name, codec.block_elems));
  }
  return {std::move(name), type, shape, *bytes};
}

GgufOutputLayout lay_out_gguf(const std::string& file, const Metadata& metadata,
                              std::span<const GgufOutputTensor> tensors, uint64_t alignment) {
  HeaderWriter header;
  header.put<uint32_t>(kMagic);
  header.put<uint32_t>(kVersion);
  header.put<uint64_t>(tensors.size());
  header.put<uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata.entries()) {
    if (key.empty()) throw InvalidArgument(file + ": a metadata key is empty");
    header.put_string(key);
    header.put_value(key, value);
  }
  GgufOutputLayout layout;
  for (const GgufOutputTensor& tensor : tensors) {
    layout.offsets.push_back(layout.data_bytes);
    header.put_string(tensor.name);
    header.put<uint32_t>(static_cast<uint32_t>(tensor.shape.n_dims));
    for (int d = 0; d < tensor.shape.n_dims; ++d)
      header.put<uint64_t>(static_cast<uint64_t>(tensor.shape[d]));
    header.put<uint32_t>(static_cast<uint32_t>(tensor.type));
    header.put<uint64_t>(layout.data_bytes);
    // The last tensor is padded too, as readers that sum padded sizes expect.
    const auto end = checked_add(layout.data_bytes, tensor.bytes);
    const auto next = end ? checked_round_up(*end, alignment) : std::nullopt;
    if (!next) {
      throw InvalidArgument(
          fmt::format("{}: the tensors have more bytes than 64 bits can count", file));
    }
    layout.data_bytes = *next;
  }
  layout.header = header.take();
  layout.header.resize(*checked_round_up(layout.header.size(), alignment));
  if (!checked_add(layout.header.size(), layout.data_bytes)) {
    throw InvalidArgument(
        fmt::format("{}: the tensors have more bytes than 64 bits can count", file));
  }
  return layout;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, bool overwrite, uint64_t alignment)
    : file_(path, overwrite), alignment_(alignment), metadata_(path.string()) {
  if (!is_valid_gguf_alignment(alignment)) {
    throw InvalidArgument(fmt::format("{}: alignment {} must be a power of two from {} to {}",
                                      path.string(), alignment, kGgufMinAlignment,
                                      kGgufMaxAlignment));
  }
}

void GgufWriter::add_tensor(std::string name, TypeId type, const Shape& shape) {
  const std::string file = file_.path().string();
  if (data_begun_) {
    throw InternalError(
        fmt::format("{}: tensor {} is declared after the data began", file, quote_text(name)));
  }
  GgufOutputTensor tensor = checked_gguf_tensor(file, std::move(name), type, shape);
  if (!names_.insert(tensor.name).second) {
    throw InvalidArgument(
        fmt::format("{}: tensor {} is added twice", file, quote_text(tensor.name)));
  }
  tensors_.push_back(std::move(tensor));
}

void GgufWriter::begin_data() {
  if (data_begun_) throw InternalError(file_.path().string() + ": begin_data() is called twice");
  if (alignment_ != 32) {
    metadata_.set("general.alignment", MetadataValue::u32(static_cast<uint32_t>(alignment_)));
  } else {
    metadata_.erase("general.alignment");  // 32 is what its absence means
  }
  const GgufOutputLayout layout =
      lay_out_gguf(file_.path().string(), metadata_, tensors_, alignment_);
  file_.require_space(layout.file_bytes());
  file_.write(std::as_bytes(std::span(layout.header)));
  data_begun_ = true;
}

void GgufWriter::write(std::span<const std::byte> bytes) {
  if (!data_begun_ || current_ >= tensors_.size() ||
      bytes.size() > tensors_[current_].bytes - written_) {
    throw InternalError(fmt::format(
        "{}: {} bytes are written where {} are left of {}", file_.path().string(), bytes.size(),
        data_begun_ && current_ < tensors_.size() ? tensors_[current_].bytes - written_ : 0,
        current_ < tensors_.size() ? "tensor " + quote_text(tensors_[current_].name)
                                   : "all tensors"));
  }
  file_.write(bytes);
  written_ += bytes.size();
  if (written_ < tensors_[current_].bytes) return;
  file_.write_zeros(*checked_round_up(written_, alignment_) - written_);
  ++current_;
  written_ = 0;
}

void GgufWriter::replace(const std::string& key, MetadataValue value) {
  const auto lay_out = [&] {
    return lay_out_gguf(file_.path().string(), metadata_, tensors_, alignment_).header;
  };
  const size_t before = lay_out().size();
  metadata_.set(key, std::move(value));
  const std::string header = lay_out();
  if (!data_begun_ || header.size() != before)
    throw InternalError(fmt::format("{}: the value of {} cannot be replaced by a longer one",
                                    file_.path().string(), key));
  file_.write_at(0, std::as_bytes(std::span(header)));
}

uint64_t GgufWriter::finish() {
  if (!data_begun_) begin_data();
  if (current_ != tensors_.size()) {
    throw InternalError(fmt::format("{}: tensor {} got {} of its {} bytes", file_.path().string(),
                                    quote_text(tensors_[current_].name), written_,
                                    tensors_[current_].bytes));
  }
  const uint64_t size = file_.size();
  file_.commit();
  return size;
}

}  // namespace ts
