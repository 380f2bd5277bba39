/// Runs code that must throw and hands back what it threw, checking the rules for messages.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

namespace ts::test {

struct Thrown {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

/// The ts::Error that `run` throws; a test failure when it throws none or another type, or when the
/// message is empty or longer than three lines.
template <typename Run>
Thrown catch_error(Run run) {
  try {
    run();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_FALSE(message.empty());
    EXPECT_LE(std::count(message.begin(), message.end(), '\n'), 2) << message;
    return {error.code(), message};
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a ts::Error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace ts::test
