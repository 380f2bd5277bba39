#include <cmath>

#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "quantize/report.h"

namespace ts {
namespace {

using nlohmann::ordered_json;

ordered_json quality_json(const Quality& q) {
  return {{"domain", q.domain},
          {"n_tokens", q.n_tokens},
          {"perplexity_source", q.perplexity_source},
          {"perplexity", q.perplexity},
          {"perplexity_ratio", q.ratio()},
          {"kl_mean", q.kl_mean},
          {"kl_median", q.kl_median},
          {"kl_p99", q.kl_p99},
          {"top1_agreement", q.top1_agreement}};
}

ordered_json tensor_json(const QuantizedTensor& t, bool done) {
  const auto n = static_cast<double>(t.n_rows) * static_cast<double>(t.n_cols);
  ordered_json row = {{"name", t.name},
                      {"source_type", t.source_type},
                      {"type", t.type},
                      {"shape", {t.n_cols, t.n_rows}},
                      {"planes", t.n_planes},
                      {"bytes", t.bytes},
                      {"bits_per_weight", 8.0 * static_cast<double>(t.bytes) / n},
                      {"rotated", t.rotated},
                      {"rotation", t.rotated    ? "online"
                                   : t.absorbed ? "absorbed"
                                                : "none"},
                      {"rotation_additions", t.rotation_additions},
                      {"remark", t.remark}};
  if (!t.fitted || !done) return row;
  row["sqnr_db"] = t.sqnr_db;
  row["plain_sqnr_before_db"] = t.profile.plain_sqnr_before_db;
  row["plain_sqnr_after_db"] = t.profile.plain_sqnr_after_db;
  row["histogram_before"] = t.profile.before;
  row["histogram_after"] = t.profile.after;
  row["zero_rate"] = t.zero_rate;
  row["entropy_bits"] = t.entropy_bits;
  row["kurtosis_source"] = t.kurtosis_source;
  row["kurtosis"] = t.kurtosis;
  if (t.output_error >= 0) row["output_error"] = t.output_error;
  return row;
}

}  // namespace

ordered_json quantize_report_json(const QuantizeReport& report) {
  ordered_json results = ordered_json::array(), terms = ordered_json::array(),
               quality = ordered_json::array();
  for (const QuantizedTensor& t : report.tensors)
    results.push_back(tensor_json(t, !report.dry_run));
  for (const BitTerm& term : report.account.terms)
    terms.push_back({{"what", term.what}, {"bytes", term.bytes}, {"weights", term.weights}});
  for (size_t i = 1; i < report.quality.size(); ++i)
    quality.push_back(quality_json(report.quality[i]));
  const bool measured = !report.quality.empty();
  const Quality all = measured ? report.quality[0] : Quality{};
  const auto known = [&](double value) { return measured ? ordered_json(value) : ordered_json(); };
  ordered_json correlations = ordered_json::array();
  for (const double c : report.attention_correlations)
    correlations.push_back(std::isfinite(c) ? ordered_json(c) : ordered_json());
  const auto tuned = [&](auto value) {
    return report.tune_kl_before < 0 ? ordered_json() : ordered_json(value);
  };
  return {{"output", report.output.string()},
          {"residual_output", report.residual_output.string()},
          {"architecture", report.architecture},
          {"scheme", report.scheme},
          {"method", report.method},
          {"dry_run", report.dry_run},
          {"bits_per_weight", report.bits_per_weight},
          {"linear_bits_per_weight", report.linear_bits_per_weight},
          {"output_bytes", report.output_bytes},
          {"seconds", report.seconds},
          {"peak_rss_bytes", report.peak_rss_bytes},
          {"perplexity_ratio", known(all.ratio())},
          {"perplexity", known(all.perplexity)},
          {"perplexity_source", known(all.perplexity_source)},
          {"kl_mean", known(all.kl_mean)},
          {"top1_agreement", known(all.top1_agreement)},
          {"tune_kl_before", tuned(report.tune_kl_before)},
          {"tune_kl_after", tuned(report.tune_kl_after)},
          {"tune_steps_kept", tuned(report.tune_steps_kept)},
          {"useless", report.useless},
          {"quality", std::move(quality)},
          {"layer_cosines", report.layer_cosines},
          {"attention_correlations", std::move(correlations)},
          {"rotation_block", report.rotation_block},
          {"absorbed_block", report.absorbed_block},
          {"absorbed_value_block", report.absorbed_value_block},
          {"rotated_matrices", report.n_rotated},
          {"seed", report.seed},
          {"account", std::move(terms)},
          {"results", std::move(results)},
          {"notes", report.notes}};
}

void write_report(const QuantizeReport& report, const std::filesystem::path& path, bool overwrite) {
  const std::string text = path.extension() == ".html"
                               ? quantize_report_html(report)
                               : quantize_report_json(report).dump(2) + "\n";
  AtomicFile file(path, overwrite);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace ts
