#include "cli/profile_file.h"

#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/atomic_file.h"
#include "base/profile.h"

namespace ts::cli {

void add_profile_option(OptionParser& options, std::string& path) {
  options.group(kOutputGroup);
  options.text("--profile", path, "FILE",
               "write a time breakdown by operation (Chrome trace JSON)");
}

ProfileFile::ProfileFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code ignored;
  if (std::filesystem::exists(path_, ignored))
    throw InvalidArgument(fmt::format("--profile: {} exists already; name another file", path_));
  { const AtomicFile probe(path_, false); }  // fails now rather than after the work
  profile::start();
}

ProfileFile::~ProfileFile() {
  if (!path_.empty()) profile::stop();
}

void ProfileFile::write() const {
  if (path_.empty()) return;
  profile::stop();
  const std::string json = profile::chrome_trace_json();
  AtomicFile file(path_, false);
  file.write(std::as_bytes(std::span(json.data(), json.size())));
  file.commit();
}

}  // namespace ts::cli
