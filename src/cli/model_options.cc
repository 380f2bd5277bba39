#include "cli/model_options.h"

#include <filesystem>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/cpu_topology.h"
#include "base/mapped_file.h"
#include "cli/interrupt.h"
#include "cli/kernel_names.h"
#include "cli/text_output.h"
#include "kernels/kernels.h"
#include "runtime/plan.h"

namespace ts::cli {
namespace {

constexpr int kMaxThreads = 1024;
}  // namespace

void refuse_input_as_output(std::string_view option, const std::string& path) {
  if (MappedFile::is_open(path))
    throw InvalidArgument(
        fmt::format("{}: {} is being read by this very command; name another file", option, path));
}

void add_model_argument(OptionParser& options, std::string& path, bool required) {
  options.text("MODEL", path, "", "a .gguf file (of a split file, the first part)");
  if (required) options.required();
}

void add_thread_option(OptionParser& options, int& threads) {
  options.integer("--threads,-t", threads, 1, kMaxThreads,
                  "threads to compute with (default: the physical cores this process may use)");
}

void add_isa_option(OptionParser& options, std::string& isa) {
  const auto names = isa_names();
  options.choice("--isa", isa, {names.begin(), names.end()},
                 "instruction set of the kernels (default: TENSORSHARP_ISA, else the best this CPU "
                 "has)");
}

void ModelOptions::add(OptionParser& options, std::string_view context_default,
                       bool path_required) {
  add_model_argument(options, path, path_required);
  options.group("Machine");
  add_thread_option(options, threads);
  options.checked("--cores", "LIST", "pin the threads to these CPUs, e.g. 0-3,6",
                  [this](const std::string& text) {
                    cores_ = parse_cpu_list(text, "--cores");
                    return std::string();
                  });
  add_isa_option(options, isa);
  options.flag("--mlock", mlock_, "lock the model's weights in memory");
  options.flag("--no-repack", no_repack_,
               "read all weights from the mapped file instead of copying them into the layout of "
               "the kernels");
  options.choice("--huge-pages", huge_pages_, {"auto", "on", "off"},
                 "back memory with huge pages (default auto)");
  options.choice(
      "--numa", numa_, {"auto", "interleave", "off"},
      "deal memory out over the machine's memory nodes: auto where the threads need more "
      "than one node's cores (default), interleave always, off leaves it to the system");
  options.group("Model");
  options.flag("--exact", exact_,
               "compute with f32 activations against decoded weights: slow, for checking");
  options.flag("--no-residual", no_residual_,
               "ignore the further weight planes in STEM.residuals.gguf beside the model");
  options.text("--force-pre", force_pre_, "NAME",
               "use this pre-tokenizer in place of an unknown one named by the file");
  if (context_default.empty()) return;
  options.integer("--ctx,-c", context, 1, int64_t{1} << 40,
                  fmt::format("positions that fit into a sequence (default: {})", context_default));
  options.choice("--kv", kv_, {"f32", "f16", "q8"}, "type of the key-value cache (default f16)");
}

KvCacheType kv_type_named(std::string_view name) noexcept {
  return name == "f32" ? KvCacheType::kF32 : name == "q8" ? KvCacheType::kQ8 : KvCacheType::kF16;
}

LoadOptions ModelOptions::load_options() const {
  LoadOptions options;
  options.n_threads = threads;
  options.cores = cores_;
  options.isa = isa;
  options.exact = exact_;
  options.mlock = mlock_;
  options.repack = !no_repack_;
  options.huge_pages = huge_pages_;
  options.numa = numa_;
  options.kernel_choices = kernel_choices_file().string();
  options.context = context.value_or(0);
  options.kv = kv_type_named(kv_);
  options.force_pre = force_pre_;
  options.residual_planes = !no_residual_;
  return options;
}

std::shared_ptr<const Engine> ModelOptions::load(Console& console) const {
  return load(console, load_options());
}

std::shared_ptr<const Engine> ModelOptions::load(Console& console, LoadOptions options) const {
  return load(console, std::move(options), [this](const LoadOptions& final_options) {
    return Engine::load(path, final_options);
  });
}

std::shared_ptr<const Engine> ModelOptions::load(Console& console, LoadOptions options,
                                                 const Loader& loader) const {
  options.cancel = &interrupt_flag();
  const Progress progress = console.progress();
  if (progress.report) options.progress = progress.report;
  options.on_plan = [&console](const MemoryPlan& plan) {
    console.note("memory: " + describe_plan(plan));
  };
  auto engine = loader(options);
  console.clear_progress();
  if (engine->info().isa == "ref")
    console.warn(
        "plain code computes this model, slowly: the CPU has no vector instructions that this "
        "program knows, or --isa or TENSORSHARP_ISA asks for it");
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
