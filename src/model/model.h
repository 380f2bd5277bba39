/// A loaded model: immutable, thread-safe, computes logits from tokens and a State.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tensorsharp/error.hpp>

#include "backend/backend.h"
#include "base/progress.h"
#include "format/gguf.h"
#include "model/config.h"
#include "model/state.h"
#include "model/workspace.h"

namespace ts {

/// Sees every intermediate result of a forward pass: a name such as "blk.3.attn_output" and rows.
using ForwardProbe = std::function<void(std::string_view name, Mat rows)>;

/// Sees the rows [n_tokens, n_in] entering the Linears of these names ("blk.3.attn_q") before they
/// are multiplied. May end the pass with an exception of its own.
using LinearObserver = std::function<void(std::span<const std::string_view> names, Mat rows)>;

struct ForwardRequest {
  std::span<const int32_t> ids;  ///< at least one, at most the workspace's chunk; valid ids
  /// Where logits go: [n_vocab] of the last token, or [ids.size(), n_vocab] with `all_logits`.
  /// Empty = none are computed.
  std::span<float> logits;
  bool all_logits = false;
  /// Polled between layers; may be null. When it is up, Cancelled is thrown.
  const std::atomic<bool>* cancel = nullptr;
  const ForwardProbe* probe = nullptr;       ///< may be null
  const LinearObserver* observer = nullptr;  ///< may be null

  // A pass over part of the layers, for work that goes through a model layer by layer.
  int64_t first_layer = 0, end_layer = INT64_MAX;  ///< [first, end), cut to the layers there are
  /// The residual stream [ids.size(), d_model] before the first layer; empty = the embeddings.
  std::span<const float> hidden_in;
  /// Where to put it after the last layer of the range; empty = nowhere.
  std::span<float> hidden_out;
};

/// Thrown by Model::forward() when a requested logit is NaN or infinite.
class NonFiniteLogits : public FormatError {
 public:
  using FormatError::FormatError;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;
  /// Bytes of the matrices, and those of them that one decoded token reads.
  virtual uint64_t weight_bytes() const = 0;
  virtual uint64_t weight_bytes_per_token() const = 0;
  /// Elements of all tensors of the model.
  virtual int64_t n_parameters() const = 0;
  /// Names of the tensors in use, in the order the forward pass meets them.
  virtual const std::vector<std::string>& tensor_names() const = 0;

  /// All matrices that are multiplied with (each once), for checks of their kernels.
  virtual std::vector<const Weight*> weights() const = 0;
  /// All rotations in use (each once), likewise.
  virtual std::vector<const Rotation*> rotations() const = 0;

  StateLayout state_layout(int64_t capacity, KvType kv_type) const;
  WorkspaceLayout workspace_layout(int64_t chunk) const {
    return WorkspaceLayout::of(config(), chunk);
  }

  /// Computes request.ids at positions state.length()... and advances the state.
  /// On an error the state's length is as before, or 0 where it has recurrent layers
  /// (State::abandon()).
  /// Errors: Cancelled; NonFiniteLogits.
  virtual void forward(const ForwardRequest& request, State& state, Workspace& workspace) const = 0;
};

/// Checks that the file is a model this version can compute rightly and reads its hyper-parameters
/// and tensors. With a null backend everything is checked and measured but nothing is loaded, and
/// forward() must not be called. `progress` may be null.
/// `residual` holds further planes of some matrices ("<tensor>.plane1", ...); may be null. That it
/// belongs to `file` is the caller's to check.
/// Errors: FormatError (missing or misshapen tensors, bad keys), Unsupported (architecture, kind of
/// file, tensor types, keys that change how it must be computed), Cancelled.
std::unique_ptr<const Model> load_model(std::shared_ptr<const GgufFile> file, Backend* backend,
                                        const Progress* progress = nullptr,
                                        std::shared_ptr<const GgufFile> residual = nullptr);

/// The same checks as load_model() with a null backend, and those that a load makes of the values
/// of vectors and tables. Matrices are not read.
void check_model(std::shared_ptr<const GgufFile> file);

}  // namespace ts
