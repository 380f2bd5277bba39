#include "eval/npy.h"

#include <bit>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts {

static_assert(std::endian::native == std::endian::little, "values are written as they lie");

std::string npy_header_f32(std::span<const int64_t> shape) {
  std::string dims;
  for (const int64_t d : shape)
    dims += fmt::format("{}, ", d);
  // A one-element tuple keeps its comma; longer ones drop the last.
  if (shape.size() == 1) {
    dims.pop_back();
  } else if (!dims.empty()) {
    dims.resize(dims.size() - 2);
  }
  std::string dictionary =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", dims);
  constexpr size_t kFixed = 10;  // magic 6, version 2, length 2
  const size_t used = kFixed + dictionary.size() + 1;
  dictionary.append((64 - used % 64) % 64, ' ');
  dictionary += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(dictionary.size() & 0xFF);
  out += static_cast<char>(dictionary.size() >> 8);
  return out + dictionary;
}

NpyWriter::NpyWriter(const std::filesystem::path& path, bool overwrite, std::vector<int64_t> shape)
    : file_(path, overwrite) {
  for (const int64_t d : shape)
    missing_ *= static_cast<uint64_t>(d);
  const std::string header = npy_header_f32(shape);
  file_.write(std::as_bytes(std::span(header.data(), header.size())));
}

void NpyWriter::write(std::span<const float> values) {
  if (values.size() > missing_)
    throw InternalError(fmt::format("{}: {} values more than the shape holds",
                                    file_.path().string(), values.size() - missing_));
  file_.write(std::as_bytes(values));
  missing_ -= values.size();
}

void NpyWriter::finish() {
  if (missing_ != 0)
    throw InternalError(fmt::format("{}: {} values are missing", file_.path().string(), missing_));
  file_.commit();
}

}  // namespace ts
