#include "model/synthetic/shapes.h"

#include <string>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"

namespace ts {
namespace {

constexpr std::array<std::string_view, 3> kChatTokens = {"<|endoftext|>", "<|im_start|>",
                                                         "<|im_end|>"};
constexpr std::array<std::string_view, 33> kQwen35Tokens = {"<|endoftext|>",
                                                            "<|im_start|>",
                                                            "<|im_end|>",
                                                            "<|object_ref_start|>",
                                                            "<|object_ref_end|>",
                                                            "<|box_start|>",
                                                            "<|box_end|>",
                                                            "<|quad_start|>",
                                                            "<|quad_end|>",
                                                            "<|vision_start|>",
                                                            "<|vision_end|>",
                                                            "<|vision_pad|>",
                                                            "<|image_pad|>",
                                                            "<|video_pad|>",
                                                            "<tool_call>",
                                                            "</tool_call>",
                                                            "<|fim_prefix|>",
                                                            "<|fim_middle|>",
                                                            "<|fim_suffix|>",
                                                            "<|fim_pad|>",
                                                            "<|repo_name|>",
                                                            "<|file_sep|>",
                                                            "<tool_response>",
                                                            "</tool_response>",
                                                            "<think>",
                                                            "</think>",
                                                            "",
                                                            "",
                                                            "",
                                                            "",
                                                            "",
                                                            "",
                                                            "<|audio_pad|>"};

// Widths, heads and constants as the published configurations state them, unless a note says
// otherwise. What a row leaves out is as shapes.h says.
constexpr std::array kShapes = {
    SyntheticShape{
        .name = "ternary-bonsai-2-27b",
        .architecture = "qwen35",
        .n_layers = 64,
        .d_model = 5120,
        .d_ff = 17408,
        .n_heads = 24,
        .n_kv_heads = 4,
        .head_dim = 256,
        .n_rot = 64,
        .context = 262144,
        .rope_base = 1e7F,
        .rope_sections = {11, 11, 10, 0},
        .vocabulary = {"qwen35", 248320, 248044, 247587, kQwen35Tokens},
        .delta_net = {4, 4, 128, 16, 48},
    },
    SyntheticShape{
        .name = "qwen3-8b",
        .architecture = "qwen3",
        .n_layers = 36,
        .d_model = 4096,
        .d_ff = 12288,
        .n_heads = 32,
        .n_kv_heads = 8,
        .head_dim = 128,
        .n_rot = 128,
        .context = 65536,
        .rope_base = 1e6F,
        .vocabulary = {"qwen2", 151669, 151643, 151387, kChatTokens},
    },
    SyntheticShape{
        .name = "qwen3-1.7b",
        .architecture = "qwen3",
        .n_layers = 28,
        .d_model = 2048,
        .d_ff = 6144,
        .n_heads = 16,
        .n_kv_heads = 8,
        .head_dim = 128,
        .n_rot = 128,
        .context = 32768,
        .tied_output = true,
        .rope_base = 1e6F,
        .vocabulary = {"qwen2", 151669, 151643, 151387, kChatTokens},
    },
    // Of the family's usual proportions; not a published configuration.
    SyntheticShape{
        .name = "llama-1.5b",
        .architecture = "llama",
        .n_layers = 24,
        .d_model = 2048,
        .d_ff = 8192,
        .n_heads = 32,
        .n_kv_heads = 8,
        .head_dim = 64,
        .n_rot = 64,
        .context = 8192,
        .tied_output = true,
        .rope_base = 5e5F,
        .norm_eps = 1e-5F,
        .vocabulary = {"llama-bpe", 32000, 31997, 31741, kChatTokens},
    },
    SyntheticShape{
        .name = "smollm2-135m",
        .architecture = "llama",
        .scheme = "q2_0",
        .n_layers = 30,
        .d_model = 576,
        .d_ff = 1536,
        .n_heads = 9,
        .n_kv_heads = 3,
        .head_dim = 64,
        .n_rot = 64,
        .context = 8192,
        .tied_output = true,
        .rope_base = 1e5F,
        .norm_eps = 1e-5F,
        .hadamard_block = 64,
        .vocabulary = {"smollm", 49152, 49000, 48744, kChatTokens},
    },
    // Every kind of tensor of the large hybrid model, three value heads to a key head as there, in
    // under a megabyte: for trying things out.
    SyntheticShape{
        .name = "qwen35-tiny",
        .architecture = "qwen35",
        .n_layers = 4,
        .d_model = 256,
        .d_ff = 512,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = 64,
        .n_rot = 16,
        .context = 2048,
        .rope_base = 1e7F,
        .rope_sections = {3, 3, 2, 0},
        .hadamard_block = 128,
        .vocabulary = {"qwen35", 1024, 980, 700, kQwen35Tokens},
        .delta_net = {4, 4, 64, 2, 6},
    },
};

}  // namespace

std::span<const SyntheticShape> all_synthetic_shapes() noexcept {
  return kShapes;
}

const SyntheticShape& find_synthetic_shape(std::string_view name) {
  std::string known;
  for (const SyntheticShape& shape : kShapes) {
    if (shape.name == name) return shape;
    if (!known.empty()) known += ", ";
    known += shape.name;
  }
  throw InvalidArgument(
      fmt::format("no model shape is called {}; known are {}", quote_text(name), known));
}

}  // namespace ts
