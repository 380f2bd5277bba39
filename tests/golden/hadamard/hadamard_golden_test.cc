// What the loader of a released model computes, bit for bit, on every instruction set.
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/sha256.h"
#include "hadamard/rotation.h"
#include "kernels/kernels.h"

namespace ts {
namespace {

constexpr int64_t kBlock = 1024;
constexpr size_t kRows = 2;
const GroupedHeads kHeads = {16, 3, 128};

std::string read_file(const std::string& name) {
  std::ifstream in(std::string(TS_TESTDATA_DIR "/hadamard/").append(name), std::ios::binary);
  if (!in) throw std::runtime_error("cannot open testdata/hadamard/" + name);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string digest(const std::vector<float>& values) {
  return sha256_hex(std::as_bytes(std::span(values)));
}

std::map<int64_t, std::vector<int8_t>> read_signs() {
  std::map<int64_t, std::vector<int8_t>> signs;
  std::istringstream lines(read_file("signs.txt"));
  std::string line;
  std::getline(lines, line);
  int64_t width = 0;
  for (std::string hex; lines >> width >> hex;) {
    for (size_t i = 0; i < static_cast<size_t>(width); ++i) {
      const int byte = std::stoi(hex.substr(i / 8 * 2, 2), nullptr, 16);
      signs[width].push_back((byte >> (i % 8) & 1) != 0 ? 1 : -1);
    }
  }
  return signs;
}

struct Case {
  std::string name, operation, file, input_sha256, output_sha256;
  int64_t width = 0;
  std::vector<float> x;
};

std::vector<Case> read_cases() {
  std::vector<Case> cases;
  std::istringstream lines(read_file("digests.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    Case c;
    std::istringstream(line) >> c.name >> c.operation >> c.width >> c.file >> c.input_sha256 >>
        c.output_sha256;
    const std::string bytes = read_file(c.file);
    c.x.resize(bytes.size() / sizeof(float));
    std::memcpy(c.x.data(), bytes.data(), bytes.size());
    cases.push_back(std::move(c));
  }
  return cases;
}

/// Applies `row(x, y)` to both rows and gives the digest of the results.
template <typename F>
std::string run(const Case& c, F row) {
  std::vector<float> y(c.x.size());
  for (size_t r = 0; r < kRows; ++r) {
    const size_t at = r * static_cast<size_t>(c.width);
    row(c.x.data() + at, y.data() + at);
  }
  return digest(y);
}

TEST(ReleasedModel, TransformsReproduceBitForBit) {
  const auto signs = read_signs();
  const std::vector<Case> cases = read_cases();
  ASSERT_EQ(cases.size(), 5u);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ASSERT_EQ(c.x.size(), kRows * static_cast<size_t>(c.width));
    ASSERT_EQ(digest(c.x), c.input_sha256);
    const bool grouped = c.operation == "gdn" || c.operation == "permute";
    const Rotation rotation(c.width, kBlock, signs.at(c.width),
                            grouped ? std::optional(kHeads) : std::nullopt);
    const auto width = static_cast<size_t>(c.width);
    if (c.operation == "permute") {
      EXPECT_EQ(run(c, [&](const float* x, float* y) { rotation.gather(x, 0, width, y); }),
                c.output_sha256);
      continue;
    }
    const bool backward = c.operation == "inverse";
    EXPECT_EQ(run(c, [&](const float* x,
                         float* y) { backward ? rotation.inverse(x, y) : rotation.forward(x, y); }),
              c.output_sha256);
    const SignedTransform t = {width, kBlock, rotation.factor(), rotation.flips()};
    for (const std::string_view isa : available_isas(cpu_features())) {
      const KernelTable& table = select_kernels(isa).table;
      EXPECT_EQ(run(c,
                    [&](const float* x, float* y) {
                      rotation.gather(x, 0, width, y);
                      (backward ? table.unrotate : table.rotate)(&t, y, y);
                    }),
                c.output_sha256)
          << isa;
    }
  }
}

TEST(ReleasedModel, AnotherOrderOfOperationsHasOtherDigests) {
  const auto signs = read_signs();
  for (const Case& c : read_cases()) {
    if (c.operation != "signs" && c.operation != "gdn") continue;
    const Rotation right(c.width, kBlock, signs.at(c.width));  // without the permutation
    EXPECT_NE(run(c, [&](const float* x, float* y) { right.inverse(x, y); }), c.output_sha256);
    const Rotation unsigned_rotation(c.width, kBlock);
    EXPECT_NE(run(c, [&](const float* x, float* y) { unsigned_rotation.forward(x, y); }),
              c.output_sha256);
    if (c.operation == "gdn") {
      EXPECT_NE(run(c, [&](const float* x, float* y) { right.forward(x, y); }), c.output_sha256);
    }
  }
}

}  // namespace
}  // namespace ts
