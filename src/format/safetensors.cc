#include "format/safetensors.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>

#include "base/json.h"
#include "base/quote_text.h"
#include "format/safetensors_header.h"

namespace ts {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr size_t kMaxShards = 4096;
constexpr size_t kNamesInMessage = 3;

/// "a, b, c and 4 more".
template <typename Range>
std::string list_some(const Range& names) {
  std::string out;
  size_t n = 0;
  for (const std::string& name : names) {
    if (n == kNamesInMessage) {
      return out + fmt::format(" and {} more", names.size() - kNamesInMessage);
    }
    if (n++ > 0) out += ", ";
    out += quote_text(name);
  }
  return out;
}

/// Names in the folder that start with `prefix` and end in `suffix`, sorted.
std::set<std::string> list_files(const fs::path& dir, std::string_view prefix,
                                 std::string_view suffix) {
  std::set<std::string> names;
  std::error_code ec;
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec)) {
    std::string name = it->path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(suffix)) names.insert(std::move(name));
  }
  if (ec) throw IoError(fmt::format("{}: cannot list the folder: {}", dir.string(), ec.message()));
  return names;
}

/// The number of shards that "model-00001-of-00004.safetensors" speaks of.
std::optional<size_t> shard_count(std::string_view name) {
  const size_t of = name.rfind("-of-");
  if (of == std::string_view::npos || of < 6 || name[of - 6] != '-') return std::nullopt;
  size_t count = 0;
  for (const char c : name.substr(of + 4, 5)) {
    if (c < '0' || c > '9') return std::nullopt;
    count = count * 10 + static_cast<size_t>(c - '0');
  }
  return count;
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.find_first_of("/\\") == std::string_view::npos &&
         name.find('\0') == std::string_view::npos && name != "." && name != ".." &&
         name.ends_with(".safetensors");
}

}  // namespace

/// Assembles a Safetensors from one file or a folder of them.
class SafetensorsParser {
 public:
  std::shared_ptr<const Safetensors> parse(std::span<const std::byte> bytes,
                                           const std::string& name) {
    add(bytes, name);
    return finish();
  }

  std::shared_ptr<const Safetensors> open(const fs::path& path) {
    std::error_code ec;
    const std::string name = path.filename().string();
    if (fs::is_directory(path, ec)) {
      open_directory(path);
    } else if (name.ends_with(".safetensors.index.json")) {
      open_index(path);
    } else {
      if (name == "adapter_model.safetensors") refuse_adapter(path);
      add_file(path);
    }
    return finish();
  }

 private:
  [[noreturn]] static void refuse_adapter(const fs::path& path) {
    throw Unsupported(fmt::format(
        "{}: this is a LoRA adapter, not a whole model; merge it into its base model first",
        path.string()));
  }

  void open_directory(const fs::path& dir) {
    std::error_code ec;
    if (fs::exists(dir / kIndexName, ec)) return open_index(dir / kIndexName);
    const std::set<std::string> names = list_files(dir, "model", ".safetensors");
    if (names.empty()) explain_no_model(dir);
    check_complete(dir, names);
    for (const std::string& name : names)
      add_file(dir / name);
  }

  [[noreturn]] static void explain_no_model(const fs::path& dir) {
    std::error_code ec;
    if (fs::exists(dir / "adapter_model.safetensors", ec)) {
      refuse_adapter(dir / "adapter_model.safetensors");
    }
    if (const auto other = list_files(dir, "", ".safetensors"); !other.empty()) {
      throw Unsupported(fmt::format(
          "{}: no model.safetensors here, only {}; give one of these files by name if it holds the "
          "model in Hugging Face naming",
          dir.string(), list_some(other)));
    }
    for (const char* suffix : {".bin", ".pth", ".pt"}) {
      if (const auto pickles = list_files(dir, "", suffix); !pickles.empty()) {
        throw Unsupported(fmt::format(
            "{}: holds only PyTorch checkpoints ({}), which are never read because they can carry "
            "code; get the safetensors form of the model",
            dir.string(), list_some(pickles)));
      }
    }
    throw IoError(
        fmt::format("{}: no model.safetensors and no {} in this folder", dir.string(), kIndexName));
  }

  static void check_complete(const fs::path& dir, const std::set<std::string>& names) {
    for (const std::string& name : names) {
      const auto count = shard_count(name);
      if (count && *count > names.size()) {
        throw IoError(fmt::format(
            "{}: {} of the {} shards that {} belongs to are here; the download is incomplete",
            dir.string(), names.size(), *count, quote_text(name)));
      }
    }
  }

  void open_index(const fs::path& index_path) {
    const auto file = MappedFile::open(index_path, {.name = "JSON file of a checkpoint"});
    const std::string source = index_path.string();
    JsonLimits limits;
    limits.max_bytes = kSafetensorsMaxHeaderBytes;
    limits.refuse_duplicate_keys = true;
    const nlohmann::json index = parse_json_limited(
        {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()}, source,
        limits);
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
      throw FormatError(source +
                        ": has no object 'weight_map', expected one from tensor names to "
                        "file names");
    }
    std::map<std::string, std::string> weight_map;  // tensor -> file
    std::set<std::string> files;
    for (const auto& [tensor, where] : index["weight_map"].items()) {
      if (!where.is_string() || !is_plain_file_name(where.get_ref<const std::string&>())) {
        throw FormatError(fmt::format(
            "{}: 'weight_map' places tensor {} in {}, expected the name of a .safetensors file in "
            "the same folder",
            source, quote_text(tensor),
            where.is_string() ? quote_text(where.get_ref<const std::string&>())
                              : std::string(where.type_name())));
      }
      files.insert(where.get<std::string>());
      weight_map.emplace(tensor, where.get<std::string>());
    }
    if (files.size() > kMaxShards) {
      throw FormatError(fmt::format("{}: names {} files, more than the {} allowed", source,
                                    files.size(), kMaxShards));
    }
    const fs::path dir = index_path.parent_path();
    check_files_present(source, dir, files);
    for (const std::string& name : files)
      add_file(dir / name);
    check_against_index(source, weight_map);
  }

  static void check_files_present(const std::string& source, const fs::path& dir,
                                  const std::set<std::string>& files) {
    std::set<std::string> missing;
    std::error_code ec;
    for (const std::string& name : files) {
      if (!fs::exists(dir / name, ec)) missing.insert(name);
    }
    if (missing.empty()) return;
    throw IoError(
        fmt::format("{}: {} of the {} files it names are missing ({}); the download is "
                    "incomplete",
                    source, missing.size(), files.size(), list_some(missing)));
  }

  void check_against_index(const std::string& source,
                           std::map<std::string, std::string>& weight_map) const {
    for (const SafetensorsEntry& tensor : file_->tensors_) {
      const auto it = weight_map.find(tensor.name);
      const std::string actual = tensor.file.filename().string();
      if (it == weight_map.end()) {
        throw FormatError(
            fmt::format("{}: does not name tensor {}, which is in {}; index and files are of "
                        "different versions: download them again",
                        source, quote_text(tensor.name), actual));
      }
      if (it->second != actual) {
        throw FormatError(
            fmt::format("{}: places tensor {} in {}, but it is in {}; index and files are of "
                        "different versions: download them again",
                        source, quote_text(tensor.name), it->second, actual));
      }
      weight_map.erase(it);
    }
    if (weight_map.empty()) return;
    std::set<std::string> missing;
    for (const auto& [tensor, where] : weight_map)
      missing.insert(tensor);
    throw FormatError(fmt::format(
        "{}: {} tensors it names are in none of the files ({}); the download is incomplete", source,
        missing.size(), list_some(missing)));
  }

  void add_file(const fs::path& path) {
    auto part = MappedFile::open(path, {.name = "safetensors file"});
    add(part->bytes(), path);
    part->check_not_truncated();
    file_->parts_.push_back(std::move(part));
  }

  void add(std::span<const std::byte> bytes, const fs::path& path) {
    SafetensorsHeader header = read_safetensors_header(bytes, path.string());
    for (SafetensorsInfo& info : header.tensors) {
      file_->tensors_.push_back(
          {std::move(info.name), std::move(info.dtype), std::move(info.shape), path,
           bytes.subspan(header.data_start + info.begin, info.end - info.begin)});
    }
    file_->metadata_.merge(header.metadata);
  }

  std::shared_ptr<const Safetensors> finish() {
    auto& tensors = file_->tensors_;
    std::sort(tensors.begin(), tensors.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    for (size_t i = 1; i < tensors.size(); ++i) {
      if (tensors[i - 1].name == tensors[i].name) {
        throw FormatError(fmt::format(
            "{}: tensor {} is also in {}; the files are of different models",
            tensors[i].file.string(), quote_text(tensors[i].name), tensors[i - 1].file.string()));
      }
    }
    return std::move(file_);
  }

  std::shared_ptr<Safetensors> file_{new Safetensors()};
};

std::shared_ptr<const Safetensors> Safetensors::open(const std::filesystem::path& path) {
  return SafetensorsParser().open(path);
}

std::shared_ptr<const Safetensors> Safetensors::parse(std::span<const std::byte> bytes,
                                                      std::string name) {
  return SafetensorsParser().parse(bytes, name);
}

const SafetensorsEntry* Safetensors::find(std::string_view name) const noexcept {
  const auto it = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const SafetensorsEntry& entry, std::string_view want) { return entry.name < want; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

}  // namespace ts
