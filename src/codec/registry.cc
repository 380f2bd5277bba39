/// The one list of block formats. A new format is a file of its own and one line here.
#include <array>
#include <cctype>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/checked_math.h"
#include "codec/codec.h"
#include "codec/named_types.h"

namespace ts {

// In order of type number (a test holds us to it).
#define TS_CODEC_ROWS(ROW) \
  ROW(kCodecF32)           \
  ROW(kCodecF16)           \
  ROW(kCodecQ4_0)          \
  ROW(kCodecQ4_1)          \
  ROW(kCodecQ5_0)          \
  ROW(kCodecQ5_1)          \
  ROW(kCodecQ8_0)          \
  ROW(kCodecQ2_K)          \
  ROW(kCodecQ3_K)          \
  ROW(kCodecQ4_K)          \
  ROW(kCodecQ5_K)          \
  ROW(kCodecQ6_K)          \
  ROW(kCodecI8)            \
  ROW(kCodecI16)           \
  ROW(kCodecI32)           \
  ROW(kCodecI64)           \
  ROW(kCodecF64)           \
  ROW(kCodecBF16)          \
  ROW(kCodecTQ1_0)         \
  ROW(kCodecTQ2_0)         \
  ROW(kCodecQ1_0)          \
  ROW(kCodecQ2_0)          \
  ROW(kCodecPQ2_0)         \
  ROW(kCodecPTQ1_0)

#define TS_DECLARE_CODEC(name) extern const Codec name;
TS_CODEC_ROWS(TS_DECLARE_CODEC)
#undef TS_DECLARE_CODEC

namespace {

#define TS_CODEC_ADDRESS(name) &name,
constexpr auto kCodecs = std::to_array<const Codec*>({TS_CODEC_ROWS(TS_CODEC_ADDRESS)});
#undef TS_CODEC_ADDRESS

bool same_name(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(a[i])) !=
        std::tolower(static_cast<unsigned char>(b[i])))
      return false;
  }
  return true;
}

std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

/// "I2_S (36)", "unknown type 199".
std::string numbered_name(TypeId id) {
  const auto number = static_cast<uint32_t>(id);
  if (const Codec* codec = find_codec(id))
    return fmt::format("{} ({})", upper_case(codec->name), number);
  if (const NamedType* named = find_named_type(id))
    return fmt::format("{} ({})", upper_case(named->name), number);
  return fmt::format("unknown type {}", number);
}

}  // namespace

std::span<const Codec* const> all_codecs() noexcept {
  return kCodecs;
}

const Codec* find_codec(TypeId id) noexcept {
  for (const Codec* codec : kCodecs) {
    if (codec->id == id) return codec;
  }
  return nullptr;
}

const Codec* find_codec(std::string_view name) noexcept {
  for (const Codec* codec : kCodecs) {
    if (same_name(codec->name, name)) return codec;
  }
  return nullptr;
}

const Codec& require_codec(TypeId id, std::string_view what) {
  if (const Codec* codec = find_codec(id)) return *codec;
  throw Unsupported(fmt::format("{}: cannot decode weights of {}{}\n{}", what,
                                find_named_type(id) != nullptr ? "type " : "", numbered_name(id),
                                type_advice(id)));
}

std::string type_name(TypeId id) {
  if (const Codec* codec = find_codec(id)) return std::string(codec->name);
  if (const NamedType* named = find_named_type(id)) return std::string(named->name);
  return fmt::format("unknown({})", static_cast<uint32_t>(id));
}

std::string type_advice(TypeId id) {
  if (find_codec(id) != nullptr)
    return fmt::format("{}: this version decodes it", numbered_name(id));
  if (const NamedType* named = find_named_type(id))
    return fmt::format("{}: {}", numbered_name(id), named->advice);
  return fmt::format(
      "{}: no format known to this version has that number; it may belong to another program or a "
      "newer one. Convert the model again to a type this version reads, such as Q8_0 or Q4_K, or "
      "TQ2_0, PQ2_0 or PTQ1_0 for ternary weights",
      numbered_name(id));
}

std::optional<uint64_t> tensor_bytes(const Codec& codec, const Shape& shape) noexcept {
  const auto n_elems = shape.checked_elems();
  if (!n_elems || shape[0] % codec.block_elems != 0) return std::nullopt;
  return checked_mul(*n_elems / codec.block_elems, static_cast<uint64_t>(codec.block_bytes));
}

}  // namespace ts
