#include "cli/commands/inspect_data.h"

#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/cpu_topology.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/text_output.h"
#include "codec/codec.h"
#include "eval/tensor_statistics.h"

namespace ts::cli {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const TensorEntry& tensor, const TensorStatistics& s) {
  ordered_json histogram = ordered_json::object();
  for (size_t i = 0; i < s.symbols.size(); ++i)
    histogram[s.symbols[i]] = s.histogram[i];
  return {{"name", tensor.name},
          {"type", type_name(tensor.type)},
          {"parameters", s.n_elems},
          {"non_finite", s.n_non_finite},
          {"zero_rate", s.zero_rate},
          {"entropy_bits", s.entropy_bits},
          {"mean", s.mean},
          {"rms", s.rms},
          {"min", s.min},
          {"max", s.max},
          {"outlier_ratio", s.outlier_ratio},
          {"kurtosis", s.kurtosis},
          {"group_size", s.group_elems},
          {"groups", s.n_groups},
          {"zero_groups", s.n_zero_groups},
          {"scale_min", s.scale_min},
          {"scale_median", s.scale_median},
          {"scale_max", s.scale_max},
          {"histogram", std::move(histogram)}};
}

std::string histogram_text(const TensorStatistics& s) {
  // Ternary symbols as shares; the 16 bins of other types as a bar each.
  std::string out;
  const uint64_t most = *std::max_element(s.histogram.begin(), s.histogram.end());
  if (most == 0) return out;
  if (s.symbols.size() <= 4) {
    for (size_t i = 0; i < s.symbols.size(); ++i)
      out +=
          fmt::format("{}{} {:.1f} %", i > 0 ? ", " : "", s.symbols[i],
                      100.0 * static_cast<double>(s.histogram[i]) / static_cast<double>(s.n_elems));
    return out;
  }
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  for (const uint64_t count : s.histogram)
    out += kBars[count == 0 ? 0 : 7 * count / most];
  return out;
}

std::string hex_line(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes)
    out += fmt::format("{:02x} ", static_cast<unsigned>(b));
  return out;
}

}  // namespace

int show_statistics(Console& console, const std::vector<const TensorEntry*>& tensors, int threads) {
  ThreadPool pool(threads > 0 ? threads : default_threads().n_threads);
  const Progress progress = console.progress();
  ordered_json results = ordered_json::array();
  std::vector<std::vector<std::string>> rows = {{"tensor", "type", "zeros", "entropy", "rms",
                                                 "max/rms", "kurtosis", "scale min", "median",
                                                 "max", "symbols"}};
  for (const TensorEntry* tensor : tensors) {
    const Codec* codec = find_codec(tensor->type);
    if (codec == nullptr) {
      console.warn(fmt::format("{}: type {} cannot be decoded; left out", tensor->name,
                               type_name(tensor->type)));
      continue;
    }
    const TensorStatistics s = compute_tensor_statistics(tensor->view(), *codec, pool, progress);
    if (s.n_non_finite > 0)
      console.warn(fmt::format("{}: {} values are not finite", tensor->name, s.n_non_finite));
    if (console.json()) {
      results.push_back(to_json(*tensor, s));
      continue;
    }
    rows.push_back({printable(tensor->name), std::string(codec->name),
                    fmt::format("{:.2f} %", 100 * s.zero_rate),
                    fmt::format("{:.3f}", s.entropy_bits), fmt::format("{:.4g}", s.rms),
                    fmt::format("{:.1f}", s.outlier_ratio), fmt::format("{:.2f}", s.kurtosis),
                    fmt::format("{:.3g}", s.scale_min), fmt::format("{:.3g}", s.scale_median),
                    fmt::format("{:.3g}", s.scale_max), histogram_text(s)});
  }
  if (console.json()) {
    console.json_line({{"results", std::move(results)}});
  } else {
    console.out(table(rows, {2, 3, 4, 5, 6, 7, 8, 9}));
  }
  return kSuccess;
}

int show_blocks(Console& console, const TensorEntry& tensor, uint64_t n_blocks) {
  const Codec& codec = require_codec(tensor.type, tensor.name);
  n_blocks = std::min<uint64_t>(n_blocks, tensor.data.size() / codec.block_bytes);
  std::vector<float> values(codec.block_elems);
  ordered_json results = ordered_json::array();
  for (uint64_t b = 0; b < n_blocks; ++b) {
    const auto bytes = tensor.data.subspan(b * codec.block_bytes, codec.block_bytes);
    codec.decode(bytes.data(), values.data(), values.size());
    const uint64_t offset = tensor.file_offset + b * codec.block_bytes;
    if (console.json()) {
      std::string hex = hex_line(bytes);
      hex.erase(std::remove(hex.begin(), hex.end(), ' '), hex.end());
      results.push_back({{"block", b}, {"offset", offset}, {"bytes_hex", hex}, {"values", values}});
      continue;
    }
    console.print("{} block {} ({}, {} values) at byte {} of the file\n", printable(tensor.name), b,
                  codec.name, codec.block_elems, grouped(offset));
    for (size_t i = 0; i < bytes.size(); i += 16)
      console.print("  {:4}  {}\n", i,
                    hex_line(bytes.subspan(i, std::min<size_t>(16, bytes.size() - i))));
    std::string line;
    for (size_t i = 0; i < values.size(); ++i) {
      line += fmt::format(" {:>10.4g}", values[i]);
      if ((i + 1) % 8 == 0 || i + 1 == values.size()) {
        console.print("  [{:3}]{}\n", i / 8 * 8, line);
        line.clear();
      }
    }
  }
  if (console.json())
    console.json_line(
        {{"tensor", tensor.name}, {"type", codec.name}, {"results", std::move(results)}});
  return kSuccess;
}

}  // namespace ts::cli
