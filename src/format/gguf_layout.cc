#include "format/gguf_layout.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/checked_math.h"
#include "base/quote_text.h"
#include "codec/codec.h"

namespace ts {
namespace {

constexpr TypeId kGroup64 = TypeId::kQ2_0;
constexpr TypeId kGroup128 = TypeId::kPQ2_0;

class Placement {
 public:
  Placement(const GgufHeader& header, std::span<const std::byte> bytes, const std::string& name)
      : header_(header), file_bytes_(bytes.size()), name_(name), types_(header.tensors.size()) {
    for (size_t i = 0; i < types_.size(); ++i)
      types_[i] = header.tensors[i].type;
    by_offset_.resize(types_.size());
    std::iota(by_offset_.begin(), by_offset_.end(), size_t{0});
    std::stable_sort(by_offset_.begin(), by_offset_.end(), [&](size_t a, size_t b) {
      return header_.tensors[a].offset < header_.tensors[b].offset;
    });
  }

  /// The type of each tensor with type 42 resolved, after all checks.
  const std::vector<TypeId>& check(std::vector<std::string>& notes) {
    const bool has_type_42 = std::find(types_.begin(), types_.end(), kGroup64) != types_.end();
    // First what holds under either reading of type 42, so that plain damage is called damage.
    if (has_type_42) refuse_third_layout();
    for (size_t i = 0; i < types_.size(); ++i)
      check_in_file(i, least_bytes(i));
    check_overlaps([&](size_t i) { return least_bytes(i); });
    if (!has_type_42) return types_;

    if (resolve_type_42() == kGroup128) {
      size_t count = 0;
      for (TypeId& type : types_) {
        if (type != kGroup64) continue;
        type = kGroup128;
        ++count;
      }
      notes.push_back(fmt::format(
          "{}: {} tensors have type 42 in its older layout (one scale per 128 weights); they are "
          "read as {}",
          name_, count, type_name(kGroup128)));
    }
    for (size_t i = 0; i < types_.size(); ++i)
      check_in_file(i, bytes_as(i, types_[i]));
    check_overlaps([&](size_t i) { return bytes_as(i, types_[i]); });
    return types_;
  }

  /// Byte size of tensor i read as `type`; nothing when the type is unknown. Throws when the shape
  /// does not suit the type.
  std::optional<uint64_t> bytes_as(size_t i, TypeId type) const {
    const GgufTensorInfo& info = header_.tensors[i];
    const Codec* codec = find_codec(type);
    if (codec == nullptr) return std::nullopt;
    if (info.shape[0] % codec->block_elems != 0) {
      throw FormatError(fmt::format(
          "{}: tensor {} has rows of {} values, which is not a whole number of {} blocks of {}; "
          "the "
          "file is malformed",
          name_, quote_text(info.name), info.shape[0], codec->name, codec->block_elems));
    }
    const auto size = tensor_bytes(*codec, info.shape);
    if (!size) {
      throw FormatError(fmt::format(
          "{}: tensor {} of shape {} and type {} has more bytes than 64 bits can count; "
          "the file is damaged",
          name_, quote_text(info.name), info.shape.to_string(), codec->name));
    }
    return size;
  }

 private:
  /// Byte size that holds whatever layout type 42 has.
  std::optional<uint64_t> least_bytes(size_t i) const {
    const auto as_stated = bytes_as(i, header_.tensors[i].type);
    if (header_.tensors[i].type != kGroup64 || !could_be_group_128(i)) return as_stated;
    return std::min(*as_stated, *bytes_as(i, kGroup128));
  }

  bool could_be_group_128(size_t i) const { return header_.tensors[i].shape[0] % 128 == 0; }

  void check_in_file(size_t i, std::optional<uint64_t> bytes) const {
    const GgufTensorInfo& info = header_.tensors[i];
    // An unknown type has at least one byte.
    const uint64_t size = bytes.value_or(1);
    const auto begin = checked_add(header_.data_start, info.offset);
    const auto end = begin ? checked_add(*begin, size) : std::nullopt;
    if (!end || *end > file_bytes_) {
      throw FormatError(
          fmt::format("{}: tensor {} ({} {}) needs {}{} bytes at offset {} of the data, which "
                      "starts at byte {}, "
                      "but the file has {} bytes{}; it is cut off or damaged: download it again",
                      name_, quote_text(info.name), type_name(info.type), info.shape.to_string(),
                      bytes ? "" : "some of the ", bytes ? std::to_string(size) : std::string(),
                      info.offset, header_.data_start, file_bytes_,
                      end ? fmt::format(" of the {} needed", *end) : std::string()));
    }
    if (info.offset % header_.alignment != 0) {
      throw FormatError(
          fmt::format("{}: tensor {} starts at offset {}, which is not a multiple of the alignment "
                      "{}; the file is malformed",
                      name_, quote_text(info.name), info.offset, header_.alignment));
    }
  }

  template <typename BytesOf>
  void check_overlaps(BytesOf bytes_of) const {
    for (size_t k = 1; k < by_offset_.size(); ++k) {
      const size_t before = by_offset_[k - 1], after = by_offset_[k];
      const uint64_t end = header_.tensors[before].offset + bytes_of(before).value_or(1);
      if (end > header_.tensors[after].offset) {
        throw FormatError(fmt::format(
            "{}: tensors {} (bytes {} to {} of the data) and {} (from byte {}) overlap; the file "
            "is "
            "malformed",
            name_, quote_text(header_.tensors[before].name), header_.tensors[before].offset, end,
            quote_text(header_.tensors[after].name), header_.tensors[after].offset));
      }
    }
  }

  /// A layout with the scale last, marked by its writer in the metadata.
  void refuse_third_layout() const {
    const MetadataValue* version = header_.metadata.find("general.quantization_version");
    const auto* text = version ? std::get_if<std::string>(&version->value) : nullptr;
    if ((text != nullptr && *text == "TQ2_0_G128") ||
        header_.metadata.contains("oxibonsai.quant_format")) {
      throw Unsupported(fmt::format(
          "{}: its type 42 tensors are in the OxiBonsai layout (128 weights, scale last), which no "
          "other program reads; convert the model again to PQ2_0 or Q2_0",
          name_));
    }
  }

  /// True when the tensors, read with type 42 as `layout` and packed in the order of their offsets,
  /// lie exactly where the table says. After a tensor of unknown size the next one is taken as is.
  bool reproduces_offsets(TypeId layout) const {
    std::optional<uint64_t> expected = 0;
    for (const size_t i : by_offset_) {
      const GgufTensorInfo& info = header_.tensors[i];
      if (info.type == kGroup64 && layout == kGroup128 && !could_be_group_128(i)) return false;
      if (expected && info.offset != *expected) return false;
      const auto size = bytes_as(i, info.type == kGroup64 ? layout : info.type);
      expected = std::nullopt;
      if (size) {
        const auto end = checked_add(info.offset, *size);
        if (end) expected = checked_round_up(*end, header_.alignment);
      }
    }
    return true;
  }

  TypeId resolve_type_42() const {
    const bool fits_64 = reproduces_offsets(kGroup64);
    const bool fits_128 = reproduces_offsets(kGroup128);
    if (fits_64 != fits_128) return fits_64 ? kGroup64 : kGroup128;
    const size_t last = by_offset_.back();
    if (fits_64 && header_.tensors[last].type == kGroup64) {
      // Nothing follows to tell by: the end of the file decides.
      const uint64_t rest = file_bytes_ - header_.data_start - header_.tensors[last].offset;
      const auto ends = [&](TypeId layout) {
        const uint64_t size = *bytes_as(last, layout);
        return rest == size || rest == checked_round_up(size, header_.alignment);
      };
      const bool ends_64 = ends(kGroup64), ends_128 = ends(kGroup128);
      if (ends_64 != ends_128) return ends_64 ? kGroup64 : kGroup128;
    }
    const auto first = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                    [](const auto& info) { return info.type == kGroup64; });
    if (fits_64) {
      throw Unsupported(fmt::format(
          "{}: type 42 has two layouts (64 weights in 18 bytes; the legacy one, 128 in 34) and "
          "tensor {} fits both or ends with neither; convert the model again to PQ2_0",
          name_, quote_text(first->name)));
    }
    throw FormatError(fmt::format(
        "{}: the places of the tensors fit neither layout of type 42 (64 weights in 18 bytes; the "
        "legacy one, 128 in 34), so tensor {} cannot be read; the file is damaged or written by an "
        "unusual tool: convert the model again to PQ2_0",
        name_, quote_text(first->name)));
  }

  const GgufHeader& header_;
  uint64_t file_bytes_;
  const std::string& name_;
  std::vector<TypeId> types_;
  std::vector<size_t> by_offset_;
};

}  // namespace

void place_gguf_tensors(const GgufHeader& header, std::span<const std::byte> bytes,
                        const std::filesystem::path& file, const std::string& name,
                        std::vector<TensorEntry>& entries, std::vector<std::string>& notes) {
  Placement placement(header, bytes, name);
  const std::vector<TypeId>& types = placement.check(notes);
  entries.reserve(entries.size() + types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    const GgufTensorInfo& info = header.tensors[i];
    TensorEntry entry;
    entry.name = info.name;
    entry.type = types[i];
    entry.shape = info.shape;
    entry.bytes = placement.bytes_as(i, types[i]).value_or(0);
    entry.file_offset = header.data_start + info.offset;
    entry.file = file;
    if (entry.bytes > 0) entry.data = bytes.subspan(entry.file_offset, entry.bytes);
    entries.push_back(std::move(entry));
  }
}

}  // namespace ts
