/// One tensor on its way into a GGUF file: which type it gets, and the stream of its rows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "codec/codec.h"
#include "convert/convert.h"
#include "convert/row_source.h"
#include "format/gguf.h"

namespace ts {

struct OutputTensor {
  std::string name;
  std::vector<std::string> sources;
  std::string source_type;
  const Codec* kept = nullptr;  ///< the type that holds the source's values: what "auto" means
  const Codec* codec = nullptr;
  Shape shape;
  RowSourcePtr rows;
  /// Blocks of type `kept` in output order; when `codec` is the same they are copied unread.
  std::span<const std::byte> packed;
};

/// True for tensors that are f32 whatever weight type is asked for: vectors, norms, and the small
/// tensors that the recurrent and mixture layers need exactly.
bool stays_f32(std::string_view name, const Shape& shape);

/// Decides the type of each tensor and collects why some did not get the one asked for.
class TypeChooser {
 public:
  /// Throws InvalidArgument when options.type names no codec that can be written.
  explicit TypeChooser(const ConvertOptions& options);
  /// Null when every tensor keeps its type.
  const Codec* requested() const noexcept { return requested_; }
  /// Sets tensor.codec from tensor.kept, name, shape and (for ternary types) values.
  void choose(OutputTensor& tensor);
  /// One line for each reason that kept tensors from the type asked for.
  std::vector<std::string> notes() const;
  /// Throws Unsupported when a ternary type was asked for and no tensor can hold it.
  void check_useful(const std::string& input) const;

 private:
  void keep(OutputTensor& tensor, const std::string& reason);

  const Codec* requested_ = nullptr;
  bool lossy_ = false;
  bool used_ = false;
  struct Reason {
    uint64_t count = 0;
    std::string first;
  };
  std::map<std::string, Reason> reasons_;
};

/// The type that holds computed values exactly and takes the least space: bf16, f16 or f32.
const Codec& smallest_exact_float(const RowSource& rows);

/// Streams the rows of `tensor` into `writer`. Throws FormatError when a value is not finite and
/// Unsupported when a value would change and `lossy` is false; both name the place. `done_bytes`
/// counts output bytes for the progress report. Returns whether all values survived.
bool write_tensor(GgufWriter& writer, const OutputTensor& tensor, bool lossy,
                  const std::string& input, const Progress& progress, uint64_t& done_bytes,
                  uint64_t total_bytes);

/// Declares `tensors`, writes the data and completes the file and the report.
void write_gguf(GgufWriter& writer, const std::vector<OutputTensor>& tensors,
                const ConvertOptions& options, const std::string& input, const Progress& progress,
                ConvertReport& report);

/// general.file_type of a file whose values are mostly of one of these types; nothing when that
/// type has no number.
std::optional<uint32_t> file_type_of(const std::vector<OutputTensor>& tensors);

}  // namespace ts
