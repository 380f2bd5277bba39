#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/engine.hpp>

#include "base/cpu_topology.h"
#include "base/memory_bandwidth.h"
#include "cli/bandwidth.h"
#include "cli/commands/commands.h"
#include "cli/generation_statistics.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/profile_file.h"
#include "cli/text_output.h"
#include "model/synthetic/synthetic_model.h"
#include "runtime/load_synthetic.h"

namespace ts::cli {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

// The machine's speed drifts, so decoding and reading take turns in slices this long.
constexpr int64_t kDefaultPrompt = 512, kDefaultGenerate = 64, kDefaultRepetitions = 5;
constexpr double kSliceSeconds = 0.25;
// A share above this is no share: the two did not measure the same thing.
constexpr double kHighestShare = 1.02;
// A repetition this long needs none before it for warming up.
constexpr double kLongSeconds = 20;
constexpr size_t kMeterBytes = size_t{256} << 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct TestResult {
  std::string test;
  int64_t n_tokens = 0;
  std::vector<double> rates;              ///< tokens per second of each repetition
  std::vector<double> shares, bandwidth;  ///< of each slice
  double first_token_seconds = 0;         ///< prefill only
};

/// Token ids spread over the vocabulary; what they are does not change the work.
std::vector<int32_t> some_tokens(int64_t n, int64_t n_vocab) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  uint64_t state = 1;
  for (int32_t& id : ids) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    id = static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(n_vocab));
  }
  return ids;
}

class BenchCommand : public Command {
 public:
  BenchCommand()
      : Command("bench",
                "Measures how fast a model reads a prompt (prefill) and generates (decode): median "
                "and spread of several repetitions, decode also as a share of the memory "
                "bandwidth, read in turns with it. --synthetic makes a model of random weights in "
                "the shape of a published one. --membw measures the bandwidth alone.",
                "tensorsharp bench model.gguf\n"
                "tensorsharp bench model.gguf -p 1024 -n 128 -r 3 --threads 4 --json\n"
                "tensorsharp bench --synthetic ternary-bonsai-2-27b --scheme pq2_0 -p 128 -n 32\n"
                "tensorsharp bench --synthetic qwen35-tiny --write tiny.gguf -p 0 -n 0\n"
                "tensorsharp bench --membw") {}

  void add_options(OptionParser& options) override {
    options.integer("--prompt,-p", n_prompt_, 0, 1 << 24,
                    "tokens of the prefill test; 0 = leave it out (default 512)");
    options.integer("--tokens,-n", n_generate_, 0, 1 << 24,
                    "tokens of the decode test; 0 = leave it out (default 64)");
    options.integer("--repetitions,-r", repetitions_, 1, 1000, "repetitions (default 5)");
    options.flag("--membw", membw_,
                 "measure the read bandwidth of memory per thread count, and keep it for `run`");
    model_.add(options, {}, false);
    options.group("Synthetic model");
    std::string shapes;
    for (const SyntheticShape& shape : all_synthetic_shapes())
      shapes += (shapes.empty() ? "" : ", ") + std::string(shape.name);
    options.text("--synthetic", synthetic_, "NAME",
                 "make a model of this shape with random weights in memory: " + shapes);
    options.text("--scheme", scheme_, "TYPE",
                 "type of its matrices, e.g. ptq1_0, pq2_0, q2_0, q8_0 (default: the shape's own)");
    options.integer("--layers", n_layers_, 1, 4096, "only this many of its layers");
    options.integer("--seed", seed_, 0, INT64_MAX,
                    "of its weights; the same seed gives the same model (default 1)");
    options.text("--write", write_, "FILE",
                 "write it as a GGUF file and measure that; with -p 0 -n 0 only write it");
    options.flag("--force", force_, "let --write replace an existing file");
    add_profile_option(options, profile_);
  }

  void check_options() override {
    if (int{!model_.path.empty()} + int{membw_} + int{synthetic_.has_value()} != 1)
      throw InvalidArgument("give a MODEL, --synthetic or --membw (and not both)");
    if (membw_ && (n_prompt_ != kDefaultPrompt || n_generate_ != kDefaultGenerate ||
                   repetitions_ != kDefaultRepetitions))
      throw InvalidArgument("-p, -n and -r belong to a model; --membw has none");
    if (!synthetic_) {
      for (const auto& [name, given] : {std::pair{"--scheme", scheme_.has_value()},
                                        {"--layers", n_layers_.has_value()},
                                        {"--seed", seed_.has_value()},
                                        {"--write", write_.has_value()},
                                        {"--force", force_}})
        if (given) throw InvalidArgument(fmt::format("{} belongs to --synthetic", name));
    }
    if (force_ && !write_) throw InvalidArgument("--force belongs to --write");
    if (!membw_ && !write_ && n_prompt_ == 0 && n_generate_ == 0)
      throw InvalidArgument("nothing to measure: -p and -n are both 0");
  }

  int run(Console& console) override {
    if (membw_) return run_membw(console);
    ordered_json made;  // of a synthetic model
    std::optional<SyntheticModel> synthetic;
    if (synthetic_) {
      synthetic.emplace(find_synthetic_shape(*synthetic_), synthetic_options());
      made = describe(*synthetic);
      if (write_) write(*synthetic, console, made);
      if (n_prompt_ == 0 && n_generate_ == 0) {
        if (console.json()) console.json_line(made);
        return kSuccess;
      }
    }
    LoadOptions options = model_.load_options();
    options.context = std::max<int64_t>({n_prompt_, n_generate_ + 1, 1});
    const auto engine = model_.load(console, options, [&](const LoadOptions& final_options) {
      if (!synthetic || write_) return Engine::load(model_.path, final_options);
      auto loaded = load_synthetic(*synthetic, final_options, console.progress());
      made["make_seconds"] = loaded.make_seconds;
      return loaded.engine;
    });
    console.note(describe_model(engine->info()));
    const ProfileFile profile(profile_);
    session_ = engine->new_session();
    logits_.resize(static_cast<size_t>(engine->info().n_vocab));
    ids_ = some_tokens(options.context, engine->info().n_vocab);

    std::vector<TestResult> results;
    // An interrupt ends the work, not what is done: whole repetitions are reported.
    bool complete = true;
    const auto measure = [&](auto&& test) {
      TestResult result;
      try {
        if (complete) test(result);
      } catch (const Cancelled&) {
        complete = false;
      }
      if (!result.rates.empty()) results.push_back(std::move(result));
    };
    if (n_prompt_ > 0) measure([&](TestResult& result) { prefill(console, result); });
    uint64_t peak = peak_rss_bytes();
    if (n_generate_ > 0) {
      measure([&](TestResult& result) {
        warm_up();
        peak = peak_rss_bytes();  // the bandwidth meter's own buffers do not count
        decode(console, engine->info(), result);
      });
    }
    profile.write();
    console.clear_progress();
    if (!complete) console.note("interrupted");
    if (!complete && results.empty()) return kInterrupted;
    if (console.json()) {
      ordered_json json = to_json(engine->info(), peak, results);
      json["complete"] = complete;
      if (!made.is_null()) json["synthetic"] = std::move(made);
      console.json_line(json);
    } else {
      console.out(to_text(engine->info(), peak, results));
    }
    for (const TestResult& result : results) {
      if (median(result.shares) > kHighestShare)
        console.warn(fmt::format(
            "the bandwidth share of {:.2f} is a failed measurement: more than all of it; another "
            "program was using the memory, or the caches hold the weights",
            median(result.shares)));
    }
    return complete ? kSuccess : kInterrupted;
  }

 private:
  SyntheticOptions synthetic_options() const {
    SyntheticOptions options;
    options.scheme = scheme_.value_or("");
    options.n_layers = n_layers_;
    options.seed = static_cast<uint64_t>(seed_.value_or(1));
    return options;
  }

  static ordered_json describe(const SyntheticModel& model) {
    return {{"model", model.name()},
            {"scheme", model.scheme()},
            {"seed", model.seed()},
            {"parameters", model.n_parameters()},
            {"tensors", model.tensors().size()},
            {"tensor_bytes", model.tensor_bytes()}};
  }

  /// Writes the model to a file, which is then the one to measure.
  void write(const SyntheticModel& model, Console& console, ordered_json& made) {
    const auto start = Clock::now();
    const uint64_t bytes = model.write(*write_, force_, console.progress());
    const double seconds = seconds_since(start);
    console.clear_progress();
    const std::string text = fmt::format(
        "{}: {} in {}, seed {}: {} tensors, {} bytes, of these {} tensor data; written in {} "
        "({}/s)\n",
        *write_, model.name(), model.scheme(), model.seed(), model.tensors().size(), bytes,
        model.tensor_bytes(), human_seconds(seconds),
        human_bytes(static_cast<uint64_t>(static_cast<double>(bytes) / seconds)));
    if (!console.json()) console.out(text);
    made["output"] = *write_;
    made["output_bytes"] = bytes;
    made["write_seconds"] = seconds;
    model_.path = *write_;
  }

  int run_membw(Console& console) const {
    const int threads = model_.threads > 0 ? model_.threads : default_threads().n_threads;
    const auto results = measure_read_bandwidth(threads, size_t{1} << 30, console.progress());
    std::vector<std::pair<int, double>> to_keep;
    std::vector<std::vector<std::string>> rows = {
        {"threads", "read bandwidth", "lowest", "highest", "loop"}};
    ordered_json list = ordered_json::array();
    for (const ReadBandwidth& r : results) {
      to_keep.emplace_back(r.n_threads, r.bytes_per_second);
      rows.push_back({std::to_string(r.n_threads), rate_text(r.bytes_per_second),
                      rate_text(r.lowest), rate_text(r.highest), r.loop});
      list.push_back({{"threads", r.n_threads},
                      {"read_bytes_per_second", r.bytes_per_second},
                      {"read_bytes_per_second_min", r.lowest},
                      {"read_bytes_per_second_max", r.highest},
                      {"bytes_per_thread", r.bytes_per_thread},
                      {"passes", r.n_passes},
                      {"loop", r.loop}});
    }
    keep_read_bandwidth(to_keep);
    if (console.json()) {
      console.json_line({{"results", std::move(list)}});
    } else {
      console.out(table(rows, {0, 1, 2, 3}));
    }
    return kSuccess;
  }

  static std::string rate_text(double bytes_per_second) {
    return human_bytes(static_cast<uint64_t>(bytes_per_second)) + "/s";
  }

  void warm_up() {
    session_->reset();
    session_->eval(std::span(ids_).first(1), logits_, false, &interrupt_flag());
  }

  void prefill(Console& console, TestResult& result) {
    result = {"prefill", n_prompt_, {}, {}, {}, 0};
    const Progress progress = console.progress();
    const auto prompt = std::span(ids_).first(static_cast<size_t>(n_prompt_));
    std::vector<double> seconds;
    // One repetition more than asked: the first also touches memory for the first time. Where that
    // is nothing beside the computing, it counts.
    for (int64_t r = 0; static_cast<int64_t>(seconds.size()) < repetitions_; ++r) {
      progress("prefill", static_cast<uint64_t>(r), static_cast<uint64_t>(repetitions_ + 1));
      session_->reset();
      const auto start = Clock::now();
      session_->eval(prompt, logits_, false, &interrupt_flag());
      const double elapsed = seconds_since(start);
      if (r == 0 && elapsed < kLongSeconds) continue;
      seconds.push_back(elapsed);
      result.rates.push_back(static_cast<double>(n_prompt_) / elapsed);
      result.first_token_seconds = median(seconds);
    }
  }

  void decode(Console& console, const ModelInfo& info, TestResult& result) {
    result = {"decode", n_generate_, {}, {}, {}, 0};
    const Progress progress = console.progress();
    std::unique_ptr<BandwidthMeter> meter;
    if (info.weight_bytes_per_token >= kLeastBytesForShare) {
      try {
        meter = std::make_unique<BandwidthMeter>(info.n_threads, kMeterBytes, progress);
      } catch (const ResourceExhausted& e) {
        console.warn(fmt::format("no bandwidth share: {}", e.what()));
      }
    }
    for (int64_t r = 0; r < repetitions_; ++r) {
      session_->reset();
      session_->eval(std::span(ids_).first(1), logits_, false, &interrupt_flag());
      double total = 0;
      for (int64_t done = 0; done < n_generate_;) {
        progress("decode", static_cast<uint64_t>(r * n_generate_ + done),
                 static_cast<uint64_t>(repetitions_ * n_generate_));
        const auto start = Clock::now();
        double slice = 0;
        int64_t n = 0;
        while (done < n_generate_ && slice < kSliceSeconds) {
          session_->eval(std::span(ids_).subspan(static_cast<size_t>(done) + 1, 1), logits_, false,
                         &interrupt_flag());
          ++done, ++n;
          slice = seconds_since(start);
          interrupt_token().check();
        }
        total += slice;
        if (meter == nullptr) continue;
        const double bandwidth = meter->pass();
        result.bandwidth.push_back(bandwidth);
        result.shares.push_back(static_cast<double>(n) *
                                static_cast<double>(info.weight_bytes_per_token) / slice /
                                bandwidth);
      }
      result.rates.push_back(static_cast<double>(n_generate_) / total);
    }
  }

  ordered_json to_json(const ModelInfo& info, uint64_t peak,
                       const std::vector<TestResult>& results) const {
    ordered_json list = ordered_json::array();
    for (const TestResult& r : results) {
      const auto [low, high] = std::minmax_element(r.rates.begin(), r.rates.end());
      ordered_json row = {{"test", r.test},
                          {"n_tokens", r.n_tokens},
                          {"batch", 1},
                          {"threads", info.n_threads},
                          {"tokens_per_second", median(r.rates)},
                          {"tokens_per_second_min", *low},
                          {"tokens_per_second_max", *high},
                          {"repetitions", r.rates.size()},
                          {"weight_bytes_per_token", info.weight_bytes_per_token},
                          {"read_bandwidth_bytes_per_second", nullptr},
                          {"bandwidth_share", nullptr}};
      if (r.first_token_seconds > 0) row["first_token_seconds"] = r.first_token_seconds;
      if (!r.shares.empty()) {
        row["read_bandwidth_bytes_per_second"] = median(r.bandwidth);
        if (median(r.shares) <= kHighestShare) row["bandwidth_share"] = median(r.shares);
      }
      list.push_back(std::move(row));
    }
    return {{"model", info.name},
            {"scheme", info.scheme},
            {"isa", info.isa},
            {"parameters", info.n_parameters},
            {"load_seconds", info.load_seconds},
            {"peak_rss_bytes", peak},
            {"results", std::move(list)}};
  }

  static std::string to_text(const ModelInfo& info, uint64_t peak,
                             const std::vector<TestResult>& results) {
    std::vector<std::vector<std::string>> rows = {
        {"test", "tokens", "threads", "tokens/s", "min", "max", "first token", "bandwidth share"}};
    for (const TestResult& r : results) {
      const auto [low, high] = std::minmax_element(r.rates.begin(), r.rates.end());
      std::string share;
      if (!r.shares.empty())
        share = median(r.shares) > kHighestShare
                    ? "failed measurement"
                    : fmt::format("{:.0f} % of {}", 100 * median(r.shares),
                                  rate_text(median(r.bandwidth)));
      rows.push_back({r.test, std::to_string(r.n_tokens), std::to_string(info.n_threads),
                      fmt::format("{:.2f}", median(r.rates)), fmt::format("{:.2f}", *low),
                      fmt::format("{:.2f}", *high),
                      r.first_token_seconds > 0 ? human_seconds(r.first_token_seconds) : "",
                      share});
    }
    return table(rows, {1, 2, 3, 4, 5, 6}) +
           fmt::format("loaded in {}, peak memory {}, {} of weights read per token\n",
                       human_seconds(info.load_seconds), human_bytes(peak),
                       human_bytes(info.weight_bytes_per_token));
  }

  ModelOptions model_;
  int64_t n_prompt_ = kDefaultPrompt, n_generate_ = kDefaultGenerate,
          repetitions_ = kDefaultRepetitions;
  bool membw_ = false, force_ = false;
  std::optional<std::string> synthetic_, scheme_, write_;
  std::optional<int64_t> n_layers_, seed_;
  std::string profile_;
  std::unique_ptr<Session> session_;
  std::vector<float> logits_;
  std::vector<int32_t> ids_;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() {
  return std::make_unique<BenchCommand>();
}

}  // namespace ts::cli
