// Tokenizer files from outside. The first byte selects the kind: tokenizer.json (with a
// configuration after a NUL byte), tokenizer.model, or a GGUF file. What is accepted must then
// encode and decode without losing a byte of the text or reaching for memory it does not own.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>

#include "base/json.h"
#include "format/gguf.h"
#include "model/gguf_tokenizer.h"
#include "text/hf_files.h"
#include "text/hf_tokenizer.h"
#include "text/tokenizer.h"

namespace {

nlohmann::json object_of(std::string_view text) {
  nlohmann::json value = ts::parse_json_limited(text, "input");
  return value.is_object() ? value : nlohmann::json();
}

ts::TokenizerData read(uint8_t kind, std::string_view bytes) {
  ts::HfFiles files;
  files.source = "input";
  switch (kind % 3) {
    case 0: {
      const size_t end = bytes.find('\0');
      files.tokenizer = object_of(bytes.substr(0, end));
      if (end != std::string_view::npos) files.tokenizer_config = object_of(bytes.substr(end + 1));
      return ts::build_hf_tokenizer(files, {});
    }
    case 1:
      files.sentencepiece_model = std::string(bytes);
      return ts::build_hf_tokenizer(files, {});
    default:
      return ts::read_gguf_tokenizer(
          ts::GgufFile::parse(std::as_bytes(std::span(bytes)), "input")->metadata());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const auto tokenizer = ts::Tokenizer::create(read(data[0], bytes));
    const std::string_view text = bytes.substr(0, 400);
    for (const bool parse_special : {false, true}) {
      const auto ids =
          tokenizer->encode(text, {.add_special = true, .parse_special = parse_special});
      for (const ts::TokenId id : ids) {
        if (id < 0 || id >= tokenizer->n_vocab()) std::abort();
        if (!parse_special && tokenizer->token_type(id) == ts::TokenType::kControl &&
            id != tokenizer->data().bos && id != tokenizer->data().eos &&
            id != tokenizer->data().unk) {
          std::abort();
        }
      }
      ts::StreamDecoder decoder(tokenizer, true);
      std::string streamed;
      for (const ts::TokenId id : ids)
        streamed += decoder.push(id);
      streamed += decoder.finish();
      if (streamed != tokenizer->decode(ids, true)) std::abort();
    }
  } catch (const ts::Error&) {
    // Refused with a message, as it should be.
  }
  return 0;
}
