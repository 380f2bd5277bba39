#include "convert/output_tensor.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/aligned_buffer.h"
#include "base/quote_text.h"
#include "codec/block_check.h"

namespace ts {
namespace {

/// Values handled at a time: enough to keep calls few, small beside any model.
constexpr int64_t kPieceElems = int64_t{1} << 20;
/// Bytes copied at a time between cancellation checks.
constexpr size_t kCopyBytes = size_t{8} << 20;

/// Small tensors of recurrent layers that published files keep in 16 bits.
bool is_small_projection(std::string_view name) {
  return name.ends_with(".ssm_alpha.weight") || name.ends_with(".ssm_beta.weight");
}

bool in_layer(std::string_view name) {
  return name.starts_with("blk.");
}

void check_finite(std::span<const float> row, const std::string& input, const OutputTensor& tensor,
                  int64_t row_index) {
  for (size_t c = 0; c < row.size(); ++c) {
    if (std::isfinite(row[c])) continue;
    throw FormatError(fmt::format(
        "{}: {}: row {}, column {} is {}, expected a finite number\n"
        "the weights are damaged; fetch or export them again",
        input, quote_text(tensor.sources.empty() ? tensor.name : tensor.sources.front()), row_index,
        c, row[c]));
  }
}

[[noreturn]] void throw_damaged(const std::string& input, const OutputTensor& tensor, size_t block,
                                BlockFinding finding) {
  throw FormatError(fmt::format(
      "{}: {}: {} in block {} of type {}\n"
      "the weights are damaged; fetch or convert them again",
      input, quote_text(tensor.name), finding_text(finding), block, tensor.codec->name));
}

/// Refuses blocks that no writer can have meant; `first_block` is where in the tensor `bytes`, a
/// whole number of blocks, begin.
void check_sound(std::span<const std::byte> bytes, size_t first_block, const std::string& input,
                 const OutputTensor& tensor) {
  const Codec& codec = *tensor.codec;
  const size_t n_blocks = bytes.size() / codec.block_bytes;
  const auto block_at = [&](size_t block) { return bytes.data() + block * codec.block_bytes; };
  if (codec.inspect != nullptr) {
    for (size_t block = 0; block < n_blocks; ++block) {
      const uint32_t faults = codec.inspect(block_at(block)) & kFindingFaults;
      if (faults != 0)
        throw_damaged(input, tensor, first_block + block,
                      static_cast<BlockFinding>(faults & (~faults + 1)));
    }
    if (codec.is_ternary()) return;  // finite scales make finite values
  }
  const size_t n_at_once = std::max<size_t>(1, 4096 / codec.block_elems);
  std::vector<float> values(n_at_once * codec.block_elems);
  for (size_t block = 0; block < n_blocks; block += n_at_once) {
    const size_t n_values = std::min(n_at_once, n_blocks - block) * codec.block_elems;
    codec.decode(block_at(block), values.data(), n_values);
    for (size_t i = 0; i < n_values; ++i) {
      if (!std::isfinite(values[i]))
        throw_damaged(input, tensor, first_block + block + i / codec.block_elems,
                      kFindingNonFiniteValue);
    }
  }
}

[[noreturn]] void throw_lossy(const std::string& input, const OutputTensor& tensor, int64_t row,
                              size_t column, float before, float after) {
  const Codec& codec = *tensor.codec;
  const std::string place = fmt::format(
      "{}: {}: row {}, column {} (block {}): {} would become {} "
      "as {}",
      input, quote_text(tensor.name), row, column, column / codec.block_elems, before, after,
      codec.name);
  if (codec.is_ternary())
    throw Unsupported(
        fmt::format("{}\n{} holds only -s, 0 and s in each group of {} values; "
                    "`quantize` turns other weights into it",
                    place, codec.name, codec.group_elems));
  throw Unsupported(place + "\nuse --lossy to accept rounded weights, or another --scheme");
}

/// A piece of rows in all its forms.
struct Piece {
  Piece(const Codec& codec, int64_t n_cols, int64_t n_rows)
      : row_elems(static_cast<size_t>(n_cols)),
        row_bytes(codec.row_bytes(row_elems)),
        values(row_elems),
        decoded(row_elems),
        packed(row_bytes * static_cast<size_t>(n_rows)) {}
  size_t row_elems, row_bytes;
  AlignedBuffer<float> values, decoded;
  AlignedBuffer<std::byte> packed;
};

}  // namespace

bool stays_f32(std::string_view name, const Shape& shape) {
  if (shape.n_rows() == 1 && shape.n_dims <= 1) return true;
  if (!name.ends_with(".weight")) return true;
  for (const std::string_view suffix : {"_norm.weight", ".ssm_conv1d.weight",
                                        ".ffn_gate_inp.weight", ".ffn_gate_inp_shexp.weight"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

TypeChooser::TypeChooser(const ConvertOptions& options) : lossy_(options.lossy) {
  if (options.type == "auto") return;
  requested_ = find_codec(std::string_view(options.type));
  const bool number = requested_ != nullptr && (requested_->exactness != Exactness::kExact ||
                                                requested_->id == TypeId::kF32);
  if (requested_ == nullptr || requested_->encode == nullptr || !number) {
    std::string names = "auto";
    for (const Codec* codec : all_codecs()) {
      if (codec->encode != nullptr &&
          (codec->exactness != Exactness::kExact || codec->id == TypeId::kF32))
        names += fmt::format(", {}", codec->name);
    }
    throw InvalidArgument(fmt::format("weight type {} cannot be written\nknown: {}",
                                      quote_text(options.type), names));
  }
}

void TypeChooser::keep(OutputTensor& tensor, const std::string& reason) {
  tensor.codec = tensor.kept;
  Reason& entry = reasons_[reason];
  if (entry.count++ == 0) entry.first = tensor.name;
}

void TypeChooser::choose(OutputTensor& tensor) {
  tensor.codec = tensor.kept;
  if (requested_ == nullptr || requested_ == tensor.kept) {
    used_ = used_ || requested_ == tensor.kept;
    return;
  }
  if (stays_f32(tensor.name, tensor.shape)) return;
  const Codec& wanted = *requested_;
  if (tensor.shape[0] % wanted.block_elems != 0)
    return keep(tensor, fmt::format("rows of {} values are no whole number of {} blocks of {}",
                                    tensor.shape[0], wanted.name, wanted.block_elems));
  if (wanted.is_ternary() && !lossy_) {
    if (is_small_projection(tensor.name))
      return keep(tensor, "small projections of recurrent layers stay as they are");
    // Embeddings are ternary in some models and not in others; layers must be, or it is an error.
    if (!in_layer(tensor.name)) {
      std::vector<float> row(static_cast<size_t>(tensor.rows->n_cols()));
      for (int64_t r = 0; r < tensor.rows->n_rows(); ++r) {
        tensor.rows->read_row(r, row);
        if (!represents_exactly(wanted, row))
          return keep(tensor, "embeddings whose values are not ternary stay as they are");
      }
    }
  }
  tensor.codec = requested_;
  used_ = true;
}

std::vector<std::string> TypeChooser::notes() const {
  std::vector<std::string> lines;
  for (const auto& [reason, entry] : reasons_) {
    const std::string others = entry.count > 1 ? fmt::format(" and {} more", entry.count - 1) : "";
    lines.push_back(
        fmt::format("{}{} did not become {}: {}", entry.first, others, requested_->name, reason));
  }
  return lines;
}

void TypeChooser::check_useful(const std::string& input) const {
  if (requested_ == nullptr || used_) return;
  std::string why = "it has no weight matrix";
  if (!reasons_.empty()) {
    const auto& [reason, entry] = *reasons_.begin();
    why = entry.first + ": " + reason;
  }
  throw Unsupported(
      fmt::format("{}: no tensor can be stored as {}\n{}", input, requested_->name, why));
}

const Codec& smallest_exact_float(const RowSource& rows) {
  const Codec& f32 = require_codec(TypeId::kF32, "f32");
  std::vector<const Codec*> candidates = {find_codec(TypeId::kBF16), find_codec(TypeId::kF16)};
  std::vector<float> row(static_cast<size_t>(rows.n_cols()));
  for (int64_t r = 0; r < rows.n_rows() && !candidates.empty(); ++r) {
    rows.read_row(r, row);
    std::erase_if(candidates, [&](const Codec* codec) { return !represents_exactly(*codec, row); });
  }
  return candidates.empty() ? f32 : *candidates.front();
}

bool write_tensor(GgufWriter& writer, const OutputTensor& tensor, bool lossy,
                  const std::string& input, const Progress& progress, uint64_t& done_bytes,
                  uint64_t total_bytes) {
  const auto advance = [&](std::span<const std::byte> bytes) {
    writer.write(bytes);
    done_bytes += bytes.size();
    progress("convert", done_bytes, total_bytes);
  };
  if (tensor.codec == tensor.kept && !tensor.packed.empty()) {
    // Whole blocks, so that each piece can be checked.
    const size_t step = kCopyBytes / tensor.codec->block_bytes * tensor.codec->block_bytes;
    for (size_t at = 0; at < tensor.packed.size(); at += step) {
      const auto bytes = tensor.packed.subspan(at, std::min(step, tensor.packed.size() - at));
      check_sound(bytes, at / tensor.codec->block_bytes, input, tensor);
      advance(bytes);
    }
    drop_pages(tensor.packed);
    return true;
  }

  const Codec& codec = *tensor.codec;
  const RowSource& rows = *tensor.rows;
  const int64_t rows_per_piece = std::clamp<int64_t>(kPieceElems / rows.n_cols(), 1, rows.n_rows());
  Piece piece(codec, rows.n_cols(), rows_per_piece);
  const std::string what = fmt::format("{}: {}", input, quote_text(tensor.name));
  bool exact = true;
  for (int64_t begin = 0; begin < rows.n_rows(); begin += rows_per_piece) {
    const int64_t end = std::min(begin + rows_per_piece, rows.n_rows());
    for (int64_t r = begin; r < end; ++r) {
      rows.read_row(r, piece.values.span());
      check_finite(piece.values.span(), input, tensor, r);
      const auto packed = piece.packed.span().subspan(
          static_cast<size_t>(r - begin) * piece.row_bytes, piece.row_bytes);
      encode_row(codec, piece.values.span(), packed, what);
      codec.decode(packed.data(), piece.decoded.data(), piece.row_elems);
      for (size_t c = 0; c < piece.row_elems; ++c) {
        if (piece.values[c] == piece.decoded[c]) continue;
        if (!lossy) throw_lossy(input, tensor, r, c, piece.values[c], piece.decoded[c]);
        if (!std::isfinite(piece.decoded[c]))
          throw Unsupported(
              fmt::format("{}: row {}, column {}: {} is too large for {}\n"
                          "choose another --scheme",
                          what, r, c, piece.values[c], codec.name));
        exact = false;
      }
    }
    advance(piece.packed.span().first(static_cast<size_t>(end - begin) * piece.row_bytes));
  }
  rows.release();
  return exact;
}

void write_gguf(GgufWriter& writer, const std::vector<OutputTensor>& tensors,
                const ConvertOptions& options, const std::string& input, const Progress& progress,
                ConvertReport& report) {
  uint64_t total_bytes = 0, total_elems = 0;
  for (const OutputTensor& tensor : tensors) {
    writer.add_tensor(tensor.name, tensor.codec->id, tensor.shape);
    const uint64_t bytes = tensor_bytes(*tensor.codec, tensor.shape).value_or(0);
    total_bytes += bytes;
    total_elems += static_cast<uint64_t>(tensor.shape.n_elems());
    report.tensors.push_back({tensor.name, tensor.sources, tensor.source_type,
                              std::string(tensor.codec->name), bytes, true});
  }
  writer.begin_data();
  uint64_t done_bytes = 0;
  progress("convert", 0, total_bytes);
  for (size_t i = 0; i < tensors.size(); ++i) {
    report.tensors[i].lossless =
        write_tensor(writer, tensors[i], options.lossy, input, progress, done_bytes, total_bytes);
    report.lossless = report.lossless && report.tensors[i].lossless;
  }
  report.output_bytes = writer.finish();
  report.bits_per_weight =
      total_elems == 0 ? 0
                       : 8.0 * static_cast<double>(total_bytes) / static_cast<double>(total_elems);
}

std::optional<uint32_t> file_type_of(const std::vector<OutputTensor>& tensors) {
  std::map<const Codec*, uint64_t> elems;
  for (const OutputTensor& tensor : tensors)
    elems[tensor.codec] += static_cast<uint64_t>(tensor.shape.n_elems());
  const auto most = std::max_element(
      elems.begin(), elems.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == elems.end() || most->first->file_type < 0) return std::nullopt;
  return static_cast<uint32_t>(most->first->file_type);
}

}  // namespace ts
