#include "eval/tasks/choice_task.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/mapped_file.h"
#include "base/sha256.h"

namespace ts {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxTaskBytes = uint64_t{256} << 20;
constexpr int kMaxShots = 1000;

struct TaskText {
  TaskFile file;
  std::string text;
};

TaskText read_task_file(const fs::path& path) {
  const auto map = MappedFile::open(path);
  if (map->size() > kMaxTaskBytes)
    throw FormatError(fmt::format("{}: {} bytes; a task file has at most {}", path.string(),
                                  map->size(), kMaxTaskBytes));
  const auto bytes = map->bytes();
  return {{path, sha256_hex(bytes)},
          std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
}

bool has_task_extension(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".csv" || extension == ".jsonl" || extension == ".json";
}

/// "astronomy" of "astronomy_test.csv"; the stem as it is without such an ending.
std::string subject_of(const fs::path& path) {
  std::string stem = path.stem().string();
  for (const std::string_view ending : {"_test", "_val", "_dev"})
    if (stem.ends_with(ending) && stem.size() > ending.size())
      return stem.substr(0, stem.size() - ending.size());
  return stem;
}

bool is_examples_name(const fs::path& path) {
  return path.stem().string().ends_with("_dev");
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && has_task_extension(entry.path()) &&
        !is_examples_name(entry.path()))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// The files of subjects in a folder.
std::vector<fs::path> subject_files(const fs::path& folder) {
  for (const char* split : {"test", "val"})
    if (fs::is_directory(folder / split)) return files_in(folder / split);
  std::vector<fs::path> files = files_in(folder);
  // A folder that holds several splits of each subject: the test split counts.
  const auto is_test = [](const fs::path& p) { return p.stem().string().ends_with("_test"); };
  if (std::any_of(files.begin(), files.end(), is_test))
    std::erase_if(files, [&](const fs::path& p) { return !is_test(p); });
  return files;
}

/// The solved examples that belong to a subject's file; empty = none there.
fs::path examples_beside(const fs::path& file) {
  const std::string extension = file.extension().string(), subject = subject_of(file);
  const fs::path folder = file.parent_path();
  for (const fs::path& candidate :
       {folder / (subject + "_dev" + extension), folder / "dev" / (subject + "_dev" + extension),
        folder / ".." / "dev" / (subject + "_dev" + extension),
        folder / ".." / "dev" / (subject + extension)})
    if (fs::is_regular_file(candidate) && !fs::equivalent(candidate, file))
      return candidate.lexically_normal();
  return {};
}

std::string solved(const ChoiceItem& item) {
  return item.context(item.answer) + item.continuation(item.answer) + "\n\n";
}

/// The text in front of the items of one subject.
std::string examples_text(const TaskFormat& format, const fs::path& file,
                          const std::string& subject, int shots, const fs::path& given,
                          ChoiceTask& task) {
  std::string text = format.preamble != nullptr ? format.preamble(subject) : std::string();
  if (shots == 0) return text;
  const fs::path path = given.empty() ? examples_beside(file) : given;
  if (path.empty())
    throw InvalidArgument(fmt::format(
        "{}: no file of solved examples beside it (such as {})\n  Name one with --examples, or ask "
        "for none with --shots 0.",
        file.string(), subject + "_dev" + file.extension().string()));
  const TaskText examples = read_task_file(path);
  const ParsedTask parsed = parse_choice_task(examples.text, path.string());
  if (parsed.format != &format)
    throw InvalidArgument(fmt::format("{}: its format is {}, that of {} is {}", path.string(),
                                      parsed.format->name, file.string(), format.name));
  if (parsed.items.size() < static_cast<size_t>(shots))
    throw InvalidArgument(fmt::format("{}: {} examples, fewer than the {} of --shots",
                                      path.string(), parsed.items.size(), shots));
  for (int i = 0; i < shots; ++i)
    text += solved(parsed.items[static_cast<size_t>(i)]);
  const auto known = [&](const TaskFile& f) { return f.path == path; };
  if (std::none_of(task.examples.begin(), task.examples.end(), known))
    task.examples.push_back(examples.file);
  return text;
}

void add_file(const fs::path& path, const ChoiceTaskOptions& options, ChoiceTask& task) {
  const TaskText source = read_task_file(path);
  ParsedTask parsed = parse_choice_task(source.text, path.string());
  if (task.format == nullptr) {
    task.format = parsed.format;
    task.shots = options.shots.value_or(parsed.format->default_shots);
  } else if (task.format != parsed.format) {
    throw InvalidArgument(fmt::format(
        "{}: its format is {}, that of {} is {}\n  Give the files one at a time.", path.string(),
        parsed.format->name, task.files.front().path.string(), task.format->name));
  }
  const std::string subject = subject_of(path);
  const std::string front =
      examples_text(*task.format, path, subject, task.shots, options.examples, task);
  task.files.push_back(source.file);
  uint64_t taken = 0;
  for (ChoiceItem& item : parsed.items) {
    if (task.items.size() >= options.limit || taken++ >= options.subject_limit) break;
    if (item.subject.empty()) item.subject = subject;
    for (std::string& context : item.contexts)
      context.insert(0, front);
    task.items.push_back(std::move(item));
  }
}

}  // namespace

ChoiceTask load_choice_task(const fs::path& path, const ChoiceTaskOptions& options) {
  if (options.shots && (*options.shots < 0 || *options.shots > kMaxShots))
    throw InvalidArgument(
        fmt::format("{} examples; 0 to {} are possible", *options.shots, kMaxShots));
  ChoiceTask task;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    add_file(path, options, task);
    task.sha256 = task.files.front().sha256;
    return task;
  }
  const std::vector<fs::path> files = subject_files(path);
  if (files.empty())
    throw FormatError(
        fmt::format("{}: the folder has no task file (.csv, .jsonl or .json)", path.string()));
  for (const fs::path& file : files)
    add_file(file, options, task);
  std::string listing;
  for (const TaskFile& file : task.files)
    listing += file.sha256 + "  " + file.path.filename().string() + "\n";
  task.sha256 = sha256_hex(std::as_bytes(std::span(listing.data(), listing.size())));
  return task;
}

}  // namespace ts
