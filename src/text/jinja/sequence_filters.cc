// Filters of sequences and dicts. Those that give a generator in Jinja give a list here.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/quote_text.h"
#include "text/jinja/filters.h"
#include "text/jinja/string_operations.h"

namespace ts::jinja {
namespace {

using In = Interpreter&;

/// What an item is sorted or compared by: an attribute, in lower case unless case matters.
Value key_of(In in, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = attribute && !attribute->is(Kind::kNone) ? dotted(in, item, *attribute) : item;
  if (!case_sensitive && key.is(Kind::kString))
    return in.string(map_case(in, key.text(), CaseMap::kLower));
  return key;
}

Value length_filter(In in, const Value& v, Arguments& args) {
  bind(in, "length", args, {});
  return Value::integer(in.length(v));
}

Value default_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "default", args, {"default_value", "boolean"});
  if (v.is(Kind::kUndefined) || (flag(in, a[1], false) && !in.truthy(v)))
    return a[0] ? *a[0] : in.string(Text());
  return v;
}

Value first_filter(In in, const Value& v, Arguments& args) {
  bind(in, "first", args, {});
  const std::vector<Value> items = in.iterate(v);
  return items.empty() ? in.undefined("the sequence has no first item") : items.front();
}

Value last_filter(In in, const Value& v, Arguments& args) {
  bind(in, "last", args, {});
  const std::vector<Value> items = in.iterate(v);
  return items.empty() ? in.undefined("the sequence has no last item") : items.back();
}

Value list_filter(In in, const Value& v, Arguments& args) {
  bind(in, "list", args, {});
  return in.list(in.iterate(v));
}

Value items_filter(In in, const Value& v, Arguments& args) {
  bind(in, "items", args, {});
  if (v.is(Kind::kUndefined)) return in.list({});
  if (!v.is(Kind::kDict)) in.fail(fmt::format("items: expected a dict, found {}", type_name(v)));
  return find_method(Kind::kDict, "items")(in, v, args);
}

Value reverse_filter(In in, const Value& v, Arguments& args) {
  bind(in, "reverse", args, {});
  std::vector<Value> items = in.iterate(v);
  std::reverse(items.begin(), items.end());
  if (v.is(Kind::kString)) return in.string(join(in, Text(), items));
  return in.list(std::move(items));
}

Value sort_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "sort", args, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = flag(in, a[1], false);
  std::vector<std::pair<std::vector<Value>, Value>> keyed;
  // "a,b" sorts by several attributes.
  std::vector<Value> attributes;
  if (a[2] && a[2]->is(Kind::kString)) {
    const Text comma(",");
    for (Text& part : split(in, a[2]->text(), &comma, -1, false))
      attributes.push_back(in.string(std::move(part)));
  } else if (a[2] && !a[2]->is(Kind::kNone)) {
    attributes.push_back(*a[2]);
  }
  for (const Value& item : in.iterate(v)) {
    std::vector<Value> key;
    if (attributes.empty()) key.push_back(key_of(in, item, nullptr, case_sensitive));
    for (const Value& attribute : attributes)
      key.push_back(key_of(in, item, &attribute, case_sensitive));
    keyed.emplace_back(std::move(key), item);
  }
  const auto less = [&](const auto& x, const auto& y) {
    for (size_t i = 0; i < x.first.size(); ++i)
      if (!in.equal(x.first[i], y.first[i])) return in.less(x.first[i], y.first[i]);
    return false;
  };
  if (flag(in, a[0], false))
    std::stable_sort(keyed.begin(), keyed.end(),
                     [&](const auto& x, const auto& y) { return less(y, x); });
  else
    std::stable_sort(keyed.begin(), keyed.end(), less);
  std::vector<Value> items;
  for (auto& [key, item] : keyed)
    items.push_back(std::move(item));
  return in.list(std::move(items));
}

Value dictsort_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "dictsort", args, {"case_sensitive", "by", "reverse"});
  if (!v.is(Kind::kDict)) in.fail(fmt::format("dictsort: expected a dict, found {}", type_name(v)));
  const std::string_view by = a[1] ? text_argument(in, *a[1], "by").view() : "key";
  if (by != "key" && by != "value") in.fail("dictsort: 'by' must be 'key' or 'value'");
  Arguments none, sort_args;
  sort_args.named = {{"attribute", Value::integer(by == "key" ? 0 : 1)},
                     {"case_sensitive", Value::boolean(flag(in, a[0], false))},
                     {"reverse", Value::boolean(flag(in, a[2], false))}};
  return sort_filter(in, find_method(Kind::kDict, "items")(in, v, none), sort_args);
}

template <bool kMax>
Value extreme_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, kMax ? "max" : "min", args, {"case_sensitive", "attribute"});
  const bool case_sensitive = flag(in, a[0], false);
  const std::vector<Value> items = in.iterate(v);
  if (items.empty()) return in.undefined("the sequence is empty");
  Value best = items[0], best_key = key_of(in, items[0], a[1], case_sensitive);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(in, items[i], a[1], case_sensitive);
    if (kMax ? in.less(best_key, key) : in.less(key, best_key)) {
      best = items[i];
      best_key = std::move(key);
    }
  }
  return best;
}

Value unique_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "unique", args, {"case_sensitive", "attribute"});
  const bool case_sensitive = flag(in, a[0], false);
  std::vector<Value> kept, keys;
  for (const Value& item : in.iterate(v)) {
    Value key = key_of(in, item, a[1], case_sensitive);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return in.equal(k, key); }))
      continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return in.list(std::move(kept));
}

Value groupby_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = flag(in, a[2], false);
  const auto key_for = [&](const Value& item) {
    Value key = dotted(in, item, *a[0]);
    return key.is(Kind::kUndefined) && a[1] ? *a[1] : key;
  };
  std::vector<std::pair<Value, Value>> keyed;  // folded key, item
  for (const Value& item : in.iterate(v))
    keyed.emplace_back(key_of(in, key_for(item), nullptr, case_sensitive), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) {
    return !in.equal(x.first, y.first) && in.less(x.first, y.first);
  });
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const size_t begin = i;
    for (; i < keyed.size() && in.equal(keyed[i].first, keyed[begin].first); ++i)
      members.push_back(keyed[i].second);
    groups.push_back(in.tuple({key_for(keyed[begin].second), in.list(std::move(members))}));
    if (i == begin) ++i;  // a NaN equals nothing
  }
  return in.list(std::move(groups));
}

/// Like Jinja, these take whatever is false (none, 0) for an empty sequence.
std::vector<Value> items_or_none(In in, const Value& v) {
  return in.truthy(v) ? in.iterate(v) : std::vector<Value>();
}

Value map_filter(In in, const Value& v, Arguments& args) {
  std::vector<Value> result;
  if (args.positional.empty()) {
    const auto a = bind(in, "map", args, {"attribute", "default"}, 1);
    for (const Value& item : items_or_none(in, v)) {
      Value value = dotted(in, item, *a[0]);
      if (value.is(Kind::kUndefined) && a[1]) value = *a[1];
      result.push_back(std::move(value));
    }
    return in.list(std::move(result));
  }
  const std::string name = text_argument(in, args.positional[0], "filter").bytes();
  for (const Value& item : items_or_none(in, v)) {
    in.charge(1);
    Arguments rest = args;
    rest.positional.erase(rest.positional.begin());
    result.push_back(in.filter(name, item, rest));
  }
  return in.list(std::move(result));
}

template <bool kKeep, bool kAttribute>
Value select_filter(In in, const Value& v, Arguments& args) {
  size_t used = 0;
  Value attribute;
  if (kAttribute) {
    if (args.positional.empty()) in.fail("the filter needs the name of an attribute");
    attribute = args.positional[used++];
  }
  std::string test;
  if (args.positional.size() > used)
    test = text_argument(in, args.positional[used++], "test").bytes();
  Arguments rest;
  rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(used),
                         args.positional.end());
  rest.named = args.named;
  std::vector<Value> kept;
  for (const Value& item : items_or_none(in, v)) {
    const Value value = kAttribute ? dotted(in, item, attribute) : item;
    if ((test.empty() ? in.truthy(value) : in.test(test, value, rest)) == kKeep)
      kept.push_back(item);
  }
  return in.list(std::move(kept));
}

Value batch_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "batch", args, {"linecount", "fill_with"}, 1);
  const int64_t n = int_argument(in, a[0], 1, "linecount");
  if (n < 1) in.fail("batch: the size must be at least 1");
  std::vector<Value> batches, batch;
  for (const Value& item : in.iterate(v)) {
    if (static_cast<int64_t>(batch.size()) == n)
      batches.push_back(in.list(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (a[1] && !a[1]->is(Kind::kNone)) {
      in.budget().reserve(static_cast<size_t>(std::min<int64_t>(n, INT64_MAX / 64)) *
                          sizeof(Value));
      while (static_cast<int64_t>(batch.size()) < n) {
        in.charge(1);
        batch.push_back(*a[1]);
      }
    }
    batches.push_back(in.list(std::move(batch)));
  }
  return in.list(std::move(batches));
}

Value attr_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "attr", args, {"name"}, 1);
  return in.attribute(v, text_argument(in, *a[0], "name").view());
}

}  // namespace

const FilterTable& sequence_filters() {
  static const FilterTable filters = {
      {"attr", attr_filter},
      {"batch", batch_filter},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dictsort_filter},
      {"first", first_filter},
      {"groupby", groupby_filter},
      {"items", items_filter},
      {"last", last_filter},
      {"length", length_filter},
      {"list", list_filter},
      {"map", map_filter},
      {"max", extreme_filter<true>},
      {"min", extreme_filter<false>},
      {"reject", select_filter<false, false>},
      {"rejectattr", select_filter<false, true>},
      {"reverse", reverse_filter},
      {"select", select_filter<true, false>},
      {"selectattr", select_filter<true, true>},
      {"sort", sort_filter},
      {"unique", unique_filter},
  };
  return filters;
}

}  // namespace ts::jinja
