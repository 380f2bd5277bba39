/// Errors of the public API.
///
/// Every failure is thrown as a ts::Error or one of its subclasses; the subclass says what a caller
/// can do about it. One table (error_kinds) maps each code to its name, the exit status of the
/// command line, the HTTP status of the server and the Python exception class.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tensorsharp/export.hpp>

namespace ts {

enum class ErrorCode {
  kInvalidArgument,    ///< the caller's request is wrong; change it
  kHadamardDimension,  ///< a transform block that does not divide a width; suggested_blocks() fit
  kFormat,             ///< an input file or text is damaged or malformed
  kIo,                 ///< the operating system refused to read or write
  kUnsupported,        ///< the input is well-formed but this version cannot use it
  kResourceExhausted,  ///< it does not fit into memory, disk or a limit
  kBackend,            ///< a device or kernel failed or computes wrong results
  kCancelled,          ///< the caller interrupted the work
  kInternal,           ///< a defect of this program; please report
};

/// One row of the error table. Strings are static.
struct ErrorKind {
  ErrorCode code;
  std::string_view name;          ///< stable identifier, e.g. "format_error"
  int exit_status;                ///< exit status of the command line
  int http_status;                ///< status of the HTTP server
  std::string_view python_class;  ///< exception class of the Python package
};

/// All rows, in the order of ErrorCode.
TS_API std::span<const ErrorKind> error_kinds() noexcept;
/// The row of one code.
TS_API const ErrorKind& error_kind(ErrorCode code) noexcept;

/// Base class. what() is a message for people: it names the file, the field or tensor, what was
/// found, what was expected and what to do, in at most three lines.
class TS_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);
  ErrorCode code() const noexcept { return code_; }
  const ErrorKind& kind() const noexcept { return error_kind(code_); }

 private:
  ErrorCode code_;
};

class TS_API InvalidArgument : public Error {
 public:
  explicit InvalidArgument(const std::string& message)
      : Error(ErrorCode::kInvalidArgument, message) {}

 protected:
  InvalidArgument(ErrorCode code, const std::string& message) : Error(code, message) {}
};

/// A Hadamard block size that does not divide a width.
class TS_API HadamardDimensionError : public InvalidArgument {
 public:
  HadamardDimensionError(const std::string& message, std::vector<int64_t> suggested_blocks)
      : InvalidArgument(ErrorCode::kHadamardDimension, message),
        suggested_blocks_(std::move(suggested_blocks)) {}
  /// Block sizes (powers of two) that would fit, largest first.
  const std::vector<int64_t>& suggested_blocks() const noexcept { return suggested_blocks_; }

 private:
  std::vector<int64_t> suggested_blocks_;
};

#define TS_DEFINE_ERROR(Name, Code)                                     \
  class TS_API Name : public Error {                                    \
   public:                                                              \
    explicit Name(const std::string& message) : Error(Code, message) {} \
  }
TS_DEFINE_ERROR(FormatError, ErrorCode::kFormat);
TS_DEFINE_ERROR(IoError, ErrorCode::kIo);
TS_DEFINE_ERROR(Unsupported, ErrorCode::kUnsupported);
TS_DEFINE_ERROR(ResourceExhausted, ErrorCode::kResourceExhausted);
TS_DEFINE_ERROR(BackendError, ErrorCode::kBackend);
TS_DEFINE_ERROR(Cancelled, ErrorCode::kCancelled);
TS_DEFINE_ERROR(InternalError, ErrorCode::kInternal);
#undef TS_DEFINE_ERROR

}  // namespace ts
