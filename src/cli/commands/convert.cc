#include "convert/convert.h"

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "cli/commands/commands.h"
#include "cli/text_output.h"
#include "quantize/quantize.h"

namespace ts::cli {
namespace {

using nlohmann::ordered_json;

class ConvertCommand : public Command {
 public:
  ConvertCommand()
      : Command("convert",
                "Converts a Hugging Face checkpoint directory to GGUF, or a GGUF file to other "
                "weight types. Refuses what would lose information unless --lossy.",
                "tensorsharp convert ./SmolLM2-135M-Instruct smollm2.gguf\n"
                "tensorsharp convert ./checkpoint model.gguf --scheme q8_0 --lossy\n"
                "tensorsharp convert ternary-ptq1_0.gguf ternary-pq2_0.gguf --scheme pq2_0\n"
                "tensorsharp convert ternary.gguf ordinary.gguf --unrotate --scheme q8_0") {}

  void add_options(OptionParser& options) override {
    options.text("IN", input_, "", "a checkpoint directory or a .gguf file");
    options.required();
    options.text("OUT", output_, "", "the .gguf file to write");
    options.required();
    options.text(
        "--scheme", options_.type, "NAME",
        "type of the weight matrices: auto keeps each tensor's, else a type name such as f16, "
        "q8_0, pq2_0 (default auto)");
    options.flag("--lossy", options_.lossy, "allow values to change");
    options.flag("--unrotate", unrotate_,
                 "undo the rotation of a GGUF file and add up its weight planes: an ordinary file "
                 "of type f16, q8_0 or q4_0 that other engines run");
    options.flag("--force", options_.overwrite, "replace an existing file");
    options.text("--force-pre", options_.force_pre, "NAME",
                 "pre-tokenizer name to store instead of the detected one");
  }

  void check_options() override {
    if (!unrotate_) return;
    if (options_.type != "f16" && options_.type != "q8_0" && options_.type != "q4_0")
      throw InvalidArgument(
          "--unrotate needs --scheme f16, q8_0 or q4_0: the rotated values fit no "
          "ternary type in the ordinary basis");
    if (!options_.force_pre.empty())
      throw InvalidArgument(
          "--unrotate is about GGUF files, whose tokenizer is kept; --force-pre "
          "does not apply");
  }

  int run(Console& console) override {
    if (unrotate_) return run_unrotate(console);
    const ConvertReport report = convert_model(input_, output_, options_, console.progress());
    if (console.json()) {
      console.json_line(to_json(report));
      return kSuccess;
    }
    for (const std::string& note : report.notes)
      console.note("note: " + note);
    for (const SkippedTensor& skipped : report.skipped)
      console.note_format("left out: {}: {}", skipped.name, skipped.reason);
    if (console.verbose()) {
      for (const ConvertedTensor& t : report.tensors)
        console.note_format("{}: {} -> {}, {}{}", t.name, t.source_type, t.type,
                            human_bytes(t.bytes), t.lossless ? "" : ", values changed");
    }
    console.print("{}: {}, {} tensors, {} ({} bytes), {:.4f} bits per weight, {}\n", output_,
                  report.architecture, report.tensors.size(), human_bytes(report.output_bytes),
                  report.output_bytes, report.bits_per_weight,
                  report.lossless ? "lossless" : "values changed");
    return kSuccess;
  }

 private:
  int run_unrotate(Console& console) {
    QuantizeOptions quantize;
    quantize.scheme = options_.type;
    quantize.policy = "all";
    quantize.rotate = "none";
    quantize.unrotate = true;
    quantize.overwrite = options_.overwrite;
    const QuantizeReport report = quantize_model(input_, output_, quantize, console.progress());
    console.clear_progress();
    if (console.json()) {
      console.json_line({{"output", output_},
                         {"architecture", report.architecture},
                         {"output_bytes", report.output_bytes},
                         {"lossless", false},
                         {"bits_per_weight", report.bits_per_weight},
                         {"notes", report.notes}});
      return kSuccess;
    }
    for (const std::string& note : report.notes)
      console.note("note: " + note);
    console.print("{}: {}, {} tensors, {} ({} bytes), {:.4f} bits per weight, unrotated\n", output_,
                  report.architecture, report.tensors.size(), human_bytes(report.output_bytes),
                  report.output_bytes, report.bits_per_weight);
    return kSuccess;
  }

  ordered_json to_json(const ConvertReport& report) const {
    ordered_json results = ordered_json::array(), skipped = ordered_json::array();
    for (const ConvertedTensor& t : report.tensors)
      results.push_back({{"name", t.name},
                         {"sources", t.sources},
                         {"source_type", t.source_type},
                         {"type", t.type},
                         {"bytes", t.bytes},
                         {"lossless", t.lossless}});
    for (const SkippedTensor& t : report.skipped)
      skipped.push_back({{"name", t.name}, {"reason", t.reason}});
    return {{"output", output_},
            {"architecture", report.architecture},
            {"output_bytes", report.output_bytes},
            {"lossless", report.lossless},
            {"bits_per_weight", report.bits_per_weight},
            {"results", std::move(results)},
            {"skipped", std::move(skipped)},
            {"notes", report.notes}};
  }

  std::string input_, output_;
  ConvertOptions options_;
  bool unrotate_ = false;
};

}  // namespace

std::unique_ptr<Command> make_convert_command() {
  return std::make_unique<ConvertCommand>();
}

}  // namespace ts::cli
