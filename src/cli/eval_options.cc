#include "cli/eval_options.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/sha256.h"
#include "cli/input_text.h"
#include "cli/kernel_names.h"
#include "format/gguf.h"

namespace ts::cli {

using nlohmann::ordered_json;

void EvalOptions::add(OptionParser& options, std::string_view context_default) {
  options.text("--expect-sha", expect_sha_, "HEX",
               "refuse data with another SHA-256 (a prefix of at least 8 digits will do)");
  options.text("--resume", resume, "FILE",
               "keep the state in FILE, and go on from it when it exists");
  model.add(options, context_default);
}

void EvalOptions::check() const {
  if (expect_sha_ &&
      (expect_sha_->size() < 8 || expect_sha_->size() > 64 ||
       expect_sha_->find_first_not_of("0123456789abcdefABCDEF") != std::string::npos))
    throw InvalidArgument("--expect-sha takes 8 to 64 hexadecimal digits");
}

void EvalOptions::check_sha(std::string_view path, std::string_view sha) const {
  if (!expect_sha_) return;
  std::string wanted = *expect_sha_;
  std::transform(wanted.begin(), wanted.end(), wanted.begin(),
                 [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
  if (!sha.starts_with(wanted))
    throw FormatError(
        fmt::format("{}: SHA-256 is {}, expected {}\n  It is another text, or "
                    "another variant of it (line ends, a stripped last line).",
                    path, sha, wanted));
}

EvalData EvalOptions::read_data(const std::string& path) const {
  EvalData data{path, read_text_file(path), {}};
  data.sha256 = sha256_hex(std::as_bytes(std::span(data.text.data(), data.text.size())));
  check_sha(path, data.sha256);
  return data;
}

ordered_json EvalOptions::provenance(const Engine& engine) const {
  const ModelInfo& info = engine.info();
  return {{"model", info.name},
          {"scheme", info.scheme},
          {"isa", info.isa},
          {"threads", info.n_threads},
          {"kernels", kernel_names_of_model(model.path, info.isa)}};
}

ResumeFile EvalOptions::resume_file(Console& console, const Engine& engine, const LoadOptions& load,
                                    const std::string& kind, const std::string& data_sha,
                                    const ordered_json& more) const {
  ordered_json identity;
  if (!resume.empty()) {
    identity = {{"model", engine.info().name},
                {"architecture", engine.info().architecture},
                {"scheme", engine.info().scheme},
                {"file_bytes", engine.info().file_bytes},
                {"file_sha256", model_data_sha(console, model.path)},
                {"isa", engine.info().isa},
                {"data_sha256", data_sha},
                {"context", engine.info().context},
                {"exact", load.exact},
                {"kv", static_cast<int>(load.kv)}};
    identity.update(more);
  }
  return {resume, kind, identity};
}

std::string model_data_sha(Console& console, const std::string& path) {
  const auto file = GgufFile::open(path);
  std::string all;
  const Progress progress = console.progress();
  for (const auto& tensor : file->tensors()) {
    progress("hashing the model", all.size() / 64, file->tensors().size());
    all += sha256_hex(tensor.data);
  }
  console.clear_progress();
  return sha256_hex(std::as_bytes(std::span(all)));
}

bool run_resumable(ResumeFile& file, const std::function<ordered_json()>& state,
                   const std::function<void()>& work) {
  bool ended = true;
  try {
    work();
  } catch (const Cancelled&) {
    ended = false;
  }
  if (file.kept()) file.save(state());
  return ended;
}

void note_interrupted(Console& console, const ResumeFile& file, uint64_t done, uint64_t total,
                      std::string_view unit) {
  console.note_format("interrupted after {} of {} {}{}", done, total, unit,
                      file.kept() ? "; the same command goes on" : "");
}

std::string kernels_text(const ordered_json& result) {
  std::string out;
  for (const auto& [codec, name] : result["kernels"].items())
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", codec, name.get<std::string>());
  return out;
}

void append_json_line(AtomicFile& file, const ordered_json& value) {
  const std::string text =
      value.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  file.write(std::as_bytes(std::span(text.data(), text.size())));
}

ordered_json when_known(bool known, const ordered_json& value) {
  return known ? value : ordered_json();
}

}  // namespace ts::cli
