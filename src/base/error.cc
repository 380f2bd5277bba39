#include <array>
#include <cstddef>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

constexpr std::array<ErrorKind, 9> kKinds{{
    {ErrorCode::kInvalidArgument, "invalid_argument", 2, 400, "InvalidArgument"},
    {ErrorCode::kHadamardDimension, "hadamard_dimension", 2, 400, "HadamardDimensionError"},
    {ErrorCode::kFormat, "format_error", 3, 422, "FormatError"},
    {ErrorCode::kIo, "io_error", 3, 500, "IoError"},
    {ErrorCode::kUnsupported, "unsupported", 4, 501, "Unsupported"},
    {ErrorCode::kResourceExhausted, "resource_exhausted", 5, 503, "ResourceExhausted"},
    {ErrorCode::kBackend, "backend_error", 70, 500, "BackendError"},
    {ErrorCode::kCancelled, "cancelled", 130, 499, "Cancelled"},
    {ErrorCode::kInternal, "internal_error", 70, 500, "InternalError"},
}};

}  // namespace

std::span<const ErrorKind> error_kinds() noexcept {
  return kKinds;
}

const ErrorKind& error_kind(ErrorCode code) noexcept {
  return kKinds[static_cast<size_t>(code)];
}

Error::Error(ErrorCode code, const std::string& message)
    : std::runtime_error(message), code_(code) {}

}  // namespace ts
