#include "text/special_tokens.h"

#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

/// Distance from `position` to the next untrusted byte, 0 inside a range; at most `most`.
size_t trusted_bytes(std::span<const ByteRange> untrusted, size_t position, size_t most) {
  const auto it = std::upper_bound(untrusted.begin(), untrusted.end(), position,
                                   [](size_t p, const ByteRange& r) { return p < r.end; });
  for (auto range = it; range != untrusted.end(); ++range) {
    if (range->begin >= range->end) continue;
    if (range->begin <= position) return 0;
    return std::min(most, range->begin - position);
  }
  return most;
}

}  // namespace

SpecialTokens::SpecialTokens(std::vector<Candidate> candidates) : starts_(256, false) {
  std::erase_if(candidates, [](const Candidate& c) { return c.text.empty(); });
  for (const Candidate& c : candidates) {
    if (c.text.size() > kMaxBytes) {
      throw FormatError(fmt::format("special token {} is {} bytes long; at most {} are supported",
                                    c.id, c.text.size(), kMaxBytes));
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.text != b.text ? a.text < b.text : a.id < b.id;
  });
  // Nodes are made breadth first, so that the edges of a node lie together.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, candidates.size(), 0}};
  nodes_.emplace_back();
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    max_bytes_ = std::max(max_bytes_, depth);
    for (; begin < end && candidates[begin].text.size() == depth; ++begin) {
      const Candidate& c = candidates[begin];
      if (nodes_[node].trusted_id < 0) nodes_[node].trusted_id = c.id;
      if (c.always && nodes_[node].always_id < 0) nodes_[node].always_id = c.id;
    }
    nodes_[node].first_edge = static_cast<uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = candidates[begin].text[depth];
      size_t stop = begin;
      while (stop < end && candidates[stop].text[depth] == byte)
        ++stop;
      edges_.push_back({static_cast<uint8_t>(byte), static_cast<uint32_t>(nodes_.size())});
      ++nodes_[node].n_edges;
      nodes_.emplace_back();
      ranges.push_back({begin, stop, depth + 1});
      if (depth == 0) starts_[static_cast<uint8_t>(byte)] = true;
      begin = stop;
    }
  }
}

SpecialTokens::Match SpecialTokens::longest(std::string_view text, size_t position, size_t limit,
                                            size_t trusted_limit) const {
  Match best;
  const Node* node = &nodes_[0];
  limit = std::min(limit, text.size() - position);
  for (size_t n = 0; n < limit;) {
    const auto byte = static_cast<uint8_t>(text[position + n]);
    const auto begin = edges_.begin() + node->first_edge;
    const auto end = begin + node->n_edges;
    const auto edge = node->n_edges <= 4
                          ? std::find_if(begin, end, [&](const Edge& e) { return e.byte == byte; })
                          : std::lower_bound(begin, end, byte,
                                             [](const Edge& e, uint8_t b) { return e.byte < b; });
    if (edge == end || edge->byte != byte) break;
    node = &nodes_[edge->node];
    ++n;
    const TokenId id = n <= trusted_limit ? node->trusted_id : node->always_id;
    if (id >= 0) best = {static_cast<uint32_t>(n), id};
  }
  return best;
}

std::vector<TextFragment> SpecialTokens::partition(std::string_view text, bool parse_special,
                                                   std::span<const ByteRange> untrusted) const {
  struct Found {
    TokenId id;
    uint32_t position;
  };
  const auto trusted_limit = [&](size_t position) {
    return parse_special ? trusted_bytes(untrusted, position, max_bytes_) : size_t{0};
  };
  std::vector<std::vector<Found>> by_length(max_bytes_ + 1);
  bool any = false;
  for (size_t p = 0; p < text.size(); ++p) {
    if (!starts_[static_cast<uint8_t>(text[p])]) continue;
    const Match match = longest(text, p, max_bytes_, trusted_limit(p));
    if (match.id < 0) continue;
    by_length[match.length].push_back({match.id, static_cast<uint32_t>(p)});
    any = true;
  }
  std::vector<TextFragment> fragments;
  if (!any) {
    if (!text.empty()) fragments.push_back({0, text.size(), -1});
    return fragments;
  }

  std::vector<bool> taken(text.size(), false);
  for (size_t length = max_bytes_; length > 0; --length) {
    std::vector<Found>& found = by_length[length];
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
      return a.id != b.id ? a.id < b.id : a.position < b.position;
    });
    for (const Found& f : found) {
      // Everything taken so far is at least `length` long, so an overlap shows at one of the ends.
      if (taken[f.position]) continue;
      if (!taken[f.position + length - 1]) {
        fragments.push_back({f.position, f.position + length, f.id});
        std::fill_n(taken.begin() + f.position, length, true);
        continue;
      }
      size_t free = 1;
      while (!taken[f.position + free])
        ++free;
      const Match match = longest(text, f.position, free, trusted_limit(f.position));
      if (match.id >= 0) by_length[match.length].push_back({match.id, f.position});
    }
    found = {};
  }
  std::sort(fragments.begin(), fragments.end(),
            [](const TextFragment& a, const TextFragment& b) { return a.begin < b.begin; });
  std::vector<TextFragment> all;
  all.reserve(fragments.size() * 2 + 1);
  size_t at = 0;
  for (const TextFragment& f : fragments) {
    if (f.begin > at) all.push_back({at, f.begin, -1});
    all.push_back(f);
    at = f.end;
  }
  if (at < text.size()) all.push_back({at, text.size(), -1});
  return all;
}

}  // namespace ts
