/// Options of every command that loads a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tensorsharp/engine.hpp>

#include "cli/console.h"
#include "cli/option_parser.h"

namespace ts::cli {

/// The default context of a conversation.
inline constexpr std::string_view kConversationContext = "the smaller of the model's and 8192";

class ModelOptions {
 public:
  /// --threads --cores --mlock --no-repack --huge-pages --numa --isa --exact --no-residual
  /// --force-pre and, unless `context_default` (which says what --ctx is without being given) is
  /// empty, --kv
  /// --ctx.
  void add(OptionParser& options, std::string_view context_default, bool path_required = true);
  LoadOptions load_options() const;
  /// Loads with a progress bar, and tells what memory it takes before; `console` must outlive the
  /// call only.
  std::shared_ptr<const Engine> load(Console& console) const;
  std::shared_ptr<const Engine> load(Console& console, LoadOptions options) const;
  /// The same for a model that comes from elsewhere than `path`.
  using Loader = std::function<std::shared_ptr<const Engine>(const LoadOptions&)>;
  std::shared_ptr<const Engine> load(Console& console, LoadOptions options,
                                     const Loader& loader) const;

  std::string path;
  std::optional<int64_t> context;
  int threads = 0;
  std::string isa;

 private:
  std::vector<int> cores_;
  bool mlock_ = false, exact_ = false, no_repack_ = false, no_residual_ = false;
  std::string huge_pages_ = "auto", numa_ = "auto", kv_ = "f16", force_pre_;
};

/// Throws InvalidArgument naming `option` when `path` is a file that this command reads: the model
/// itself would be replaced.
void refuse_input_as_output(std::string_view option, const std::string& path);

void add_model_argument(OptionParser& options, std::string& path, bool required = true);
/// --threads and --isa alone, for commands that load no model.
void add_thread_option(OptionParser& options, int& threads);
void add_isa_option(OptionParser& options, std::string& isa);

/// f32, f16 or q8, as --kv takes them.
KvCacheType kv_type_named(std::string_view name) noexcept;

/// "stories260k.gguf: llama, 260.0 k parameters, f32; isa avx2, 2 threads (2 physical cores)".
std::string describe_model(const ModelInfo& info);

}  // namespace ts::cli
