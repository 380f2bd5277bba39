#include "model/decoder.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "model/non_finite.h"

namespace ts {

Pass::Pass(Backend& backend_in, const ForwardRequest& request, State& state_in,
           Workspace& workspace)
    : backend(backend_in),
      state(state_in),
      n_tokens(static_cast<int64_t>(request.ids.size())),
      first_position(state_in.length()),
      x(workspace.x.slice_rows(0, n_tokens)),
      normed(workspace.normed.slice_rows(0, n_tokens)),
      branch(workspace.branch.slice_rows(0, n_tokens)),
      normed_act(workspace.normed_act),
      attended_act(workspace.attended_act),
      gate_act(workspace.gate_act),
      workspace_(workspace),
      probe_(request.probe),
      observer_(request.observer) {}

void Pass::linears(std::initializer_list<LinearCall> calls, Activation& rows) const {
  if (observer_ != nullptr) {
    std::vector<std::string_view> names;
    for (const LinearCall& call : calls)
      names.push_back(call.linear->name);
    (*observer_)(names, rows.rows());
  }
  run_linears(backend, calls, rows, workspace_.planes);
}

void Pass::note(std::string_view layer_prefix, std::string_view what, Mat rows) const {
  if (probe_ == nullptr) return;
  std::string name(layer_prefix);
  name += what;
  (*probe_)(name, rows);
}

void DecoderModel::load(TensorLoader& loader, const GgufFile& file, Backend* backend) {
  backend_ = backend;
  const bool tied = !loader.has("output.weight");
  token_embedding_ = loader.embedding("token_embd", config_.d_model, config_.n_vocab,
                                      tied ? WeightUse::kTableAndMatrix : WeightUse::kTable);
  const uint64_t embedding_bytes = loader.matrix_bytes();
  load_layers(loader);
  output_norm_ = loader.vector("output_norm.weight", config_.d_model);
  weight_bytes_ = loader.matrix_bytes();
  if (!tied) {
    output_ = loader.linear("output", config_.d_model, config_.n_vocab, output_bias_);
    weight_bytes_per_token_ = loader.matrix_bytes() - embedding_bytes;
  } else {  // the embedding serves as output matrix
    output_ = token_embedding_.as_output();
    if (output_bias_ != Bias::kNone)
      output_.bias = loader.optional_vector("output.bias", config_.n_vocab);
    weight_bytes_per_token_ = loader.matrix_bytes();
  }
  weight_bytes_ = loader.matrix_bytes();
  loader.finish();
  tensor_names_ = loader.used();
  weights_ = loader.weights();
  rotations_ = loader.rotations();
  config_.rotated = !rotations_.empty();
  config_.has_planes = loader.has_planes();
  for (const std::string& name : tensor_names_)
    n_parameters_ += file.find(name)->shape.n_elems();
}

void DecoderModel::forward(const ForwardRequest& request, State& state,
                           Workspace& workspace) const {
  const auto count = static_cast<int64_t>(request.ids.size());
  if (count < 1 || count > workspace.layout().chunk)
    throw InternalError(fmt::format("forward pass of {} tokens with scratch memory for {}", count,
                                    workspace.layout().chunk));
  if (count > state.capacity() - state.length())
    throw ResourceExhausted(
        fmt::format("the context is full: {} positions, {} used, {} more asked for",
                    state.capacity(), state.length(), count));
  for (const int32_t id : request.ids) {
    if (id < 0 || id >= config_.n_vocab)
      throw InvalidArgument(
          fmt::format("token id {} is outside the vocabulary (0 to {})", id, config_.n_vocab - 1));
  }
  try {
    run(request, state, workspace);
  } catch (...) {
    state.abandon();
    throw;
  }
  state.advance(count);
}

void DecoderModel::run(const ForwardRequest& request, State& state, Workspace& workspace) const {
  Pass pass(*backend_, request, state, workspace);
  const size_t n_hidden = request.ids.size() * static_cast<size_t>(config_.d_model);
  for (const size_t given : {request.hidden_in.size(), request.hidden_out.size()}) {
    if (given != 0 && given != n_hidden)
      throw InvalidArgument(
          fmt::format("{} values of the residual stream, expected {}", given, n_hidden));
  }
  if (request.hidden_in.empty()) {
    run_embedding(*backend_, token_embedding_, request.ids, embedding_scale_, pass.x);
    pass.note("", "token_embd", pass.x);
  } else {
    std::copy(request.hidden_in.begin(), request.hidden_in.end(), pass.x.row(0));
  }
  const int64_t end = std::min(request.end_layer, config_.n_layers);
  for (int64_t layer = request.first_layer; layer < end; ++layer) {
    if (request.cancel != nullptr && request.cancel->load(std::memory_order_relaxed))
      throw Cancelled("interrupted");
    run_layer(pass, layer);
  }
  if (!request.hidden_out.empty()) std::copy_n(pass.x.row(0), n_hidden, request.hidden_out.begin());
  if (!request.logits.empty()) compute_logits(pass, request, workspace);
}

void DecoderModel::compute_logits(const Pass& pass, const ForwardRequest& request,
                                  Workspace& workspace) const {
  const int64_t wanted = request.all_logits ? pass.n_tokens : 1;
  const auto width = static_cast<size_t>(config_.n_vocab);
  if (request.logits.size() != static_cast<size_t>(wanted) * width)
    throw InvalidArgument(fmt::format("room for {} logits given, expected {} x {}",
                                      request.logits.size(), wanted, width));
  const int64_t group = workspace.layout().logit_rows;
  for (int64_t done = 0; done < wanted; done += group) {
    const int64_t rows = std::min(group, wanted - done);
    const Mat x = pass.x.slice_rows(pass.n_tokens - wanted + done, rows);
    const Mat normed = pass.normed.slice_rows(0, rows);
    const Mat logits = workspace.logits.slice_rows(0, rows);
    workspace.normed_act.reset(normed);
    pass.backend.rms_norm(x, output_norm_.data(), config_.norm_eps, workspace.normed_act);
    pass.note("", "output_norm", normed);
    pass.linears({{&output_, logits}}, workspace.normed_act);
    if (config_.logit_softcap > 0) pass.backend.softcap(logits, config_.logit_softcap);
    pass.note("", "logits", logits);
    for (int64_t r = 0; r < rows; ++r) {
      const std::span<const float> row(logits.row(r), width);
      if (find_non_finite(row))
        throw NonFiniteLogits(fmt::format("the logits of token {} are not finite",
                                          pass.first_position + pass.n_tokens - wanted + done + r));
      std::copy(row.begin(), row.end(),
                request.logits.begin() +
                    static_cast<std::ptrdiff_t>((done + r)) * static_cast<std::ptrdiff_t>(width));
    }
  }
}

}  // namespace ts
