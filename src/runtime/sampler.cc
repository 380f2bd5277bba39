// The chain of steps is run on a list of candidates that always stands in an order fixed by the
// logits and ids alone (by id, or by the key of the last truncation), never in one a library
// algorithm happens to leave. With portable exp/log, a generator of our own and sums in that order,
// a seed gives the same tokens on every machine.
//
// Methods: top-p ("nucleus") Holtzman et al. 2019; min-p Nguyen et al. 2024; locally typical
// sampling Meister et al. 2022; repetition penalty Keskar et al. 2019; presence and frequency
// penalties as in the OpenAI API. Generator: xoshiro256** seeded by SplitMix64 (Blackman, Vigna).
#include "runtime/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "runtime/portable_math.h"

namespace ts {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

enum class Step { kPenalties, kTopK, kTypical, kTopP, kMinP, kTemperature };

struct StepName {
  std::string_view name;
  Step step;
};
constexpr std::array<StepName, 6> kStepNames = {{{"penalties", Step::kPenalties},
                                                 {"top_k", Step::kTopK},
                                                 {"typical", Step::kTypical},
                                                 {"top_p", Step::kTopP},
                                                 {"min_p", Step::kMinP},
                                                 {"temperature", Step::kTemperature}}};

template <typename T>
[[noreturn]] void reject(std::string_view option, T value, std::string_view range) {
  throw InvalidArgument(fmt::format("sampling option {} = {}: expected {}", option, value, range));
}

void check_options(const SamplingOptions& o) {
  if (!std::isfinite(o.temperature) || o.temperature < 0)
    reject("temperature", o.temperature, "a finite number from 0 (0 = greedy)");
  if (o.top_k < 0) reject("top_k", o.top_k, "an integer from 0 (0 = off)");
  if (!(o.top_p >= 0 && o.top_p <= 1)) reject("top_p", o.top_p, "0 to 1 (1 = off)");
  if (!(o.min_p >= 0 && o.min_p <= 1)) reject("min_p", o.min_p, "0 to 1 (0 = off)");
  if (!(o.typical_p >= 0 && o.typical_p <= 1)) reject("typical_p", o.typical_p, "0 to 1 (1 = off)");
  if (!std::isfinite(o.repeat_penalty) || o.repeat_penalty <= 0)
    reject("repeat_penalty", o.repeat_penalty, "a finite number above 0 (1 = off)");
  if (!std::isfinite(o.presence_penalty))
    reject("presence_penalty", o.presence_penalty, "a finite number (0 = off)");
  if (!std::isfinite(o.frequency_penalty))
    reject("frequency_penalty", o.frequency_penalty, "a finite number (0 = off)");
  if (o.penalty_window < -1)
    reject("penalty_window", o.penalty_window, "-1 (all tokens), 0 (none) or a number of tokens");
}

std::vector<Step> parse_order(const std::vector<std::string>& order) {
  std::vector<Step> steps;
  for (const std::string& name : order.empty() ? SamplingOptions{}.order : order) {
    const auto it = std::find_if(kStepNames.begin(), kStepNames.end(),
                                 [&](const StepName& s) { return s.name == name; });
    if (it == kStepNames.end())
      throw InvalidArgument(
          fmt::format("sampling option order: unknown step \"{}\"; expected any of penalties, "
                      "top_k, typical, top_p, min_p, temperature",
                      name.substr(0, 64)));
    if (std::find(steps.begin(), steps.end(), it->step) != steps.end())
      throw InvalidArgument(
          fmt::format("sampling option order: step \"{}\" is listed twice; list it once", name));
    steps.push_back(it->step);
  }
  return steps;
}

class Generator {
 public:
  explicit Generator(uint64_t seed) noexcept {
    for (uint64_t& word : state_) {
      seed += 0x9E3779B97F4A7C15u;
      uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      word = z ^ (z >> 31);
    }
  }
  /// Uniform in [0, 1): the upper 53 bits of one output.
  double next() noexcept {
    const uint64_t result = rotate(state_[1] * 5, 7) * 9, t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return static_cast<double>(result >> 11) * 0x1p-53;
  }

 private:
  static uint64_t rotate(uint64_t x, int k) noexcept { return (x << k) | (x >> (64 - k)); }
  std::array<uint64_t, 4> state_{};
};

/// Tokens the penalties look at: all of them, or the last `window`.
class History {
 public:
  explicit History(int64_t window) : window_(window) {}
  void add(int32_t id) {
    if (window_ == 0) return;
    ++counts_[id];
    if (window_ < 0) return;
    if (static_cast<int64_t>(ring_.size()) < window_) {
      ring_.push_back(id);
      return;
    }
    const auto oldest = counts_.find(ring_[next_]);
    if (--oldest->second == 0) counts_.erase(oldest);
    ring_[next_] = id;
    next_ = (next_ + 1) % ring_.size();
  }
  const std::unordered_map<int32_t, int64_t>& counts() const noexcept { return counts_; }

 private:
  int64_t window_;
  std::unordered_map<int32_t, int64_t> counts_;
  std::vector<int32_t> ring_;  // used when window_ > 0
  size_t next_ = 0;            // oldest entry of a full ring
};

struct Candidate {
  double logit;
  int32_t id;
};
/// The order of preference: higher logit, then lower id. A strict total order.
bool better(const Candidate& a, const Candidate& b) noexcept {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

void check_logits(std::span<const float> logits) {
  bool any = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float l = logits[i];
    if (std::isnan(l) || l == std::numeric_limits<float>::infinity())
      throw FormatError(fmt::format(
          "logits: token {} has the value {}, expected finite numbers (or -inf for single tokens); "
          "the model's weights or computation are damaged",
          i, l));
    any = any || l != -std::numeric_limits<float>::infinity();
  }
  if (!any)
    throw FormatError(fmt::format(
        "logits: all {} values are -inf, expected at least one finite number; the model's weights "
        "or computation are damaged",
        logits.size()));
}

/// The k best of logits [n], best first.
template <typename T>
std::vector<Candidate> best_of(std::span<const T> logits, size_t k) {
  std::vector<Candidate> heap;  // worst on top
  heap.reserve(k);
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate c{static_cast<double>(logits[i]), static_cast<int32_t>(i)};
    if (heap.size() < k) {
      heap.push_back(c);
      std::push_heap(heap.begin(), heap.end(), better);
    } else if (c.logit > heap.front().logit) {  // an equal one has a higher id: worse
      std::pop_heap(heap.begin(), heap.end(), better);
      heap.back() = c;
      std::push_heap(heap.begin(), heap.end(), better);
    }
  }
  std::sort_heap(heap.begin(), heap.end(), better);
  return heap;
}

/// The log-probability of a logit l is (l - max) - log_sum: apart, because `max` may be so large
/// that adding them would lose log_sum. The logits are checked.
struct Normaliser {
  double max, log_sum;
  float operator()(double logit) const { return static_cast<float>((logit - max) - log_sum); }
};
Normaliser normaliser(std::span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits)
    sum += portable::exp(l - max);
  return {max, portable::log(sum)};
}

}  // namespace

struct Sampler::State {
  State(const SamplingOptions& o, int64_t vocabulary, uint64_t used_seed)
      : options(o),
        n_vocab(vocabulary),
        steps(parse_order(o.order)),
        seed(used_seed),
        generator(used_seed),
        history(o.penalty_window) {}

  SamplingOptions options;
  int64_t n_vocab;
  std::vector<Step> steps;
  uint64_t seed;
  Generator generator;
  History history;

  // Working space of one call. While `dense`, the candidates are all ids and `logits_of` holds
  // their logits; afterwards they are `list`.
  bool dense = true;
  std::vector<double> logits_of;
  std::vector<Candidate> list;

  bool has(Step step) const noexcept {
    return std::find(steps.begin(), steps.end(), step) != steps.end();
  }

  double penalised(double logit, int64_t count) const noexcept {
    if (logit == kMinusInfinity) return logit;
    logit = logit > 0 ? logit / options.repeat_penalty : logit * options.repeat_penalty;
    return logit - options.presence_penalty -
           static_cast<double>(options.frequency_penalty) * static_cast<double>(count);
  }

  void penalties() {
    const auto& counts = history.counts();
    if (dense) {
      for (const auto& [id, count] : counts)
        logits_of[id] = penalised(logits_of[id], count);
      return;
    }
    for (Candidate& c : list) {
      const auto it = counts.find(c.id);
      if (it != counts.end()) c.logit = penalised(c.logit, it->second);
    }
  }

  void temperature() {
    const double t = options.temperature;  // > 0; no overflow: floats divided in double
    if (dense) {
      for (double& l : logits_of)
        l /= t;
    } else {
      for (Candidate& c : list)
        c.logit /= t;
    }
  }

  void make_list() {
    if (!dense) return;
    dense = false;
    list.resize(logits_of.size());
    for (size_t i = 0; i < list.size(); ++i)
      list[i] = {logits_of[i], static_cast<int32_t>(i)};
  }

  void top_k() {
    const size_t k = static_cast<size_t>(options.top_k);
    if (k == 0) return;
    if (dense) {
      if (k >= logits_of.size()) return;
      list = best_of(std::span<const double>(logits_of), k);
      dense = false;
    } else if (k < list.size()) {
      std::partial_sort(list.begin(), list.begin() + static_cast<ptrdiff_t>(k), list.end(), better);
      list.resize(k);
    }
  }

  double list_max() const {
    double max = kMinusInfinity;
    for (const Candidate& c : list)
      max = std::max(max, c.logit);
    return max;
  }

  /// Keeps the shortest run of candidates, first by `before`, that holds `share` of all weight.
  /// T has a member `weight`.
  template <typename T, typename Before>
  static size_t sort_share(std::vector<T>& items, double share, Before before) {
    double total = 0;
    for (const T& item : items)
      total += item.weight;
    const double wanted = share * total;
    double held = 0;
    size_t n_sorted = 0;
    for (size_t n_wanted = 64; n_sorted < items.size(); n_wanted *= 4) {
      n_wanted = std::min(n_wanted, items.size());
      const auto begin = items.begin() + static_cast<ptrdiff_t>(n_sorted);
      const auto end = items.begin() + static_cast<ptrdiff_t>(n_wanted);
      if (end != items.end()) std::nth_element(begin, end, items.end(), before);
      std::sort(begin, end, before);
      for (; n_sorted < n_wanted; ++n_sorted) {
        held += items[n_sorted].weight;
        if (held >= wanted) return n_sorted + 1;
      }
    }
    return items.size();
  }

  struct Weighted {
    double weight, key;
    Candidate candidate;
  };

  void take(const std::vector<Weighted>& items, size_t n) {
    list.resize(n);
    for (size_t i = 0; i < n; ++i)
      list[i] = items[i].candidate;
  }

  void top_p() {
    if (options.top_p >= 1) return;
    make_list();
    const double max = list_max();
    std::vector<Weighted> items(list.size());
    for (size_t i = 0; i < list.size(); ++i)
      items[i] = {portable::exp(list[i].logit - max), 0, list[i]};
    take(items, sort_share(items, options.top_p, [](const Weighted& a, const Weighted& b) {
           return better(a.candidate, b.candidate);
         }));
  }

  void typical() {
    if (options.typical_p >= 1) return;
    make_list();
    const double max = list_max();
    double sum = 0, weighted = 0;
    std::vector<Weighted> items(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const double w = portable::exp(list[i].logit - max);
      items[i] = {w, 0, list[i]};
      sum += w;
      if (w > 0) weighted += w * (list[i].logit - max);
    }
    // -log p = log sum - (logit - max); the entropy is its mean.
    const double mean = weighted / sum;
    for (Weighted& item : items)
      item.key = std::abs(item.candidate.logit - max - mean);
    take(items, sort_share(items, options.typical_p, [](const Weighted& a, const Weighted& b) {
           return a.key != b.key ? a.key < b.key : better(a.candidate, b.candidate);
         }));
  }

  void min_p() {
    if (options.min_p <= 0) return;
    make_list();
    const double floor = list_max() + portable::log(options.min_p);
    std::erase_if(list, [&](const Candidate& c) { return c.logit < floor; });
  }

  int32_t draw() {
    make_list();
    const double max = list_max();
    double total = 0;
    std::vector<double> weights(list.size());
    for (size_t i = 0; i < list.size(); ++i)
      total += weights[i] = portable::exp(list[i].logit - max);
    const double target = generator.next() * total;
    double sum = 0;
    size_t last = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      if (weights[i] == 0) continue;
      last = i;
      sum += weights[i];
      if (sum > target) break;
    }
    return list[last].id;
  }
};

Sampler::Sampler(const SamplingOptions& options, int64_t n_vocab) {
  check_options(options);
  if (n_vocab < 1 || n_vocab > std::numeric_limits<int32_t>::max())
    throw InvalidArgument(fmt::format("sampler: vocabulary of {} tokens, expected 1 to {}", n_vocab,
                                      std::numeric_limits<int32_t>::max()));
  uint64_t seed = 0;
  if (options.seed) {
    seed = *options.seed;
  } else {
    std::random_device device;
    seed = (uint64_t{device()} << 32) | device();
  }
  state_ = std::make_unique<State>(options, n_vocab, seed);
}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

uint64_t Sampler::seed() const noexcept {
  return state_->seed;
}

void Sampler::accept(int32_t id) {
  if (id < 0 || id >= state_->n_vocab)
    throw InvalidArgument(
        fmt::format("sampler: token id {}, expected 0 to {}", id, state_->n_vocab - 1));
  state_->history.add(id);
}

int32_t Sampler::sample(std::span<const float> logits) {
  State& s = *state_;
  if (static_cast<int64_t>(logits.size()) != s.n_vocab)
    throw InvalidArgument(fmt::format("sampler: {} logits, expected {}", logits.size(), s.n_vocab));
  check_logits(logits);
  s.dense = true;
  s.logits_of.assign(logits.begin(), logits.end());

  if (s.options.temperature == 0 && s.has(Step::kTemperature)) {
    if (s.has(Step::kPenalties)) s.penalties();
    // max_element returns the first of equal ones: the lowest id.
    return static_cast<int32_t>(std::max_element(s.logits_of.begin(), s.logits_of.end()) -
                                s.logits_of.begin());
  }
  for (const Step step : s.steps) {
    switch (step) {
      case Step::kPenalties:
        s.penalties();
        break;
      case Step::kTopK:
        s.top_k();
        break;
      case Step::kTypical:
        s.typical();
        break;
      case Step::kTopP:
        s.top_p();
        break;
      case Step::kMinP:
        s.min_p();
        break;
      case Step::kTemperature:
        s.temperature();
        break;
    }
  }
  return s.draw();
}

float token_logprob(std::span<const float> logits, int32_t id) {
  if (id < 0 || id >= static_cast<int64_t>(logits.size()))
    throw InvalidArgument(
        fmt::format("log-probability of token {}: expected an id below {}", id, logits.size()));
  check_logits(logits);
  return normaliser(logits)(logits[id]);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n) {
  if (n < 0)
    throw InvalidArgument(fmt::format("number of log-probabilities {}: expected 0 or more", n));
  if (logits.empty()) throw InvalidArgument("log-probabilities: no logits given");
  check_logits(logits);
  std::vector<TokenLogprob> result;
  if (n == 0) return result;
  const Normaliser norm = normaliser(logits);
  for (const Candidate& c :
       best_of(logits, std::min<size_t>(static_cast<size_t>(n), logits.size())))
    result.push_back({c.id, norm(c.logit)});
  return result;
}

}  // namespace ts
