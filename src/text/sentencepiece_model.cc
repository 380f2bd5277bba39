#include "text/sentencepiece_model.h"

#include <bit>
#include <cmath>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 24;
constexpr size_t kMaxPieceBytes = size_t{1} << 16;

/// One field of a message: its number and its value in the form of its wire type.
struct Field {
  uint64_t number = 0;
  unsigned wire_type = 0;
  uint64_t integer = 0;    ///< varint, or the bits of a fixed 32 or 64
  std::string_view bytes;  ///< length-delimited
};

/// Walks the fields of one message. Encoding: protocol buffers, "Encoding" chapter.
class FieldReader {
 public:
  FieldReader(std::string_view bytes, std::string_view source, size_t offset)
      : bytes_(bytes), source_(source), offset_(offset) {}

  bool next(Field& field) {
    if (at_ == bytes_.size()) return false;
    const uint64_t tag = varint();
    field = {};
    field.number = tag >> 3;
    field.wire_type = static_cast<unsigned>(tag & 7);
    if (field.number == 0) fail("a field has the number 0");
    switch (field.wire_type) {
      case 0:
        field.integer = varint();
        return true;
      case 1:
        field.integer = fixed(8);
        return true;
      case 2: {
        const uint64_t length = varint();
        if (length > bytes_.size() - at_) fail("a field is longer than the rest of the message");
        field.bytes = bytes_.substr(at_, static_cast<size_t>(length));
        at_ += static_cast<size_t>(length);
        return true;
      }
      case 5:
        field.integer = fixed(4);
        return true;
      default:
        fail(fmt::format("a field has the unknown wire type {}", field.wire_type));
    }
  }
  /// Offset in the file of the value of the field just read.
  size_t value_offset(const Field& field) const { return offset_ + at_ - field.bytes.size(); }

  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(
        fmt::format("{}: {} (near byte {}); the file is damaged or not a "
                    "SentencePiece model",
                    source_, what, offset_ + at_));
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) fail("a number is cut short");
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number has more than ten bytes");
  }
  uint64_t fixed(size_t n) {
    if (bytes_.size() - at_ < n) fail("a number is cut short");
    uint64_t value = 0;
    for (size_t i = 0; i < n; ++i) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[at_++])) << (8 * i);
    }
    return value;
  }

  std::string_view bytes_, source_;
  size_t offset_;
  size_t at_ = 0;
};

void expect(const FieldReader& reader, const Field& field, unsigned wire_type, const char* name) {
  if (field.wire_type != wire_type) {
    reader.fail(fmt::format("{} has wire type {}, expected {}", name, field.wire_type, wire_type));
  }
}

SentencePieceModel::Piece read_piece(std::string_view bytes, std::string_view source, size_t offset,
                                     size_t index) {
  FieldReader reader(bytes, source, offset);
  SentencePieceModel::Piece piece;
  for (Field field; reader.next(field);) {
    if (field.number == 1) {
      expect(reader, field, 2, "the text of a piece");
      if (field.bytes.size() > kMaxPieceBytes) {
        reader.fail(fmt::format("piece {} has {} bytes, at most {} are supported", index,
                                field.bytes.size(), kMaxPieceBytes));
      }
      piece.text = field.bytes;
    } else if (field.number == 2) {
      expect(reader, field, 5, "the score of a piece");
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.integer));
      if (std::isnan(piece.score)) {
        reader.fail(fmt::format("the score of piece {} is not a number", index));
      }
    } else if (field.number == 3) {
      expect(reader, field, 0, "the type of a piece");
      if (field.integer < 1 || field.integer > 6) {
        reader.fail(
            fmt::format("piece {} has the type {}; types go from 1 to 6", index, field.integer));
      }
      piece.type = static_cast<TokenType>(field.integer);
    }
  }
  return piece;
}

void read_trainer(std::string_view bytes, std::string_view source, size_t offset,
                  SentencePieceModel& model) {
  FieldReader reader(bytes, source, offset);
  const auto id = [&](const Field& field) -> std::optional<int32_t> {
    const auto value = static_cast<int64_t>(field.integer);  // negative: sign extended to 64 bits
    if (value < 0 || value >= static_cast<int64_t>(kMaxPieces)) return std::nullopt;
    return static_cast<int32_t>(value);
  };
  for (Field field; reader.next(field);) {
    switch (field.number) {
      case 3:
        expect(reader, field, 0, "model_type");
        model.algorithm = field.integer;
        break;
      case 35:
        expect(reader, field, 0, "byte_fallback");
        model.byte_fallback = field.integer != 0;
        break;
      case 40:
        expect(reader, field, 0, "unk_id");
        model.unk = id(field);
        break;
      case 41:
        expect(reader, field, 0, "bos_id");
        model.bos = id(field);
        break;
      case 42:
        expect(reader, field, 0, "eos_id");
        model.eos = id(field);
        break;
      case 43:
        expect(reader, field, 0, "pad_id");
        model.pad = id(field);
        break;
      default:
        break;
    }
  }
}

}  // namespace

SentencePieceModel read_sentencepiece_model(std::string_view bytes, std::string_view source) {
  SentencePieceModel model;
  // Defaults of the message definition.
  model.unk = 0;
  model.bos = 1;
  model.eos = 2;
  FieldReader reader(bytes, source, 0);
  for (Field field; reader.next(field);) {
    const size_t offset = reader.value_offset(field);
    if (field.number == 1) {
      expect(reader, field, 2, "a piece");
      if (model.pieces.size() == kMaxPieces) {
        reader.fail(fmt::format("there are more than {} pieces", kMaxPieces));
      }
      model.pieces.push_back(read_piece(field.bytes, source, offset, model.pieces.size()));
    } else if (field.number == 2) {
      expect(reader, field, 2, "trainer_spec");
      read_trainer(field.bytes, source, offset, model);
    } else if (field.number == 3) {
      expect(reader, field, 2, "normalizer_spec");
      FieldReader normalizer(field.bytes, source, offset);
      for (Field inner; normalizer.next(inner);) {
        if (inner.number != 3) continue;
        expect(normalizer, inner, 0, "add_dummy_prefix");
        model.add_dummy_prefix = inner.integer != 0;
      }
    }
  }
  if (model.pieces.empty()) reader.fail("there are no pieces");
  const auto n = static_cast<int32_t>(model.pieces.size());
  for (std::optional<int32_t>* id : {&model.unk, &model.bos, &model.eos, &model.pad}) {
    if (*id && **id >= n) id->reset();
  }
  return model;
}

}  // namespace ts
