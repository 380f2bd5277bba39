#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/cpu/kernel_choices.h"
#include "base/cpu_features.h"
#include "base/cpu_topology.h"
#include "cli/bandwidth.h"
#include "cli/commands/commands.h"
#include "cli/kernel_names.h"
#include "cli/machine.h"
#include "cli/model_options.h"
#include "cli/text_output.h"
#include "kernels/kernels.h"
#include "runtime/memory_limits.h"

namespace ts::cli {
namespace {

using nlohmann::ordered_json;

struct Facts {
  std::string isa;
  std::vector<KernelName> kernels;
  ThreadChoice threads;
  CpuTopology topology;
  std::optional<KnownBandwidth> bandwidth;
  AvailableMemory memory;
  std::vector<KernelChoices::Entry> choices;  ///< measured with these kernels and threads
};

class InfoCommand : public Command {
 public:
  InfoCommand()
      : Command("info",
                "Shows what this program makes of the machine: CPU features, kernels per weight "
                "type, threads, memory bandwidth, huge pages, frequency governor.",
                "ts-cli info\n"
                "ts-cli info --isa ref\n"
                "ts-cli info --json | jq -r .isa") {}

  void add_options(OptionParser& options) override {
    add_isa_option(options, isa_);
    add_thread_option(options, threads_);
    options.flag("--no-bandwidth", no_bandwidth_, "do not measure the memory bandwidth");
  }

  int run(Console& console) override {
    Facts facts;
    facts.isa = select_kernels(isa_).table.isa;
    facts.kernels = kernel_names(isa_);
    facts.topology = read_cpu_topology();
    facts.threads = choose_threads(facts.topology);
    if (threads_ > 0) facts.threads = {threads_, "as asked"};
    facts.memory = available_memory();
    if (!no_bandwidth_) facts.bandwidth = read_bandwidth(facts.threads.n_threads);
    facts.choices = choices_for(facts);
    console.json() ? console.json_line(to_json(facts)) : console.out(to_text(facts));
    warn_of_scalar(console, facts);
    return kSuccess;
  }

 private:
  static std::vector<KernelChoices::Entry> choices_for(const Facts& facts) {
    const auto path = kernel_choices_file();
    if (path.empty()) return {};
    auto entries = KernelChoices(path).entries();
    std::erase_if(entries, [&](const KernelChoices::Entry& entry) {
      return entry.key.isa != facts.isa || entry.key.n_threads != facts.threads.n_threads;
    });
    return entries;
  }

  static void warn_of_scalar(Console& console, const Facts& facts) {
    if (facts.isa == "ref") {
      console.warn(
          "plain code runs for every weight type: this CPU has no vector instructions that this "
          "program knows, or --isa or TENSORSHARP_ISA asks for it");
      return;
    }
    std::string scalar;
    for (const KernelName& kernel : facts.kernels) {
      if (kernel.scalar) scalar += (scalar.empty() ? "" : ", ") + std::string(kernel.codec->name);
    }
    if (!scalar.empty())
      console.warn(fmt::format("only plain code serves these weight types: {}", scalar));
  }

  static ordered_json to_json(const Facts& facts) {
    ordered_json kernels = ordered_json::array();
    for (const KernelName& kernel : facts.kernels) {
      ordered_json row = {{"codec", kernel.codec->name}, {"isa", kernel.isa}};
      if (kernel.isa.empty()) row["isa"] = nullptr;  // can be read, not computed with
      kernels.push_back(std::move(row));
    }
    ordered_json choices = ordered_json::array();
    for (const auto& [key, choice] : facts.choices)
      choices.push_back({{"codec", key.codec},
                         {"rows", key.rows},
                         {"cols", key.cols},
                         {"huge_pages", key.huge_pages},
                         {"repacked", choice.repack},
                         {"rows_per_piece", choice.rows_per_piece}});
    ordered_json out = {
        {"cpu", cpu_model_name()},
        {"features", feature_names(cpu_features())},
        {"available_isas", available_isas(cpu_features())},
        {"isa", facts.isa},
        {"kernels", std::move(kernels)},
        {"kernel_choices", std::move(choices)},
        {"threads", facts.threads.n_threads},
        {"threads_reason", facts.threads.reason},
        {"cpus_online", facts.topology.n_online},
        {"cpus_available", facts.topology.cpus.size()},
        {"cpu_quota", nullptr},
        {"memory_available_bytes", facts.memory.bytes},
        {"memory_limit", facts.memory.limit_name},
        {"read_bandwidth_bytes_per_second", nullptr},
        {"read_bandwidth_measured_now", nullptr},
        {"huge_pages", transparent_huge_pages()},
        {"governor", cpu_governor()},
        {"system", kernel_version()},
    };
    if (facts.topology.quota > 0) out["cpu_quota"] = facts.topology.quota;
    if (facts.bandwidth) {
      out["read_bandwidth_bytes_per_second"] = facts.bandwidth->bytes_per_second;
      out["read_bandwidth_measured_now"] = !facts.bandwidth->from_cache;
    }
    return out;
  }

  std::string to_text(const Facts& facts) const {
    std::map<std::string, std::string> codecs_of;
    for (const KernelName& kernel : facts.kernels) {
      std::string& list = codecs_of[kernel.isa.empty() ? "decode only" : kernel.isa];
      list += (list.empty() ? "" : " ") + std::string(kernel.codec->name);
    }
    std::string bandwidth = "not measured";
    if (facts.bandwidth)
      bandwidth = fmt::format(
          "{}/s read by {} thread{} ({})",
          human_bytes(static_cast<uint64_t>(facts.bandwidth->bytes_per_second)),
          facts.threads.n_threads, facts.threads.n_threads == 1 ? "" : "s",
          facts.bandwidth->from_cache ? "measured earlier" : "measured briefly; see bench --membw");
    std::string cpus =
        fmt::format("{} online, {} available", facts.topology.n_online, facts.topology.cpus.size());
    if (facts.topology.quota > 0)
      cpus += fmt::format(", quota {:.2f} ({})", facts.topology.quota, facts.topology.quota_source);
    std::string out = table(
        {{"CPU", cpu_model_name()},
         {"features", fmt::format("{}", fmt::join(feature_names(cpu_features()), " "))},
         {"CPUs", cpus},
         {"threads", fmt::format("{} ({})", facts.threads.n_threads, facts.threads.reason)},
         {"instruction set",
          fmt::format("{} (of {})", facts.isa, fmt::join(available_isas(cpu_features()), ", "))},
         {"memory", fmt::format("{} available ({})", human_bytes(facts.memory.bytes),
                                facts.memory.limit_name)},
         {"memory bandwidth", bandwidth},
         {"huge pages", transparent_huge_pages()},
         {"governor", cpu_governor()},
         {"system", kernel_version()}},
        {});
    out += "\nkernels\n";
    for (const auto& [isa, codecs] : codecs_of)
      out += fmt::format("  {:<12}  {}\n", isa, codecs);
    if (!facts.choices.empty()) out += "\nmeasured at the first load of a type and shape\n";
    for (const auto& [key, choice] : facts.choices) {
      out +=
          fmt::format("  {:<8} {:>7} x {:<6} {}, pieces of {} rows", key.codec, key.rows, key.cols,
                      choice.repack ? "repacked" : "as in the file", choice.rows_per_piece);
      if (choice.repacked_seconds > 0 && choice.mapped_seconds > 0)
        out += fmt::format(" (repacked takes {:.2f} of the time from the file)",
                           choice.repacked_seconds / choice.mapped_seconds);
      out += "\n";
    }
    return out;
  }

  std::string isa_;
  int threads_ = 0;
  bool no_bandwidth_ = false;
};

}  // namespace

std::unique_ptr<Command> make_info_command() {
  return std::make_unique<InfoCommand>();
}

}  // namespace ts::cli
