/// A file of a base model's probabilities, to compare other models with later. The layout is the
/// one that llama.cpp's perplexity tool writes with --kl-divergence-base and reads with
/// --kl-divergence, so files can be exchanged:
///
///   char     magic[8] = "_logits_"
///   uint32   n_ctx                      tokens of a window
///   int32    n_vocab, n_chunk           n_chunk windows
///   int32    tokens[n_chunk][n_ctx]     as tokenized: BOS not yet put in place
///   row      rows[n_chunk][n_ctx - 1 - n_ctx / 2]    the scored positions of each window
///
/// where a row is float32 scale, float32 minimum, uint16 codes[n_vocab rounded up to even]:
/// log p of token i = minimum + scale * codes[i]. Logits more than 16 below the largest one are
/// raised to that; so a smaller probability than about 1e-7 is an upper bound. Little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/atomic_file.h"
#include "base/mapped_file.h"

namespace ts {

/// Whether the file begins like one. False too when it cannot be read.
bool is_base_logits_file(const std::filesystem::path& path) noexcept;

class BaseLogitsReader {
 public:
  /// Errors: FormatError (another kind of file, impossible header, truncated, too long), IoError.
  explicit BaseLogitsReader(const std::filesystem::path& path);

  int64_t n_ctx() const noexcept { return n_ctx_; }
  int64_t n_vocab() const noexcept { return n_vocab_; }
  int64_t n_windows() const noexcept { return n_windows_; }
  int64_t rows_per_window() const noexcept { return n_ctx_ - 1 - n_ctx_ / 2; }
  /// All windows' tokens [n_windows, n_ctx].
  const std::vector<int32_t>& tokens() const noexcept { return tokens_; }
  const std::filesystem::path& path() const noexcept { return file_->path(); }
  /// Natural logarithms of the probabilities [n_vocab] of row `row` of a window. FormatError when
  /// the row holds no probabilities: scale or minimum not finite, or a sum far from 1.
  void read_row(int64_t window, int64_t row, std::span<float> log_probabilities) const;

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::shared_ptr<const MappedFile> file_;
  int64_t n_ctx_ = 0, n_vocab_ = 0, n_windows_ = 0;
  uint64_t rows_offset_ = 0, row_bytes_ = 0;
  std::vector<int32_t> tokens_;
};

/// Writes rows in order; the file appears with finish() only.
class BaseLogitsWriter {
 public:
  /// `tokens` [n_windows, n_ctx]. Errors: as AtomicFile; ResourceExhausted when the disk has no
  /// room for the whole file.
  BaseLogitsWriter(const std::filesystem::path& path, bool overwrite, int64_t n_ctx,
                   int64_t n_vocab, std::span<const int32_t> tokens);
  /// The next scored position: logits [n_vocab] and the logarithm of their exponentials' sum.
  void write(std::span<const float> logits, double log_sum);
  void finish();
  uint64_t size() const noexcept { return file_.size(); }

 private:
  AtomicFile file_;
  int64_t n_vocab_, n_rows_left_;
  std::vector<uint16_t> row_;
};

}  // namespace ts
