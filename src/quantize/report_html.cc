#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "quantize/report.h"

namespace ts {
namespace {

constexpr double kWidth = 860, kHeight = 220, kMargin = 48;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

struct Bar {
  std::string label;
  double value = 0;
};

/// Bars over a common baseline; the vertical axis runs from `low` to the largest value.
std::string bars(const std::string& title, const std::vector<Bar>& values, double low) {
  if (values.empty()) return "";
  double high = low;
  for (const Bar& b : values)
    high = std::max(high, b.value);
  if (!(high > low)) high = low + 1;
  const double step = (kWidth - 2 * kMargin) / static_cast<double>(values.size());
  std::string svg =
      fmt::format("<h3>{}</h3>\n<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                  escaped(title), kWidth, kHeight + kMargin, escaped(title));
  for (const double part : {0.0, 0.5, 1.0}) {
    const double y = kHeight - part * (kHeight - 20);
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ccc\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}</text>\n",
        kMargin, kWidth - kMargin, y, y, kMargin - 4, y + 4, low + part * (high - low));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const double share = std::clamp((values[i].value - low) / (high - low), 0.0, 1.0);
    const double height = share * (kHeight - 20);
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"#3a6ea5\">"
        "<title>{}: {:.5g}</title></rect>\n",
        kMargin + static_cast<double>(i) * step, kHeight - height, std::max(step * 0.85, 0.5),
        height, escaped(values[i].label), values[i].value);
  }
  return svg + "</svg>\n";
}

/// A small drawing of a histogram.
std::string histogram(const std::array<uint32_t, kHistogramBins>& bins) {
  constexpr double kSmallWidth = 82, kSmallHeight = 24;
  const uint32_t most = std::max(*std::max_element(bins.begin(), bins.end()), uint32_t{1});
  std::string points;
  for (size_t i = 0; i < bins.size(); ++i)
    points +=
        fmt::format("{:.0f},{:.1f} ", kSmallWidth * static_cast<double>(i) / (kHistogramBins - 1),
                    kSmallHeight * (1 - static_cast<double>(bins[i]) / most));
  return fmt::format(
      "<svg width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\"><polyline fill=\"none\" "
      "stroke=\"#3a6ea5\" points=\"{2}\"/></svg>",
      kSmallWidth, kSmallHeight, points);
}

std::string tensor_table(const QuantizeReport& report) {
  std::string html =
      "<h2>Tensors</h2>\n<table><tr><th>tensor</th><th>from</th><th>to</th><th>shape</th>"
      "<th>bits per weight</th><th>SQNR, dB</th><th>of a plain fit before rotation</th>"
      "<th>after</th><th>zeros</th><th>entropy, bits</th><th>weights before</th><th>after</th>"
      "<th>kurtosis before</th><th>after rotation</th><th>error of the outputs</th>"
      "<th>remark</th></tr>\n";
  for (const QuantizedTensor& t : report.tensors) {
    const auto n = static_cast<double>(t.n_rows) * static_cast<double>(t.n_cols);
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}{}{}</td><td>{} x {}</td><td>{:.4f}</td>",
                        escaped(t.name), escaped(t.source_type),
                        t.n_planes > 1 ? fmt::format("{} x ", t.n_planes) : "", t.type,
                        t.rotated    ? ", rotated"
                        : t.absorbed ? ", rotation absorbed"
                                     : "",
                        t.n_rows, t.n_cols, 8.0 * static_cast<double>(t.bytes) / n);
    if (t.fitted && !report.dry_run) {
      html += fmt::format(
          "<td>{:.3f}</td><td>{:.3f}</td><td>{:.3f}</td><td>{:.4f}</td><td>{:.4f}</td><td>{}</td>"
          "<td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{}</td>",
          t.sqnr_db, t.profile.plain_sqnr_before_db, t.profile.plain_sqnr_after_db, t.zero_rate,
          t.entropy_bits, histogram(t.profile.before), histogram(t.profile.after),
          t.kurtosis_source, t.kurtosis,
          t.output_error >= 0 ? fmt::format("{:.4f}", t.output_error) : std::string());
    } else {
      for (int i = 0; i < 10; ++i)
        html += "<td></td>";
    }
    html += fmt::format("<td>{}</td></tr>\n", escaped(t.remark));
  }
  return html + "</table>\n";
}

std::string quality_table(const QuantizeReport& report) {
  if (report.quality.empty()) return "<p>The quality was not measured.</p>\n";
  std::string html =
      "<table><tr><th>text</th><th>tokens</th><th>perplexity</th><th>of the source</th>"
      "<th>ratio</th><th>KL divergence, nats</th><th>median</th><th>99 %</th>"
      "<th>same most likely token</th></tr>\n";
  for (const Quality& q : report.quality)
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.3f}</td><td>{:.3f}</td><td>{:.4f}</td><td>{:.4f}</td>"
        "<td>{:.4f}</td><td>{:.3f}</td><td>{:.2f} %</td></tr>\n",
        q.domain.empty() ? "all" : escaped(q.domain), q.n_tokens, q.perplexity, q.perplexity_source,
        q.ratio(), q.kl_mean, q.kl_median, q.kl_p99, 100 * q.top1_agreement);
  return html + "</table>\n";
}

std::string plots(const QuantizeReport& report) {
  std::vector<Bar> cosines, attention, sqnr, bits, before, after, outputs;
  for (size_t i = 0; i < report.layer_cosines.size(); ++i)
    cosines.push_back({fmt::format("layer {}", i), 1 - report.layer_cosines[i]});
  for (size_t i = 0; i < report.attention_correlations.size(); ++i) {
    if (std::isfinite(report.attention_correlations[i]))
      attention.push_back({fmt::format("layer {}", i), 1 - report.attention_correlations[i]});
  }
  for (const QuantizedTensor& t : report.tensors) {
    const auto n = static_cast<double>(t.n_rows) * static_cast<double>(t.n_cols);
    if (t.n_rows > 1) bits.push_back({t.name, 8.0 * static_cast<double>(t.bytes) / n});
    if (!t.fitted || report.dry_run) continue;
    sqnr.push_back({t.name, t.sqnr_db});
    before.push_back({t.name, t.kurtosis_source});
    after.push_back({t.name, t.kurtosis});
    if (t.output_error >= 0) outputs.push_back({t.name, t.output_error});
  }
  return bars("1 - cosine of the hidden states with the source's, by layer", cosines, 0) +
         bars("1 - correlation of the shares of attention with the source's, by layer", attention,
              0) +
         bars("Signal to quantization noise of the weights, dB, by tensor", sqnr, 0) +
         bars("Error of the outputs on the calibration texts, relative energy, by tensor", outputs,
              0) +
         bars("Bits per weight, by tensor", bits, 0) +
         bars("Kurtosis of the weights before rotation (3 for a normal distribution)", before, 0) +
         bars("Kurtosis of the weights as they are stored", after, 0);
}

}  // namespace

std::string quantize_report_html(const QuantizeReport& report) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font:15px/1.4 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em}}"
      "table{{border-collapse:collapse;font-size:13px}}td,th{{border:1px solid #ccc;"
      "padding:2px 7px;text-align:right}}td:first-child,th:first-child,td:last-child"
      "{{text-align:left}}svg text{{font:11px sans-serif}}svg{{max-width:100%}}</style></head>\n"
      "<body><h1>{0}</h1>\n<p>{1}, {2}, method {3}; {4:.4f} bits per weight in the layers, {5:.4f} "
      "over all tensors; {6} bytes; {7:.0f} s; peak memory {8} bytes. {9}</p>\n",
      escaped(report.output.filename().string()), escaped(report.architecture), report.scheme,
      report.method, report.linear_bits_per_weight, report.bits_per_weight, report.output_bytes,
      report.seconds, report.peak_rss_bytes,
      report.absorbed_block > 0 || report.absorbed_value_block > 0
          ? fmt::format(
                "Rotations are part of the weights: block {} of the residual stream (0 = it "
                "is not rotated), block {} of values.",
                report.absorbed_block, report.absorbed_value_block)
      : report.rotation_block > 0
          ? fmt::format("Rotation: block {}, {} matrices, seed {}.", report.rotation_block,
                        report.n_rotated, report.seed)
          : std::string("Nothing is rotated."));
  for (const std::string& note : report.notes)
    html += fmt::format("<p>{}</p>\n", escaped(note));
  html += "<h2>Quality</h2>\n" + quality_table(report);
  html += "<h2>Bytes</h2>\n<table><tr><th>what</th><th>bytes</th></tr>\n";
  for (const BitTerm& term : report.account.terms)
    html += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escaped(term.what), term.bytes);
  html += fmt::format("<tr><td>together</td><td>{}</td></tr>\n</table>\n<h2>Plots</h2>\n",
                      report.account.file_bytes);
  return html + plots(report) + tensor_table(report) + "</body></html>\n";
}

}  // namespace ts
