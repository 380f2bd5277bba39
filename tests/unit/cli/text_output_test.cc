#include "cli/text_output.h"

#include <sstream>

#include <gtest/gtest.h>

#include "base/glob.h"
#include "cli/chat.h"
#include "cli/commands/commands.h"
#include "cli/completion.h"

namespace ts::cli {
namespace {

TEST(TextOutput, PrintableKeepsTextAndShowsControls) {
  EXPECT_EQ(printable("caf\xC3\xA9 \xE4\xBD\xA0"), "caf\xC3\xA9 \xE4\xBD\xA0");
  EXPECT_EQ(printable("\x1B[31m\n"), "\\x1b[31m\\x0a");
  EXPECT_EQ(printable("a\nb\tc", true), "a\nb\tc");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\xc2\\x9b31m");  // an 8-bit control sequence
  EXPECT_EQ(printable("\xFF\xC3"), "\\xff\\xc3");
}

TEST(TextOutput, Units) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(98'400'000), "98.4 MB");
  EXPECT_EQ(human_bytes(1'024'000'000), "1.02 GB");
  EXPECT_EQ(human_bytes(UINT64_MAX), "18.4 EB");
  EXPECT_EQ(human_count(134'515'008), "134.5 M");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(1'290'590), "1,290,590");
  EXPECT_EQ(human_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(human_seconds(185), "3 min 05 s");
  EXPECT_EQ(human_seconds(-1), "?");
}

TEST(TextOutput, GlobMatchesWholeNames) {
  EXPECT_TRUE(glob_match("blk.*.ffn_down.weight", "blk.12.ffn_down.weight"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("a?c*", "abcd"));
  EXPECT_FALSE(glob_match("blk.*", "xblk.1"));
  EXPECT_FALSE(glob_match("*.weight", "a.weights"));
  // Patterns that make naive matchers take exponential time.
  EXPECT_FALSE(glob_match("*a*a*a*a*a*a*a*a*a*a*b", std::string(5000, 'a')));
}

TEST(TextOutput, Unescape) {
  EXPECT_EQ(unescape("a\\n\\t\\\\n\\x41", "--stop"), "a\n\t\\nA");
  EXPECT_EQ(unescape("\\q\\", "--stop"), "\\q\\");
  EXPECT_EQ(unescape("<|endoftext|>", "--stop"), "<|endoftext|>");
  for (const char* bad : {"\\x", "\\x4", "a\\xZZ", "\\x4g"})
    EXPECT_THROW(unescape(bad, "--stop"), InvalidArgument) << bad;
}

TEST(TextOutput, TablesAlignByCharacters) {
  EXPECT_EQ(table({{"name", "n"}, {"\xC3\xA9\xC3\xA9", "12"}}, {1}),
            "name   n\n\xC3\xA9\xC3\xA9    12\n");
}

TEST(Help, EveryCommandShowsItsOptionsAndExamplesWithin80Columns) {
  for (const auto& commands : {&tensorsharp_commands, &ts_cli_commands}) {
    for (const auto& command : commands()) {
      OutputOptions output;
      const auto parser = make_parser("tensorsharp", *command, output);
      const std::string help = parser->help();
      EXPECT_NE(help.find("Examples:\n  "), std::string::npos) << help;
      EXPECT_NE(help.find("--json"), std::string::npos);
      EXPECT_NE(help.find("--help"), std::string::npos);
      for (const OptionDescription& option : parser->options())
        EXPECT_FALSE(option.help.empty()) << option.names[0];
      // Descriptions wrap; choices in the left column and examples may be longer.
      std::istringstream lines(help.substr(0, help.find("Examples:")));
      for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("  -")) {
          EXPECT_LE(line.size(), 80u) << line;
        }
      }
    }
  }
}

TEST(Completion, NamesEveryCommandAndOption) {
  const Program program{"tensorsharp", "", tensorsharp_commands()};
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion_script(program, shell);
    for (const auto& command : program.commands) {
      const std::string& name = command->name();
      EXPECT_NE(script.find(name.substr(name.find(' ') + 1)), std::string::npos) << shell << name;
    }
    EXPECT_NE(script.find("avx512_vnni"), std::string::npos) << shell;
    EXPECT_NE(script.find("penalty-window"), std::string::npos) << shell;
  }
  EXPECT_THROW(completion_script(program, "tcsh"), InvalidArgument);
}

TEST(SavedChat, RoundTripAndRefusal) {
  const std::vector<ChatMessage> messages = {{"system", "be brief"},
                                             {"user", "caf\xC3\xA9 \"quoted\"\n"},
                                             {"assistant", "\xF0\x9F\x99\x82"}};
  const auto back = chat_from_json(chat_to_json("m", messages), "chat.json");
  ASSERT_EQ(back.size(), messages.size());
  for (size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(back[i].role, messages[i].role);
    EXPECT_EQ(back[i].content, messages[i].content);
  }
  for (const char* bad :
       {"", "[]", "{}", R"({"format":"tensorsharp.chat","version":2,"messages":[]})",
        R"({"format":"tensorsharp.chat","version":1})",
        R"({"format":"tensorsharp.chat","version":1,"messages":[{"role":1}]})"})
    EXPECT_THROW(chat_from_json(bad, "chat.json"), FormatError) << bad;
}

}  // namespace
}  // namespace ts::cli
