#include "eval/npy.h"

#include <cstring>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "support/temp_dir.h"

namespace ts {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Npy, HeaderIsTheOneNumpyWrites) {
  // numpy.lib.format.write_array_header_1_0 for '<f4', C order, shape (3, 5).
  const std::string header = npy_header_f32(std::vector<int64_t>{3, 5});
  EXPECT_EQ(header.size(), 128u);
  EXPECT_EQ(header.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(header.substr(10, 60), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), } ");
  EXPECT_EQ(header.back(), '\n');
  EXPECT_EQ(npy_header_f32(std::vector<int64_t>{7}).substr(10, 57),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }");
  EXPECT_EQ(npy_header_f32(std::vector<int64_t>{1, 1234567890123}).size() % 64, 0u);
}

TEST(Npy, WritesValuesAfterTheHeader) {
  const test::TempDir dir;
  const auto path = dir.path() / "x.npy";
  NpyWriter writer(path, false, {2, 3});
  const std::vector<float> values = {1, -2, 0.5F, 4, 5, 6};
  writer.write(std::span(values).first(2));
  writer.write(std::span(values).last(4));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.finish();
  const std::string bytes = read_file(path);
  ASSERT_EQ(bytes.size(), 128 + 6 * sizeof(float));
  EXPECT_EQ(std::memcmp(bytes.data() + 128, values.data(), 24), 0);
}

TEST(Npy, RefusesWrongCountsAndLeavesNoFile) {
  const test::TempDir dir;
  const auto path = dir.path() / "x.npy";
  {
    NpyWriter writer(path, false, {1, 3});
    const std::vector<float> values(4);
    EXPECT_THROW(writer.write(values), InternalError);
    EXPECT_THROW(writer.finish(), InternalError);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace ts
