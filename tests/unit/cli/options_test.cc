#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "cli/option_parser.h"
#include "cli/parse_values.h"
#include "cli/sampling_options.h"

namespace ts::cli {
namespace {

TEST(OptionValues, IntegersAreWholeAndInRange) {
  EXPECT_EQ(parse_integer("42", 0, 100), 42);
  EXPECT_EQ(parse_integer("-1", -1, 100), -1);
  for (const char* bad : {"", " 1", "1 ", "1e3", "1.0", "0x10", "+1", "nan", "101", "-2",
                          "99999999999999999999999", "1;"})
    EXPECT_FALSE(parse_integer(bad, -1, 100)) << bad;
}

TEST(OptionValues, RealsAreFinite) {
  EXPECT_EQ(parse_real("0.5"), 0.5);
  EXPECT_EQ(parse_real("-1e-3"), -1e-3);
  for (const char* bad : {"", "nan", "inf", "-inf", "1e999", "0.5x", "1,5"})
    EXPECT_FALSE(parse_real(bad)) << bad;
}

TEST(OptionValues, TokenIds) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(parse_token_ids("1,2,3"), (Ids{1, 2, 3}));
  EXPECT_EQ(parse_token_ids(" [1, 2  3]\n"), (Ids{1, 2, 3}));
  EXPECT_EQ(parse_token_ids(""), Ids{});
  EXPECT_EQ(parse_token_ids("[]"), Ids{});
  for (const char* bad : {"1,,2", ",1", "1,", "a", "1 b", "-1", "2147483648", "[1", "1.5"})
    EXPECT_FALSE(parse_token_ids(bad)) << bad;
}

TEST(SamplingArguments, OverrideTheRecommendation) {
  OptionParser parser("test", "", "");
  SamplingArguments arguments;
  arguments.add(parser);
  parser.parse({"--top-p", "0.9", "--seed", "7", "--samplers", "top_p,temp"});
  SamplingOptions recommended;
  recommended.top_k = 20;
  const SamplingOptions options = arguments.apply(recommended);
  EXPECT_EQ(options.top_k, 20);
  EXPECT_FLOAT_EQ(options.top_p, 0.9F);
  EXPECT_EQ(options.seed, 7u);
  EXPECT_EQ(options.order, (std::vector<std::string>{"top_p", "temperature"}));
}

TEST(SamplingArguments, AskingForTypicalPutsTheStepIn) {
  OptionParser parser("test", "", "");
  SamplingArguments arguments;
  arguments.add(parser);
  parser.parse({"--typical-p", "0.5"});
  const SamplingOptions options = arguments.apply({});
  EXPECT_NE(std::find(options.order.begin(), options.order.end(), "typical"), options.order.end());
}

TEST(SamplingArguments, AnEmptyListAndMinusOneAreLegal) {
  OptionParser parser("test", "", "");
  SamplingArguments arguments;
  arguments.add(parser);
  parser.parse({"--samplers", "", "--seed", "-1"});
  EXPECT_TRUE(arguments.order && arguments.order->empty());
  EXPECT_FALSE(arguments.seed);
}

TEST(SamplingArguments, SetByName) {
  SamplingOptions options;
  EXPECT_TRUE(set_sampling_option(options, "temp", "0.25"));
  EXPECT_TRUE(set_sampling_option(options, "top-k", "3"));
  EXPECT_TRUE(set_sampling_option(options, "samplers", "top_k"));
  EXPECT_FLOAT_EQ(options.temperature, 0.25F);
  EXPECT_EQ(options.top_k, 3);
  EXPECT_FALSE(set_sampling_option(options, "colour", "red"));
  EXPECT_THROW(set_sampling_option(options, "temp", "warm"), InvalidArgument);
  EXPECT_THROW(set_sampling_option(options, "seed", "-2"), InvalidArgument);
  EXPECT_THROW(set_sampling_option(options, "samplers", "magic"), InvalidArgument);
}

}  // namespace
}  // namespace ts::cli
