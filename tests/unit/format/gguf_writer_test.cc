#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/codec.h"
#include "format/gguf.h"
#include "support/error_matchers.h"
#include "support/gguf_builder.h"
#include "support/temp_dir.h"

namespace ts {
namespace {

using test::as_bytes;
using test::catch_error;
using test::test_bytes;
using ::testing::HasSubstr;

std::string hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

TEST(GgufWriterTest, GoldenBytes) {
  const test::TempDir dir;
  const auto path = dir / "g.gguf";
  {
    GgufWriter w(path, false);
    w.metadata().set("a", MetadataValue::u32(7));
    w.metadata().set("t", MetadataValue::strings({"x", "yz"}));
    w.add_tensor("w", TypeId::kF16, {2, 3});
    w.add_tensor("b", TypeId::kF32, {1});
    w.begin_data();
    w.write(as_bytes("0123456789"));  // 12 bytes in two pieces
    w.write(as_bytes("AB"));
    w.write(as_bytes("wxyz"));
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_EQ(w.finish(), 224u);
  }
  EXPECT_EQ(hex(test::read_file(path)),
            "47475546"
            "03000000"
            "0200000000000000"
            "0200000000000000"
            "0100000000000000"
            "61"
            "04000000"
            "07000000"
            "0100000000000000"
            "74"
            "09000000"
            "08000000"
            "0200000000000000"
            "0100000000000000"
            "78"
            "0200000000000000"
            "797a"
            "0100000000000000"
            "77"
            "02000000"
            "0200000000000000"
            "0300000000000000"
            "01000000"
            "0000000000000000"
            "0100000000000000"
            "62"
            "01000000"
            "0100000000000000"
            "00000000"
            "2000000000000000"
            "00"
            "303132333435363738394142"
            "0000000000000000000000000000000000000000"
            "7778797a"
            "00000000000000000000000000000000000000000000000000000000");
}

TEST(GgufWriterTest, WithoutTensorsTheFileIsItsHeader) {
  const test::TempDir dir;
  GgufWriter w(dir / "v.gguf", false);
  w.metadata().set("general.architecture", MetadataValue::string("llama"));
  const uint64_t size = w.finish();
  const auto file = GgufFile::open(dir / "v.gguf");
  EXPECT_EQ(file->file_bytes(), size);
  EXPECT_EQ(file->metadata().get_string("general.architecture"), "llama");
}

TEST(GgufWriterTest, RefusesWhatReadersRefuse) {
  const test::TempDir dir;
  GgufWriter w(dir / "x.gguf", false);
  w.add_tensor("a", TypeId::kF32, {4});
  const auto fails = [&](std::string name, TypeId type, const Shape& shape) {
    return catch_error([&] { w.add_tensor(std::move(name), type, shape); });
  };
  EXPECT_THAT(fails("a", TypeId::kF32, {4}).message, HasSubstr("twice"));
  EXPECT_THAT(fails("", TypeId::kF32, {4}).message, HasSubstr("empty"));
  EXPECT_THAT(fails(std::string(64, 'n'), TypeId::kF32, {4}).message, HasSubstr("64 bytes"));
  EXPECT_NO_THROW(w.add_tensor(std::string(63, 'n'), TypeId::kF32, {4}));
  EXPECT_EQ(fails("c", static_cast<TypeId>(199), {4}).code, ErrorCode::kUnsupported);
  EXPECT_EQ(fails("c", TypeId::kF32, {0, 4}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(fails("c", TypeId::kF32, Shape()).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(fails("c", TypeId::kQ4_0, {33}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(fails("c", TypeId::kF64, {INT64_MAX}).code, ErrorCode::kInvalidArgument);
  for (const uint64_t bad : {0u, 1u, 3u, 4u, 48u, 1u << 31}) {
    EXPECT_EQ(catch_error([&] { GgufWriter(dir / "y.gguf", false, bad); }).code,
              ErrorCode::kInvalidArgument)
        << bad;
  }
}

TEST(GgufWriterTest, MisuseIsAnInternalErrorAndLeavesNoFile) {
  const test::TempDir dir;
  const auto path = dir / "x.gguf";
  {
    GgufWriter w(path, false);
    w.add_tensor("a", TypeId::kF32, {2});
    EXPECT_EQ(catch_error([&] { w.write(as_bytes("12345678")); }).code, ErrorCode::kInternal);
    w.begin_data();
    EXPECT_EQ(catch_error([&] { w.begin_data(); }).code, ErrorCode::kInternal);
    EXPECT_EQ(catch_error([&] { w.add_tensor("b", TypeId::kF32, {2}); }).code,
              ErrorCode::kInternal);
    EXPECT_EQ(catch_error([&] { w.write(as_bytes("123456789")); }).code, ErrorCode::kInternal);
    w.write(as_bytes("1234"));
    EXPECT_THAT(catch_error([&] { w.finish(); }).message, HasSubstr("4 of its 8 bytes"));
    w.write(as_bytes("5678"));
    EXPECT_EQ(catch_error([&] { w.write(as_bytes("9")); }).code, ErrorCode::kInternal);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  {
    GgufWriter w(path, false);
    w.metadata().set("n", {MetadataType::kUint8, uint64_t{256}});
    EXPECT_EQ(catch_error([&] { w.begin_data(); }).code, ErrorCode::kInvalidArgument);
  }
  {
    GgufWriter w(path, false);
    w.metadata().set("n", {MetadataType::kString, uint64_t{1}});
    EXPECT_EQ(catch_error([&] { w.begin_data(); }).code, ErrorCode::kInternal);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  test::write_file(path, "precious");
  EXPECT_EQ(catch_error([&] { GgufWriter(path, false); }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::read_file(path), "precious");
}

// Property: whatever the writer accepts, the reader gives back unchanged.

class RandomFile {
 public:
  explicit RandomFile(uint32_t seed) : random_(seed) {}

  uint64_t below(uint64_t n) { return random_() % n; }

  std::string text(size_t max_bytes) {
    return test_bytes(below(max_bytes + 1), static_cast<uint32_t>(random_()));
  }

  MetadataValue value() {
    const auto integer_type = [&] {
      constexpr MetadataType kTypes[] = {
          MetadataType::kUint8, MetadataType::kUint16, MetadataType::kUint32, MetadataType::kUint64,
          MetadataType::kInt8,  MetadataType::kInt16,  MetadataType::kInt32,  MetadataType::kInt64};
      return kTypes[below(8)];
    };
    const auto is_signed = [](MetadataType t) {
      return t == MetadataType::kInt8 || t == MetadataType::kInt16 || t == MetadataType::kInt32 ||
             t == MetadataType::kInt64;
    };
    const bool array = below(2) == 0;
    const size_t n = below(20);
    switch (below(5)) {
      case 0: {
        const MetadataType type = integer_type();
        const auto number = [&] { return below(128); };
        if (is_signed(type)) {
          if (!array) return {type, static_cast<int64_t>(number()) - 64};
          std::vector<int64_t> v(n);
          for (auto& x : v)
            x = static_cast<int64_t>(number()) - 64;
          return {MetadataType::kArray, MetadataArray{type, v}};
        }
        if (!array) return {type, number()};
        std::vector<uint64_t> v(n);
        for (auto& x : v)
          x = number();
        return {MetadataType::kArray, MetadataArray{type, v}};
      }
      case 1: {
        if (!array) return MetadataValue::f32(static_cast<float>(below(1000)) / 7);
        std::vector<float> v(n);
        for (auto& x : v)
          x = static_cast<float>(below(1000)) / 7;
        return MetadataValue::f32_array(v);
      }
      case 2: {
        if (!array) return {MetadataType::kFloat64, static_cast<double>(below(1000)) / 7};
        std::vector<double> v(n);
        for (auto& x : v)
          x = static_cast<double>(below(1000)) / 7;
        return {MetadataType::kArray, MetadataArray{MetadataType::kFloat64, v}};
      }
      case 3: {
        if (!array) return MetadataValue::boolean(below(2) == 0);
        std::vector<bool> v(n);
        for (size_t i = 0; i < n; ++i)
          v[i] = below(2) == 0;
        return {MetadataType::kArray, MetadataArray{MetadataType::kBool, v}};
      }
      default: {
        if (!array) return MetadataValue::string(text(100));
        std::vector<std::string> v(n);
        for (auto& x : v)
          x = text(12);
        return MetadataValue::strings(v);
      }
    }
  }

 private:
  std::mt19937 random_;
};

void expect_equal(const MetadataValue& a, const MetadataValue& b) {
  EXPECT_EQ(a.type, b.type);
  ASSERT_EQ(a.value.index(), b.value.index());
  if (a.type == MetadataType::kArray) {
    const auto& x = std::get<MetadataArray>(a.value);
    const auto& y = std::get<MetadataArray>(b.value);
    EXPECT_EQ(x.element_type, y.element_type);
    EXPECT_EQ(x.data, y.data);
  } else if (const auto* s = std::get_if<std::string>(&a.value)) {
    EXPECT_EQ(*s, std::get<std::string>(b.value));
  } else if (const auto* u = std::get_if<uint64_t>(&a.value)) {
    EXPECT_EQ(*u, std::get<uint64_t>(b.value));
  } else if (const auto* i = std::get_if<int64_t>(&a.value)) {
    EXPECT_EQ(*i, std::get<int64_t>(b.value));
  } else if (const auto* d = std::get_if<double>(&a.value)) {
    EXPECT_EQ(*d, std::get<double>(b.value));
  } else {
    EXPECT_EQ(std::get<bool>(a.value), std::get<bool>(b.value));
  }
}

TEST(GgufWriterTest, WhatIsWrittenIsReadBack) {
  const test::TempDir dir;
  const auto codecs = all_codecs();
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomFile random(seed);
    const auto path = dir / "r.gguf";
    const uint64_t alignment = uint64_t{8} << random.below(6);
    GgufWriter writer(path, true, alignment);
    Metadata metadata;
    for (uint64_t i = random.below(12); i > 0; --i) {
      const std::string key = "key." + std::to_string(i) + random.text(9);
      const MetadataValue value = random.value();
      metadata.set(key, value);
      writer.metadata().set(key, value);
    }
    struct Made {
      std::string name, data;
      TypeId type;
      Shape shape;
    };
    std::vector<Made> made;
    for (uint64_t i = random.below(9); i > 0; --i) {
      const Codec& codec = *codecs[random.below(codecs.size())];
      Shape shape;
      shape.n_dims = static_cast<int>(1 + random.below(4));
      // Large enough for the two layouts of type 42 never to look alike.
      shape.ne[0] = static_cast<int64_t>(codec.block_elems * (1 + random.below(3)) * 16);
      for (int d = 1; d < shape.n_dims; ++d)
        shape.ne[static_cast<size_t>(d)] = static_cast<int64_t>(1 + random.below(4));
      if (codec.id == TypeId::kQ2_0) shape.ne[0] *= 16;
      const auto bytes = tensor_bytes(codec, shape);
      ASSERT_TRUE(bytes.has_value());
      made.push_back({"t" + std::to_string(i), test_bytes(*bytes, seed + 7), codec.id, shape});
      writer.add_tensor(made.back().name, codec.id, shape);
    }
    writer.begin_data();
    for (const Made& tensor : made) {
      std::string_view rest = tensor.data;
      while (!rest.empty()) {
        const size_t piece = std::min<size_t>(rest.size(), 1 + random.below(3000));
        writer.write(as_bytes(rest.substr(0, piece)));
        rest.remove_prefix(piece);
      }
    }
    const uint64_t size = writer.finish();
    EXPECT_EQ(size, std::filesystem::file_size(path));

    const auto file = GgufFile::open(path);
    EXPECT_EQ(file->alignment(), alignment);
    EXPECT_TRUE(file->notes().empty());
    size_t n_keys = metadata.size() + (alignment != 32 ? 1 : 0);
    ASSERT_EQ(file->metadata().size(), n_keys);
    for (const auto& [key, value] : metadata.entries()) {
      ASSERT_TRUE(file->metadata().contains(key));
      expect_equal(value, *file->metadata().find(key));
    }
    ASSERT_EQ(file->tensors().size(), made.size());
    for (size_t i = 0; i < made.size(); ++i) {
      const TensorEntry& t = file->tensors()[i];
      EXPECT_EQ(t.name, made[i].name);
      EXPECT_EQ(t.type, made[i].type);
      EXPECT_EQ(t.shape, made[i].shape);
      EXPECT_EQ(t.shape.n_dims, made[i].shape.n_dims);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(t.data.data()), t.data.size()),
                made[i].data);
    }
  }
}

}  // namespace
}  // namespace ts
