#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/engine.hpp>

#include "base/cpu_topology.h"
#include "base/int8_peak.h"
#include "base/memory_bandwidth.h"
#include "base/profile.h"
#include "cli/bandwidth.h"
#include "cli/commands/bench_kernels.h"
#include "cli/commands/commands.h"
#include "cli/generation_statistics.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/parse_values.h"
#include "cli/profile_file.h"
#include "cli/text_output.h"
#include "cli/timing.h"
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

struct TestResult {
  std::string test;
  int64_t n_tokens = 0;
  int64_t batch = 1;                      ///< tokens that pass through the model together
  std::vector<double> rates;              ///< tokens per second of each repetition
  std::vector<double> shares, bandwidth;  ///< of each slice
  double first_token_seconds = 0;         ///< prefill only
  /// Of the int8 peak, during the products with weights and in all: prefill only.
  std::vector<double> matmul_shares, all_shares;
  std::vector<double> peaks;      ///< multiplications and additions per second
  std::vector<double> pass_cost;  ///< time of a pass in those of passes of one token, of each slice
};

/// Time in products with weights so far, and the multiplications they did.
struct Products {
  double seconds = 0, count = 0;
};
Products products_so_far() {
  Products sum;
  for (const profile::Total& total : profile::totals()) {
    if (total.name == "linear") sum = {static_cast<double>(total.total_ns) * 1e-9, total.work};
  }
  return sum;
}

/// Types whose products are not of 8-bit integers.
bool is_float(std::string_view scheme) {
  return scheme == "f32" || scheme == "f16" || scheme == "bf16";
}

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
                "bandwidth, read in turns with it, prefill as a share of the 8-bit products that "
                "registers alone allow. --batch lets several tokens pass together, as for checking "
                "a guess at the next ones. --synthetic makes a model of random weights in "
                "the shape of a published one. --kernels measures products and transforms alone, "
                "--membw the bandwidth.",
                "tensorsharp bench model.gguf\n"
                "tensorsharp bench model.gguf -p 1024 -n 128 -r 3 --threads 4 --json\n"
                "tensorsharp bench --synthetic ternary-bonsai-2-27b --scheme pq2_0 -p 128 -n 32\n"
                "tensorsharp bench --synthetic qwen35-tiny --write tiny.gguf -p 0 -n 0\n"
                "tensorsharp bench --synthetic llama-1.5b --scheme ptq1_0 -p 0 --batch 1,2,4,8\n"
                "tensorsharp bench --kernels --type ptq1_0\n"
                "tensorsharp bench --membw") {}

  void add_options(OptionParser& options) override {
    options.integer("--prompt,-p", n_prompt_, 0, 1 << 24,
                    "tokens of the prefill test; 0 = leave it out (default 512)");
    options.integer("--tokens,-n", n_generate_, 0, 1 << 24,
                    "tokens of the decode test; 0 = leave it out (default 64)");
    options.integer("--repetitions,-r", repetitions_, 1, 1000, "repetitions (default 5)");
    options.checked("--batch", "LIST",
                    "numbers of tokens that the decode test passes through the model together "
                    "(default 1)",
                    [this](const std::string& list) { return take_batches(list); });
    options.flag("--kernels", kernels_,
                 "measure every kernel on every instruction set of this CPU, and the transforms");
    options.text("--type", type_, "TYPE",
                 "of --kernels: only this type, with more activation rows");
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
    if (int{!model_.path.empty()} + int{membw_} + int{kernels_} + int{synthetic_.has_value()} != 1)
      throw InvalidArgument("give a MODEL, --synthetic, --kernels or --membw (and not both)");
    if ((membw_ || kernels_) &&
        (n_prompt_ != kDefaultPrompt || n_generate_ != kDefaultGenerate ||
         repetitions_ != kDefaultRepetitions || batches_ != std::vector<int64_t>{1}))
      throw InvalidArgument(
          "-p, -n, -r and --batch belong to a model; --kernels and --membw have none");
    if (type_ && !kernels_) throw InvalidArgument("--type belongs to --kernels");
    if (!synthetic_) {
      for (const auto& [name, given] : {std::pair{"--scheme", scheme_.has_value()},
                                        {"--layers", n_layers_.has_value()},
                                        {"--seed", seed_.has_value()},
                                        {"--write", write_.has_value()},
                                        {"--force", force_}})
        if (given) throw InvalidArgument(fmt::format("{} belongs to --synthetic", name));
    }
    if (force_ && !write_) throw InvalidArgument("--force belongs to --write");
    if (!membw_ && !kernels_ && !write_ && n_prompt_ == 0 && n_generate_ == 0)
      throw InvalidArgument("nothing to measure: -p and -n are both 0");
  }

  int run(Console& console) override {
    if (membw_) return run_membw(console);
    if (kernels_) return bench_kernels(console, {type_, model_.isa, model_.threads});
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
    int64_t decode_tokens = 1;
    for (const int64_t batch : batches_)
      decode_tokens += n_passes(batch) * batch;
    options.context = std::max<int64_t>({n_prompt_, n_generate_ > 0 ? decode_tokens : 1, 1});
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
    if (n_generate_ > 0)
      batch_logits_.resize(static_cast<size_t>(
          engine->info().n_vocab * *std::max_element(batches_.begin(), batches_.end())));
    ids_ = some_tokens(options.context, engine->info().n_vocab);

    std::vector<TestResult> results;
    // An interrupt ends the work, not what is done: whole repetitions are reported.
    bool complete = true;
    const auto measure = [&](size_t n_results, auto&& test) {
      std::vector<TestResult> measured(n_results);
      try {
        if (complete) test(measured);
      } catch (const Cancelled&) {
        complete = false;
      }
      for (TestResult& result : measured) {
        if (!result.rates.empty()) results.push_back(std::move(result));
      }
    };
    if (n_prompt_ > 0)
      measure(1, [&](auto& measured) { prefill(console, engine->info(), measured[0]); });
    uint64_t peak = peak_rss_bytes();
    if (n_generate_ > 0) {
      measure(batches_.size(), [&](auto& measured) {
        warm_up();
        peak = peak_rss_bytes();  // the bandwidth meter's own buffers do not count
        decode(console, engine->info(), measured);
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

  void prefill(Console& console, const ModelInfo& info, TestResult& result) {
    result.test = "prefill";
    result.n_tokens = n_prompt_;
    const Progress progress = console.progress();
    const auto prompt = std::span(ids_).first(static_cast<size_t>(n_prompt_));
    Int8PeakMeter meter(info.n_threads, info.isa);
    const bool against_peak = meter.known() && !is_float(info.scheme);
    if (against_peak && !profile::enabled()) profile::start(0);
    std::vector<double> seconds;
    // One repetition more than asked: the first also touches memory for the first time. Where that
    // is nothing beside the computing, it counts.
    for (int64_t r = 0; static_cast<int64_t>(seconds.size()) < repetitions_; ++r) {
      progress("prefill", static_cast<uint64_t>(r), static_cast<uint64_t>(repetitions_ + 1));
      session_->reset();
      const double peak_before = against_peak ? meter.pass() : 0;
      const Products before = products_so_far();
      const auto start = Clock::now();
      session_->eval(prompt, logits_, false, &interrupt_flag());
      const double elapsed = seconds_since(start);
      if (r == 0 && elapsed < kLongSeconds) continue;
      seconds.push_back(elapsed);
      result.rates.push_back(static_cast<double>(n_prompt_) / elapsed);
      result.first_token_seconds = median(seconds);
      if (!against_peak) continue;
      const Products after = products_so_far();
      const double peak = (peak_before + meter.pass()) / 2;
      const double operations = 2 * (after.count - before.count);
      result.peaks.push_back(peak);
      result.matmul_shares.push_back(operations / (after.seconds - before.seconds) / peak);
      result.all_shares.push_back(operations / elapsed / peak);
    }
    if (against_peak && profile_.empty()) profile::stop();
  }

  /// Passes of `batch` tokens for n_generate_ tokens.
  int64_t n_passes(int64_t batch) const { return (n_generate_ + batch - 1) / batch; }

  /// All batch sizes and the reading of memory take turns.
  void decode(Console& console, const ModelInfo& info, std::vector<TestResult>& results) {
    for (size_t i = 0; i < batches_.size(); ++i) {
      results[i].test = "decode";
      results[i].batch = batches_[i];
      results[i].n_tokens = n_passes(batches_[i]) * batches_[i];
    }
    const auto of_one = std::find(batches_.begin(), batches_.end(), 1) - batches_.begin();
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
      std::vector<int64_t> done(batches_.size(), 0);  // passes
      std::vector<double> total(batches_.size(), 0);
      for (bool more = true; more;) {
        more = false;
        double one = 0;  // seconds of a pass of one token in this round
        std::vector<double> slices(batches_.size(), 0);
        for (size_t i = 0; i < batches_.size(); ++i) {
          const int64_t n = n_passes(batches_[i]);
          if (done[i] == n) continue;
          progress("decode", static_cast<uint64_t>(r * n + done[i]),
                   static_cast<uint64_t>(repetitions_ * n));
          const double pass = decode_slice(batches_[i], n, &done[i], &total[i]);
          slices[i] = pass;
          if (static_cast<int64_t>(i) == of_one) one = pass;
          more = more || done[i] < n;
          if (meter == nullptr) continue;
          const double bandwidth = meter->pass();
          results[i].bandwidth.push_back(bandwidth);
          results[i].shares.push_back(static_cast<double>(info.weight_bytes_per_token) / pass /
                                      bandwidth);
        }
        for (size_t i = 0; i < batches_.size(); ++i) {
          if (one > 0 && slices[i] > 0) results[i].pass_cost.push_back(slices[i] / one);
        }
      }
      for (size_t i = 0; i < batches_.size(); ++i)
        results[i].rates.push_back(static_cast<double>(results[i].n_tokens) / total[i]);
    }
  }

  /// Passes of `batch` tokens for a slice of time, until *done is n_passes. Returns the seconds of
  /// one pass.
  double decode_slice(int64_t batch, int64_t n_passes, int64_t* done, double* total) {
    const auto start = Clock::now();
    double slice = 0;
    int64_t n = 0;
    const auto n_logits = batch_logits_.size() /
                          static_cast<size_t>(*std::max_element(batches_.begin(), batches_.end())) *
                          static_cast<size_t>(batch);
    while (*done < n_passes && slice < kSliceSeconds) {
      const auto at = static_cast<size_t>(session_->position());
      session_->eval(std::span(ids_).subspan(at, static_cast<size_t>(batch)),
                     std::span(batch_logits_).first(n_logits), true, &interrupt_flag());
      ++*done, ++n;
      slice = seconds_since(start);
      interrupt_token().check();
    }
    *total += slice;
    return slice / static_cast<double>(n);
  }

  /// What is wrong with the list, or nothing.
  std::string take_batches(const std::string& list) {
    const auto numbers = parse_token_ids(list);
    if (!numbers || numbers->empty()) return "must be numbers such as 1,2,4";
    batches_.clear();
    for (const int32_t n : *numbers) {
      if (n < 1 || n > 64) return "must be between 1 and 64";
      if (std::find(batches_.begin(), batches_.end(), n) == batches_.end()) batches_.push_back(n);
    }
    return {};
  }

  ordered_json to_json(const ModelInfo& info, uint64_t peak,
                       const std::vector<TestResult>& results) const {
    ordered_json list = ordered_json::array();
    for (const TestResult& r : results) {
      const auto [low, high] = std::minmax_element(r.rates.begin(), r.rates.end());
      ordered_json row = {
          {"test", r.test},
          {"n_tokens", r.n_tokens},
          {"batch", r.batch},
          {"threads", info.n_threads},
          {"tokens_per_second", median(r.rates)},
          {"tokens_per_second_min", *low},
          {"tokens_per_second_max", *high},
          {"repetitions", r.rates.size()},
          {"weight_bytes_per_token", info.weight_bytes_per_token / static_cast<uint64_t>(r.batch)},
          {"read_bandwidth_bytes_per_second", nullptr},
          {"bandwidth_share", nullptr},
          {"int8_peak_operations_per_second", nullptr},
          {"int8_peak_share_matmul", nullptr},
          {"int8_peak_share_all", nullptr}};
      if (!r.all_shares.empty()) {
        row["int8_peak_operations_per_second"] = median(r.peaks);
        row["int8_peak_share_matmul"] = median(r.matmul_shares);
        row["int8_peak_share_all"] = median(r.all_shares);
      }
      if (!r.pass_cost.empty()) row["pass_cost"] = median(r.pass_cost);
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
    std::vector<std::vector<std::string>> rows = {{"test", "tokens", "batch", "threads", "tokens/s",
                                                   "min", "max", "first token",
                                                   "share of the ceiling"}};
    for (const TestResult& r : results) {
      const auto [low, high] = std::minmax_element(r.rates.begin(), r.rates.end());
      std::string share;
      if (!r.shares.empty())
        share = median(r.shares) > kHighestShare
                    ? "failed measurement"
                    : fmt::format("{:.0f} % of {}", 100 * median(r.shares),
                                  rate_text(median(r.bandwidth)));
      if (!r.all_shares.empty())
        share = fmt::format("{:.0f} % of {:.2f} TOPS in products, {:.0f} % in all",
                            100 * median(r.matmul_shares), median(r.peaks) / 1e12,
                            100 * median(r.all_shares));
      if (r.batch > 1 && !r.pass_cost.empty())
        share += fmt::format("{}a pass costs {:.2f} of one token's", share.empty() ? "" : "; ",
                             median(r.pass_cost));
      rows.push_back({r.test, std::to_string(r.n_tokens), std::to_string(r.batch),
                      std::to_string(info.n_threads), fmt::format("{:.2f}", median(r.rates)),
                      fmt::format("{:.2f}", *low), fmt::format("{:.2f}", *high),
                      r.first_token_seconds > 0 ? human_seconds(r.first_token_seconds) : "",
                      share});
    }
    return table(rows, {1, 2, 3, 4, 5, 6, 7}) +
           fmt::format("loaded in {}, peak memory {}, {} of weights read per token\n",
                       human_seconds(info.load_seconds), human_bytes(peak),
                       human_bytes(info.weight_bytes_per_token));
  }

  ModelOptions model_;
  int64_t n_prompt_ = kDefaultPrompt, n_generate_ = kDefaultGenerate,
          repetitions_ = kDefaultRepetitions;
  std::vector<int64_t> batches_ = {1};
  bool membw_ = false, kernels_ = false, force_ = false;
  std::optional<std::string> synthetic_, scheme_, write_, type_;
  std::optional<int64_t> n_layers_, seed_;
  std::string profile_;
  std::unique_ptr<Session> session_;
  std::vector<float> logits_, batch_logits_;
  std::vector<int32_t> ids_;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() {
  return std::make_unique<BenchCommand>();
}

}  // namespace ts::cli
