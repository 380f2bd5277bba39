#include "text/hf_pre_tokenizer.h"

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "text/vocabulary.h"

namespace ts {
namespace {

using nlohmann::json;

// The patterns as the published files spell them; they are compared, never executed.
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string type_of(const json& step, std::string_view where) {
  if (!step.is_object()) {
    throw FormatError(fmt::format("{}: a step is {}, expected an object", where, json_kind(step)));
  }
  return json_string(step, "type", where).value_or("");
}

/// The steps of a normalizer or pre-tokenizer, with sequences laid flat. The depth of the JSON text
/// is limited, and with it this recursion.
void flatten(const json& step, const char* list_key, std::string_view where,
             std::vector<const json*>& out) {
  if (type_of(step, where) != "Sequence") {
    out.push_back(&step);
    return;
  }
  const json* list = json_member(step, list_key);
  if (list == nullptr || !list->is_array()) {
    throw FormatError(fmt::format("{}: a Sequence has no list \"{}\"", where, list_key));
  }
  for (const json& inner : *list)
    flatten(inner, list_key, where, out);
}

/// The Regex or String of a pattern, and whether it is a Regex.
std::pair<std::string, bool> pattern_of(const json& step, std::string_view where) {
  const json* pattern = json_member(step, "pattern");
  if (pattern == nullptr) return {};
  if (auto regex = json_string(*pattern, "Regex", where)) return {std::move(*regex), true};
  return {json_string(*pattern, "String", where).value_or(""), false};
}

void read_normalizer(const json& normalizer, std::string_view where, HfPipeline& pipeline) {
  std::vector<const json*> steps;
  flatten(normalizer, "normalizers", where, steps);
  for (const json* step : steps) {
    const std::string type = type_of(*step, where);
    if (type == "NFC") {
      pipeline.nfc = true;
    } else if (type == "Replace" &&
               pattern_of(*step, where) == std::pair(std::string(" "), false) &&
               json_string(*step, "content", where) == kSentencePieceSpace) {
      pipeline.metaspace = pipeline.changes_spaces = true;
    } else if (type == "Prepend" && json_string(*step, "prepend", where) == kSentencePieceSpace) {
      pipeline.prefix_space = pipeline.changes_spaces = true;
    } else {
      pipeline.unknown_normalizer = fmt::format("the normalizer {}", quote_text(type));
    }
  }
}

bool is_isolating_split(const json& step, std::string_view where) {
  return type_of(step, where) == "Split" && json_string(step, "behavior", where) == "Isolated" &&
         !json_bool(step, "invert", where).value_or(false);
}

}  // namespace

std::string pre_tokenizer_of_pattern(std::string_view regex) {
  if (regex == kQwen2Pattern) return "qwen2";
  if (regex == kLlama3Pattern) return "llama-bpe";
  if (regex == kQwen35Pattern) return "qwen35";
  return {};
}

HfPipeline read_hf_pipeline(const json& tokenizer, std::string_view where) {
  HfPipeline pipeline;
  if (const json* normalizer = json_member(tokenizer, "normalizer")) {
    read_normalizer(*normalizer, where, pipeline);
  }
  std::vector<const json*> steps;
  if (const json* pre = json_member(tokenizer, "pre_tokenizer")) {
    flatten(*pre, "pretokenizers", where, steps);
  }
  bool byte_level_regex = false;
  std::vector<const json*> others;
  for (const json* step : steps) {
    const std::string type = type_of(*step, where);
    if (type == "ByteLevel") {
      pipeline.byte_level = true;
      byte_level_regex = json_bool(*step, "use_regex", where).value_or(true);
      pipeline.byte_prefix_space |= json_bool(*step, "add_prefix_space", where).value_or(false);
    } else if (type == "Metaspace") {
      pipeline.metaspace = true;
      const auto scheme = json_string(*step, "prepend_scheme", where);
      pipeline.prefix_first_only |= scheme && *scheme == "first";
      pipeline.prefix_space |= scheme ? *scheme == "first" || *scheme == "always"
                                      : json_bool(*step, "add_prefix_space", where).value_or(true);
    } else {
      others.push_back(step);
    }
  }
  const auto unknown = [&](const json& step) {
    const auto [pattern, is_regex] = pattern_of(step, where);
    pipeline.unknown_step =
        fmt::format("the pre-tokenizer step {}{}", quote_text(type_of(step, where)),
                    pattern.empty() ? "" : " " + quote_text(pattern, 200));
  };

  if (!pipeline.byte_level) {
    // SentencePiece style: at most a split at spaces, which merging by score implies.
    for (const json* step : others) {
      if (type_of(*step, where) != "Split" ||
          pattern_of(*step, where) != std::pair(std::string(" "), false)) {
        unknown(*step);
      }
    }
    if (pipeline.metaspace) pipeline.pre = "default";
    return pipeline;
  }
  const bool last_is_byte_level = type_of(*steps.back(), where) == "ByteLevel";
  if (!last_is_byte_level || others.size() > 1) {
    unknown(others.empty() ? *steps.back() : *others.back());
  } else if (others.empty()) {
    if (byte_level_regex) pipeline.pre = "gpt-2";
  } else if (!byte_level_regex && is_isolating_split(*others[0], where)) {
    const auto [pattern, is_regex] = pattern_of(*others[0], where);
    if (is_regex) pipeline.pre = pre_tokenizer_of_pattern(pattern);
  } else if (byte_level_regex && type_of(*others[0], where) == "Digits" &&
             json_bool(*others[0], "individual_digits", where).value_or(false)) {
    pipeline.pre = "smollm";
  }
  if (pipeline.pre.empty() && pipeline.unknown_step.empty()) {
    unknown(others.empty() ? *steps.back() : *others[0]);
  }
  return pipeline;
}

}  // namespace ts
