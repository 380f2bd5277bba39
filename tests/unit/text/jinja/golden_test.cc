// What Jinja2 itself makes of templates and snippets (tools/make_jinja_golden.py).
#include <fstream>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>

#include "text/chat_template.h"

namespace ts {
namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::string& name) {
  std::ifstream in(std::string(TS_TESTDATA_DIR) + "/jinja/" + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

const Json& golden() {
  static const Json json = Json::parse(read_file("golden.json"));
  return json;
}

/// "output: ...", "refusal: ..." or "error: ..." for what a rendering gives.
std::string outcome(const std::string& source, const Json& variables) {
  try {
    return "output: " + ChatTemplate::parse(source)->render_raw(variables).text;
  } catch (const InvalidArgument& e) {
    return std::string("refusal: ") + e.what();
  } catch (const Error& e) {
    return std::string("error: ") + e.what();
  }
}

std::string expected(const Json& c) {
  if (c.contains("output")) return "output: " + c["output"].get<std::string>();
  if (c.contains("refusal"))
    return "refusal: the chat template refuses the request: " + c["refusal"].get<std::string>();
  return "error: " + c["error"].get<std::string>();
}

void check(const Json& c, const std::string& name, const std::string& source,
           const Json& variables) {
  const std::string got = outcome(source, variables);
  if (c.contains("error"))
    EXPECT_TRUE(got.starts_with("error: "))
        << name << "\nexpected " << expected(c) << "\ngot      " << got;
  else
    EXPECT_EQ(got, expected(c)) << name;
}

TEST(JinjaGolden, Templates) {
  ASSERT_GT(golden()["templates"].size(), 150u);
  for (const Json& c : golden()["templates"]) {
    Json variables = {{"messages", golden()["conversations"][c["conversation"].get<std::string>()]},
                      {"add_generation_prompt", true},
                      {"bos_token", "<bos>"},
                      {"eos_token", "<eos>"}};
    variables.update(golden()["options"][c["options"].get<size_t>()]);
    check(c, c["name"], read_file("templates/" + c["template"].get<std::string>() + ".jinja"),
          variables);
  }
}

// Where we differ from Jinja on purpose; docs/chat-templates.md lists the differences.
const std::set<std::string> kDifferent = {
    // "is defined if": Jinja takes "if" for an argument of the test.
    "{{ not n is defined }} {{ n is not defined }} {{ n is defined and t }} {{ n is defined if t "
    "else 0 }}",
    // An attribute of an undefined value is an error, whatever its name.
    "{{ x.__class__ }}|{{ ''.__class__ }}|",
};

TEST(JinjaGolden, Snippets) {
  ASSERT_GT(golden()["snippets"].size(), 300u);
  for (const Json& c : golden()["snippets"]) {
    const std::string source = c["source"];
    if (kDifferent.contains(source)) continue;
    check(c, source, source, golden()["variables"]);
  }
}

}  // namespace
}  // namespace ts
