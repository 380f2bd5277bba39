/// The engine behind ts::Engine: a model, its backend, tokenizer and chat template.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tensorsharp/engine.hpp>

#include "backend/backend.h"
#include "format/gguf.h"
#include "model/model.h"
#include "runtime/memory_limits.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ts {

class EngineImpl final : public Engine {
 public:
  /// `available`: the memory there was before the file took any. `start`: when loading began.
  EngineImpl(std::shared_ptr<const GgufFile> file, const AvailableMemory& available,
             std::chrono::steady_clock::time_point start, const LoadOptions& options,
             std::shared_ptr<const GgufFile> residual = nullptr);

  const ModelInfo& info() const override { return info_; }
  std::unique_ptr<Session> new_session() const override;
  std::vector<int32_t> tokenize(std::string_view text, bool add_special,
                                bool parse_special) const override;
  std::string detokenize(std::span<const int32_t> ids, bool show_special) const override;
  std::vector<int32_t> tokenize_chat(std::span<const ChatMessage> messages,
                                     bool add_generation_prompt,
                                     std::string_view extra_json) const override;
  SamplingOptions recommended_sampling() const override { return sampling_; }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return tokenizer_; }
  std::shared_ptr<const ChatTemplate> chat_template() const override { return template_; }

  // For sessions.
  const Model& model() const noexcept { return *model_; }
  Backend& backend() const noexcept { return *backend_; }
  const GgufFile& file() const noexcept { return *file_; }
  KvType kv_type() const noexcept { return kv_type_; }
  int64_t chunk() const noexcept { return chunk_; }
  uint64_t checkpoint_bytes() const noexcept { return checkpoint_bytes_; }
  /// Searches tensors, then intermediate results of `ids`, for what made a logit NaN or infinite;
  /// always throws FormatError. Where both are finite, a saved session that the computation went on
  /// from (`restored_from`, or empty) is to blame.
  [[noreturn]] void explain_non_finite(std::span<const int32_t> ids, const std::string& what,
                                       const std::string& restored_from) const;
  /// Warns once when decoding keeps reading weights from the disk.
  void note_page_faults(int64_t faults, int64_t n_tokens) const;
  /// Identifies model and cache layout, for saved sessions.
  std::string fingerprint() const;

 private:
  void load_weights(const LoadOptions& options, bool repacked, const Progress& progress);
  void load_text(const LoadOptions& options);
  void read_sampling();
  void self_check() const;

  std::shared_ptr<const GgufFile> file_;
  std::shared_ptr<const GgufFile> residual_;  ///< further planes; null = none
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<const Model> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> template_;
  std::string template_error_;  ///< why the file's template cannot be used
  SamplingOptions sampling_;
  ModelInfo info_;
  KvType kv_type_ = KvType::kF16;
  int64_t chunk_ = 0;
  uint64_t checkpoint_bytes_ = 0;
  mutable std::atomic<bool> warned_of_faults_{false};
};

}  // namespace ts
