// Hostile templates: an error or harmless text, quickly and in little memory.
#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <tensorsharp/error.hpp>

#include "text/chat_template.h"

namespace ts {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string render(const std::string& source, const Json& variables = Json::object(),
                   const TemplateLimits& limits = {}) {
  return ChatTemplate::parse(source, limits)->render_raw(variables).text;
}

/// Peak resident memory of the process in bytes.
size_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

std::string repeat(const std::string& s, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i)
    out += s;
  return out;
}

class HostileTemplate : public testing::TestWithParam<std::string> {};

TEST_P(HostileTemplate, StopsWithResourceExhausted) {
  [[maybe_unused]] const size_t memory_before = peak_memory();
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  EXPECT_THROW(render(GetParam()), ResourceExhausted) << GetParam().substr(0, 200);
  getrusage(RUSAGE_SELF, &after);
  const double seconds =
      static_cast<double>(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
      1e-6 * static_cast<double>(after.ru_utime.tv_usec - before.ru_utime.tv_usec);
#if defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(seconds, 60);
#else
  EXPECT_LT(seconds, 2);  // processor time; well under 1 s on the machine this was written on
  EXPECT_LT(peak_memory() - memory_before, size_t{64} << 20);
#endif
}

INSTANTIATE_TEST_SUITE_P(
    Templates, HostileTemplate,
    testing::Values(
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
        "{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
        "{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
        "{% endfor %}{{ ns.s | tojson }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
        "{% endfor %}{{ ns.s == ns.s }}{{ ns.s < ns.s }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(50000) %}{% set ns.s = [ns.s] %}"
        "{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=1) %}{% for i in range(50000) %}{% set ns.s = joiner(ns.s) %}"
        "{% endfor %}{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor "
        "%}",
        "{{ 'x' * 10 ** 12 }}", "{{ [0] * 10 ** 12 }}", "{{ 'x' * 9223372036854775807 }}",
        "{{ ('x' * 1000000) | replace('', 'y' * 1000000) }}",
        "{{ ('x' * 1000000) | replace('x', 'y' * 1000000) }}",
        "{{ (['x' * 1000000] * 1000) | length }}{{ (['x' * 1000000] * 1000) | join }}",
        "{{ 'x'.center(10 ** 11) }}", "{{ 'x' | center(10 ** 11) }}", "{{ 'x'.zfill(10 ** 11) }}",
        "{{ 'x' | indent(10 ** 11) }}", "{{ ('x\\n' * 100000) | indent(100000) }}",
        "{{ [1] | batch(10 ** 12, 0) }}",
        "{% for i in range(100000) %}{{ 'x' * 10000 }}{% endfor %}",
        "{% macro m(n) %}{{ 'x' * 1000000 }}{{ m(n) }}{% endmacro %}{{ m(0) }}",
        "{% set s = 'a' * 3000000 %}{% for i in range(100000) %}{% if 'b' in s %}{% endif %}{% "
        "endfor %}",
        "{% set s = 'é' * 1000000 %}{% for i in range(100000) %}{% if s[-1] == 'b' %}{% endif %}"
        "{% endfor %}",
        "{% for i in range(100000) %}{% set x = range(100000) %}{% endfor %}"));

TEST(TemplateLimits, IntegerOverflowIsAnError) {
  for (const char* source : {"{{ 9223372036854775807 + 1 }}", "{{ 10 ** 19 }}",
                             "{{ 3037000500 * 3037000500 }}", "{{ 0 - 9223372036854775807 - 2 }}",
                             "{{ 9223372036854775808 }}", "{{ '99999999999999999999' | int }}"})
    EXPECT_THROW(render(source), FormatError) << source;
}

TEST(TemplateLimits, DeepSourcesAreRefusedNotOverflowing) {
  for (const char* open :
       {"(", "[", "{% if 1 %}", "{% for x in y %}", "not ", "-", "x[", "f(", "{1: "}) {
    const bool tag = open[0] == '{' && open[1] == '%';
    EXPECT_THROW(render((tag ? "" : "{{ ") + repeat(open, 50'000)), FormatError) << open;
  }
  // Long chains are not deep.
  EXPECT_EQ(render("{{ 0" + repeat(" + 1", 50'000) + " }}"), "50000");
  EXPECT_EQ(
      render("{% if false %}" + repeat("{% elif false %}", 20'000) + "{% else %}x{% endif %}"),
      "x");
  EXPECT_THROW(render("{{ x" + repeat(".y", 100'000) + " }}"), ResourceExhausted);
  EXPECT_THROW(render("{{ x" + repeat(" | upper", 100'000) + " }}"), ResourceExhausted);
}

TEST(TemplateLimits, SizesAreChecked) {
  TemplateLimits limits;
  limits.max_source_bytes = 10;
  EXPECT_THROW(render("0123456789a", {}, limits), ResourceExhausted);
  limits = {};
  limits.max_output_bytes = 5;
  EXPECT_EQ(render("12345", Json::object(), limits), "12345");
  EXPECT_THROW(render("123456", Json::object(), limits), ResourceExhausted);
  limits = {};
  limits.max_steps = 100;
  EXPECT_THROW(render("{% for i in range(99) %}{{ i }}{% endfor %}", Json::object(), limits),
               ResourceExhausted);
}

TEST(TemplateLimits, DeepInputIsAnInvalidArgument) {
  Json deep = 1;
  for (int i = 0; i < 300; ++i)
    deep = Json::array({std::move(deep)});
  EXPECT_THROW(render("x", {{"v", deep}}), InvalidArgument);
}

TEST(TemplateLimits, NoWayOut) {
  for (const char* source :
       {"{% include '/etc/passwd' %}", "{% import 'x' as y %}", "{% from 'x' import y %}",
        "{% extends 'x' %}", "{{ ''.__class__.__mro__ }}", "{{ cycler.__init__.__globals__ }}",
        "{{ raise_exception.__globals__ }}x{{ raise_exception.__globals__.os }}", "{{ lipsum.x }}",
        "{{ self.x }}", "{{ config.x }}", "{{ request.x }}", "{{ ''['__class__']['__base__'] }}",
        "{{ ('' | attr('__class__')).x }}", "{{ '{0.__class__}'.format('') }}"})
    EXPECT_THROW(render(source), FormatError) << source;
  EXPECT_EQ(render("{{ ''.__class__ }}{{ [].__len__ }}{{ {}.__dict__ }}"), "");
}

TEST(TemplateLimits, ValuesCannotHoldThemselves) {
  for (const char* source :
       {"{% set l = [] %}{{ l.append(l) }}", "{% set ns = namespace() %}{% set ns.x = ns %}",
        "{% set a = [] %}{% set b = [a] %}{{ a.append(b) }}",
        "{% set a = [] %}{{ a.append(a.append) }}",
        "{% set ns = namespace() %}{% set ns.x = [{'k': (ns,)}] %}",
        "{% set ns = namespace() %}{% for x in [ns] %}{% set ns.l = loop %}{% endfor %}",
        "{% set ns = namespace() %}{% for x in [1] %}{% set ns.l = loop %}{{ loop.changed(ns) }}"
        "{% endfor %}",
        "{% set ns = namespace() %}{% set ns.j = joiner(ns) %}"})
    EXPECT_THROW(render(source), FormatError) << source;
  EXPECT_EQ(render("{% set a = [1] %}{{ a.append(a[:]) }}{{ a }}"), "None[1, [1]]");
  EXPECT_THROW(render("{{ m.append(1) }}", {{"m", Json::array()}}), FormatError);
}

TEST(TemplateLimits, FunctionsOutliveWhatTheyBelongTo) {
  EXPECT_EQ(render("{% set f = cycler('a', 'b').next %}{{ f() }}{{ f() }}{{ f() }}"), "aba");
  EXPECT_EQ(
      render("{% set ns = namespace() %}{% for x in [1] %}{% macro m() %}<{{ x }}>{% endmacro %}"
             "{% set ns.m = m %}{% endfor %}{{ ns.m() }}"),
      "<>");
  EXPECT_EQ(
      render("{% set ns = namespace() %}{% for x in ['a', 'b'] %}{% set ns.l = loop %}{% endfor %}"
             "{{ ns.l.length }}{{ ns.l.nextitem is defined }}"),
      "2False");
}

TEST(TemplateLimits, ErrorsNameThePlace) {
  try {
    render("line one\n  {{ 'a' + 1 }}");
    FAIL();
  } catch (const FormatError& e) {
    EXPECT_STREQ(e.what(),
                 "chat template, line 2, column 6: '+' does not work between str and int");
  }
}

}  // namespace
}  // namespace ts
