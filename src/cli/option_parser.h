/// The options of one command: declared once, used for parsing, help and shell completion. A wrong
/// value is a usage error (exit status 2) that names the option, the value and the legal range,
/// whatever was typed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ts::cli {

/// What help and completion know of an option.
struct OptionDescription {
  std::vector<std::string> names;  ///< "--ctx", "-c"; one name without dashes = positional
  std::string type;                ///< "N", "FILE", "f32|f16|q8"; empty = a flag
  std::string help;
  std::string group;
  bool required = false;
  bool positional() const noexcept { return names[0][0] != '-'; }
};

/// Heading of the options that every command has.
inline constexpr const char* kOutputGroup = "Output";

enum class ParseOutcome { kRun, kHelp, kVersion };

class OptionParser {
 public:
  /// `name`: the whole command, "tensorsharp run". `examples`: lines for the help. Declares --help
  /// and --version.
  OptionParser(std::string name, std::string summary, std::string examples);
  OptionParser(const OptionParser&) = delete;
  OptionParser& operator=(const OptionParser&) = delete;
  ~OptionParser();

  /// The options declared from here on appear under this heading.
  void group(std::string heading);

  // `names`: "--long,-s", or one word for a positional argument. Values are written to `value` by
  // parse(); an option given twice counts the last time.
  void integer(const std::string& names, int64_t& value, int64_t min, int64_t max,
               const std::string& help);
  void integer(const std::string& names, std::optional<int64_t>& value, int64_t min, int64_t max,
               const std::string& help);
  void integer(const std::string& names, int& value, int min, int max, const std::string& help);
  void real(const std::string& names, std::optional<float>& value, double min, double max,
            const std::string& help);
  /// One of a fixed list of words.
  void choice(const std::string& names, std::string& value, std::vector<std::string> choices,
              const std::string& help);
  void text(const std::string& names, std::string& value, const std::string& type,
            const std::string& help);
  void text(const std::string& names, std::optional<std::string>& value, const std::string& type,
            const std::string& help);
  /// May be given several times, one value each time.
  void texts(const std::string& names, std::vector<std::string>& values, const std::string& type,
             const std::string& help);
  void flag(const std::string& names, bool& value, const std::string& help);
  /// Counts how often the flag is given.
  void counter(const std::string& names, int& value, const std::string& help);
  /// `accept` takes the text, and returns what is wrong with it, or nothing.
  void checked(const std::string& names, const std::string& type, const std::string& help,
               std::function<std::string(const std::string&)> accept);
  /// The argument declared last must be given.
  void required();

  /// Throws InvalidArgument. After kHelp and kVersion the values mean nothing.
  ParseOutcome parse(std::vector<std::string> arguments);
  std::string help() const;
  std::span<const OptionDescription> options() const noexcept { return options_; }

 private:
  struct Parser;
  std::string name_, summary_, examples_, group_ = "Options";
  std::vector<OptionDescription> options_;
  std::unique_ptr<Parser> parser_;
};

/// Breaks lines at blanks so that none is longer than `width`; every line starts with `indent`
/// blanks.
std::string wrap_text(const std::string& text, size_t indent, size_t width);

}  // namespace ts::cli
