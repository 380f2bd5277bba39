#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <tensorsharp/engine.hpp>

#include "base/glob.h"
#include "base/log.h"
#include "base/quote_text.h"
#include "base/sha256.h"
#include "cli/commands/commands.h"
#include "cli/commands/inspect_data.h"
#include "cli/metadata_output.h"
#include "cli/model_options.h"
#include "cli/text_output.h"
#include "codec/codec.h"
#include "format/gguf.h"
#include "model/hadamard_contract.h"

namespace ts::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kShortArray = 64;
constexpr std::string_view kHadamardPrefix = "prism.hadamard.";

/// Elements of a tensor whose shape the reader has checked.
uint64_t elems_of(const TensorEntry& tensor) noexcept {
  return tensor.shape.checked_elems().value_or(0);
}

struct TypeTotal {
  uint64_t n_tensors = 0, elems = 0, bytes = 0;
};

struct Totals {
  uint64_t parameters = 0;
  uint64_t known_elems = 0, known_bytes = 0;
  std::map<TypeId, TypeTotal> by_type;

  explicit Totals(const GgufFile& file) {
    for (const TensorEntry& tensor : file.tensors()) {
      TypeTotal& total = by_type[tensor.type];
      ++total.n_tensors;
      total.elems += elems_of(tensor);
      total.bytes += tensor.bytes;
      parameters += elems_of(tensor);
      if (find_codec(tensor.type) != nullptr) {
        known_elems += elems_of(tensor);
        known_bytes += tensor.bytes;
      }
    }
  }
  /// 0 when no tensor's size is known.
  double bits_per_weight() const {
    return known_elems == 0
               ? 0
               : 8.0 * static_cast<double>(known_bytes) / static_cast<double>(known_elems);
  }
};

class InspectCommand : public Command {
 public:
  explicit InspectCommand(const std::string& program)
      : Command("inspect",
                "Shows what a model file holds: metadata, tensors, bits per weight, memory. Works "
                "on files with tensor types this version cannot compute with.",
                fmt::format("{0} inspect model.gguf\n"
                            "{0} inspect model.gguf --tensors 'blk.0.*' --stats\n"
                            "{0} inspect model.gguf --hex blk.0.ffn_up.weight --blocks 2\n"
                            "{0} inspect model.gguf --json | jq .bits_per_weight",
                            program)) {}

  void add_options(OptionParser& options) override {
    add_model_argument(options, path_);
    options.text("--tensors", pattern_, "PATTERN",
                 "only the tensors whose names match; * and ? are wild");
    options.flag("--stats", stats_,
                 "decode the tensors: symbols, zeros, entropy, scales, outliers");
    options.text("--hex", hex_, "NAME", "show the bytes and values of a tensor's first blocks");
    options.integer("--blocks", blocks_, 1, 1 << 20, "how many blocks --hex shows (default 1)");
    options.flag("--full", full_, "show long arrays and strings of the metadata in full");
    add_thread_option(options, threads_);
  }

  void check_options() override {
    if (blocks_ && hex_.empty()) throw InvalidArgument("--blocks belongs to --hex");
    if (stats_ && !hex_.empty()) throw InvalidArgument("give --hex or --stats, not both");
  }

  int run(Console& console) override {
    const auto file = GgufFile::open(path_);
    if (!hex_.empty()) return show_hex(console, *file);
    std::vector<const TensorEntry*> chosen;
    for (const TensorEntry& tensor : file->tensors()) {
      if (!pattern_ || glob_match(*pattern_, tensor.name)) chosen.push_back(&tensor);
    }
    if (pattern_ && chosen.empty())
      throw InvalidArgument(
          fmt::format("--tensors: no tensor of {} matches {}", path_, quote_text(*pattern_)));
    if (stats_) return show_statistics(console, chosen, threads_);
    if (console.json()) {
      console.json_line(to_json(*file, chosen));
    } else {
      console.out(to_text(*file, chosen));
    }
    return kSuccess;
  }

 private:
  int show_hex(Console& console, const GgufFile& file) const {
    const TensorEntry* tensor = file.find(hex_);
    if (tensor == nullptr)
      throw InvalidArgument(fmt::format("--hex: {} has no tensor {}\n  `inspect` lists them.",
                                        path_, quote_text(hex_)));
    return show_blocks(console, *tensor, static_cast<uint64_t>(blocks_.value_or(1)));
  }

  /// What a session at 4k, 32k and the model's own context needs; or why that is not known.
  ordered_json memory(std::string& problem) const {
    ordered_json list = ordered_json::array();
    try {
      LoadOptions options;
      options.context = 4096;
      const int64_t model_context = Engine::plan(path_, options).model_context;
      std::vector<int64_t> contexts = {4096, 32768, model_context};
      std::sort(contexts.begin(), contexts.end());
      contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
      for (const int64_t context : contexts) {
        if (context < 1 || context > model_context) continue;
        options.context = context;
        const MemoryPlan plan = Engine::plan(path_, options);
        ordered_json items = ordered_json::object();
        for (const auto& item : plan.items)
          items[item.name] = item.bytes;
        list.push_back({{"context", context},
                        {"total_bytes", plan.total_bytes},
                        {"available_bytes", plan.available_bytes},
                        {"fits", plan.fits},
                        {"items", std::move(items)}});
      }
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kCancelled) throw;
      problem = e.what();
      return nullptr;
    }
    return list;
  }

  ordered_json to_json(const GgufFile& file, const std::vector<const TensorEntry*>& chosen) const {
    const Totals totals(file);
    const size_t max_elems = full_ ? SIZE_MAX : kShortArray;
    ordered_json metadata = ordered_json::object(), hadamard = nullptr;
    for (const auto& [key, value] : file.metadata().entries()) {
      metadata[key] = metadata_to_json(value, max_elems);
      if (key.starts_with(kHadamardPrefix))
        hadamard[key.substr(kHadamardPrefix.size())] = rotation_value(value, max_elems);
    }
    ordered_json types = ordered_json::array();
    for (const auto& [type, total] : totals.by_type) {
      types.push_back({{"type", type_name(type)},
                       {"tensors", total.n_tensors},
                       {"parameters", total.elems},
                       {"bytes", total.bytes}});
    }
    ordered_json tensors = ordered_json::array();
    for (const TensorEntry* tensor : chosen) {
      ordered_json shape = ordered_json::array();
      for (int i = 0; i < std::max(tensor->shape.n_dims, 1); ++i)
        shape.push_back(tensor->shape[i]);
      ordered_json row = {{"name", tensor->name},
                          {"type", type_name(tensor->type)},
                          {"shape", std::move(shape)},
                          {"bytes", tensor->bytes},
                          {"offset", tensor->file_offset}};
      if (find_codec(tensor->type) == nullptr) row["bytes"] = nullptr;
      tensors.push_back(std::move(row));
    }
    WarningCollector warnings;
    std::string memory_problem;
    ordered_json memory_rows = memory(memory_problem);
    std::vector<std::string> notes(file.notes().begin(), file.notes().end());
    for (std::string& line : warnings.take())
      notes.push_back(std::move(line));
    ordered_json result = {
        {"path", file.path().string()},
        {"gguf_version", file.version()},
        {"architecture", string_of(file, "general.architecture")},
        {"name", string_of(file, "general.name")},
        {"parameters", totals.parameters},
        {"bits_per_weight", totals.bits_per_weight()},
        {"file_bytes", file.file_bytes()},
        {"types", std::move(types)},
        {"tokenizer", tokenizer_of(file)},
        {"hadamard", std::move(hadamard)},
        {"memory", std::move(memory_rows)},
        {"notes", std::move(notes)},
        {"metadata", std::move(metadata)},
        {"tensors", std::move(tensors)},
    };
    if (!memory_problem.empty()) result["memory_problem"] = memory_problem;
    return result;
  }

  /// Long lists in short form with a digest, so that files can be compared: SHA-256 of the
  /// elements, integers as 8 bytes each with the lowest first, strings as they are with a zero
  /// after each.
  static ordered_json rotation_value(const MetadataValue& value, size_t max_elems) {
    ordered_json out = metadata_to_json(value, max_elems);
    const auto* array = std::get_if<MetadataArray>(&value.value);
    if (array == nullptr || array->size() <= max_elems) return out;
    std::string bytes;
    if (const auto* integers = std::get_if<std::vector<int64_t>>(&array->data)) {
      for (const int64_t integer : *integers) {
        for (int shift = 0; shift < 64; shift += 8)
          bytes += static_cast<char>(static_cast<uint64_t>(integer) >> shift & 0xFF);
      }
    } else if (const auto* strings = std::get_if<std::vector<std::string>>(&array->data)) {
      for (const std::string& text : *strings)
        bytes.append(text).push_back('\0');
    } else {
      return out;
    }
    out["sha256"] = sha256_hex(std::as_bytes(std::span(bytes)));
    return out;
  }

  /// Null when the key is absent or no string: inspection shows what there is.
  static ordered_json string_of(const GgufFile& file, std::string_view key) {
    const MetadataValue* value = file.metadata().find(key);
    if (value == nullptr || !std::holds_alternative<std::string>(value->value)) return nullptr;
    return std::get<std::string>(value->value);
  }

  static ordered_json tokenizer_of(const GgufFile& file) {
    const MetadataValue* tokens = file.metadata().find("tokenizer.ggml.tokens");
    if (tokens == nullptr) return nullptr;
    ordered_json out = {{"model", string_of(file, "tokenizer.ggml.model")},
                        {"pre", string_of(file, "tokenizer.ggml.pre")}};
    const auto* array = std::get_if<MetadataArray>(&tokens->value);
    out["vocabulary"] = array == nullptr ? 0 : array->size();
    out["chat_template"] = file.metadata().contains("tokenizer.chat_template");
    return out;
  }

  std::string to_text(const GgufFile& file, const std::vector<const TensorEntry*>& chosen) const {
    const Totals totals(file);
    std::string out =
        fmt::format("{}: GGUF version {}, {} ({} bytes)\n", printable(file.path().string()),
                    file.version(), human_bytes(file.file_bytes()), grouped(file.file_bytes()));
    for (const std::string& note : file.notes())
      out += "note: " + printable(note) + "\n";

    out += "\nMetadata\n";
    std::vector<std::vector<std::string>> rows;
    for (const auto& [key, value] : file.metadata().entries())
      rows.push_back({"  " + printable(key), describe_type(value),
                      metadata_to_text(value, full_ ? SIZE_MAX : 6, full_ ? SIZE_MAX : 60)});
    out += table(rows, {});

    out += "\nTensors (first dimension varies fastest)\n";
    rows = {{"  name", "type", "shape", "bytes"}};
    for (const TensorEntry* tensor : chosen)
      rows.push_back({"  " + printable(tensor->name), type_name(tensor->type),
                      tensor->shape.to_string(),
                      find_codec(tensor->type) == nullptr ? "?" : grouped(tensor->bytes)});
    out += table(rows, {3});

    out += fmt::format("\n{} parameters in {} tensors, {:.4f} bits per weight\n",
                       grouped(totals.parameters), file.tensors().size(), totals.bits_per_weight());
    rows = {{"  type", "tensors", "parameters", "bytes", "bits/weight", "adds"}};
    for (const auto& [type, total] : totals.by_type) {
      const Codec* codec = find_codec(type);
      rows.push_back({"  " + type_name(type), grouped(total.n_tensors), grouped(total.elems),
                      codec == nullptr ? "?" : grouped(total.bytes),
                      codec == nullptr ? "?" : fmt::format("{:.4f}", codec->bits_per_weight()),
                      codec == nullptr || totals.known_elems == 0
                          ? "?"
                          : fmt::format("{:.4f}", 8.0 * static_cast<double>(total.bytes) /
                                                      static_cast<double>(totals.known_elems))});
    }
    out += table(rows, {1, 2, 3, 4, 5});
    for (const auto& [type, total] : totals.by_type) {
      if (find_codec(type) != nullptr) continue;
      const std::string advice = type_advice(type);
      out += fmt::format("note: {} cannot be read by this version{}{}\n", type_name(type),
                         advice.empty() ? "" : ": ", advice);
    }
    out += rotation_text(file, full_);
    out += memory_text();
    return out;
  }

  /// What the keys say in one line, or why a run would refuse them; then the keys.
  static std::string rotation_text(const GgufFile& file, bool full) {
    std::string out;
    try {
      const auto contract = HadamardContract::read(file);
      if (contract == nullptr) return "\nRotation: none\n";
      out = "\nRotation: " + printable(contract->describe()) + "\n";
    } catch (const Error& e) {
      out = "\nRotation: not usable: " + printable(e.what(), true) + "\n";
    }
    for (const auto& [key, value] : file.metadata().entries()) {
      if (key.starts_with(kHadamardPrefix))
        out += fmt::format("  {} = {}\n", printable(key),
                           metadata_to_text(value, full ? SIZE_MAX : 4, full ? SIZE_MAX : 60));
    }
    return out;
  }

  std::string memory_text() const {
    std::string problem;
    const ordered_json list = memory(problem);
    if (list.is_null()) return "\nMemory: not known: " + printable(problem, true) + "\n";
    std::vector<std::vector<std::string>> rows = {{"  context", "needed", "available", ""}};
    for (const auto& row : list)
      rows.push_back({"  " + grouped(row["context"].get<uint64_t>()),
                      human_bytes(row["total_bytes"].get<uint64_t>()),
                      human_bytes(row["available_bytes"].get<uint64_t>()),
                      row["fits"].get<bool>() ? "fits" : "does not fit"});
    return "\nMemory\n" + table(rows, {0, 1, 2});
  }

  std::string path_, hex_;
  std::optional<std::string> pattern_;
  bool stats_ = false, full_ = false;
  std::optional<int64_t> blocks_;
  int threads_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command(const std::string& program) {
  return std::make_unique<InspectCommand>(program);
}

}  // namespace ts::cli
