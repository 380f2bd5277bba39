#include "format/file_kind.h"

#include <algorithm>
#include <string_view>

namespace ts {
namespace {

bool starts_with_ignoring_case(std::string_view text, std::string_view lower_case_prefix) {
  if (text.size() < lower_case_prefix.size()) return false;
  return std::equal(lower_case_prefix.begin(), lower_case_prefix.end(), text.begin(),
                    [](char want, char got) {
                      return want == (got >= 'A' && got <= 'Z' ? static_cast<char>(got + 32) : got);
                    });
}

/// A safetensors file starts with the length of a JSON object and the object itself.
bool looks_like_safetensors(std::string_view head, uint64_t file_bytes) {
  if (head.size() < 9 || head[8] != '{') return false;
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) {
    length |= static_cast<uint64_t>(static_cast<unsigned char>(head[i])) << (8 * i);
  }
  return length >= 2 && length <= file_bytes;
}

}  // namespace

std::string describe_foreign_file(std::span<const std::byte> head, uint64_t file_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  const auto starts = [&](std::string_view prefix) { return text.starts_with(prefix); };

  if (starts("version https://git-lfs")) {
    return "it is a git-lfs pointer, not the data; fetch the data with 'git lfs pull' or download "
           "the file itself";
  }
  if (starts("GGUF")) return "it is a GGUF file";
  // The older formats wrote their magic as a little-endian number, so it reads backwards.
  if (starts("tjgg") || starts("lmgg") || starts("fmgg") || starts("algg")) {
    return "it is a GGML file from before GGUF; convert the model again or download a GGUF of it";
  }
  if (looks_like_safetensors(text, file_bytes)) return "it is a safetensors file";
  if (starts("PK\x03\x04")) {
    return "it is a zip archive, most likely a PyTorch checkpoint (pickle), which is never read "
           "because it can carry code; get the safetensors form of the model";
  }
  // The opcode after a pickle's protocol number is never zero; a small little-endian length may
  // start with the same two bytes.
  if (head.size() >= 3 && head[0] == std::byte{0x80} && head[1] >= std::byte{2} &&
      head[1] <= std::byte{5} && head[2] != std::byte{0}) {
    return "it is a Python pickle (an old PyTorch checkpoint), which is never read because it can "
           "carry code; get the safetensors form of the model";
  }
  if (starts("\x1f\x8b")) return "it is gzip-compressed; unpack it first";
  if (starts("\x28\xb5\x2f\xfd")) return "it is zstd-compressed; unpack it first";
  if (starts("\x7f"
             "ELF")) {
    return "it is a program or shared library, not a model";
  }
  std::string_view trimmed = text;
  if (trimmed.starts_with("\xef\xbb\xbf")) trimmed.remove_prefix(3);
  trimmed.remove_prefix(std::min(trimmed.find_first_not_of(" \t\r\n"), trimmed.size()));
  if (starts_with_ignoring_case(trimmed, "<!doctype") ||
      starts_with_ignoring_case(trimmed, "<html") || starts_with_ignoring_case(trimmed, "<?xml") ||
      starts_with_ignoring_case(trimmed, "<head")) {
    return "it is a web page, not the data (perhaps a log-in or error page of the download site); "
           "download the file itself";
  }
  if (trimmed.starts_with('{') || trimmed.starts_with('[')) {
    return "it is JSON text (perhaps an error reply of the download site), not the data";
  }
  if (!head.empty() &&
      std::all_of(head.begin(), head.end(), [](std::byte b) { return b == std::byte{0}; })) {
    return "it starts with zeros only, as after an interrupted download; download it again";
  }
  return {};
}

std::filesystem::path residual_path(const std::filesystem::path& model) {
  std::filesystem::path sidecar = model;
  sidecar.replace_extension(".residuals.gguf");
  return sidecar;
}

}  // namespace ts
