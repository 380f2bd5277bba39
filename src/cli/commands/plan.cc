#include <fmt/format.h>

#include <tensorsharp/engine.hpp>

#include "cli/commands/commands.h"
#include "cli/model_options.h"
#include "cli/text_output.h"

namespace ts::cli {
namespace {

using nlohmann::ordered_json;

class PlanCommand : public Command {
 public:
  PlanCommand()
      : Command("plan",
                "Shows what loading a model needs in memory against what this machine or "
                "container has, and what would make it fit. Loads nothing. Exit status 5 when it "
                "does not fit.",
                "tensorsharp plan model.gguf\n"
                "tensorsharp plan model.gguf --ctx 32768 --kv q8\n"
                "tensorsharp plan model.gguf --ctx 32768 --json | jq .fits") {}

  void add_options(OptionParser& options) override { model_.add(options, kConversationContext); }

  int run(Console& console) override {
    const MemoryPlan plan = Engine::plan(model_.path, model_.load_options());
    if (plan.context > plan.model_context)
      console.warn(fmt::format("a context of {} is more than the {} the model was made for",
                               plan.context, plan.model_context));
    console.json() ? console.json_line(to_json(plan)) : console.out(to_text(plan));
    return plan.fits ? kSuccess : kDoesNotFit;
  }

 private:
  static ordered_json to_json(const MemoryPlan& plan) {
    ordered_json results = ordered_json::array();
    for (const auto& item : plan.items)
      results.push_back({{"name", item.name}, {"bytes", item.bytes}});
    return {{"fits", plan.fits},
            {"repacked", plan.repacked},
            {"context", plan.context},
            {"model_context", plan.model_context},
            {"total_bytes", plan.total_bytes},
            {"available_bytes", plan.available_bytes},
            {"limit", plan.limit_name},
            {"results", std::move(results)},
            {"advice", plan.advice}};
  }

  static std::string to_text(const MemoryPlan& plan) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& item : plan.items)
      rows.push_back({plan.repacked && item.name == "weights" ? "weights (repacked)" : item.name,
                      human_bytes(item.bytes)});
    rows.push_back({"total", human_bytes(plan.total_bytes)});
    rows.push_back({"available (" + plan.limit_name + ")", human_bytes(plan.available_bytes)});
    std::string out =
        fmt::format("context {} (the model's: {})\n", plan.context, plan.model_context);
    out += table(rows, {1}) + (plan.fits ? "fits\n" : "DOES NOT FIT\n");
    for (const std::string& advice : plan.advice)
      out += "  " + advice + "\n";
    return out;
  }

  ModelOptions model_;
};

}  // namespace

std::unique_ptr<Command> make_plan_command() {
  return std::make_unique<PlanCommand>();
}

}  // namespace ts::cli
