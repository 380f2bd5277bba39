#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "format/gguf.h"
#include "format/gguf_header.h"
#include "format/gguf_layout.h"

namespace ts {
namespace {

/// "<prefix>-00001-of-00003.gguf", the name of a part.
struct PartName {
  std::string prefix;
  uint64_t number = 0;  ///< 1-based
  uint64_t count = 0;
};

std::optional<uint64_t> five_digits(std::string_view text) {
  if (text.size() != 5) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

std::optional<PartName> parse_part_name(const std::string& file_name) {
  constexpr std::string_view kOf = "-of-", kEnd = ".gguf";
  constexpr size_t kTail = 1 + 5 + 4 + 5 + 5;  // "-00001-of-00003.gguf"
  if (file_name.size() < kTail) return std::nullopt;
  const std::string_view tail = std::string_view(file_name).substr(file_name.size() - kTail);
  const auto number = five_digits(tail.substr(1, 5)), count = five_digits(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != kOf || tail.substr(15) != kEnd || !number || !count) {
    return std::nullopt;
  }
  return PartName{file_name.substr(0, file_name.size() - kTail), *number, *count};
}

std::string part_file_name(const PartName& name, uint64_t number) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", name.prefix, number, name.count);
}

/// What the split.* keys of a part say.
struct SplitKeys {
  int64_t no = 0, count = 1, n_tensors = -1;
};

SplitKeys read_split_keys(const Metadata& metadata, const GgufLimits& limits) {
  SplitKeys keys;
  const auto max_parts = static_cast<int64_t>(limits.max_shards);
  keys.count = metadata.get_int("split.count", 0, max_parts).value_or(1);
  if (keys.count <= 1) return keys;
  const auto no = metadata.get_int("split.no", 0, keys.count - 1);
  if (!no) {
    throw FormatError(fmt::format(
        "{}: metadata key 'split.count' is {} but 'split.no' is missing; the file is malformed",
        metadata.source(), keys.count));
  }
  keys.no = *no;
  keys.n_tensors =
      metadata.get_int("split.tensors.count", 0, static_cast<int64_t>(limits.max_tensors))
          .value_or(-1);
  return keys;
}

}  // namespace

/// Assembles a GgufFile from its parts.
class GgufParser {
 public:
  explicit GgufParser(const GgufLimits& limits) : limits_(limits), file_(new GgufFile()) {}

  std::shared_ptr<const GgufFile> open(const std::filesystem::path& path) {
    file_->path_ = path;
    auto first = MappedFile::open(path);
    GgufHeader header = read_gguf_header(first->bytes(), path.string(), limits_);
    const SplitKeys keys = read_split_keys(header.metadata, limits_);
    if (keys.count > 1) {
      const PartName name = check_first_part(path, keys);
      check_all_present(path, name);
      add_part(std::move(first), std::move(header));
      for (int64_t no = 1; no < keys.count; ++no)
        add_following_part(path, name, keys, no);
      check_total(keys);
    } else {
      add_part(std::move(first), std::move(header));
    }
    finish();
    file_->check_not_truncated();
    return std::move(file_);
  }

  std::shared_ptr<const GgufFile> open_mapped(std::shared_ptr<const MappedFile> part) {
    const std::filesystem::path path = part->path();
    file_->path_ = path;
    GgufHeader header = read_gguf_header(part->bytes(), path.string(), limits_);
    refuse_split(header.metadata, path.string());
    add_part(std::move(part), std::move(header));
    finish();
    return std::move(file_);
  }

  std::shared_ptr<const GgufFile> parse(std::span<const std::byte> bytes, std::string name) {
    file_->path_ = name;
    GgufHeader header = read_gguf_header(bytes, name, limits_);
    refuse_split(header.metadata, name);
    add_header(bytes, file_->path_, std::move(header));
    finish();
    return std::move(file_);
  }

 private:
  void refuse_split(const Metadata& metadata, const std::string& name) const {
    if (read_split_keys(metadata, limits_).count <= 1) return;
    throw Unsupported(fmt::format(
        "{}: one part of a split model; all parts must be opened together from files", name));
  }

  PartName check_first_part(const std::filesystem::path& path, const SplitKeys& keys) const {
    auto name = parse_part_name(path.filename().string());
    if (!name) {
      throw FormatError(
          fmt::format("{}: this is part {} of {} of a split model, so its name must end in "
                      "-{:05}-of-{:05}.gguf for the others to be found; give it its original name",
                      path.string(), keys.no + 1, keys.count, keys.no + 1, keys.count));
    }
    if (keys.no != 0) {
      throw InvalidArgument(
          fmt::format("{}: this is part {} of {} of a split model; give the first part: {}",
                      path.string(), keys.no + 1, keys.count, part_file_name(*name, 1)));
    }
    if (name->number != 1 || name->count != static_cast<uint64_t>(keys.count)) {
      throw FormatError(fmt::format(
          "{}: its name says part {} of {}, its metadata part 1 of {}; give it its original name",
          path.string(), name->number, name->count, keys.count));
    }
    return *name;
  }

  static void check_all_present(const std::filesystem::path& path, const PartName& name) {
    std::vector<std::string> missing;
    for (uint64_t number = 2; number <= name.count; ++number) {
      std::error_code ec;
      const std::string part = part_file_name(name, number);
      if (!std::filesystem::exists(path.parent_path() / part, ec)) missing.push_back(part);
    }
    if (missing.empty()) return;
    throw IoError(
        fmt::format("{}: {} of the {} parts of this split model are missing ({}{}); "
                    "download them into the same folder",
                    path.string(), missing.size(), name.count, missing.front(),
                    missing.size() > 1 ? ", ..." : ""));
  }

  void add_following_part(const std::filesystem::path& first, const PartName& name,
                          const SplitKeys& keys, int64_t no) {
    const auto path = first.parent_path() / part_file_name(name, static_cast<uint64_t>(no) + 1);
    auto part = MappedFile::open(path);
    GgufHeader header = read_gguf_header(part->bytes(), path.string(), limits_);
    const SplitKeys own = read_split_keys(header.metadata, limits_);
    if (own.count != keys.count || own.no != no) {
      throw FormatError(fmt::format(
          "{}: its metadata says part {} of {}, expected part {} of {}; the parts are mixed up: "
          "download them again",
          path.string(), own.no + 1, own.count, no + 1, keys.count));
    }
    add_part(std::move(part), std::move(header));
  }

  void check_total(const SplitKeys& keys) const {
    if (keys.n_tensors >= 0 && keys.n_tensors != static_cast<int64_t>(file_->tensors_.size())) {
      throw FormatError(
          fmt::format("{}: the parts hold {} tensors, but metadata key 'split.tensors.count' says "
                      "{}; a part is "
                      "from another model: download them again",
                      file_->path_.string(), file_->tensors_.size(), keys.n_tensors));
    }
  }

  void add_part(std::shared_ptr<const MappedFile> part, GgufHeader header) {
    add_header(part->bytes(), part->path(), std::move(header));
    file_->parts_.push_back(std::move(part));
  }

  /// Only the first part's metadata counts; the others repeat at most the split keys.
  void add_header(std::span<const std::byte> bytes, const std::filesystem::path& path,
                  GgufHeader header) {
    place_gguf_tensors(header, bytes, path, path.string(), file_->tensors_, file_->notes_);
    if (file_->version_ == 0) {
      file_->version_ = header.version;
      file_->alignment_ = header.alignment;
      file_->metadata_ = std::move(header.metadata);
    }
    file_->file_bytes_ += bytes.size();
  }

  void finish() {
    const MetadataValue* title = file_->metadata_.find("general.name");
    const auto* text = title ? std::get_if<std::string>(&title->value) : nullptr;
    if (text != nullptr && *text == "Hf") {
      file_->notes_.push_back(fmt::format(
          "{}: general.name is the placeholder 'Hf'; go by the file name", file_->path_.string()));
    }
    file_->index_.reserve(file_->tensors_.size());
    for (size_t i = 0; i < file_->tensors_.size(); ++i) {
      const TensorEntry& tensor = file_->tensors_[i];
      const auto [it, added] = file_->index_.emplace(tensor.name, i);
      if (!added) {  // within one part the header reader has looked already
        throw FormatError(fmt::format(
            "{}: tensor {} is also in {}; the parts are of different models: download them again",
            tensor.file.string(), quote_text(tensor.name),
            file_->tensors_[it->second].file.string()));
      }
    }
  }

  const GgufLimits& limits_;
  std::shared_ptr<GgufFile> file_;
};

std::shared_ptr<const GgufFile> GgufFile::open(const std::filesystem::path& path,
                                               const GgufLimits& limits) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown) &&
      std::filesystem::exists(path / "config.json", unknown))
    throw Unsupported(
        fmt::format("{}: a folder with a checkpoint; make a .gguf file of it first:\n"
                    "  tensorsharp convert {} model.gguf",
                    path.string(), path.string()));
  return GgufParser(limits).open(path);
}

std::shared_ptr<const GgufFile> GgufFile::open(std::shared_ptr<const MappedFile> file,
                                               const GgufLimits& limits) {
  return GgufParser(limits).open_mapped(std::move(file));
}

std::shared_ptr<const GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name,
                                                const GgufLimits& limits) {
  return GgufParser(limits).parse(bytes, std::move(name));
}

const TensorEntry* GgufFile::find(std::string_view name) const noexcept {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

void GgufFile::check_not_truncated() const {
  for (const auto& part : parts_)
    part->check_not_truncated();
}

void GgufFile::release(std::span<const std::byte> data) const noexcept {
  for (const auto& part : parts_) {
    const std::span<const std::byte> bytes = part->bytes();
    if (std::less_equal<>()(bytes.data(), data.data()) &&
        std::less<>()(data.data(), bytes.data() + bytes.size()))
      part->discard(static_cast<size_t>(data.data() - bytes.data()), data.size());
  }
}

}  // namespace ts
