#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/cpu_topology.h"
#include "base/json.h"
#include "base/locked_memory.h"
#include "base/log.h"
#include "base/memory_nodes.h"
#include "base/page_buffer.h"
#include "base/sha256.h"
#include "codec/codec.h"
#include "model/gguf_tokenizer.h"
#include "model/non_finite.h"
#include "runtime/engine_impl.h"
#include "runtime/plan.h"
#include "runtime/residual_file.h"
#include "runtime/session_impl.h"
#include "text/utf8.h"

namespace ts {
namespace {

/// Major page faults per decoded token that mean the weights do not stay in memory.
constexpr int64_t kFaultsPerToken = 64;

/// Adapts LoadOptions to what loaders take.
Progress progress_of(const LoadOptions& options) {
  Progress progress;
  progress.report = [&options](std::string_view stage, uint64_t done, uint64_t total) {
    if (options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed))
      throw Cancelled("interrupted while loading");
    if (options.progress) options.progress(stage, done, total);
  };
  return progress;
}

/// Name of the type that holds most bytes of matrices.
/// The type of most weights of the layers; embedding and output matrix are often of another one.
std::string dominant_type(const GgufFile& file) {
  std::map<std::string, uint64_t> weights;
  for (const TensorEntry& t : file.tensors()) {
    if (t.shape.n_rows() > 1 && t.name.starts_with("blk."))
      weights[type_name(t.type)] += static_cast<uint64_t>(t.shape.n_elems());
  }
  std::string best;
  uint64_t most = 0;
  for (const auto& [name, n] : weights) {
    if (n > most) {
      most = n;
      best = name;
    }
  }
  return best;
}

std::string display_name(const GgufFile& file) {
  std::string name = file.metadata().get_string("general.name").value_or("");
  if (name.empty() || name == "Hf") name = file.path().stem().string();  // "Hf" is a placeholder
  return name;
}

/// A doubled begin-of-sequence token (one from the text, one from the tokenizer) harms quality.
void keep_one_bos(std::vector<int32_t>& ids, const Tokenizer& tokenizer) {
  const auto bos = tokenizer.data().bos;
  while (bos && ids.size() >= 2 && ids[0] == *bos && ids[1] == *bos)
    ids.erase(ids.begin());
}

/// Runs `work` on texts of the file at `path`; its errors come out naming the file.
template <typename F>
auto naming_file(const std::string& path, F&& work) {
  const auto named = [&](const Error& error) {
    const std::string what = error.what();
    return what.find(path) != std::string::npos ? what : fmt::format("{}: {}", path, what);
  };
  try {
    return work();
  } catch (const FormatError& error) {
    throw FormatError(named(error));
  } catch (const Unsupported& error) {
    throw Unsupported(named(error));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(named(error));
  }
}

/// Bytes of messages below which a template that hits its limits is to blame, not the conversation.
constexpr size_t kOrdinaryConversationBytes = size_t{1} << 20;

/// The text as valid UTF-8, which templates need.
std::string utf8_or_replaced(const std::string& text, bool& replaced) {
  if (is_valid_utf8(text)) return text;
  replaced = true;
  std::string out;
  append_valid_utf8(out, text);
  return out;
}

}  // namespace

std::string_view stop_reason_name(StopReason reason) noexcept {
  switch (reason) {
    case StopReason::kEndOfText:
      return "end_of_text";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kLength:
      return "length";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

std::shared_ptr<const Engine> Engine::load(const std::string& path, const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  progress_of(options)("reading header", 0, 0);
  const AvailableMemory available = available_memory();  // before the file takes address space
  auto file = GgufFile::open(path);
  auto residual = options.residual_planes ? open_residual(*file, progress_of(options)) : nullptr;
  return std::make_shared<EngineImpl>(std::move(file), available, start, options,
                                      std::move(residual));
}

MemoryPlan Engine::plan(const std::string& path, const LoadOptions& options) {
  const AvailableMemory available = available_memory();  // before the file takes address space
  const auto file = GgufFile::open(path);
  const auto residual =
      options.residual_planes ? open_residual(*file, progress_of(options)) : nullptr;
  const auto model = load_model(file, nullptr, nullptr, residual);
  return plan_memory(*model, *file, options, available);
}

namespace {

void report_memory_nodes(std::string_view mode, const MemoryNodeChoice& nodes,
                         const InterleavedMemory& interleaved) {
  if (interleaved.active())
    log_info(fmt::format("memory is dealt out over nodes ({})", nodes.reason));
  else if (!interleaved.obstacle().empty())
    log_warning(fmt::format("memory is not dealt out over nodes: {}", interleaved.obstacle()));
  else if (mode == "interleave")
    log_warning(fmt::format("--numa interleave has no effect: {}", nodes.reason));
}

}  // namespace

EngineImpl::EngineImpl(std::shared_ptr<const GgufFile> file, const AvailableMemory& available,
                       std::chrono::steady_clock::time_point start, const LoadOptions& options,
                       std::shared_ptr<const GgufFile> residual)
    : file_(std::move(file)), residual_(std::move(residual)) {
  const Progress progress = progress_of(options);
  const std::string path = file_->path().string();
  for (const std::string& note : file_->notes())
    log_info(fmt::format("{}: {}", path, note));

  // Everything is checked and measured before anything is loaded. The model is read
  // twice for that; each warning is given once, when this ends.
  const WarningCollector warnings;
  const auto outline = load_model(file_, nullptr, nullptr, residual_);
  const MemoryPlan plan = plan_memory(*outline, *file_, options, available);
  require_fit(plan, path);
  if (options.on_plan) options.on_plan(plan);
  if (options.context == 0 && plan.context < std::min<int64_t>(plan.model_context, 8192))
    log_warning(fmt::format("context reduced to {} to fit in memory: {}", plan.context,
                            describe_plan(plan)));
  if (plan.context > plan.model_context)
    log_warning(fmt::format("a context of {} is more than the {} the model was made for",
                            plan.context, plan.model_context));

  CpuBackendOptions backend_options;
  backend_options.n_threads = options.n_threads;
  backend_options.cores = options.cores;
  backend_options.isa = options.isa == "auto" ? "" : options.isa;
  backend_options.exact = options.exact;
  if (options.huge_pages != "auto" && options.huge_pages != "on" && options.huge_pages != "off")
    throw InvalidArgument(
        fmt::format("huge_pages is \"{}\", expected auto, on or off", options.huge_pages));
  backend_options.huge_pages = options.huge_pages != "off";
  backend_options.repack = plan.repacked;
  backend_options.kernel_choices = options.exact ? "" : options.kernel_choices;
  const int n_threads = options.n_threads > 0 ? options.n_threads : default_threads().n_threads;
  const MemoryNodeChoice nodes =
      choose_memory_nodes(options.numa, read_cpu_topology(), options.cores, n_threads);
  // The backend's threads are started under it and keep it.
  const InterleavedMemory interleaved(nodes.interleave);
  report_memory_nodes(options.numa, nodes, interleaved);
  if (options.mlock) require_lockable(outline->weight_bytes(), path);
  backend_ = make_cpu_backend(backend_options);
  load_weights(options, plan.repacked, progress);
  progress("loading tokenizer", 0, 0);
  load_text(options);
  read_sampling();
  if (options.self_check) {
    progress("checking kernels", 0, 0);
    self_check();
  }

  kv_type_ = kv_type_of(options.kv);
  chunk_ = prefill_chunk_of(options, plan.context);
  checkpoint_bytes_ = options.checkpoint_bytes;
  const ModelConfig& config = model_->config();
  info_.path = path;
  info_.name = display_name(*file_);
  info_.architecture = config.architecture;
  info_.scheme = dominant_type(*file_);
  info_.isa = std::string(backend_->isa());
  info_.n_threads = backend_->n_threads();
  info_.threads_reason = options.n_threads > 0 ? "as asked" : default_threads().reason;
  info_.n_parameters = model_->n_parameters();
  info_.n_vocab = config.n_vocab;
  info_.n_layers = config.n_layers;
  info_.d_model = config.d_model;
  // Of the attention layers; a model may begin with others.
  const auto attention = std::find_if(config.layers.begin(), config.layers.end(),
                                      [](const LayerShape& layer) { return !layer.recurrent; });
  if (attention != config.layers.end()) {
    info_.n_heads = attention->n_heads;
    info_.n_kv_heads = attention->n_kv_heads;
  }
  info_.head_dim = config.head_dim;
  info_.d_ff = config.layers[0].d_ff;
  info_.model_context = config.context_length;
  info_.context = plan.context;
  info_.file_bytes = file_->file_bytes() + (residual_ ? residual_->file_bytes() : 0);
  info_.weight_bytes = model_->weight_bytes();
  info_.weight_bytes_per_token = model_->weight_bytes_per_token();
  info_.kv_bytes_per_session = model_->state_layout(plan.context, kv_type_).bytes();
  info_.scratch_bytes_per_session = model_->workspace_layout(chunk_).bytes();
  info_.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void EngineImpl::load_weights(const LoadOptions& options, bool repacked, const Progress& progress) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t processor_start = std::clock();
  model_ = load_model(file_, backend_.get(), &progress, residual_);
  const double processor = static_cast<double>(std::clock() - processor_start) / CLOCKS_PER_SEC;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::vector<std::span<const std::byte>> ranges;
  uint64_t copied = 0;
  for (const Weight* weight : model_->weights()) {
    ranges.push_back(weight->host_bytes());
    if (weight->mapped_bytes().empty()) copied += weight->bytes();
  }
  if (options.mlock) lock_memory(std::move(ranges), file_->path().string());
  if (!repacked || copied == 0) return;
  const uint64_t huge = bytes_in_huge_pages().value_or(0);
  log_info(fmt::format(
      "weights repacked: {} in {:.2f} s, {:.2f} GB/s ({:.2f} s of processor time); {} in huge "
      "pages",
      format_bytes(copied), taken.count(), static_cast<double>(copied) / taken.count() * 1e-9,
      processor, format_bytes(huge)));
  // Without them everything works, more slowly; a model of a few megabytes fills none.
  if (options.huge_pages == "on" && copied >= 4 * PageBuffer::kHugePage && huge < copied / 2)
    log_warning(fmt::format(
        "--huge-pages on: only {} of {} of repacked weights are in huge pages; the system has none "
        "to give or forbids them (/sys/kernel/mm/transparent_hugepage/enabled)",
        format_bytes(huge), format_bytes(copied)));
}

void EngineImpl::load_text(const LoadOptions& options) {
  TokenizerData data = read_gguf_tokenizer(file_->metadata());
  const std::string source = data.chat_template;
  tokenizer_ = Tokenizer::create(std::move(data), options.force_pre);
  info_.has_chat_template = !source.empty();
  if (source.empty()) return;
  try {
    template_ = ChatTemplate::parse(source);
  } catch (const Error& error) {
    // The model still completes raw text; conversations report the reason.
    template_error_ = error.what();
    log_warning(fmt::format("the chat template of {} cannot be used: {}", file_->path().string(),
                            template_error_));
  }
}

void EngineImpl::read_sampling() {
  const Metadata& metadata = file_->metadata();
  const auto number = [&](const char* key, double min, double max) -> std::optional<double> {
    std::optional<double> value;
    try {
      value = metadata.get_float(key);
    } catch (const FormatError& error) {
      log_warning(fmt::format("ignored: {}", error.what()));
      return std::nullopt;
    }
    if (value && !(*value >= min && *value <= max)) {
      log_warning(fmt::format("{}: {} = {} is ignored, expected {} to {}", metadata.source(), key,
                              *value, min, max));
      return std::nullopt;
    }
    return value;
  };
  if (const auto v = number("general.sampling.temp", 0, 100))
    sampling_.temperature = static_cast<float>(*v);
  if (const auto v = number("general.sampling.top_p", 1e-6, 1))
    sampling_.top_p = static_cast<float>(*v);
  if (const auto v = number("general.sampling.min_p", 0, 1))
    sampling_.min_p = static_cast<float>(*v);
  if (const auto v = number("general.sampling.top_k", 0, 1e9))
    sampling_.top_k = static_cast<int>(std::lround(*v));
}

void EngineImpl::self_check() const {
  const std::vector<const Weight*> weights = model_->weights();
  const std::vector<const Rotation*> rotations = model_->rotations();
  const KernelCheck check = check_kernels(*backend_, weights, rotations);
  log_debug(fmt::format("kernels checked on {} shapes and {} transforms in {:.1f} ms",
                        check.n_shapes, check.n_transforms, check.seconds * 1000));
}

std::unique_ptr<Session> EngineImpl::new_session() const {
  return std::make_unique<SessionImpl>(
      std::static_pointer_cast<const EngineImpl>(shared_from_this()));
}

std::vector<int32_t> EngineImpl::tokenize(std::string_view text, bool add_special,
                                          bool parse_special) const {
  EncodeOptions options;
  options.add_special = add_special;
  options.parse_special = parse_special;
  auto ids = naming_file(info_.path, [&] { return tokenizer_->encode(text, options); });
  if (add_special) keep_one_bos(ids, *tokenizer_);
  return ids;
}

std::string EngineImpl::detokenize(std::span<const int32_t> ids, bool show_special) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokenizer_->n_vocab())
      throw InvalidArgument(fmt::format("token id {} is outside the vocabulary (0 to {})", id,
                                        tokenizer_->n_vocab() - 1));
  }
  return tokenizer_->decode(ids, show_special);
}

std::vector<int32_t> EngineImpl::tokenize_chat(std::span<const ChatMessage> messages,
                                               bool add_generation_prompt,
                                               std::string_view extra_json) const {
  if (!template_ && !template_error_.empty())
    throw FormatError(fmt::format("{}: the chat template cannot be used: {}\ngive raw text (--raw)",
                                  info_.path, template_error_));
  if (!template_)
    throw Unsupported(
        fmt::format("{}: the model carries no chat template; give raw text (--raw)", info_.path));
  ChatRequest request;
  size_t n_bytes = extra_json.size();
  bool replaced = false;
  for (const ChatMessage& message : messages) {
    n_bytes += message.content.size();
    request.messages.push_back({{"role", utf8_or_replaced(message.role, replaced)},
                                {"content", utf8_or_replaced(message.content, replaced)}});
  }
  if (replaced)
    log_warning(
        "bytes of the messages that are not UTF-8 became U+FFFD: chat templates work on "
        "characters (raw text keeps every byte)");
  request.add_generation_prompt = add_generation_prompt;
  if (!extra_json.empty()) {
    nlohmann::json extra;
    try {
      extra = parse_json_limited(extra_json, "chat template variables");
    } catch (const FormatError& error) {
      throw InvalidArgument(error.what());
    }
    if (!extra.is_object())
      throw InvalidArgument("chat template variables: expected a JSON object");
    if (const auto tools = extra.find("tools"); tools != extra.end()) {
      request.tools = *tools;
      extra.erase(tools);
    }
    request.extra = extra;
  }
  const TokenizerData& data = tokenizer_->data();
  if (data.bos) request.bos_token = tokenizer_->token_text(*data.bos);
  if (data.eos) request.eos_token = tokenizer_->token_text(*data.eos);
  const RenderedPrompt prompt = naming_file(info_.path, [&] {
    try {
      return template_->render(request);
    } catch (const ResourceExhausted& error) {
      if (n_bytes > kOrdinaryConversationBytes)
        throw ResourceExhausted(fmt::format("{}: {}", info_.path, error.what()));
      throw FormatError(error.what());
    }
  });
  auto ids = tokenizer_->encode_marked(prompt.text, prompt.untrusted, false);
  // The template decides about the end; of the beginning there is exactly one.
  if (tokenizer_->adds_bos() && data.bos && (ids.empty() || ids[0] != *data.bos))
    ids.insert(ids.begin(), *data.bos);
  keep_one_bos(ids, *tokenizer_);
  return ids;
}

void EngineImpl::explain_non_finite(std::span<const int32_t> ids, const std::string& what,
                                    const std::string& restored_from) const {
  log_info("looking for the tensor that makes the logits non-finite");
  auto cause = find_non_finite_weight(*file_, *model_);
  if (!cause && !ids.empty()) cause = find_non_finite_activation(*model_, *backend_, ids, kv_type_);
  if (!cause && !restored_from.empty())
    throw FormatError(
        fmt::format("{}: {}: the saved session is damaged, the model is not: from the beginning "
                    "the same tokens "
                    "give finite numbers\nbegin a new session",
                    restored_from, what));
  throw FormatError(fmt::format(
      "{}: {}: {}\nthe file is damaged or was quantized badly; download or convert it again",
      info_.path, what,
      cause.value_or("all weights and intermediate results are finite when computed again")));
}

void EngineImpl::note_page_faults(int64_t faults, int64_t n_tokens) const {
  if (n_tokens < 4 || faults < kFaultsPerToken * n_tokens || warned_of_faults_.exchange(true))
    return;
  log_warning(fmt::format(
      "the model does not stay in memory: {} page reads from disk for {} tokens ({} per token); "
      "weights {}, available {}. Free memory, use --mlock or a smaller model",
      faults, n_tokens, faults / n_tokens, format_bytes(info_.weight_bytes),
      format_bytes(available_memory().bytes)));
}

std::string EngineImpl::fingerprint() const {
  std::string text = fmt::format("{}|{}|{}|{}", info_.architecture, static_cast<int>(kv_type_),
                                 backend_->name(), info_.file_bytes);
  if (residual_) text += residual_->metadata().get_string(kResidualBaseKey).value_or("");
  // All of the metadata (the file up to its first tensor), and samples of every tensor.
  uint64_t data_begin = UINT64_MAX;
  const std::byte* file_begin = nullptr;
  for (const TensorEntry& t : file_->tensors()) {
    text += fmt::format("|{} {} {} ", t.name, static_cast<uint32_t>(t.type), t.shape.to_string());
    constexpr size_t kSample = 256, kSamples = 32;
    const size_t step = std::max(kSample, t.data.size() / kSamples);
    for (size_t at = 0; at < t.data.size(); at += step) {
      const auto part = t.data.subspan(at, std::min(kSample, t.data.size() - at));
      text.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
    if (t.data.empty() || t.file_offset >= data_begin) continue;
    data_begin = t.file_offset;
    file_begin = t.data.data() - t.file_offset;
  }
  if (file_begin != nullptr)
    text += sha256_hex(std::span(file_begin, static_cast<size_t>(data_begin)));
  return sha256_hex(std::as_bytes(std::span(text)));
}

}  // namespace ts
