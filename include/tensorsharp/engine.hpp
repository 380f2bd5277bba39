/// Loading a model and generating text: the public C++ API.
///
/// An Engine is immutable after load() and may be shared by threads. A Session is one sequence of
/// tokens and its caches; use it from one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tensorsharp/error.hpp>
#include <tensorsharp/export.hpp>

namespace ts {

enum class KvCacheType { kF32, kF16, kQ8 };

/// What loading needs against what there is; see Engine::plan().
struct MemoryPlan {
  struct Item {
    std::string name;
    uint64_t bytes;
  };
  std::vector<Item> items;  ///< weights, KV cache, scratch, ...
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;  ///< machine or container limit, whichever is less
  std::string limit_name;        ///< "MemAvailable", "cgroup memory.max", "RLIMIT_AS", ...
  int64_t context = 0, model_context = 0;
  bool fits = false;
  bool repacked = false;            ///< weights are copied, so that the file's pages are not needed
  std::vector<std::string> advice;  ///< what would make it fit
};

struct LoadOptions {
  int n_threads = 0;       ///< 0 = physical cores available to the process
  std::vector<int> cores;  ///< pin threads to these CPUs; empty = do not pin
  std::string isa;         ///< "", "auto", "ref", "avx2", ...; empty = TENSORSHARP_ISA or auto
  bool exact = false;      ///< f32 activations against decoded weights
  bool mlock = false;      ///< lock the weights in memory
  /// Copy weights into the layout of the fastest kernels where they have one and memory suffices;
  /// otherwise they are read from the mapped file.
  bool repack = true;
  std::string huge_pages = "auto";  ///< auto, on, off
  /// Where memory lies on machines with several memory nodes: auto (dealt out in turn over the
  /// nodes that the threads need, if more than one), interleave (over all), off (left to the
  /// system).
  std::string numa = "auto";
  /// A file in which the fastest kernels for this machine, measured at the first load of a weight
  /// type and shape (up to 0.2 s each), are kept; empty = do not measure.
  std::string kernel_choices;
  int64_t context = 0;  ///< positions per session; 0 = min(model, 8192), less if memory is short
  KvCacheType kv = KvCacheType::kF16;
  int64_t prefill_chunk = 0;  ///< tokens per forward pass; 0 = choose. A multiple of 64
  /// Models with recurrent layers cannot forget their last tokens; a session remembers states of
  /// earlier positions to go back to, in at most this many bytes. 0 = none.
  uint64_t checkpoint_bytes = uint64_t{320} << 20;
  std::string force_pre;  ///< pre-tokenizer name instead of an unknown one in the file
  /// Further weight planes in a sidecar STEM.residuals.gguf beside the file are loaded with it;
  /// false = the model without them.
  bool residual_planes = true;
  bool self_check = true;  ///< compare the chosen kernels with the reference at load
  /// (stage, done, total); may be empty.
  std::function<void(std::string_view, uint64_t, uint64_t)> progress;
  /// Sees the memory plan before anything is loaded, if it fits; may be empty.
  std::function<void(const MemoryPlan&)> on_plan;
  /// Polled during load; may be null.
  const std::atomic<bool>* cancel = nullptr;
};

struct ModelInfo {
  std::string path, name, architecture;
  std::string scheme;  ///< type of most weights of the layers, e.g. "q4_1"
  std::string isa;
  int n_threads = 0;
  std::string threads_reason;  ///< why this many threads
  int64_t n_parameters = 0;
  int64_t n_vocab = 0, n_layers = 0, d_model = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0,
          d_ff = 0;
  int64_t model_context = 0;  ///< what the model was made for
  int64_t context = 0;        ///< positions of a session of this engine
  uint64_t file_bytes = 0, weight_bytes = 0;
  uint64_t weight_bytes_per_token = 0;  ///< read for each decoded token
  uint64_t kv_bytes_per_session = 0, scratch_bytes_per_session = 0;
  double load_seconds = 0;
  bool has_chat_template = false;
};

struct ChatMessage {
  std::string role, content;
};

struct SamplingOptions {
  float temperature = 0.7F;     ///< 0 = greedy
  int top_k = 40;               ///< 0 = off
  float top_p = 0.95F;          ///< 1 = off
  float min_p = 0.0F;           ///< 0 = off
  float repeat_penalty = 1.0F;  ///< divides positive, multiplies negative logits; 1 = off
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  int penalty_window = -1;  ///< last tokens looked at, prompt included; -1 = all, 0 = none
  /// Order in which the steps run: any subset of penalties, top_k, typical, top_p, min_p,
  /// temperature; a step left out does nothing. Empty list = the default order below.
  std::vector<std::string> order = {"penalties", "top_k", "top_p", "min_p", "temperature"};
  float typical_p = 1.0F;        ///< locally typical sampling; 1 = off
  std::optional<uint64_t> seed;  ///< none = random; the one used is reported
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;  ///< natural logarithm, of the unmodified distribution
};

struct GeneratedToken {
  int32_t id = 0;
  std::string text;   ///< complete UTF-8 that became certain with this token; may be empty
  float logprob = 0;  ///< 0 unless n_logprobs > 0
  std::vector<TokenLogprob> top;  ///< n_logprobs most likely tokens
};

enum class StopReason { kEndOfText, kStopString, kLength, kContextFull, kCancelled };
TS_API std::string_view stop_reason_name(StopReason reason) noexcept;  ///< "end_of_text", ...

struct GenerateOptions {
  int64_t max_tokens = -1;  ///< -1 = until the context is full
  SamplingOptions sampling;
  std::vector<std::string> stop;  ///< their text is not returned
  int n_logprobs = 0;
  bool ignore_end = false;    ///< go on after end-of-text tokens
  bool show_special = false;  ///< print the texts of control tokens
  const std::atomic<bool>* cancel = nullptr;
  /// Progress of reading the prompt.
  std::function<void(uint64_t done, uint64_t total)> prompt_progress;
};

struct GenerateResult {
  std::string text;
  std::vector<int32_t> token_ids;      ///< the end token is not among them
  std::vector<GeneratedToken> tokens;  ///< filled when n_logprobs > 0
  StopReason stop_reason = StopReason::kLength;
  int64_t prompt_tokens = 0;  ///< length of the prompt
  int64_t cached_tokens = 0;  ///< of these, not computed again
  int64_t generated_tokens = 0;
  double prompt_seconds = 0, generate_seconds = 0, first_token_seconds = 0;
  uint64_t seed = 0;
};

class Tokenizer;
class ChatTemplate;
class Session;

class TS_API Engine : public std::enable_shared_from_this<Engine> {
 public:
  /// Loads a GGUF file (the first part of a split one), with the residual planes beside it, and
  /// checks it.
  static std::shared_ptr<const Engine> load(const std::string& path,
                                            const LoadOptions& options = {});
  /// What load() and one session would need, without loading.
  static MemoryPlan plan(const std::string& path, const LoadOptions& options = {});
  virtual ~Engine() = default;

  virtual const ModelInfo& info() const = 0;
  virtual std::unique_ptr<Session> new_session() const = 0;

  /// Token ids of a raw text. Control tokens in it are recognised only when `parse_special`.
  virtual std::vector<int32_t> tokenize(std::string_view text, bool add_special = true,
                                        bool parse_special = false) const = 0;
  virtual std::string detokenize(std::span<const int32_t> ids, bool show_special = true) const = 0;
  /// Token ids of a conversation through the model's chat template. Texts of control tokens inside
  /// messages stay plain text. `extra_json`: a JSON object of template variables, or empty.
  virtual std::vector<int32_t> tokenize_chat(std::span<const ChatMessage> messages,
                                             bool add_generation_prompt = true,
                                             std::string_view extra_json = {}) const = 0;
  /// What the file recommends for sampling, else the defaults.
  virtual SamplingOptions recommended_sampling() const = 0;

  // For code inside this project.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const = 0;
  virtual std::shared_ptr<const ChatTemplate> chat_template() const = 0;  ///< null = none
};

class TS_API Session {
 public:
  virtual ~Session() = default;
  virtual int64_t position() const = 0;  ///< tokens held
  virtual std::span<const int32_t> tokens() const = 0;
  virtual void reset() = 0;
  /// Drops tokens from `length` on. InvalidArgument when `length` is beyond position() or, with
  /// recurrent layers, not a position that the session can go back to; see rewind_target().
  virtual void truncate(int64_t length) = 0;
  /// The last position not after `length` that truncate() can go back to: `length` itself unless
  /// the model has recurrent layers.
  virtual int64_t rewind_target(int64_t length) const = 0;

  /// Appends tokens and computes them. `logits`: where to put f32 logits of the last token
  /// [n_vocab] or, with `all`, of every token [ids.size(), n_vocab]; empty = none are computed.
  /// Errors: InvalidArgument (bad id), ResourceExhausted (context full), FormatError (non-finite
  /// logits: names the first bad tensor), Cancelled once `cancel` is up (polled between layers;
  /// null = never): the session then holds the tokens computed so far.
  virtual void eval(std::span<const int32_t> ids, std::span<float> logits, bool all = false,
                    const std::atomic<bool>* cancel = nullptr) = 0;

  /// Makes the session hold `prompt` (re-using the longest common prefix), then generates.
  /// `on_token` sees every token as it comes; returning false stops (kCancelled). Text that was
  /// held back when generation ends without a further token comes in a last call with id -1.
  /// Afterwards the session holds prompt and answer (after a stop text: that too); what of it is
  /// not computed yet, such as the last token, is computed when it is needed. Prompt and answer
  /// together never exceed the context; a prompt that alone does is ResourceExhausted, and one that
  /// fills it exactly ends at once with kContextFull.
  virtual GenerateResult generate(
      std::span<const int32_t> prompt, const GenerateOptions& options,
      const std::function<bool(const GeneratedToken&)>& on_token = {}) = 0;

  /// Writes tokens, caches and states to a file that load() of a session of the same model reads.
  /// `note` is kept beside them for the application (at most 64 MiB).
  virtual void save(const std::string& path, bool overwrite = true,
                    std::string_view note = {}) const = 0;
  /// Replaces the contents by a saved session and returns the note. Errors: FormatError (damaged),
  /// InvalidArgument (another model or KV type), ResourceExhausted (longer than the context).
  virtual std::string load(const std::string& path) = 0;
  /// An independent session with the same contents.
  virtual std::unique_ptr<Session> fork() const = 0;
};

}  // namespace ts
