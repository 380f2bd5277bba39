/// The rotation a quantized file carries: which block, which signs, and the metadata that say so
/// (docs/formats/hadamard.md).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/metadata.h"
#include "hadamard/rotation.h"
#include "model/hadamard_contract.h"

namespace ts {

/// Largest and smallest block that is chosen automatically. Measured on weights alone, 64 already
/// gives nearly all of the gain; a width that would force a smaller one is left unrotated.
inline constexpr int64_t kLargestAutomaticBlock = 1024;
inline constexpr int64_t kSmallestAutomaticBlock = 64;

/// A matrix that could be rotated.
struct RotationCandidate {
  std::string name;
  int64_t width = 0;
};

/// The largest power of two, at most kLargestAutomaticBlock, that divides all widths that are
/// multiples of kSmallestAutomaticBlock; 0 when there is no such width.
int64_t automatic_block(const std::vector<RotationCandidate>& candidates) noexcept;

/// Heads of recurrent layers, for ssm_out.
struct RecurrentHeads {
  int64_t n_key_heads = 0, n_value_heads = 0;
};

/// Makes rotations of one block with signs drawn from a seed, one per width, and remembers what the
/// file must declare.
class RotationSet {
 public:
  /// block 0: nothing is rotated.
  RotationSet(int64_t block, uint64_t seed, std::optional<RecurrentHeads> heads)
      : seed_(seed), heads_(heads) {
    declaration_.block = block;
  }

  int64_t block() const noexcept { return declaration_.block; }
  bool empty() const noexcept { return declaration_.inputs.empty(); }
  /// Draws the signs of a width from another seed; before its first rotation.
  void use_seed(int64_t width, uint64_t seed) { seeds_[width] = seed; }
  /// The rotation of a layer's matrix or of the output matrix, which the file will list. Matrices
  /// of equal width share one. Errors: HadamardDimensionError naming the matrix.
  std::shared_ptr<const Rotation> add_input(const std::string& name, int64_t width);
  /// The rotation of the rows of the embedding; the file needs some rotated input, too. `tied`: the
  /// file has no output matrix of its own.
  std::shared_ptr<const Rotation> add_embedding(int64_t width, bool tied);

  /// What the file must declare; meaningless when empty().
  const RotationDeclaration& declaration() const noexcept { return declaration_; }

 private:
  std::shared_ptr<const Rotation> rotation(const std::string& name, int64_t width, bool grouped);

  uint64_t seed_;
  std::optional<RecurrentHeads> heads_;
  std::map<int64_t, uint64_t> seeds_;  ///< of widths with one of their own
  RotationDeclaration declaration_;
  std::map<std::pair<int64_t, bool>, std::shared_ptr<const Rotation>> made_;
};

/// Signs +1 and -1 for a width: the same for the same seed everywhere.
std::vector<int8_t> random_signs(uint64_t seed, int64_t width);

/// Removes every key of a rotation from `metadata`.
void erase_rotation_keys(Metadata& metadata);

}  // namespace ts
