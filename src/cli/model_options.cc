#include "cli/model_options.h"

#include <filesystem>

#include <fmt/format.h>

#include "base/cpu_topology.h"
#include "cli/interrupt.h"
#include "cli/text_output.h"
#include "kernels/kernels.h"

namespace ts::cli {
namespace {

constexpr int kMaxThreads = 1024;
constexpr const char* kGroup = "Machine";

}  // namespace

void add_thread_option(CLI::App& app, int& threads) {
  add_integer(app, "--threads,-t", threads, 1, kMaxThreads,
              "threads to compute with (default: the physical cores this process may use)")
      ->group(kGroup);
}

void add_isa_option(CLI::App& app, std::string& isa) {
  const auto names = isa_names();
  add_choice(app, "--isa", isa, {names.begin(), names.end()},
             "instruction set of the kernels (default: TENSORSHARP_ISA, else the best this CPU "
             "has)")
      ->group(kGroup);
}

void ModelOptions::add(CLI::App& app, bool with_context, bool path_required) {
  add_model_argument(app, path)->required(path_required);
  add_thread_option(app, threads);
  app.add_option(
         "--cores",
         [this](const CLI::results_t& results) {
           cores_ = parse_cpu_list(results.back(), "--cores");
           return true;
         },
         "pin the threads to these CPUs, e.g. 0-3,6")
      ->type_name("LIST")
      ->expected(1)
      ->group(kGroup);
  add_isa_option(app, isa);
  add_flag(app, "--mlock", mlock_, "lock the model's pages in memory")->group(kGroup);
  add_choice(app, "--huge-pages", huge_pages_, {"auto", "on", "off"},
             "back memory with huge pages (default auto)")
      ->group(kGroup);
  add_flag(app, "--exact", exact_,
           "compute with f32 activations against decoded weights: slow, for checking")
      ->group("Model");
  add_text(app, "--force-pre", force_pre_, "NAME",
           "use this pre-tokenizer in place of an unknown one named by the file")
      ->group("Model");
  if (!with_context) return;
  add_integer(app, "--ctx,-c", context, 1, int64_t{1} << 40,
              "positions a conversation can have (default: the smaller of the model's and 8192)")
      ->group("Model");
  add_choice(app, "--kv", kv_, {"f32", "f16", "q8"}, "type of the key-value cache (default f16)")
      ->group("Model");
}

LoadOptions ModelOptions::load_options() const {
  LoadOptions options;
  options.n_threads = threads;
  options.cores = cores_;
  options.isa = isa;
  options.exact = exact_;
  options.mlock = mlock_;
  options.huge_pages = huge_pages_;
  options.context = context.value_or(0);
  options.kv = kv_ == "f32"  ? KvCacheType::kF32
               : kv_ == "q8" ? KvCacheType::kQ8
                             : KvCacheType::kF16;
  options.force_pre = force_pre_;
  return options;
}

std::shared_ptr<const Engine> ModelOptions::load(Console& console) const {
  return load(console, load_options());
}

std::shared_ptr<const Engine> ModelOptions::load(Console& console, LoadOptions options) const {
  options.cancel = &interrupt_flag();
  const Progress progress = console.progress();
  if (progress.report) options.progress = progress.report;
  auto engine = Engine::load(path, options);
  console.clear_progress();
  return engine;
}

std::string describe_model(const ModelInfo& info) {
  std::string out =
      fmt::format("{}: {}, {} parameters, {}; isa {}, {} thread{}",
                  std::filesystem::path(info.path).filename().string(), info.architecture,
                  human_count(static_cast<uint64_t>(info.n_parameters)), info.scheme, info.isa,
                  info.n_threads, info.n_threads == 1 ? "" : "s");
  if (!info.threads_reason.empty()) out += " (" + info.threads_reason + ")";
  return out + fmt::format("; context {}", info.context);
}

}  // namespace ts::cli
