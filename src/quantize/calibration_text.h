/// Texts a model is calibrated and measured on, as sequences of token ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "format/metadata.h"

namespace ts {

/// Tokens of a sequence: long enough for attention to matter, short enough to keep many.
inline constexpr int64_t kSequenceTokens = 512;

struct CalibrationFile {
  std::filesystem::path path;
  double weight = 1;  ///< share of the calibration tokens, relative to the other files
};

/// "FILE" or "FILE:WEIGHT". InvalidArgument when the weight is no number above 0.
CalibrationFile parse_calibration_file(const std::string& text);

struct TokenSequences {
  std::vector<std::vector<int32_t>> sequences;
  std::vector<std::string> domains;  ///< of each sequence: the file it comes from
  int64_t n_tokens() const noexcept;
};

struct CalibrationTexts {
  TokenSequences calibration;
  TokenSequences holdout;          ///< never seen by the calibration
  std::string sha256;              ///< of all token ids
  std::vector<std::string> notes;  ///< what each file gave, one line each
};

/// Reads the files and cuts each into sequences of kSequenceTokens; where the model begins texts
/// with a token of its own, every sequence begins with it. Takes about `n_tokens` tokens for
/// calibration, divided by weight, evenly spread over each file. The holdout is `holdout_files`, or
/// where there are none the ends of the calibration files, which are then left out, or without
/// those the built-in sample text.
///
/// File forms: .u32 (little-endian token ids), .jsonl (an object with "text", or with "messages"
/// for the model's chat template, on each line), any other UTF-8 text.
/// `metadata`: of the model, with its tokenizer. Errors: FormatError (file and line are named),
/// InvalidArgument (too little text), IoError, Cancelled.
CalibrationTexts read_calibration_texts(const Metadata& metadata,
                                        std::span<const CalibrationFile> files,
                                        std::span<const std::filesystem::path> holdout_files,
                                        int64_t n_tokens, int64_t n_vocab,
                                        const Progress& progress);

}  // namespace ts
