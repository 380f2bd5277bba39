/// --profile FILE: a time breakdown by operation in Chrome's trace format.
#pragma once

#include <string>

#include "cli/option_parser.h"

namespace ts::cli {

void add_profile_option(OptionParser& options, std::string& path);

/// Records from construction on. An empty path does nothing.
class ProfileFile {
 public:
  /// Throws InvalidArgument when the file exists: output files are not overwritten.
  explicit ProfileFile(std::string path);
  ProfileFile(const ProfileFile&) = delete;
  ProfileFile& operator=(const ProfileFile&) = delete;
  ~ProfileFile();
  /// Stops recording and writes the file.
  void write() const;

 private:
  std::string path_;
};

}  // namespace ts::cli
