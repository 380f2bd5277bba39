/// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ts {

using TokenId = int32_t;

/// Token types, numbered as in GGUF and SentencePiece.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

/// Everything a tokenizer is made of, as read from GGUF metadata or a Hugging Face directory.
struct TokenizerData {
  std::string model;  ///< "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE by score)
  std::string pre;    ///< pre-tokenizer name of byte-level BPE, e.g. "qwen2"
  std::vector<std::string> tokens;  ///< index = id; raw bytes
  std::vector<TokenType> types;     ///< empty = all normal
  std::vector<float> scores;        ///< "llama" only
  std::vector<std::string> merges;  ///< "gpt2" only: "left right", rank order
  std::optional<TokenId> bos, eos, eot, eom, unk, sep, pad, mask;
  std::vector<TokenId> fim_stop;  ///< FIM pad, repo and file separators: they end generation
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::string chat_template;                                         ///< empty = none
  std::vector<std::pair<std::string, std::string>> extra_templates;  ///< name, source
  std::string source;  ///< file or directory, for messages
};

struct EncodeOptions {
  /// Adds BOS/EOS as the model's flags say.
  bool add_special = true;
  /// Recognises the texts of control tokens. User-defined tokens are always recognised.
  bool parse_special = false;
};

/// A half-open range of bytes.
struct ByteRange {
  size_t begin = 0, end = 0;
};

/// Immutable and thread-safe.
class Tokenizer {
 public:
  /// Checks and indexes the data. Errors: FormatError (inconsistent), Unsupported (unknown model or
  /// pre-tokenizer; `force_pre` replaces the name).
  static std::shared_ptr<const Tokenizer> create(TokenizerData data,
                                                 const std::string& force_pre = {});
  virtual ~Tokenizer() = default;

  virtual std::vector<TokenId> encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;
  /// As encode() with parse_special, except that no control token is recognised inside the
  /// `untrusted` ranges (sorted, disjoint): those bytes came from users or tools.
  virtual std::vector<TokenId> encode_marked(std::string_view text,
                                             std::span<const ByteRange> untrusted,
                                             bool add_special) const = 0;
  /// The bytes a token stands for in running text. Control tokens give their text when
  /// `show_special`, else nothing. May be part of a UTF-8 sequence.
  virtual std::string token_bytes(TokenId id, bool show_special) const = 0;
  /// Whole-sequence decoding, including the removal of SentencePiece's leading space. Bytes that
  /// are not UTF-8 come out as U+FFFD.
  virtual std::string decode(std::span<const TokenId> ids, bool show_special) const = 0;
  /// The token as the vocabulary holds it.
  virtual const std::string& token_text(TokenId id) const = 0;
  virtual TokenType token_type(TokenId id) const = 0;
  virtual std::optional<TokenId> find_token(std::string_view text) const = 0;
  virtual int32_t n_vocab() const = 0;
  /// True for tokens that end a generation (EOS, end of turn, ...).
  virtual bool is_end(TokenId id) const = 0;
  virtual const TokenizerData& data() const = 0;
  /// Effective flags.
  virtual bool adds_bos() const = 0;
  virtual bool adds_eos() const = 0;
  virtual bool strips_leading_space() const = 0;
};

/// Turns a stream of tokens into valid UTF-8 as early as possible: incomplete sequences are held
/// back (at most 3 bytes), invalid bytes become U+FFFD.
class StreamDecoder {
 public:
  /// `continues_text`: the tokens carry on a text instead of beginning one, so a SentencePiece
  /// model's leading space is kept.
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool show_special,
                bool continues_text = false);
  /// Text that became complete with this token.
  std::string push(TokenId id);
  /// The rest, with incomplete bytes as one U+FFFD.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool show_special_;
  bool at_start_ = true;
  std::string pending_;
};

}  // namespace ts
