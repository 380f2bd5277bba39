#include "text/jinja/string_operations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "base/quote_text.h"

namespace ts::jinja {

Text map_case(Interpreter& in, const Text& text, CaseMap map) {
  in.charge_bytes(8 * text.size());
  in.budget().reserve(2 * text.heap_bytes());
  Text out;
  OriginCursor origin(text);
  const std::string_view s = text.view();
  bool word_start = true;
  std::string piece;
  for (size_t p = 0; p < s.size();) {
    const size_t begin = p;
    const char32_t c = next_char(s, p);
    char32_t mapped = c;
    bool upper = false;
    switch (map) {
      case CaseMap::kUpper:
        upper = true;
        break;
      case CaseMap::kLower:
        break;
      case CaseMap::kSwap:
        upper = is_lower(c);
        break;
      case CaseMap::kCapitalize:
      case CaseMap::kTitle:
      case CaseMap::kJinjaTitle:
        upper = word_start;
        break;
    }
    piece.clear();
    if (upper && c == U'\u00DF') {
      piece = map == CaseMap::kUpper || map == CaseMap::kSwap || map == CaseMap::kJinjaTitle ? "SS"
                                                                                             : "Ss";
    } else {
      if (upper)
        mapped = map == CaseMap::kCapitalize || map == CaseMap::kTitle ? to_title(c) : to_upper(c);
      else if (map != CaseMap::kSwap || is_upper(c))
        mapped = to_lower(c);
      append_utf8(piece, mapped);
    }
    switch (map) {
      case CaseMap::kCapitalize:
        word_start = false;
        break;
      case CaseMap::kTitle:
        word_start = !(is_upper(c) || is_lower(c) || to_title(c) != c);
        break;
      case CaseMap::kJinjaTitle:
        word_start = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
        break;
      default:
        break;
    }
    out.append(piece, origin.untrusted(begin));
  }
  return out;
}

std::vector<Text> split(Interpreter& in, const Text& text, const Text* separator,
                        int64_t max_splits, bool from_right) {
  const std::string_view s = text.view();
  in.charge_bytes(4 * s.size());
  std::vector<ByteRange> parts;
  const auto add = [&](size_t begin, size_t end) {
    in.charge(2);
    parts.push_back({begin, end});
  };
  const auto may_split = [&] {
    return max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits;
  };
  if (separator) {
    const std::string_view sep = separator->view();
    if (sep.empty()) in.fail("split(): the separator is empty");
    if (!from_right) {
      size_t begin = 0;
      while (may_split()) {
        const size_t hit = find_bytes(s, sep, begin);
        if (hit == std::string_view::npos) break;
        add(begin, hit);
        begin = hit + sep.size();
      }
      add(begin, s.size());
    } else {
      // Occurrences that do not overlap, taken from the end.
      size_t end = s.size();
      while (may_split() && end >= sep.size()) {
        size_t hit = std::string_view::npos;
        for (size_t i = end - sep.size() + 1; i-- > 0;) {
          if (s[i] == sep[0] && s.substr(i, sep.size()) == sep) {
            hit = i;
            break;
          }
        }
        in.charge_bytes((end - (hit == std::string_view::npos ? 0 : hit)) * sep.size());
        if (hit == std::string_view::npos) break;
        add(hit + sep.size(), end);
        end = hit;
      }
      add(0, end);
      std::reverse(parts.begin(), parts.end());
    }
  } else if (!from_right) {
    size_t begin = strip_range(s, nullptr, true, false).begin;
    while (begin < s.size()) {
      if (!may_split()) {
        add(begin, s.size());
        break;
      }
      size_t end = begin;
      for (size_t next = end; end < s.size(); end = next)
        if (is_space(next_char(s, next))) break;
      add(begin, end);
      begin = end + strip_range(s.substr(end), nullptr, true, false).begin;
    }
  } else {
    size_t end = strip_range(s, nullptr, false, true).end;
    while (end > 0) {
      if (!may_split()) {
        add(0, end);
        break;
      }
      size_t begin = end;
      while (begin > 0) {
        size_t last = begin - 1;
        while (last > 0 && (static_cast<unsigned char>(s[last]) & 0xC0) == 0x80)
          --last;
        size_t p = last;
        if (is_space(next_char(s, p))) break;
        begin = last;
      }
      add(begin, end);
      end = strip_range(s.substr(0, begin), nullptr, false, true).end;
    }
    std::reverse(parts.begin(), parts.end());
  }
  in.budget().reserve(parts.size() * (sizeof(Text) + Object::kOverhead) + text.heap_bytes());
  std::vector<Text> result;
  result.reserve(parts.size());
  for (const ByteRange& part : parts) {
    in.charge(text.untrusted().size() / 16);
    result.push_back(text.substr(part.begin, part.end));
  }
  return result;
}

std::vector<Text> split_lines(Interpreter& in, const Text& text, bool keep_ends) {
  const std::string_view s = text.view();
  in.charge_bytes(8 * s.size());
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t p = 0; p < s.size();) {
    const size_t end = p;
    const char32_t c = next_char(s, p);
    const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                        c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == '\r' && p < s.size() && s[p] == '\n') ++p;
    in.charge(2 + text.untrusted().size() / 16);
    in.budget().reserve((lines.size() + 1) * (sizeof(Text) + Object::kOverhead));
    lines.push_back(text.substr(begin, keep_ends ? p : end));
    begin = p;
  }
  if (begin < s.size()) lines.push_back(text.substr(begin, s.size()));
  return lines;
}

Text replace(Interpreter& in, const Text& text, const Text& from, const Text& to, int64_t count) {
  const std::string_view s = text.view();
  in.charge_bytes(4 * s.size());
  Text out;
  size_t begin = 0;
  const auto copy = [&](size_t end) {
    in.charge(1 + text.untrusted().size() / 16);
    out.append(text, begin, end);
    begin = end;
  };
  const auto put = [&] {
    in.charge_bytes(32 + to.heap_bytes());
    in.budget().reserve(out.heap_bytes() + to.heap_bytes());
    out.append(to);
    if (count > 0) --count;
  };
  if (from.empty()) {
    // Before every character and at the end.
    for (size_t p = 0; count != 0; next_char(s, p)) {
      copy(p);
      put();
      if (p >= s.size()) break;
    }
  } else {
    while (count != 0) {
      const size_t hit = find_bytes(s, from.view(), begin);
      if (hit == std::string_view::npos) break;
      copy(hit);
      put();
      begin = hit + from.size();
    }
  }
  copy(s.size());
  return out;
}

Text join(Interpreter& in, const Text& separator, const std::vector<Value>& items) {
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(separator);
    const Text piece = in.to_text(items[i]);
    in.charge_bytes(32 + piece.heap_bytes() + separator.heap_bytes());
    in.budget().reserve(out.heap_bytes() + piece.heap_bytes());
    out.append(piece);
  }
  return out;
}

Text strip(Interpreter& in, const Text& text, const Text* set, bool left, bool right) {
  in.charge_bytes(2 * text.size());
  const std::string_view chars = set ? set->view() : std::string_view();
  if (set) in.charge_bytes(set->size() * std::min<size_t>(text.size(), 64));
  const ByteRange kept = strip_range(text.view(), set ? &chars : nullptr, left, right);
  if (set) in.charge_bytes(set->size() * (text.size() - (kept.end - kept.begin)));
  return text.substr(kept.begin, kept.end);
}

Text pad(Interpreter& in, const Text& text, int64_t width, char align, std::string_view fill) {
  const auto size = static_cast<int64_t>(count_chars(text.view()));
  if (width <= size) return text;
  const auto missing = static_cast<size_t>(width - size);
  in.budget().reserve(missing);
  in.budget().reserve(missing * fill.size() + text.heap_bytes());
  in.charge_bytes(missing * 8 + text.size());
  // As CPython centres: the odd character goes left when the width is odd.
  const size_t left = align == '<'   ? 0
                      : align == '>' ? missing
                                     : missing / 2 + (missing & static_cast<size_t>(width) & 1);
  Text out;
  for (size_t i = 0; i < left; ++i)
    out.append(fill, false);
  out.append(text);
  for (size_t i = left; i < missing; ++i)
    out.append(fill, false);
  return out;
}

Text indent(Interpreter& in, const Text& text, const Text& indentation, bool first, bool blank) {
  // Jinja appends a newline before splitting, so that the last line is kept even when empty.
  Text source = text;
  source.append("\n", false);
  const std::vector<Text> lines = split_lines(in, source, false);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    in.charge_bytes(32 + indentation.size() + lines[i].size());
    in.budget().reserve(out.heap_bytes() + indentation.heap_bytes() + lines[i].heap_bytes());
    if (i > 0) out.append("\n", false);
    if (i == 0 ? first : blank || !lines[i].empty()) out.append(indentation);
    out.append(lines[i]);
  }
  return out;
}

Text brace_format(Interpreter& in, const Text& format, const Arguments& args) {
  const std::string_view s = format.view();
  in.charge_bytes(4 * s.size());
  Text out;
  size_t next_index = 0;
  for (size_t p = 0; p < s.size();) {
    const char c = s[p];
    if (c != '{' && c != '}') {
      const size_t end = std::min(s.find_first_of("{}", p), s.size());
      out.append(format, p, end);
      p = end;
      continue;
    }
    if (p + 1 < s.size() && s[p + 1] == c) {
      out.append(format, p, p + 1);
      p += 2;
      continue;
    }
    const size_t close = c == '{' ? s.find('}', p) : std::string_view::npos;
    if (close == std::string_view::npos) in.fail("format(): a single brace; write {{ or }}");
    const std::string_view field = s.substr(p + 1, close - p - 1);
    if (field.find_first_of(".[!:{") != std::string_view::npos)
      in.fail(fmt::format("format(): the field {} is not supported; only {{}}, {{0}} and {{name}}",
                          quote_text(field, 40)));
    const Value* value = nullptr;
    if (field.empty() ||
        (field.size() < 4 && field.find_first_not_of("0123456789") == field.npos)) {
      const size_t i = field.empty() ? next_index++ : std::stoul(std::string(field));
      if (i < args.positional.size()) value = &args.positional[i];
    } else {
      for (const auto& [name, v] : args.named)
        if (name == field) value = &v;
    }
    if (!value)
      in.fail(fmt::format("format(): no argument for the field {}", quote_text(field, 40)));
    const Text piece = in.to_text(*value);
    in.charge_bytes(32 + piece.heap_bytes());
    in.budget().reserve(out.heap_bytes() + piece.heap_bytes());
    out.append(piece);
    p = close + 1;
  }
  return out;
}

Text percent_format(Interpreter& in, const Text& format, const Value& values) {
  const std::string_view s = format.view();
  in.charge_bytes(4 * s.size());
  const bool many = values.is(Kind::kTuple);
  size_t used = 0;
  const auto next = [&]() -> const Value& {
    if (used >= (many ? values.list().items.size() : 1)) in.fail("% format: not enough arguments");
    return many ? values.list().items[used++] : (++used, values);
  };
  Text out;
  for (size_t p = 0; p < s.size();) {
    if (s[p] != '%') {
      const size_t end = std::min(s.find('%', p), s.size());
      out.append(format, p, end);
      p = end;
      continue;
    }
    ++p;
    const Value* named = nullptr;
    if (p < s.size() && s[p] == '(') {
      const size_t close = s.find(')', p);
      if (close == s.npos || !values.is(Kind::kDict))
        in.fail("% format: %(name) needs a closing parenthesis and a dict");
      const std::string_view key = s.substr(p + 1, close - p - 1);
      named = values.dict().find(key);
      if (!named) in.fail(fmt::format("% format: no value for {}", quote_text(key, 40)));
      p = close + 1;
      used = 1;
    }
    bool left = false, zero = false, plus = false;
    for (; p < s.size() && (s[p] == '-' || s[p] == '0' || s[p] == '+'); ++p)
      (s[p] == '-' ? left : s[p] == '0' ? zero : plus) = true;
    const auto number = [&](int64_t fallback) {
      if (p >= s.size() || s[p] < '0' || s[p] > '9') return fallback;
      int64_t n = 0;
      for (; p < s.size() && s[p] >= '0' && s[p] <= '9'; ++p) {
        n = n * 10 + (s[p] - '0');
        if (n > 100'000) in.fail("% format: the width or precision is over 100000");
      }
      return n;
    };
    const int64_t width = number(0);
    int64_t precision = -1;
    if (p < s.size() && s[p] == '.') {
      ++p;
      precision = number(0);
    }
    if (p >= s.size()) in.fail("% format: incomplete format");
    const char type = s[p++];
    Text piece;
    if (type == '%') {
      piece = Text("%");
    } else {
      const Value& v = named ? *named : next();
      in.require_defined(v);
      if (type == 's' || type == 'r') {
        if (type == 's')
          piece = in.to_text(v);
        else
          in.repr(piece, v);
        if (precision >= 0)
          piece = piece.substr(0, char_offset(piece.view(), static_cast<size_t>(precision)));
        zero = false;
      } else if (std::string_view("dixXofFeEgG").find(type) != std::string_view::npos) {
        if (!v.is_number())
          in.fail(fmt::format("% format: %{} needs a number, found {}", type, type_name(v)));
        const bool floating = std::string_view("fFeEgG").find(type) != std::string_view::npos;
        if (!floating && v.is(Kind::kFloat) && !(std::abs(v.as_double()) < 9e18))
          in.fail("% format: the number does not fit into an integer");
        const int64_t i = v.is(Kind::kFloat) ? static_cast<int64_t>(v.as_double()) : v.as_int();
        std::string digits;
        if (floating) {
          std::string buffer(512 + static_cast<size_t>(std::max<int64_t>(precision, 0)), '\0');
          const char spec[] = {'%', '.', '*', type, 0};
          const int n =
              std::snprintf(buffer.data(), buffer.size(), spec,
                            precision < 0 ? 6 : static_cast<int>(precision), v.as_double());
          digits = buffer.substr(0, static_cast<size_t>(n));
        } else {
          const uint64_t magnitude =
              i < 0 ? 0 - static_cast<uint64_t>(i) : static_cast<uint64_t>(i);
          digits = type == 'x'   ? fmt::format("{:x}", magnitude)
                   : type == 'X' ? fmt::format("{:X}", magnitude)
                   : type == 'o' ? fmt::format("{:o}", magnitude)
                                 : std::to_string(magnitude);
          if (precision > static_cast<int64_t>(digits.size()))
            digits.insert(0, static_cast<size_t>(precision) - digits.size(), '0');
          if (i < 0) digits.insert(0, "-");
        }
        if (plus && digits[0] != '-') digits.insert(0, "+");
        if (zero && !left && static_cast<int64_t>(digits.size()) < width) {
          const size_t sign = digits[0] == '-' || digits[0] == '+' ? 1 : 0;
          digits.insert(sign, static_cast<size_t>(width) - digits.size(), '0');
        }
        piece = Text(digits);
      } else {
        in.fail(fmt::format("% format: unknown type {}", quote_text(std::string_view(&type, 1))));
      }
    }
    piece = pad(in, piece, width, left ? '<' : '>', " ");
    in.charge_bytes(32 + piece.heap_bytes());
    in.budget().reserve(out.heap_bytes() + piece.heap_bytes());
    out.append(piece);
  }
  if (used < (many                                               ? values.list().items.size()
              : values.is(Kind::kDict) || values.is(Kind::kList) ? 0
                                                                 : 1))
    in.fail("% format: not all arguments were used");
  return out;
}

}  // namespace ts::jinja
