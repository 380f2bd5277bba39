/// Which matrices of a file are stored rotated, and how: the metadata keys prism.hadamard.* and,
/// for files of our own, tensorsharp.hadamard.output.* (docs/formats/hadamard.md).
///
/// The name lists alone decide, never a tensor's type. Everything is checked when the file is
/// opened: a rotation left out or misplaced would give fluent nonsense without any error.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "format/gguf.h"
#include "hadamard/rotation.h"

namespace ts {

/// How one matrix is stored. Null = not rotated on that side.
struct WeightRotations {
  std::shared_ptr<const Rotation> input;   ///< y = W (R x)
  std::shared_ptr<const Rotation> output;  ///< y = R^T (W x)
  /// Rows looked up are R e: the embedding is e = R^T row. (As an output matrix: W (R x).)
  std::shared_ptr<const Rotation> rows;
};

/// Whether the list of rotated inputs may name this tensor at all: the output matrix and the
/// matrices of layers, not norms, embeddings or the small projections of recurrent layers.
bool may_list_rotated_input(std::string_view tensor) noexcept;

/// Immutable.
class HadamardContract {
 public:
  /// Reads and checks the keys against the file's tensors; null when the file has none of them
  /// (with a warning when it has matrices of the types made for rotated weights). Errors:
  /// FormatError (a rule is broken; key and tensor are named), Unsupported (a version, transform,
  /// block or architecture this version cannot compute).
  static std::shared_ptr<const HadamardContract> read(const GgufFile& file);

  /// The one place that says how a tensor is stored.
  WeightRotations rotations_of(std::string_view tensor) const;
  /// All tensors with a rotation, in the order of the lists.
  const std::vector<std::string>& names() const noexcept { return names_; }
  /// One line for people: "block 1024, explicit signs for widths 5120, 6144; 401 matrices and the
  /// embedding".
  std::string describe() const;

  /// One warning naming matrices of the types made for rotated weights that are in no list, among
  /// the tensors in `used`: such a file may be meant so, or be damaged.
  void warn_of_unlisted(const GgufFile& file, const std::unordered_set<std::string>& used) const;

 private:
  friend class ContractReader;
  HadamardContract() = default;

  int64_t block_ = 0, output_block_ = 0;
  bool explicit_signs_ = false, tied_ = false, grouped_ = false;
  size_t n_inputs_ = 0, n_outputs_ = 0;
  std::vector<int64_t> widths_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, WeightRotations> rotations_;
};

/// What a file to be written declares.
struct RotationDeclaration {
  int64_t block = 0;
  std::map<int64_t, std::vector<int8_t>> signs;  ///< by width: +1 or -1 for each element
  std::vector<std::string> inputs;               ///< matrices stored as W R^T; at least one
  bool embedding = false;                        ///< the rows of token_embd.weight are rotated
  bool tied = false;     ///< and it serves as output matrix; only with `embedding`
  bool grouped = false;  ///< ssm_out was rotated over grouped heads
};

/// Sets the keys prism.hadamard.*.
void declare_rotation(const RotationDeclaration& declaration, Metadata& metadata);

}  // namespace ts
