/// Binds the tensors of a file to the roles a model declares.
///
/// An architecture declares each tensor it uses by name and shape. A tensor that is missing, has
/// another shape or a type that cannot be used there is an error that names it, and so is a tensor
/// that nothing declared: a model computed without one of its tensors would be silently wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "backend/backend.h"
#include "base/progress.h"
#include "format/gguf.h"
#include "model/hadamard_contract.h"
#include "model/linear.h"

namespace ts {

/// Whether the values of vectors and tables are read, checked and handed out. Else they come back
/// empty.
enum class VectorValues { kSkipped, kRead };

enum class Bias { kNone, kOptional, kRequired };

class TensorLoader {
 public:
  /// With a null backend everything is declared and checked, but nothing is loaded: matrices come
  /// back null, and vectors empty where `values` says so. `progress` may be null;
  /// `contract` says which matrices are stored rotated (null = none); `residual` holds further
  /// planes of matrices (null = none).
  TensorLoader(std::shared_ptr<const GgufFile> file, Backend* backend, const Progress* progress,
               std::shared_ptr<const HadamardContract> contract, VectorValues values,
               std::shared_ptr<const GgufFile> residual = nullptr);

  /// The file, for messages.
  std::string source() const { return file_->path().string(); }
  bool has(std::string_view name) const { return file_->find(name) != nullptr; }

  /// "<name>.weight" {n_in, n_out}, and "<name>.bias" {n_out} as `bias` says; with the rotations
  /// the file states for it, and the further planes that the residual file has of it.
  Linear linear(const std::string& name, int64_t n_in, int64_t n_out, Bias bias = Bias::kNone);
  /// "<name>.weight" {d_model, n_vocab} as a table of embeddings, with the rotation of its rows.
  Embedding embedding(const std::string& name, int64_t d_model, int64_t n_vocab,
                      WeightUse use = WeightUse::kTableAndMatrix);
  /// A matrix {n_cols, n_rows} of any type a codec can decode. Only for matrices that are never
  /// stored rotated: finish() refuses a file that says otherwise.
  std::shared_ptr<const Weight> matrix(const std::string& name, int64_t n_cols, int64_t n_rows,
                                       WeightUse use = WeightUse::kMatrix);
  /// A vector of `size` finite numbers, stored as F32, F16 or BF16.
  std::vector<float> vector(const std::string& name, int64_t size);
  /// The same for a table {n_cols, n_rows}: row after row.
  std::vector<float> table(const std::string& name, int64_t n_cols, int64_t n_rows);
  /// The same as vector(), empty when the file has no such tensor.
  std::vector<float> optional_vector(const std::string& name, int64_t size);

  /// Tensors whose names begin with `prefix` are not needed. Returns how many there are.
  size_t skip(std::string_view prefix);
  /// False when tensors are only declared and checked.
  bool loading() const noexcept { return backend_ != nullptr; }

  /// Call after the last declaration: throws Unsupported for a tensor that nothing declared (of
  /// the residual file, too), and
  /// for one that the file stores rotated but the model does not read through linear() or
  /// embedding().
  void finish() const;

  /// Names of all declared tensors that the file has, in order of declaration.
  const std::vector<std::string>& used() const noexcept { return used_; }
  /// All matrices loaded so far; owned by who got them.
  const std::vector<const Weight*>& weights() const noexcept { return weights_; }
  /// All rotations handed out so far, each once; owned by who got them.
  const std::vector<const Rotation*>& rotations() const noexcept { return rotations_; }
  /// File bytes of the matrices declared so far.
  uint64_t matrix_bytes() const noexcept { return matrix_bytes_; }
  /// Whether any matrix got further planes.
  bool has_planes() const noexcept { return !used_planes_.empty(); }
  uint64_t vector_bytes() const noexcept { return vector_bytes_; }

 private:
  const TensorEntry& require(const std::string& name, int64_t ne0, int64_t ne1);
  /// Of `file`: the tensor, with shape and bytes checked.
  static const TensorEntry& check(const GgufFile& file, const TensorEntry* entry,
                                  const std::string& name, int64_t ne0, int64_t ne1);
  std::shared_ptr<const Weight> upload(const TensorEntry& entry,
                                       const std::shared_ptr<const GgufFile>& file, WeightUse use);
  /// "<name>.plane1" and so on, as many as there are.
  void add_planes(const std::string& name, Linear& linear);
  /// The rotations of a matrix that is about to be applied with them.
  WeightRotations take_rotations(const std::string& name);

  std::shared_ptr<const GgufFile> file_;
  Backend* backend_;
  const Progress* progress_;
  std::shared_ptr<const HadamardContract> contract_;
  VectorValues values_;
  std::shared_ptr<const GgufFile> residual_;
  std::unordered_set<std::string> used_planes_;
  std::vector<std::string> used_;
  std::unordered_set<std::string> declared_;
  std::vector<const Weight*> weights_;
  std::vector<const Rotation*> rotations_;
  std::unordered_set<std::string> rotated_;
  uint64_t matrix_bytes_ = 0, vector_bytes_ = 0;
};

}  // namespace ts
