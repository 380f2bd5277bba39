#include "convert/tokenizer_check.h"

#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "text/byte_level.h"
#include "text/chat_template.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace ts {
namespace {

/// Why a template cannot be used; empty when it can.
std::string template_fault(const std::string& source) {
  if (!is_valid_utf8(source)) return "it is not UTF-8 text";
  try {
    (void)ChatTemplate::parse(source);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Bytes that no token spells; such text is lost or becomes the unknown token.
void note_missing_bytes(const Tokenizer& tokenizer, std::vector<std::string>& notes) {
  const bool byte_level = tokenizer.data().model == "gpt2";
  int n_missing = 0;
  uint8_t first = 0;
  for (unsigned value = 0; value < 256; ++value) {
    const auto byte = static_cast<uint8_t>(value);
    const std::string text =
        byte_level ? to_byte_level(std::string(1, static_cast<char>(byte))) : byte_token_text(byte);
    if (tokenizer.find_token(text)) continue;
    if (n_missing++ == 0) first = byte;
  }
  if (n_missing > 0)
    notes.push_back(fmt::format(
        "the vocabulary has no token for {} of the 256 bytes (first: 0x{:02X})", n_missing, first));
}

}  // namespace

void check_tokenizer(TokenizerData& data, std::vector<std::string>& notes) {
  note_missing_bytes(*Tokenizer::create(data), notes);
  if (!data.chat_template.empty()) {
    const std::string fault = template_fault(data.chat_template);
    if (!fault.empty())
      throw FormatError(
          fmt::format("{}: the chat template (chat_template.jinja, or \"chat_template\" in "
                      "tokenizer_config.json) cannot be used: {}\nrepair or remove it",
                      data.source, fault));
  }
  std::vector<std::pair<std::string, std::string>> usable;
  for (auto& [name, source] : data.extra_templates) {
    const std::string fault = template_fault(source);
    if (fault.empty()) {
      usable.emplace_back(std::move(name), std::move(source));
    } else {
      notes.push_back(fmt::format("the chat template {} cannot be used and is left out: {}",
                                  quote_text(name), fault));
    }
  }
  data.extra_templates = std::move(usable);
}

}  // namespace ts
