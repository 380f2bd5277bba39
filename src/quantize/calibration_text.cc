#include "quantize/calibration_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/quote_text.h"
#include "base/sha256.h"
#include "model/gguf_tokenizer.h"
#include "quantize/sample_text.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ts {
namespace {

/// Tokens that are worth a sequence; a shorter rest is dropped.
constexpr size_t kLeastTokens = 32;
/// Sequences held back of all files together when no holdout is given, and the fewest of one file.
constexpr size_t kHeldBack = 16, kLeastHeldBack = 2;
/// Sequences of one holdout file that are measured.
constexpr size_t kHoldoutSequences = 16;

class TokenReader {
 public:
  TokenReader(const Metadata& metadata, int64_t n_vocab) : n_vocab_(n_vocab) {
    TokenizerData data = read_gguf_tokenizer(metadata);
    template_source_ = data.chat_template;
    tokenizer_ = Tokenizer::create(std::move(data));
    if (tokenizer_->adds_bos()) bos_ = tokenizer_->data().bos;
  }

  std::vector<std::vector<int32_t>> read_text(std::string_view text) const {
    return cut(encode(text));
  }
  /// The file as sequences.
  std::vector<std::vector<int32_t>> read(const std::filesystem::path& path) {
    check_path(path);
    const auto file = MappedFile::open(path);
    const auto bytes = file->bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::vector<int32_t> ids;
    if (path.extension() == ".u32") {
      ids = read_ids(path, bytes);
    } else if (path.extension() == ".jsonl") {
      ids = read_lines(path, text);
    } else {
      if (const size_t bad = find_invalid_utf8(text); bad != std::string_view::npos)
        throw FormatError(fmt::format(
            "{}: byte {} is not UTF-8: expected a text, .jsonl or .u32 file", path.string(), bad));
      ids = encode(text);
    }
    return cut(ids);
  }

 private:
  static void check_path(const std::filesystem::path& path) {
    constexpr std::string_view kExpected = "expected a text, .jsonl or .u32 file";
    std::error_code ec;
    const auto status = std::filesystem::status(path, ec);
    if (!std::filesystem::exists(status))
      throw InvalidArgument(fmt::format(
          "calibration or holdout text {}: there is no such file\n{}", path.string(),
          path.string().find(':') != std::string::npos
              ? "a weight after the colon of --calib FILE:WEIGHT must be a number above 0"
              : kExpected));
    if (std::filesystem::is_directory(status))
      throw InvalidArgument(fmt::format("calibration or holdout text {}: is a directory, {}",
                                        path.string(), kExpected));
    if (std::filesystem::is_regular_file(status) && std::filesystem::file_size(path, ec) == 0)
      throw InvalidArgument(
          fmt::format("calibration or holdout text {}: is empty, {}", path.string(), kExpected));
  }

  std::vector<int32_t> encode(std::string_view text) const {
    EncodeOptions options;
    options.add_special = false;
    return tokenizer_->encode(text, options);
  }

  std::vector<int32_t> read_ids(const std::filesystem::path& path,
                                std::span<const std::byte> bytes) const {
    if (bytes.size() % sizeof(uint32_t) != 0)
      throw FormatError(
          fmt::format("{}: {} bytes, expected 4 for each token id", path.string(), bytes.size()));
    std::vector<int32_t> ids(bytes.size() / sizeof(uint32_t));
    for (size_t i = 0; i < ids.size(); ++i) {
      uint32_t id = 0;
      std::memcpy(&id, bytes.data() + i * sizeof(id), sizeof(id));
      if (id >= static_cast<uint64_t>(n_vocab_))
        throw FormatError(
            fmt::format("{}: token id {} at index {} is outside the vocabulary (0 to "
                        "{}); it was made for another model",
                        path.string(), id, i, n_vocab_ - 1));
      ids[i] = static_cast<int32_t>(id);
    }
    return ids;
  }

  std::vector<int32_t> read_lines(const std::filesystem::path& path, std::string_view text) {
    std::vector<int32_t> ids;
    size_t line_number = 0;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string_view line = text.substr(begin, end - begin);
      begin = end + 1;
      ++line_number;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string place = fmt::format("{}: line {}", path.string(), line_number);
      const nlohmann::json value = parse_json_limited(line, place);
      const std::vector<int32_t> document = read_document(value, place);
      if (bos_ && (document.empty() || document[0] != *bos_)) ids.push_back(*bos_);
      ids.insert(ids.end(), document.begin(), document.end());
    }
    return ids;
  }

  std::vector<int32_t> read_document(const nlohmann::json& value, const std::string& place) {
    if (value.is_object()) {
      if (const auto text = value.find("text"); text != value.end() && text->is_string())
        return encode(text->get_ref<const std::string&>());
      if (const auto list = value.find("messages"); list != value.end() && list->is_array())
        return encode_chat(*list, place);
    }
    throw FormatError(
        fmt::format("{}: expected an object with a text \"text\" or a list \"messages\"", place));
  }

  std::vector<int32_t> encode_chat(const nlohmann::json& messages, const std::string& place) {
    if (!template_) {
      if (template_source_.empty())
        throw Unsupported(fmt::format(
            "{}: the model carries no chat template for \"messages\"; give \"text\"", place));
      template_ = ChatTemplate::parse(template_source_);
    }
    ChatRequest request;
    request.messages = messages;
    request.add_generation_prompt = false;
    const TokenizerData& data = tokenizer_->data();
    if (data.bos) request.bos_token = tokenizer_->token_text(*data.bos);
    if (data.eos) request.eos_token = tokenizer_->token_text(*data.eos);
    try {
      const RenderedPrompt prompt = template_->render(request);
      return tokenizer_->encode_marked(prompt.text, prompt.untrusted, false);
    } catch (const InvalidArgument& error) {
      throw FormatError(fmt::format("{}: {}", place, error.what()));
    }
  }

  std::vector<std::vector<int32_t>> cut(const std::vector<int32_t>& ids) const {
    std::vector<std::vector<int32_t>> sequences;
    const size_t in_front = bos_ ? 1 : 0;
    const size_t step = static_cast<size_t>(kSequenceTokens) - in_front;
    for (size_t begin = 0; begin + kLeastTokens <= ids.size(); begin += step) {
      const size_t end = std::min(begin + step, ids.size());
      std::vector<int32_t> sequence;
      if (bos_) sequence.push_back(*bos_);
      sequence.insert(sequence.end(), ids.begin() + static_cast<ptrdiff_t>(begin),
                      ids.begin() + static_cast<ptrdiff_t>(end));
      sequences.push_back(std::move(sequence));
    }
    return sequences;
  }

  int64_t n_vocab_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string template_source_;
  std::shared_ptr<const ChatTemplate> template_;
  std::optional<int32_t> bos_;
};

void add(TokenSequences& to, std::vector<int32_t> sequence, const std::string& domain) {
  to.sequences.push_back(std::move(sequence));
  to.domains.push_back(domain);
}

/// `count` of the sequences [0, n), evenly spread.
std::vector<size_t> spread(size_t n, size_t count) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < count; ++i)
    chosen.push_back(i * n / count);
  return chosen;
}

std::string digest(const CalibrationTexts& texts) {
  std::string bytes;
  for (const TokenSequences* part : {&texts.calibration, &texts.holdout}) {
    for (const auto& sequence : part->sequences) {
      bytes.append(reinterpret_cast<const char*>(sequence.data()),
                   sequence.size() * sizeof(sequence[0]));
      bytes += '|';
    }
  }
  return sha256_hex(std::as_bytes(std::span(bytes)));
}

}  // namespace

int64_t TokenSequences::n_tokens() const noexcept {
  int64_t n = 0;
  for (const auto& sequence : sequences)
    n += static_cast<int64_t>(sequence.size());
  return n;
}

CalibrationFile parse_calibration_file(const std::string& text) {
  CalibrationFile file{text, 1};
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size()) return file;
  double weight = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + colon + 1, end, weight);
  if (error != std::errc() || at != end) return file;  // a colon of the name itself
  if (!(weight > 0) || !std::isfinite(weight))
    throw InvalidArgument(
        fmt::format("--calib {}: the weight must be a number above 0", quote_text(text)));
  file.path = text.substr(0, colon);
  file.weight = weight;
  return file;
}

CalibrationTexts read_calibration_texts(const Metadata& metadata,
                                        std::span<const CalibrationFile> files,
                                        std::span<const std::filesystem::path> holdout_files,
                                        int64_t n_tokens, int64_t n_vocab,
                                        const Progress& progress) {
  CalibrationTexts texts;
  TokenReader reader(metadata, n_vocab);
  double all_weights = 0;
  for (const CalibrationFile& file : files)
    all_weights += file.weight;
  for (const CalibrationFile& file : files) {
    progress("reading texts", 0, 0);
    std::vector<std::vector<int32_t>> sequences = reader.read(file.path);
    const std::string name = file.path.filename().string();
    const size_t available = sequences.size();
    if (holdout_files.empty() && sequences.size() > 1) {
      const size_t held =
          std::min(std::max(kHeldBack / files.size(), kLeastHeldBack), sequences.size() / 2);
      for (size_t i = sequences.size() - held; i < sequences.size(); ++i)
        add(texts.holdout, std::move(sequences[i]), name);
      sequences.resize(sequences.size() - held);
    }
    const auto wanted =
        static_cast<size_t>(std::ceil(static_cast<double>(n_tokens) * file.weight / all_weights /
                                      static_cast<double>(kSequenceTokens)));
    const size_t count = std::min(wanted, sequences.size());
    for (const size_t i : spread(sequences.size(), count))
      add(texts.calibration, std::move(sequences[i]), name);
    texts.notes.push_back(fmt::format("{}: {} of {} sequences for calibration{}", name, count,
                                      available,
                                      count < wanted ? fmt::format(" ({} wanted)", wanted) : ""));
  }
  for (const auto& path : holdout_files) {
    progress("reading texts", 0, 0);
    std::vector<std::vector<int32_t>> sequences = reader.read(path);
    if (sequences.empty())
      throw InvalidArgument(fmt::format("{}: too short to measure on: {} tokens are needed",
                                        path.string(), kLeastTokens));
    for (const size_t i : spread(sequences.size(), std::min(kHoldoutSequences, sequences.size())))
      add(texts.holdout, std::move(sequences[i]), path.filename().string());
  }
  if (files.empty() && holdout_files.empty()) {
    for (auto& sequence : reader.read_text(sample_text()))
      add(texts.holdout, std::move(sequence), "built-in sample text");
  }
  if (!files.empty() && texts.calibration.sequences.empty())
    throw InvalidArgument(
        "the calibration texts are too short: no file gives a sequence of tokens");
  texts.sha256 = digest(texts);
  return texts;
}

}  // namespace ts
