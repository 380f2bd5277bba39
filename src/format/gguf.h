/// GGUF files (versions 2 and 3, little-endian), single or split, memory-mapped.
/// Format description: docs/formats/gguf.md.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "format/metadata.h"
#include "format/tensor_entry.h"

namespace ts {

/// Limits of the parser; a file beyond them is refused (see SECURITY.md).
struct GgufLimits {
  uint64_t max_metadata_pairs = 1 << 16;
  uint64_t max_tensors = 1 << 20;
  uint64_t max_string_bytes = uint64_t{1} << 30;
  uint64_t max_array_elems = uint64_t{1} << 28;
  /// Of all metadata arrays together, once read (narrow integers are widened).
  uint64_t max_metadata_memory_bytes = uint64_t{4} << 30;
  uint64_t max_shards = 4096;
};

class GgufFile {
 public:
  /// Opens `path` (the first part of a split file opens all parts), reads the header and checks
  /// every tensor's place against the file size. Unknown tensor types are listed, not refused.
  /// Legacy files whose type 42 has groups of 128 are recognised by their offsets and show as
  /// PQ2_0, which is the same layout; notes() says so.
  /// Errors: FormatError (damage), Unsupported (big-endian, future versions), IoError.
  static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path,
                                              const GgufLimits& limits = {});
  /// The same for one file already mapped (of a split file, no part).
  static std::shared_ptr<const GgufFile> open(std::shared_ptr<const MappedFile> file,
                                              const GgufLimits& limits = {});
  /// The same for bytes in memory (fuzzing, tests); `name` stands for the file in messages.
  static std::shared_ptr<const GgufFile> parse(std::span<const std::byte> bytes, std::string name,
                                               const GgufLimits& limits = {});

  const std::filesystem::path& path() const noexcept { return path_; }
  uint32_t version() const noexcept { return version_; }
  uint64_t alignment() const noexcept { return alignment_; }
  /// Sum of all parts.
  uint64_t file_bytes() const noexcept { return file_bytes_; }
  const Metadata& metadata() const noexcept { return metadata_; }
  std::span<const TensorEntry> tensors() const noexcept { return tensors_; }
  /// Null when absent.
  const TensorEntry* find(std::string_view name) const noexcept;
  /// Remarks for people (legacy layouts, placeholder names), one line each.
  std::span<const std::string> notes() const noexcept { return notes_; }
  /// The parts; empty for parse().
  std::span<const std::shared_ptr<const MappedFile>> parts() const noexcept { return parts_; }
  /// Throws IoError when a part became shorter since it was opened; see MappedFile.
  void check_not_truncated() const;
  /// These bytes of a tensor have been read for the last time; see MappedFile::discard().
  void release(std::span<const std::byte> data) const noexcept;

 private:
  friend class GgufParser;
  GgufFile() = default;
  std::filesystem::path path_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  uint64_t file_bytes_ = 0;
  Metadata metadata_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
  std::vector<std::string> notes_;
  std::vector<std::shared_ptr<const MappedFile>> parts_;
};

/// A tensor of a file to be written.
struct GgufOutputTensor {
  std::string name;
  TypeId type = TypeId::kF32;
  Shape shape;  ///< GGUF order
  uint64_t bytes = 0;
};

/// Checks name, shape and type of a tensor and counts its bytes. `file` is for messages.
/// Errors: InvalidArgument, Unsupported (a type without a codec).
GgufOutputTensor checked_gguf_tensor(const std::string& file, std::string name, TypeId type,
                                     const Shape& shape);

/// Everything of a GGUF v3 file that stands before the data, and where the data go.
struct GgufOutputLayout {
  std::string header;             ///< padded to the alignment; the data begin at its end
  std::vector<uint64_t> offsets;  ///< of each tensor, from the beginning of the data
  uint64_t data_bytes = 0;        ///< with the padding of every tensor
  uint64_t file_bytes() const noexcept { return header.size() + data_bytes; }
};
/// Errors: InvalidArgument (metadata that do not fit their types, more bytes than 64 bits count).
GgufOutputLayout lay_out_gguf(const std::string& file, const Metadata& metadata,
                              std::span<const GgufOutputTensor> tensors, uint64_t alignment = 32);

/// Streams a GGUF v3 file: declare everything, then supply the data tensor by tensor, in order.
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, bool overwrite, uint64_t alignment = 32);
  Metadata& metadata() noexcept { return metadata_; }
  /// Shape in GGUF order; the byte size follows from the codec of `type`.
  void add_tensor(std::string name, TypeId type, const Shape& shape);
  /// Checks that the disk has room, then writes header, metadata and tensor table.
  void begin_data();
  /// Appends bytes of the current tensor; a tensor may come in several pieces. When it is complete
  /// the next one begins (padding is written). Too many bytes are an InternalError.
  void write(std::span<const std::byte> bytes);
  /// Replaces a value that became known after begin_data() by one of the same length.
  void replace(const std::string& key, MetadataValue value);
  /// Checks that every tensor is complete, then makes the file appear. Returns its size.
  uint64_t finish();

 private:
  AtomicFile file_;
  uint64_t alignment_;
  Metadata metadata_;
  std::vector<GgufOutputTensor> tensors_;
  std::unordered_set<std::string> names_;
  size_t current_ = 0;
  uint64_t written_ = 0;
  bool data_begun_ = false;
};

}  // namespace ts
