#include "quantize/bit_account.h"

#include <map>

#include <fmt/format.h>

#include "format/gguf.h"
#include "quantize/plan.h"
#include "runtime/residual_file.h"

namespace ts {
namespace {

constexpr uint64_t kScaleBytes = 2;  // one binary16 number per group

/// Adds up terms by name, in the order in which they first come.
class Terms {
 public:
  void add(const std::string& what, uint64_t bytes, uint64_t weights = 0) {
    if (bytes == 0) return;
    const auto [at, added] = index_.try_emplace(what, terms_.size());
    if (added) terms_.push_back({what, 0, 0});
    terms_[at->second].bytes += bytes;
    terms_[at->second].weights += weights;
  }
  std::vector<BitTerm> take() { return std::move(terms_); }

 private:
  std::vector<BitTerm> terms_;
  std::map<std::string, size_t> index_;
};

void add_matrix(Terms& terms, const std::string& whose, const Codec& codec, uint64_t bytes,
                uint64_t elems) {
  if (!codec.is_ternary()) {
    terms.add(fmt::format("{}: {}", whose, codec.name), bytes, elems);
    return;
  }
  const uint64_t scales = elems / codec.group_elems * kScaleBytes;
  terms.add(fmt::format("{}: {} codes", whose, codec.name), bytes - scales, elems);
  terms.add(fmt::format("{}: {} scales", whose, codec.name), scales);
}

std::string owner(const PlannedTensor& t) {
  switch (t.role) {
    case TensorRole::kLinear:
      return "matrices of layers";
    case TensorRole::kEmbedding:
      return "embedding";
    case TensorRole::kHead:
      return "output matrix";
    case TensorRole::kOther:
      break;
  }
  return "norms, biases and small tensors";
}

/// Header, table and padding of one file; `tensors` are all of its tensors.
void add_overhead(Terms& terms, const std::string& whose, const Metadata& metadata,
                  const std::vector<GgufOutputTensor>& tensors, uint64_t alignment) {
  const GgufOutputLayout layout = lay_out_gguf(whose, metadata, tensors, alignment);
  Metadata plain = metadata;
  erase_rotation_keys(plain);
  const uint64_t without = lay_out_gguf(whose, plain, tensors, alignment).header.size();
  uint64_t data = 0;
  for (const GgufOutputTensor& t : tensors)
    data += t.bytes;
  terms.add(whose + ": rotation signs and names", layout.header.size() - without);
  terms.add(whose + ": other metadata and tensor table", without);
  terms.add(whose + ": padding", layout.data_bytes - data);
}

}  // namespace

BitAccount account_of(const QuantizePlan& plan, const Metadata& residual) {
  BitAccount account;
  Terms terms;
  std::vector<GgufOutputTensor> base, planes;
  for (const PlannedTensor& t : plan.tensors) {
    const Codec& codec = *t.tensor.codec;
    const auto elems = static_cast<uint64_t>(t.tensor.shape.n_elems());
    base.push_back(checked_gguf_tensor("output", t.tensor.name, codec.id, t.tensor.shape));
    const uint64_t bytes = base.back().bytes;
    add_matrix(terms, owner(t), codec, bytes, elems);
    for (int plane = 1; plane < t.n_planes(); ++plane) {
      planes.push_back(checked_gguf_tensor("output", plane_name(t.tensor.name, plane), codec.id,
                                           t.tensor.shape));
      add_matrix(terms, fmt::format("plane {} of {}", plane + 1, owner(t)), codec, bytes, 0);
    }
    const auto all = static_cast<uint64_t>(t.n_planes()) * bytes;
    account.tensor_bytes += all;
    account.n_weights += elems;
    if (t.role == TensorRole::kLinear) {
      account.linear_bytes += all;
      account.linear_weights += elems;
    }
  }
  add_overhead(terms, "file", plan.metadata, base, plan.alignment);
  if (!planes.empty()) add_overhead(terms, "residual file", residual, planes, 32);
  account.terms = terms.take();
  for (const BitTerm& term : account.terms)
    account.file_bytes += term.bytes;
  return account;
}

Metadata residual_metadata(const QuantizePlan& plan) {
  Metadata metadata;
  metadata.set(
      "general.architecture",
      MetadataValue::string(plan.metadata.get_string("general.architecture").value_or("")));
  metadata.set("general.type", MetadataValue::string("residual"));
  metadata.set("general.name", MetadataValue::string(fmt::format(
                                   "residual planes of {}",
                                   plan.metadata.get_string("general.name").value_or("a model"))));
  metadata.set("general.quantization_version", MetadataValue::u32(2));
  metadata.set(kResidualBaseKey, MetadataValue::string(std::string(64, '0')));
  return metadata;
}

std::string plane_name(const std::string& tensor, int plane) {
  return fmt::format("{}.plane{}", tensor, plane);
}

}  // namespace ts
