/// What the evaluations share: options, the record of what was measured on what, the state of an
/// interrupted run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <tensorsharp/engine.hpp>

#include "base/atomic_file.h"
#include "cli/model_options.h"
#include "cli/resume_file.h"

namespace ts::cli {

/// A file to measure on.
struct EvalData {
  std::string path, text, sha256;
};

class EvalOptions {
 public:
  /// --expect-sha, --resume and the options of the model, --ctx with this default.
  void add(OptionParser& options, std::string_view context_default);
  void check() const;

  /// Reads the file; FormatError when its SHA-256 is not the one expected.
  EvalData read_data(const std::string& path) const;
  bool expects_sha() const noexcept { return expect_sha_.has_value(); }
  /// The same check for what is made of several files.
  void check_sha(std::string_view path, std::string_view sha) const;

  /// The keys of a result that say which model was measured, and how.
  nlohmann::ordered_json provenance(const Engine& engine) const;
  /// State of a `kind` of run on this model; `more`: what the result depends on besides the model
  /// and the data.
  ResumeFile resume_file(Console& console, const Engine& engine, const LoadOptions& load,
                         const std::string& kind, const std::string& data_sha,
                         const nlohmann::ordered_json& more) const;

  ModelOptions model;
  std::string resume;

 private:
  std::optional<std::string> expect_sha_;
};

/// SHA-256 of the contents of all tensors of a model file (all of its parts), so that figures of
/// two models are never mixed.
std::string model_data_sha(Console& console, const std::string& path);

/// Runs `work`; true when it ended, false after an interrupt. The state is saved either way.
bool run_resumable(ResumeFile& file, const std::function<nlohmann::ordered_json()>& state,
                   const std::function<void()>& work);
/// "interrupted after 3 of 9 windows; the same command goes on", on stderr.
void note_interrupted(Console& console, const ResumeFile& file, uint64_t done, uint64_t total,
                      std::string_view unit);
/// "q4_1: avx2, f32: avx2" of a result's "kernels".
std::string kernels_text(const nlohmann::ordered_json& result);
/// One JSON value on a line of its own; bytes that are not UTF-8 become U+FFFD.
void append_json_line(AtomicFile& file, const nlohmann::ordered_json& value);
/// A number, or null when so few measurements do not give one.
nlohmann::ordered_json when_known(bool known, const nlohmann::ordered_json& value);

}  // namespace ts::cli
