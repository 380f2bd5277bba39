#include "runtime/memory_limits.h"

#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace ts {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> parse_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
    text.remove_prefix(1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

/// The number a one-line file holds; "max" and anything else gives nothing.
std::optional<uint64_t> read_number(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return parse_number(line);
}

/// The number after `key` in a file of "key value" or "key: value" lines.
std::optional<uint64_t> read_field(const fs::path& path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::string_view view = line;
    if (!view.starts_with(key)) continue;
    const std::string_view rest = view.substr(key.size());
    if (rest.empty() || (rest[0] != ' ' && rest[0] != ':' && rest[0] != '\t')) continue;
    return parse_number(rest.substr(1));
  }
  return std::nullopt;
}

void tighten(AvailableMemory& best, uint64_t limit, uint64_t used, std::string_view name) {
  const uint64_t left = used < limit ? limit - used : 0;
  if (left < best.bytes) best = {left, std::string(name)};
}

/// One control group and all its parents: a limit may stand at any level.
void tighten_by_groups(AvailableMemory& best, const fs::path& mount, const fs::path& group,
                       const char* limit_file, const char* usage_file, const char* reclaimable_key,
                       std::string_view name) {
  fs::path relative = group.relative_path();
  for (;;) {
    const fs::path directory = mount / relative;
    const auto limit = read_number(directory / limit_file);
    const auto usage = read_number(directory / usage_file);
    // Version 1 says "no limit" with a number close to 2^63.
    if (limit && usage && *limit < (uint64_t{1} << 60)) {
      const uint64_t reclaimable =
          read_field(directory / "memory.stat", reclaimable_key).value_or(0);
      tighten(best, *limit, *usage > reclaimable ? *usage - reclaimable : 0, name);
    }
    if (relative.empty()) return;
    relative = relative.parent_path();
  }
}

void tighten_by_rlimit(AvailableMemory& best, int resource, uint64_t used, std::string_view name) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return;
  if (limit.rlim_cur == RLIM_INFINITY) return;
  tighten(best, limit.rlim_cur, used, name);
}

}  // namespace

AvailableMemory available_memory(const fs::path& root) {
  AvailableMemory best;
  if (const auto kib = read_field(root / "proc/meminfo", "MemAvailable"))
    best = {*kib * 1024, "MemAvailable"};

  // Lines "number:controllers:path"; version 2 has the line "0::path".
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      tighten_by_groups(best, root / "sys/fs/cgroup", group, "memory.max", "memory.current",
                        "inactive_file", "cgroup memory.max");
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      tighten_by_groups(best, root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                        "memory.usage_in_bytes", "total_inactive_file",
                        "cgroup memory.limit_in_bytes");
    }
  }

  // statm: size resident shared text lib data, in pages.
  uint64_t size_pages = 0, ignored = 0, data_pages = 0;
  std::ifstream statm(root / "proc/self/statm");
  statm >> size_pages >> ignored >> ignored >> ignored >> ignored >> data_pages;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  tighten_by_rlimit(best, RLIMIT_AS, size_pages * page, "RLIMIT_AS");
  tighten_by_rlimit(best, RLIMIT_DATA, data_pages * page, "RLIMIT_DATA");
  return best;
}

}  // namespace ts
