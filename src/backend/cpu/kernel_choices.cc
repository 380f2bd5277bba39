#include "backend/cpu/kernel_choices.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <span>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>
#include <tensorsharp/version.hpp>

#include "base/atomic_file.h"
#include "base/cpu_features.h"
#include "base/json.h"
#include "base/log.h"

namespace ts {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr size_t kMaxFileBytes = size_t{4} << 20;
constexpr size_t kMaxRowsPerPiece = 1 << 16;

/// A field of a choice; FormatError unless it is there and of that kind.
template <typename T>
T field(const json& row, const char* name) {
  const auto found = row.find(name);
  if (found == row.end()) throw FormatError(fmt::format("\"{}\" is missing", name));
  bool good = false;
  if constexpr (std::is_same_v<T, bool>)
    good = found->is_boolean();
  else if constexpr (std::is_same_v<T, std::string>)
    good = found->is_string();
  else if constexpr (std::is_same_v<T, double>)
    good = found->is_number() && std::isfinite(found->template get<double>());
  else
    good = found->is_number_unsigned() && found->template get<uint64_t>() <= 0x7FFFFFFF;
  if (!good) throw FormatError(fmt::format("\"{}\" is of another kind", name));
  return found->template get<T>();
}

KernelChoices::Entry parse_entry(const json& row) {
  if (!row.is_object()) throw FormatError("a choice is no object");
  KernelChoices::Entry entry;
  entry.key.isa = field<std::string>(row, "isa");
  entry.key.n_threads = static_cast<int>(field<size_t>(row, "threads"));
  entry.key.huge_pages = field<bool>(row, "huge_pages");
  entry.key.codec = field<std::string>(row, "codec");
  entry.key.rows = field<size_t>(row, "rows");
  entry.key.cols = field<size_t>(row, "cols");
  entry.choice.repack = field<bool>(row, "repack");
  entry.choice.rows_per_piece = field<size_t>(row, "rows_per_piece");
  entry.choice.repacked_seconds = field<double>(row, "repacked_seconds");
  entry.choice.mapped_seconds = field<double>(row, "mapped_seconds");
  const size_t rows = entry.choice.rows_per_piece;
  if (rows < 16 || rows > kMaxRowsPerPiece || (rows & (rows - 1)) != 0)
    throw FormatError(fmt::format("\"rows_per_piece\" is {}", rows));
  return entry;
}

json to_json(const KernelChoices::Entry& e) {
  return {{"isa", e.key.isa},
          {"threads", e.key.n_threads},
          {"huge_pages", e.key.huge_pages},
          {"codec", e.key.codec},
          {"rows", e.key.rows},
          {"cols", e.key.cols},
          {"repack", e.choice.repack},
          {"rows_per_piece", e.choice.rows_per_piece},
          {"repacked_seconds", e.choice.repacked_seconds},
          {"mapped_seconds", e.choice.mapped_seconds}};
}

std::string read_small_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw IoError("cannot be read");
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.gcount() > static_cast<std::streamsize>(kMaxFileBytes)) throw FormatError("is too long");
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

}  // namespace

KernelChoices::KernelChoices(std::filesystem::path path) : path_(std::move(path)) {
  merge_file(true);
}

void KernelChoices::put(const Entry& entry, bool replace) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.key == entry.key; });
  if (found == entries_.end())
    entries_.push_back(entry);
  else if (replace)
    *found = entry;
}

void KernelChoices::merge_file(bool report) {
  std::error_code missing;
  if (!std::filesystem::exists(path_, missing)) return;
  try {
    const json root = parse_json_limited(read_small_file(path_), "the file");
    if (!root.is_object() || !root.contains("format") || root["format"] != kFormat)
      throw FormatError("it is not such a file");
    if (root.value("program", json()) != std::string(version()) ||
        root.value("cpu", json()) != cpu_model_name()) {
      if (report)
        log_info(fmt::format("{}: measured by another version or on another CPU; measuring again",
                             path_.string()));
      return;
    }
    std::vector<Entry> read;
    for (const json& row : root.value("choices", json::array()))
      read.push_back(parse_entry(row));
    for (const Entry& entry : read)
      put(entry, false);
  } catch (const std::exception& error) {
    if (report)
      log_info(fmt::format("{} is ignored and made anew: {}", path_.string(), error.what()));
  }
}

std::optional<KernelChoice> KernelChoices::find(const KernelChoiceKey& key) const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.key == key) return entry.choice;
  }
  return std::nullopt;
}

std::vector<KernelChoices::Entry> KernelChoices::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

void KernelChoices::add(const KernelChoiceKey& key, const KernelChoice& choice) {
  const std::lock_guard lock(mutex_);
  put({key, choice}, true);
  merge_file(false);
  json root = {{"format", kFormat}, {"program", version()}, {"cpu", cpu_model_name()}};
  root["choices"] = json::array();
  for (const Entry& entry : entries_)
    root["choices"].push_back(to_json(entry));
  try {
    std::filesystem::create_directories(path_.parent_path());
    const std::string text = root.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
    AtomicFile file(path_, true);
    file.write(std::as_bytes(std::span(text.data(), text.size())));
    file.commit();
  } catch (const std::exception& error) {
    log_info(fmt::format("kernel choices are not kept: {}", error.what()));
  }
}

}  // namespace ts
