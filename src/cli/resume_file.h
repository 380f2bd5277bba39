/// The file that lets an interrupted evaluation go on.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace ts::cli {

class ResumeFile {
 public:
  /// `kind`: of evaluation, e.g. "perplexity". `identity`: everything the result depends on; a file
  /// made with another one is refused with an InvalidArgument that names the first difference. An
  /// empty path keeps nothing.
  ResumeFile(std::filesystem::path path, std::string kind, nlohmann::ordered_json identity);

  /// The object that an earlier run saved, if the file exists. FormatError when it is damaged.
  std::optional<nlohmann::json> load() const;
  void save(const nlohmann::ordered_json& state);
  /// Whether enough time has passed since the last save() that another one is worth its while.
  bool due() const;

  bool kept() const noexcept { return !path_.empty(); }
  std::string name() const { return path_.string(); }
  /// For readers of the state: FormatError that says the file is not what it should be.
  [[noreturn]] void fail(std::string_view what) const;

  // Fields of a loaded state; FormatError when they are missing or of another kind.
  uint64_t count_of(const nlohmann::json& state, const char* key) const;
  double real_of(const nlohmann::json& state, const char* key) const;
  std::vector<double> reals_of(const nlohmann::json& state, const char* key) const;

 private:
  std::filesystem::path path_;
  std::string kind_;
  nlohmann::ordered_json identity_;
  std::chrono::steady_clock::time_point saved_ = std::chrono::steady_clock::now();
};

/// Doubles travel as the hexadecimal of their bits, 16 digits each: a resumed run must end in the
/// same digits.
std::string bits_of(double value);
std::string bits_of(const std::vector<double>& values);

}  // namespace ts::cli
