// How conversations are adapted to templates.
#include <ctime>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "text/chat_template.h"

namespace ts {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::shared_ptr<const ChatTemplate> load(const std::string& name) {
  std::ifstream in(std::string(TS_TESTDATA_DIR) + "/jinja/templates/" + name + ".jinja");
  EXPECT_TRUE(in.good()) << name;
  return ChatTemplate::parse({std::istreambuf_iterator<char>(in), {}});
}

ChatRequest chat(const std::string& messages, const std::string& tools = "null") {
  ChatRequest request;
  request.messages = Json::parse(messages);
  request.tools = Json::parse(tools);
  return request;
}

size_t count(const std::string& text, const std::string& wanted) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(wanted, at)) != std::string::npos; ++at)
    ++n;
  return n;
}

template <typename F>
std::string invalid(F f) {
  try {
    f();
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "accepted";
}

constexpr const char* kTools = R"([{"type":"function","function":{"name":"f","parameters":{}}}])";

TEST(Render, EverySystemTextAppearsOnceWhereverItStands) {
  const std::vector<std::string> conversations = {
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},
          {"role":"system","content":"SYS-1"},{"role":"user","content":"c"}])",
      R"([{"role":"system","content":"SYS-1"},{"role":"system","content":"SYS-2"},
          {"role":"user","content":"a"}])",
      R"([{"role":"developer","content":"SYS-1"},{"role":"user","content":"a"}])",
      R"([{"role":"system","content":"SYS-1"},{"role":"user","content":"a"},
          {"role":"assistant","content":"b"},{"role":"developer","content":"SYS-2"},
          {"role":"user","content":"c"}])"};
  for (const char* name : {"agent", "headers", "qwen3", "smollm2", "turns"}) {
    const auto t = load(name);
    for (const std::string& messages : conversations) {
      for (const char* tools : {"null", kTools}) {
        const std::string text = t->render(chat(messages, tools)).text;
        for (const char* wanted : {"SYS-1", "SYS-2"})
          EXPECT_EQ(count(text, wanted), messages.find(wanted) == std::string::npos ? 0u : 1u)
              << name << " " << messages << "\n"
              << text;
      }
    }
  }
}

TEST(Render, MessageOrderIsKeptWhenSystemTextsAreMerged) {
  const std::string text =
      load("turns")
          ->render(chat(R"([{"role":"user","content":"one"},{"role":"assistant","content":"two"},
        {"role":"system","content":"SYS"},{"role":"user","content":"three"}])"))
          .text;
  EXPECT_EQ(text,
            "<start_of_turn>user\nSYS\n\none<end_of_turn>\n<start_of_turn>model\ntwo<end_of_turn>\n"
            "<start_of_turn>user\nthree<end_of_turn>\n<start_of_turn>model\n");
}

TEST(Render, RefusalsOfTheTemplateReachTheCaller) {
  EXPECT_THAT(invalid([] {
                load("turns")->render(
                    chat(R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])"));
              }),
              HasSubstr("user and assistant must take turns"));
}

std::string with_arguments(const std::string& arguments) {
  return R"([{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[
    {"id":"1","type":"function","function":{"name":"f","arguments":)" +
         arguments + R"(}}]},{"role":"tool","content":"r","tool_call_id":"1"}])";
}

TEST(Render, ToolArgumentsAsTextAndAsObjectAreTheSame) {
  for (const char* name : {"agent", "headers", "qwen3"}) {
    const auto t = load(name);
    const std::string object = t->render(chat(with_arguments(R"({"a":1,"b":"x"})"))).text;
    EXPECT_THAT(object, HasSubstr("b")) << name;
    EXPECT_EQ(t->render(chat(with_arguments(R"("{\"a\":1,\"b\":\"x\"}")"))).text, object) << name;
    const std::string empty = t->render(chat(with_arguments("{}"))).text;
    for (const char* same : {R"("")", R"("  ")", R"("{}")", "null"})
      EXPECT_EQ(t->render(chat(with_arguments(same))).text, empty) << name << same;
    for (const char* bad : {R"("abc")", R"("[1]")", R"("1")", "5", "[1]", "true", R"("{\"a\":")"})
      EXPECT_THAT(invalid([&] { t->render(chat(with_arguments(bad))); }),
                  HasSubstr("messages[1].tool_calls[0].function.arguments"))
          << name << bad;
  }
  const std::string deep = std::string(100'000, '[');
  EXPECT_THROW(load("agent")->render(chat(with_arguments('"' + deep + '"'))), InvalidArgument);
}

TEST(Render, TemplatesThatWantArgumentsAsTextGetText) {
  const auto t = ChatTemplate::parse(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
      "{{ '[' + c.function.arguments + ']' }}{% endfor %}{% endfor %}");
  EXPECT_EQ(t->render(chat(with_arguments(R"({"a": 1})"))).text, "q[{\"a\":1}]r");
}

TEST(Render, ContentPartsAndNull) {
  const std::string parts =
      R"([{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}])";
  EXPECT_THAT(load("smollm2")->render(chat(parts)).text, HasSubstr("user\none\ntwo<|im_end|>"));
  EXPECT_THAT(load("turns")->render(chat(parts)).text, HasSubstr("user\nonetwo<end_of_turn>"));
  EXPECT_THAT(
      invalid([] {
        load("smollm2")->render(
            chat(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"));
      }),
      HasSubstr("messages[0].content[0].type: found 'image_url'"));
  const auto only_parts = ChatTemplate::parse(
      "{% for m in messages %}{% for content in m['content'] %}{% if content['type'] == 'text' %}"
      "{{ content['text'] }}{% endif %}{% endfor %}{% endfor %}");
  EXPECT_EQ(only_parts->render(chat(R"([{"role":"user","content":"plain"}])")).text, "plain");
  for (const char* empty :
       {R"([{"role":"assistant","content":null}])", R"([{"role":"assistant"}])"})
    EXPECT_THAT(load("smollm2")->render(chat(empty)).text, HasSubstr("assistant\n<|im_end|>"))
        << empty;
  const auto asks_for_none = ChatTemplate::parse(
      "{% for m in messages %}{% if m.content is none %}no text{% endif %}{% endfor %}");
  EXPECT_EQ(asks_for_none->render(chat(R"([{"role":"assistant","content":null}])")).text,
            "no text");
}

TEST(Render, ThinkingSwitches) {
  const auto messages = R"([{"role":"user","content":"q"}])";
  ChatRequest off = chat(messages);
  off.extra = {{"enable_thinking", false}};
  for (const char* name : {"agent", "qwen3"})
    EXPECT_TRUE(load(name)->render(off).text.ends_with("<think>\n\n</think>\n\n")) << name;
  EXPECT_TRUE(load("agent")->render(chat(messages)).text.ends_with("<think>\n"));
  ChatRequest effort = chat(messages);
  for (const auto& [given, shown] : {std::pair{"max", "Think long."},
                                     {"high", "Think long."},
                                     {"minimal", "Think briefly."},
                                     {"low", "Think briefly."}}) {
    effort.extra = {{"reasoning_effort", given}};
    EXPECT_THAT(load("agent")->render(effort).text, HasSubstr(shown)) << given;
  }
  effort.extra = {{"reasoning_effort", "nonsense"}};
  EXPECT_THAT(invalid([&] { load("agent")->render(effort); }),
              HasSubstr("Unknown effort: nonsense"));
}

TEST(Render, BeginTokenIsWrittenOnceByTheTemplate) {
  ChatRequest request = chat(R"([{"role":"user","content":"q"}])");
  request.bos_token = "<bos>";
  EXPECT_EQ(count(load("turns")->render(request).text, "<bos>"), 1u);
  EXPECT_EQ(count(load("qwen3")->render(request).text, "<bos>"), 0u);
}

TEST(Render, BadRequestsNameTheField) {
  const auto t = load("smollm2");
  EXPECT_THAT(invalid([&] { t->render(chat("[]")); }), HasSubstr("messages: the list is empty"));
  EXPECT_THAT(invalid([&] { t->render(chat("{}")); }), HasSubstr("messages: found object"));
  EXPECT_THAT(invalid([&] { t->render(chat("[1]")); }), HasSubstr("messages[0]: found number"));
  EXPECT_THAT(invalid([&] { t->render(chat(R"([{"content":"x"}])")); }),
              HasSubstr("messages[0].role: found nothing"));
  EXPECT_THAT(invalid([&] { t->render(chat(R"([{"role":5,"content":"x"}])")); }),
              HasSubstr("messages[0].role: found number"));
  EXPECT_THAT(invalid([&] { t->render(chat(R"([{"role":"user","content":5}])")); }),
              HasSubstr("messages[0].content: found number"));
  EXPECT_THAT(invalid([&] { t->render(chat(R"([{"role":"user","content":[5]}])")); }),
              HasSubstr("messages[0].content[0]: found number"));
  EXPECT_THAT(invalid([&] { t->render(chat(R"([{"role":"user","content":"x"}])", "5")); }),
              HasSubstr("tools: found number"));
  ChatRequest request = chat(R"([{"role":"user","content":"x"}])");
  request.extra = {{"messages", 1}};
  EXPECT_THAT(invalid([&] { t->render(request); }), HasSubstr("'messages' is set by the request"));
  request.extra = Json::object();
  request.messages[0]["content"] = "bad \xff";
  EXPECT_THAT(invalid([&] { t->render(request); }), HasSubstr("messages[0].content': byte 4"));
}

TEST(Render, DatesAreLocal) {
  const auto t = ChatTemplate::parse("{{ strftime_now('%d %b %Y') }}|{{ strftime_now('') }}|");
  const auto today = [] {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char text[64];
    return std::string(text, std::strftime(text, sizeof text, "%d %b %Y", &local)) + "||";
  };
  const std::string before = today(), got = t->render_raw(Json::object()).text;
  EXPECT_TRUE(got == before || got == today()) << got;
}

TEST(Render, IsRepeatable) {
  const auto t = load("agent");
  const ChatRequest request = chat(with_arguments("{}"), kTools);
  EXPECT_EQ(t->render(request).text, t->render(request).text);
}

}  // namespace
}  // namespace ts
