/// One sequence: its tokens, its state in the model and its scratch memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tensorsharp/engine.hpp>

#include "model/state.h"
#include "model/workspace.h"
#include "runtime/engine_impl.h"

namespace ts {

class SessionImpl final : public Session {
 public:
  explicit SessionImpl(std::shared_ptr<const EngineImpl> engine);

  int64_t position() const override { return static_cast<int64_t>(tokens_.size()); }
  std::span<const int32_t> tokens() const override { return tokens_; }
  void reset() override { truncate(0); }
  void truncate(int64_t length) override;
  void eval(std::span<const int32_t> ids, std::span<float> logits, bool all,
            const std::atomic<bool>* cancel) override;
  GenerateResult generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                          const std::function<bool(const GeneratedToken&)>& on_token) override;
  int64_t rewind_target(int64_t length) const override;
  void save(const std::string& path, bool overwrite, std::string_view note) const override;
  std::string load(const std::string& path) override;
  std::unique_ptr<Session> fork() const override;

 private:
  /// Appends ids chunk by chunk. Chunks end on multiples of the chunk size, wherever they begin.
  /// With recurrent layers states are remembered on the way, one of them shortly before the end:
  /// what comes next usually repeats all but the last few tokens.
  void append(std::span<const int32_t> ids, std::span<float> logits, bool all,
              const std::atomic<bool>* cancel,
              const std::function<void(uint64_t, uint64_t)>& progress = {});
  /// Computes the tokens that the state lacks.
  void catch_up(const std::atomic<bool>* cancel);
  size_t checkpoint_before(size_t end) const;
  void check_ids(std::span<const int32_t> ids) const;

  std::shared_ptr<const EngineImpl> engine_;
  State state_;
  Workspace workspace_;
  /// The sequence. The state may cover only its beginning: the rest is computed when it is needed.
  std::vector<int32_t> tokens_;
  /// The file that the state, or its beginning, was read from; empty = it was computed here.
  std::string restored_from_;
};

}  // namespace ts
