#include "cli/resume_file.h"

#include <bit>
#include <charconv>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/atomic_file.h"
#include "base/json.h"
#include "cli/input_text.h"

namespace ts::cli {
namespace {

constexpr std::string_view kResumeFormat = "tensorsharp.eval";
constexpr auto kSaveEvery = std::chrono::seconds(20);
constexpr size_t kDigits = 16;

}  // namespace

std::string bits_of(double value) {
  return fmt::format("{:016x}", std::bit_cast<uint64_t>(value));
}

std::string bits_of(const std::vector<double>& values) {
  std::string out;
  out.reserve(values.size() * kDigits);
  for (const double value : values)
    out += bits_of(value);
  return out;
}

ResumeFile::ResumeFile(std::filesystem::path path, std::string kind,
                       nlohmann::ordered_json identity)
    : path_(std::move(path)), kind_(std::move(kind)), identity_(std::move(identity)) {}

void ResumeFile::fail(std::string_view what) const {
  throw FormatError(fmt::format("{}: not the state of a {} run: {}\n  Delete it to start anew.",
                                name(), kind_, what));
}

std::optional<nlohmann::json> ResumeFile::load() const {
  std::error_code ignored;
  if (path_.empty() || !std::filesystem::exists(path_, ignored)) return std::nullopt;
  const nlohmann::json root = parse_json_limited(read_text_file(name()), name());
  if (!root.is_object() || !root.contains("format") || root["format"] != kResumeFormat)
    fail(fmt::format("\"format\" is not \"{}\"", kResumeFormat));
  if (!root.contains("kind") || root["kind"] != kind_)
    fail(fmt::format("\"kind\" is not \"{}\"", kind_));
  if (!root.contains("identity") || !root["identity"].is_object()) fail("no \"identity\"");
  if (!root.contains("state") || !root["state"].is_object()) fail("no \"state\"");
  for (const auto& [key, value] : identity_.items()) {
    const nlohmann::json found =
        root["identity"].contains(key) ? root["identity"][key] : nlohmann::json();
    if (found != nlohmann::json(value))
      throw InvalidArgument(fmt::format(
          "--resume {}: it belongs to another run: {} is {}, here {}\n  Delete it to start anew.",
          name(), key, found.dump(), value.dump()));
  }
  return root["state"];
}

uint64_t ResumeFile::count_of(const nlohmann::json& state, const char* key) const {
  if (!state.contains(key) || !state[key].is_number_unsigned())
    fail(fmt::format("\"{}\" is no count", key));
  return state[key].get<uint64_t>();
}

std::vector<double> ResumeFile::reals_of(const nlohmann::json& state, const char* key) const {
  if (!state.contains(key) || !state[key].is_string()) fail(fmt::format("no \"{}\"", key));
  const auto& text = state[key].get_ref<const std::string&>();
  if (text.size() % kDigits != 0)
    fail(fmt::format("\"{}\" is not groups of {} hexadecimal digits", key, kDigits));
  std::vector<double> out(text.size() / kDigits);
  for (size_t i = 0; i < out.size(); ++i) {
    const char* begin = text.data() + i * kDigits;
    uint64_t bits = 0;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, bits, 16);
    if (error != std::errc() || end != begin + kDigits)
      fail(fmt::format("\"{}\" is not groups of {} hexadecimal digits", key, kDigits));
    out[i] = std::bit_cast<double>(bits);
  }
  return out;
}

double ResumeFile::real_of(const nlohmann::json& state, const char* key) const {
  const std::vector<double> values = reals_of(state, key);
  if (values.size() != 1) fail(fmt::format("\"{}\" is not {} hexadecimal digits", key, kDigits));
  return values[0];
}

bool ResumeFile::due() const {
  return kept() && std::chrono::steady_clock::now() - saved_ >= kSaveEvery;
}

void ResumeFile::save(const nlohmann::ordered_json& state) {
  if (!kept()) return;
  const nlohmann::ordered_json root = {
      {"format", kResumeFormat}, {"kind", kind_}, {"identity", identity_}, {"state", state}};
  const std::string text =
      root.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  AtomicFile file(path_, true);
  file.write(std::as_bytes(std::span(text.data(), text.size())));
  file.commit();
  saved_ = std::chrono::steady_clock::now();
}

}  // namespace ts::cli
