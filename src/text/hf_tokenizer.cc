#include "text/hf_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "base/quote_text.h"
#include "text/byte_level.h"
#include "text/hf_chat_templates.h"
#include "text/hf_files.h"
#include "text/hf_pre_tokenizer.h"
#include "text/hf_special_ids.h"
#include "text/hf_token_list.h"
#include "text/pre_tokenizer.h"
#include "text/sentencepiece_model.h"

namespace ts {
namespace {

using nlohmann::json;

/// Size of the base vocabulary of Qwen3.5 and its successors. Copies of their tokenizer.json exist
/// that hold the pattern of Qwen2; this number tells them apart.
constexpr size_t kQwen35BaseTokens = 248044;

std::string architecture_of(const HfFiles& files, const HfTokenizerOptions& options) {
  if (!options.architecture.empty()) return options.architecture;
  const json* text_config = json_member(files.config, "text_config");
  for (const json* config : {text_config, &files.config}) {
    const json* list = config != nullptr ? json_member(*config, "architectures") : nullptr;
    if (list != nullptr && list->is_array() && !list->empty() && list->front().is_string()) {
      return list->front().get<std::string>();
    }
  }
  return {};
}

/// "left right" strings in rank order, from either of the two spellings.
std::vector<std::string> read_merges(const json& model, bool byte_level, const std::string& where) {
  std::vector<std::string> merges;
  const json* list = json_member(model, "merges");
  if (list == nullptr) return merges;
  if (!list->is_array()) {
    throw FormatError(
        fmt::format("{}: \"merges\" is {}, expected a list", where, json_kind(*list)));
  }
  merges.reserve(list->size());
  for (const json& entry : *list) {
    if (entry.is_string()) {
      merges.push_back(entry.get<std::string>());
    } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
               entry[1].is_string()) {
      std::string pair;
      for (const json& half : entry) {
        if (!pair.empty()) pair += ' ';
        for (const char c : half.get_ref<const std::string&>()) {
          // A literal space would be taken for the separator; byte-level texts write it as U+0120.
          if (c == ' ' && byte_level) {
            pair += "\xC4\xA0";
          } else {
            pair += c;
          }
        }
      }
      merges.push_back(std::move(pair));
    } else {
      throw FormatError(
          fmt::format("{}: merge {} is neither a text nor a pair of texts", where, merges.size()));
    }
  }
  return merges;
}

std::vector<std::string> read_merges_txt(std::string_view text) {
  std::vector<std::string> merges;
  bool first = true;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool comment = std::exchange(first, false) && line.starts_with('#');
    if (!comment && !line.empty()) merges.emplace_back(line);
  }
  return merges;
}

void check_merges(const HfTokenList& tokens, const std::vector<std::string>& merges,
                  const std::string& where) {
  size_t unusable = 0, example = 0;
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string& merge = merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      throw FormatError(fmt::format("{}: merge {} is {}, expected two texts separated by a space",
                                    where, i, quote_text(merge)));
    }
    const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
    if ((!tokens.find(left) || !tokens.find(right) || !tokens.find(left + right)) &&
        unusable++ == 0) {
      example = i;
    }
  }
  if (unusable > 0) {
    log_warning(fmt::format("{}: {} merges name texts that are no tokens (first: merge {}, {})",
                            where, unusable, example, quote_text(merges[example])));
  }
}

std::string choose_pre(const HfFiles& files, const HfPipeline& pipeline, size_t base_tokens,
                       const HfTokenizerOptions& options) {
  const std::string where = files.name_of("tokenizer_config.json");
  if (!options.force_pre.empty()) {
    if (find_pre_tokenizer(options.force_pre) == nullptr) {
      throw InvalidArgument(fmt::format("--force-pre: no pre-tokenizer is called {}; known: {}",
                                        quote_text(options.force_pre), known_pre_tokenizers()));
    }
    return options.force_pre;
  }
  if (!pipeline.unknown_step.empty() || pipeline.pre.empty()) {
    throw Unsupported(fmt::format(
        "{}: {} is not known; a wrong pre-tokenizer would quietly give wrong tokens\nknown: {}\n"
        "if you know which one fits, name it with --force-pre NAME",
        files.source, pipeline.unknown_step.empty() ? "the pre-tokenizer" : pipeline.unknown_step,
        known_pre_tokenizers()));
  }
  // Several releases of Qwen3.5 carry the pattern of Qwen2 in tokenizer.json and are run with
  // another one; the configuration or the class of the model says so.
  if (const auto regex = json_string(files.tokenizer_config, "pretokenize_regex", where)) {
    const std::string pre = pre_tokenizer_of_pattern(*regex);
    if (!pre.empty()) return pre;
  }
  const bool qwen = pipeline.pre == "qwen2" || pipeline.pre == "qwen35";
  if (qwen && architecture_of(files, options).starts_with("Qwen3_5")) return "qwen35";
  if (pipeline.pre == "qwen2" && base_tokens == kQwen35BaseTokens) {
    log_info(
        fmt::format("{}: a vocabulary of {} tokens is taken for that of Qwen3.5, "
                    "pre-tokenizer qwen35",
                    files.source, base_tokens));
    return "qwen35";
  }
  return pipeline.pre;
}

/// How many tokens come out only when a piece that is a token is taken as it is, and one of them:
/// what "ignore_merges" decides about.
struct Unmerged {
  size_t count = 0;
  TokenId first = 0;
};

/// `data` is complete; `pre` names a pre-tokenizer that always merges.
Unmerged count_unmerged(const TokenizerData& data, const std::string& pre) {
  TokenizerData copy = data;
  copy.pre = pre;
  const auto tokenizer = Tokenizer::create(std::move(copy));
  const PreTokenizerKind kind = find_pre_tokenizer(pre)->kind;
  Unmerged unmerged;
  std::vector<uint32_t> ends;
  for (TokenId id = 0; id < tokenizer->n_vocab(); ++id) {
    if (tokenizer->token_type(id) != TokenType::kNormal) continue;
    const std::string text = from_byte_level(tokenizer->token_text(id));
    pre_tokenize(kind, text, ends);
    if (ends.size() != 1) continue;  // never a piece
    const auto ids = tokenizer->encode(text, {.add_special = false, .parse_special = false});
    if (ids.size() == 1) continue;
    if (unmerged.count++ == 0) unmerged.first = id;
  }
  return unmerged;
}

/// In GGUF the name of the pre-tokenizer says whether pieces that are tokens are merged. Chooses a
/// name that says what the file does, where it matters to any token at all.
void keep_ignore_merges(const json& model, const std::string& where, bool forced,
                        TokenizerData& data) {
  const bool ignores = json_bool(model, "ignore_merges", where).value_or(false);
  const PreTokenizer& pre = *find_pre_tokenizer(data.pre);
  if (ignores == pre.llama3_family) return;
  const bool llama3 = pre.kind == PreTokenizerKind::kLlama3;
  const std::string merging = llama3 ? "smaug-bpe" : data.pre;  // cuts as llama-bpe does
  const Unmerged unmerged = count_unmerged(data, merging);
  if (unmerged.count == 0) return;
  if (forced) {
    log_warning(fmt::format(
        "{}: \"ignore_merges\" is {}, which the pre-tokenizer {} of --force-pre does not do; {} "
        "tokens are affected, e.g. {}",
        where, ignores, data.pre, unmerged.count,
        quote_text(data.tokens[static_cast<size_t>(unmerged.first)])));
  } else if (llama3) {
    if (!data.add_bos) data.add_bos = pre.llama3_family;
    data.pre = ignores ? "llama-bpe" : "smaug-bpe";
  } else {
    throw Unsupported(fmt::format(
        "{}: \"ignore_merges\" is true, which GGUF cannot state for the pre-tokenizer {}; {} "
        "tokens "
        "would come out differently, e.g. {}\n--force-pre {} converts the file all the same",
        where, data.pre, unmerged.count,
        quote_text(data.tokens[static_cast<size_t>(unmerged.first)]), data.pre));
  }
}

/// Byte-level BPE in GGUF takes the text as it is.
void refuse_text_changes(const HfFiles& files, const HfPipeline& pipeline,
                         const std::string& where) {
  if (pipeline.changes_spaces) {
    throw Unsupported(
        fmt::format("{}: \"normalizer\" replaces or adds spaces, which GGUF cannot state for "
                    "byte-level BPE; token ids would differ",
                    where));
  }
  bool prefix = pipeline.byte_prefix_space;
  std::string field = where + ": \"pre_tokenizer\": \"add_prefix_space\"";
  // The setting of the class replaces that of a step that stands alone.
  const json* step = json_member(files.tokenizer, "pre_tokenizer");
  if (files.tokenizer.is_null() ||
      (step != nullptr && json_string(*step, "type", where) == "ByteLevel")) {
    const std::string name = files.name_of("tokenizer_config.json");
    if (const auto configured = json_bool(files.tokenizer_config, "add_prefix_space", name)) {
      prefix = *configured;
      field = name + ": \"add_prefix_space\"";
    }
  }
  if (prefix) {
    throw Unsupported(
        fmt::format("{} is true, which GGUF cannot state for byte-level BPE; token ids would "
                    "differ\nset it to false and begin texts with a space where you want one",
                    field));
  }
}

void refuse_affixes(const json& model, const std::string& where) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const auto affix = json_string(model, key, where); affix && !affix->empty()) {
      throw Unsupported(fmt::format("{}: \"{}\" is {}; BPE with affixes is not supported", where,
                                    key, quote_text(*affix)));
    }
  }
}

void read_byte_level(const HfFiles& files, const HfPipeline& pipeline, const json& model,
                     const HfTokenizerOptions& options, TokenizerData& data) {
  const std::string where = files.name_of("tokenizer.json");
  refuse_text_changes(files, pipeline, where);
  data.model = "gpt2";
  HfTokenList tokens(files.source, false);
  const json* vocab = json_member(model, "vocab");
  tokens.add_vocab(vocab != nullptr ? *vocab : json(), where);
  if (json_member(model, "merges") == nullptr) {
    throw FormatError(
        fmt::format("{}: \"model\" has no \"merges\"; without them text cannot be tokenized\n"
                    "fetch the file again",
                    where));
  }
  data.merges = read_merges(model, true, where);
  check_merges(tokens, data.merges, where);
  data.pre = choose_pre(files, pipeline, tokens.base_size(), options);
  tokens.add_added_tokens(files);
  tokens.pad(options.n_vocab);
  tokens.move_to(data);
  read_hf_special_ids(files, tokens, data);
  // The model's own setting counts: without one, what no token spells is left out.
  const std::string unknown = json_string(model, "unk_token", where).value_or("");
  data.unk = unknown.empty() ? std::nullopt : tokens.find(unknown);
  // Without a step that adds it there is no BOS, whatever readers assume of this pre-tokenizer.
  const auto tokenizer_class = json_string(files.tokenizer_config, "tokenizer_class",
                                           files.name_of("tokenizer_config.json"));
  if (!data.add_bos && find_pre_tokenizer(data.pre)->llama3_family &&
      !tokenizer_class.value_or("").starts_with("LlamaTokenizer")) {
    data.add_bos = false;
  }
  keep_ignore_merges(model, where, !options.force_pre.empty(), data);
}

void read_legacy_bpe(const HfFiles& files, const HfTokenizerOptions& options, TokenizerData& data) {
  HfPipeline pipeline;
  const auto tokenizer_class = json_string(files.tokenizer_config, "tokenizer_class",
                                           files.name_of("tokenizer_config.json"));
  const std::string name = tokenizer_class.value_or("");
  if (name.starts_with("GPT2Tokenizer")) {
    pipeline.pre = "gpt-2";
  } else if (name.starts_with("Qwen2Tokenizer")) {
    pipeline.pre = "qwen2";
  } else {
    pipeline.unknown_step = name.empty() ? "a vocab.json without tokenizer.json"
                                         : fmt::format("the tokenizer class {}", quote_text(name));
  }
  refuse_text_changes(files, pipeline, files.name_of("tokenizer_config.json"));
  data.model = "gpt2";
  HfTokenList tokens(files.source, false);
  tokens.add_vocab(files.vocab, files.name_of("vocab.json"));
  data.merges = read_merges_txt(*files.merges_txt);
  check_merges(tokens, data.merges, files.name_of("merges.txt"));
  data.pre = choose_pre(files, pipeline, tokens.base_size(), options);
  tokens.add_added_tokens(files);
  tokens.pad(options.n_vocab);
  tokens.move_to(data);
  read_hf_special_ids(files, tokens, data);
}

void read_sentencepiece(const HfFiles& files, const HfPipeline& pipeline, const json* model,
                        const HfTokenizerOptions& options, TokenizerData& data) {
  data.model = "llama";
  data.pre = "default";
  if (!pipeline.unknown_step.empty()) {
    throw Unsupported(
        fmt::format("{}: {} is not known, and GGUF cannot state it for SentencePiece models; token "
                    "ids would differ",
                    files.name_of("tokenizer.json"), pipeline.unknown_step));
  }
  if (pipeline.prefix_first_only) {
    log_warning(
        fmt::format("{}: \"prepend_scheme\" is \"first\"; GGUF cannot state that, so a text that "
                    "follows a control token gets a space in front as well",
                    files.name_of("tokenizer.json")));
  }
  HfTokenList tokens(files.source, true);
  std::optional<bool> dummy_prefix;
  if (files.sentencepiece_model) {
    const std::string where = files.name_of("tokenizer.model");
    const SentencePieceModel pieces = read_sentencepiece_model(*files.sentencepiece_model, where);
    if (pieces.algorithm != SentencePieceModel::kBpe) {
      throw Unsupported(
          fmt::format("{}: a SentencePiece model of type {} ({}) is not supported, "
                      "only BPE",
                      where, pieces.algorithm,
                      pieces.algorithm == SentencePieceModel::kUnigram ? "unigram" : "other"));
    }
    tokens.add_pieces(pieces);
    data.bos = pieces.bos;
    data.eos = pieces.eos;
    data.unk = pieces.unk;
    data.pad = pieces.pad;
    dummy_prefix = pieces.add_dummy_prefix;
  } else {
    const std::string where = files.name_of("tokenizer.json");
    const json* vocab = json_member(*model, "vocab");
    tokens.add_vocab(vocab != nullptr ? *vocab : json(), where);
    const std::vector<std::string> merges = read_merges(*model, false, where);
    tokens.score_by_merges(merges, json_string(*model, "unk_token", where).value_or(""));
  }
  tokens.add_added_tokens(files);
  tokens.pad(options.n_vocab);
  tokens.move_to(data);
  read_hf_special_ids(files, tokens, data);

  const auto configured =
      json_bool(files.tokenizer_config, "add_prefix_space", files.name_of("tokenizer_config.json"));
  if (architecture_of(files, options).starts_with("Gemma")) {
    data.add_space_prefix = false;
  } else if (configured) {
    data.add_space_prefix = configured;
  } else if (model != nullptr) {
    data.add_space_prefix = pipeline.prefix_space;
  } else {
    data.add_space_prefix = dummy_prefix;
  }
}

}  // namespace

TokenizerData build_hf_tokenizer(const HfFiles& files, const HfTokenizerOptions& options) {
  TokenizerData data;
  data.source = files.source;
  if (!files.tokenizer.is_null()) {
    const std::string where = files.name_of("tokenizer.json");
    const json* model = json_member(files.tokenizer, "model");
    if (model == nullptr || !model->is_object()) {
      throw FormatError(fmt::format("{}: there is no object \"model\"", where));
    }
    std::string type = json_string(*model, "type", where).value_or("");
    if (type.empty() && json_member(*model, "merges") != nullptr) type = "BPE";
    if (type != "BPE") {
      throw Unsupported(
          fmt::format("{}: the tokenizer type {} is not supported; known: BPE "
                      "(byte-level or SentencePiece style)",
                      where, quote_text(type)));
    }
    refuse_affixes(*model, where);
    const HfPipeline pipeline = read_hf_pipeline(files.tokenizer, where);
    if (!pipeline.unknown_normalizer.empty()) {
      throw Unsupported(
          fmt::format("{}: \"normalizer\": {} is not known; GGUF cannot state how it changes the "
                      "text, so token ids would differ",
                      where, pipeline.unknown_normalizer));
    }
    const bool byte_fallback = json_bool(*model, "byte_fallback", where).value_or(false);
    if (pipeline.byte_level && !byte_fallback) {
      read_byte_level(files, pipeline, *model, options, data);
    } else if (byte_fallback && pipeline.metaspace) {
      read_sentencepiece(files, pipeline, model, options, data);
    } else {
      throw Unsupported(fmt::format(
          "{}: this kind of BPE is not supported; known: byte-level, and "
          "SentencePiece style with byte_fallback{}",
          where,
          pipeline.unknown_step.empty() ? "" : fmt::format(" (found {})", pipeline.unknown_step)));
    }
  } else if (files.sentencepiece_model) {
    read_sentencepiece(files, {}, nullptr, options, data);
  } else if (!files.vocab.is_null() && files.merges_txt) {
    read_legacy_bpe(files, options, data);
  } else {
    throw FormatError(
        fmt::format("{} holds no tokenizer: expected tokenizer.json, tokenizer.model, "
                    "or vocab.json with merges.txt",
                    files.source));
  }
  if (!data.add_bos && architecture_of(files, options) == "LlamaForCausalLM" &&
      data.tokens.size() == 49152) {
    data.add_bos = false;  // SmolLM: a Llama by structure that is trained without BOS
  }
  read_hf_chat_templates(files, data);
  return data;
}

TokenizerData read_hf_tokenizer(const std::filesystem::path& directory,
                                const HfTokenizerOptions& options) {
  return build_hf_tokenizer(load_hf_files(directory), options);
}

}  // namespace ts
