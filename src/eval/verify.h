/// Is a model file sound? Structure, tokenizer, every block's bytes, and a forward pass against the
/// reference kernels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"

namespace ts {

enum class VerifyLevel {
  /// Structure, bounds, tokenizer, the architecture's tensors, and the values of the small ones.
  kQuick,
  kFull,  ///< also every block of every tensor and a forward pass of 8 tokens against `ref`
};

struct VerifyOptions {
  VerifyLevel level = VerifyLevel::kQuick;
  int n_threads = 1;
  std::string isa;  ///< of the forward pass that is compared with `ref`; empty = automatic
};

struct VerifyFinding {
  std::string tensor;              ///< empty = the file as a whole
  std::optional<uint64_t> offset;  ///< in the file, where known
  std::string what;
};

struct VerifyReport {
  std::vector<VerifyFinding> problems;  ///< empty = the file is sound
  std::vector<VerifyFinding> notes;     ///< legal, yet worth telling: what a run warns of, too
  std::string architecture;             ///< empty when the file names none
  uint64_t n_tensors = 0;
  uint64_t n_blocks = 0;  ///< looked at; 0 at level quick
  bool forward_checked = false;
  double forward_difference = 0;  ///< largest |logit - ref| / standard deviation of ref's logits
  bool ok() const noexcept { return problems.empty(); }
};

/// A file that cannot be opened at all throws as GgufFile::open does; everything found later is in
/// the report. Errors: Cancelled, ResourceExhausted.
VerifyReport verify_model(const std::filesystem::path& path, const VerifyOptions& options,
                          const Progress& progress);

}  // namespace ts
