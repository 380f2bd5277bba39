#include "convert/row_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "convert/row_order.h"

namespace ts {
namespace {

class SafetensorsRows final : public RowSource {
 public:
  SafetensorsRows(const SafetensorsEntry& entry, int64_t n_rows, int64_t n_cols)
      : RowSource(n_rows, n_cols), entry_(entry) {}
  void read_row(int64_t row, std::span<float> out) const override {
    Safetensors::read_f32(entry_, row * n_cols(), out);
  }
  void release() const noexcept override { drop_pages(entry_.data); }

 private:
  const SafetensorsEntry& entry_;
};

class CodecRows final : public RowSource {
 public:
  CodecRows(const Codec& codec, std::span<const std::byte> data, int64_t n_rows, int64_t n_cols)
      : RowSource(n_rows, n_cols),
        codec_(codec),
        data_(data),
        row_bytes_(codec.row_bytes(static_cast<size_t>(n_cols))) {}
  void read_row(int64_t row, std::span<float> out) const override {
    codec_.decode(data_.data() + static_cast<size_t>(row) * row_bytes_, out.data(), out.size());
  }
  void release() const noexcept override { drop_pages(data_); }

 private:
  const Codec& codec_;
  std::span<const std::byte> data_;
  size_t row_bytes_;
};

class ValueRows final : public RowSource {
 public:
  explicit ValueRows(std::vector<float> values)
      : RowSource(1, static_cast<int64_t>(values.size())), values_(std::move(values)) {}
  void read_row(int64_t, std::span<float> out) const override {
    std::copy(values_.begin(), values_.end(), out.begin());
  }

 private:
  std::vector<float> values_;
};

/// Base of sources that change another one.
class Wrapper : public RowSource {
 public:
  explicit Wrapper(RowSourcePtr inner)
      : RowSource(inner->n_rows(), inner->n_cols()), inner_(std::move(inner)) {}
  void release() const noexcept override { inner_->release(); }

 protected:
  RowSourcePtr inner_;
};

class LlamaPairRows final : public Wrapper {
 public:
  LlamaPairRows(RowSourcePtr inner, int64_t head_dim)
      : Wrapper(std::move(inner)), head_dim_(head_dim) {}
  void read_row(int64_t row, std::span<float> out) const override {
    inner_->read_row(llama_source_row(row, head_dim_), out);
  }

 private:
  int64_t head_dim_;
};

class PermutedRows final : public Wrapper {
 public:
  PermutedRows(RowSourcePtr inner, std::vector<int64_t> source)
      : Wrapper(std::move(inner)), source_(std::move(source)) {}
  void read_row(int64_t row, std::span<float> out) const override {
    inner_->read_row(source_[static_cast<size_t>(row)], out);
  }

 private:
  std::vector<int64_t> source_;
};

class PermutedColumns final : public Wrapper {
 public:
  PermutedColumns(RowSourcePtr inner, std::vector<int64_t> source)
      : Wrapper(std::move(inner)), source_(std::move(source)) {}
  void read_row(int64_t row, std::span<float> out) const override {
    std::vector<float> stored(out.size());
    inner_->read_row(row, stored);
    for (size_t c = 0; c < out.size(); ++c)
      out[c] = stored[static_cast<size_t>(source_[c])];
  }

 private:
  std::vector<int64_t> source_;
};

class MinusExpRows final : public Wrapper {
 public:
  using Wrapper::Wrapper;
  void read_row(int64_t row, std::span<float> out) const override {
    inner_->read_row(row, out);
    for (float& value : out)
      value = static_cast<float>(-std::exp(static_cast<double>(value)));
  }
};

class PlusOneRows final : public Wrapper {
 public:
  using Wrapper::Wrapper;
  void read_row(int64_t row, std::span<float> out) const override {
    inner_->read_row(row, out);
    for (float& value : out)
      value += 1.0F;
  }
};

class BlockScaledRows final : public Wrapper {
 public:
  BlockScaledRows(RowSourcePtr inner, std::vector<float> scales, int64_t block_rows,
                  int64_t block_cols)
      : Wrapper(std::move(inner)),
        scales_(std::move(scales)),
        block_rows_(block_rows),
        block_cols_(block_cols),
        scales_per_row_((n_cols() + block_cols - 1) / block_cols) {}
  void read_row(int64_t row, std::span<float> out) const override {
    inner_->read_row(row, out);
    const float* scale = scales_.data() + row / block_rows_ * scales_per_row_;
    for (int64_t c = 0; c < n_cols(); ++c)
      out[static_cast<size_t>(c)] *= scale[c / block_cols_];
  }

 private:
  std::vector<float> scales_;
  int64_t block_rows_, block_cols_, scales_per_row_;
};

}  // namespace

RowSourcePtr safetensors_rows(const SafetensorsEntry& entry, int64_t n_rows, int64_t n_cols) {
  return std::make_shared<SafetensorsRows>(entry, n_rows, n_cols);
}

RowSourcePtr codec_rows(const Codec& codec, std::span<const std::byte> data, int64_t n_rows,
                        int64_t n_cols) {
  return std::make_shared<CodecRows>(codec, data, n_rows, n_cols);
}

RowSourcePtr value_rows(std::vector<float> values) {
  return std::make_shared<ValueRows>(std::move(values));
}

RowSourcePtr llama_pair_rows(RowSourcePtr inner, int64_t head_dim) {
  return std::make_shared<LlamaPairRows>(std::move(inner), head_dim);
}

RowSourcePtr permuted_rows(RowSourcePtr inner, std::vector<int64_t> source) {
  return std::make_shared<PermutedRows>(std::move(inner), std::move(source));
}

RowSourcePtr permuted_columns(RowSourcePtr inner, std::vector<int64_t> source) {
  return std::make_shared<PermutedColumns>(std::move(inner), std::move(source));
}

RowSourcePtr minus_exp_rows(RowSourcePtr inner) {
  return std::make_shared<MinusExpRows>(std::move(inner));
}

RowSourcePtr plus_one_rows(RowSourcePtr inner) {
  return std::make_shared<PlusOneRows>(std::move(inner));
}

RowSourcePtr block_scaled_rows(RowSourcePtr inner, std::vector<float> scales, int64_t block_rows,
                               int64_t block_cols) {
  return std::make_shared<BlockScaledRows>(std::move(inner), std::move(scales), block_rows,
                                           block_cols);
}

void drop_pages(std::span<const std::byte> bytes) noexcept {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size()) / page * page;
  // A private mapping that nobody wrote to: dropped pages come back from the file.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace ts
