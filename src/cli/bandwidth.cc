#include "cli/bandwidth.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <system_error>

#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>

#include "base/atomic_file.h"
#include "base/cpu_features.h"
#include "base/json.h"
#include "base/memory_bandwidth.h"
#include "cli/input_text.h"
#include "cli/user_directories.h"

namespace ts::cli {
namespace {

/// Per thread; well above what the caches of a core hold.
constexpr size_t kBriefBytes = size_t{64} << 20;

std::filesystem::path cache_file() {
  const auto directory = cache_directory();
  return directory.empty() ? directory : directory / "bandwidth.json";
}

/// {"cpu": name, "read_bytes_per_second": {"1": x, "2": y}}; anything else counts as absent.
nlohmann::json read_cache() {
  const auto path = cache_file();
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored)) return {};
  try {
    nlohmann::json root = parse_json_limited(read_text_file(path.string()), path.string());
    if (root.is_object() && root.contains("cpu") && root["cpu"] == cpu_model_name() &&
        root.contains("read_bytes_per_second") && root["read_bytes_per_second"].is_object())
      return root;
  } catch (const Error&) {
    // A damaged cache is made anew by the next measurement.
  }
  return {};
}

}  // namespace

std::optional<KnownBandwidth> read_bandwidth(int n_threads) {
  const nlohmann::json root = read_cache();
  if (root.is_object()) {
    const auto& known = root["read_bytes_per_second"];
    const auto found = known.find(std::to_string(n_threads));
    if (found != known.end() && found->is_number() && found->get<double>() > 0)
      return KnownBandwidth{found->get<double>(), true};
  }
  // A brief figure is not kept: whatever else the machine does at the moment is in it.
  static std::map<int, double> measured;
  if (const auto found = measured.find(n_threads); found != measured.end())
    return KnownBandwidth{found->second, false};
  try {
    BandwidthMeter meter(n_threads, kBriefBytes);
    std::array<double, 3> rates{};
    for (double& rate : rates)
      rate = meter.pass();
    std::sort(rates.begin(), rates.end());
    measured[n_threads] = rates[1];
    return KnownBandwidth{rates[1], false};
  } catch (const ResourceExhausted&) {
    return std::nullopt;
  }
}

void keep_read_bandwidth(const std::vector<std::pair<int, double>>& results) {
  const auto path = cache_file();
  if (path.empty()) return;
  nlohmann::json root = read_cache();
  if (!root.is_object()) root = {{"cpu", cpu_model_name()}};
  for (const auto& [threads, rate] : results)
    root["read_bytes_per_second"][std::to_string(threads)] = rate;
  try {
    std::filesystem::create_directories(path.parent_path());
    const std::string text =
        root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    AtomicFile file(path, true);
    file.write(std::as_bytes(std::span(text.data(), text.size())));
    file.commit();
  } catch (const std::exception&) {
    // Only the next program start is slower for it.
  }
}

}  // namespace ts::cli
