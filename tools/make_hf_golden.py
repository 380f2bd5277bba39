#!/usr/bin/env python3
"""Make the tiny Hugging Face checkpoints of testdata/hf and their expected logits.

    python3 tools/make_hf_golden.py testdata/hf

One folder per family (llama, qwen2, qwen3, gemma3, qwen35): config.json, safetensors with random
weights, a small trained tokenizer.json, and `expected/`: token sequences with the float32 logits
that the `transformers` implementation of the family computes for them, and encodings that the
`tokenizers` library gives for a few texts. The checkpoints are small but not plain: every one has
something that a converter or an engine can get wrong (grouped heads, a head size that is not
width / heads, biases, tied and separate heads, shards, both forms of the rotary settings, a sliding
window shorter than the sequences). The one of qwen35 has the form in which the family is released,
the language model inside a multimodal checkpoint with tensors that do not belong to it.

The files in the repository were made with Python 3.11, torch 2.15.0, transformers 5.24.0,
tokenizers 0.23.3, safetensors 0.8.0 and numpy 2.4.6. Other versions may draw other random numbers;
then checkpoints and logits change together. `expected/versions.json` records what was used.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import platform
import shutil
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import tokenizers
import torch
import transformers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

Json = dict[str, Any]

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRAINING_TEXT = ROOT / "testdata" / "stories260k" / "tinystories_40.txt"

SPLIT_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLIT_QWEN35 = SPLIT_QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(
    r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"
)
SPLIT_LLAMA3 = SPLIT_QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)

TEXTS = (
    "Once upon a time there was a little dog.",
    'He said: "I\'ll take 12345 steps!"\n\n  Then  he slept.',
    "Zo\u00eb and \u5f20\u4f1f saw a \U0001f600 in the na\u00efve caf\u00e9",
    "",
)

CONFIGS: dict[str, Json] = {
    # Rotary settings in the old form, of the llama3 kind; separate head; float32; one file.
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": 0,
        "eos_token_id": [1, 2],
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 96,
        "max_position_embeddings": 256,
        "mlp_bias": False,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_scaling": {
            "factor": 8.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 32,
            "rope_type": "llama3",
        },
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    },
    # Biases on q, k, v; tied head; bfloat16; three shards; more rows than tokens.
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "bos_token_id": 0,
        "eos_token_id": 0,
        "hidden_act": "silu",
        "hidden_size": 96,
        "intermediate_size": 64,
        "max_position_embeddings": 256,
        "max_window_layers": 2,
        "num_attention_heads": 3,
        "num_hidden_layers": 2,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "sliding_window": 64,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
    },
    # Head size larger than width / heads; YaRN in the new form; separate head; bfloat16.
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "bos_token_id": 0,
        "dtype": "bfloat16",
        "eos_token_id": 1,
        "head_dim": 32,
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 96,
        "layer_types": ["full_attention"] * 2,
        "max_position_embeddings": 256,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 10000.0,
            "rope_type": "yarn",
        },
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
    },
    # Every third layer global, window 8, two rotary bases, linear scaling of the global one.
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "_sliding_window_pattern": 3,
        "attn_logit_softcapping": None,
        "bos_token_id": 2,
        "dtype": "bfloat16",
        "eos_token_id": 1,
        "final_logit_softcapping": None,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 96,
        "intermediate_size": 64,
        "layer_types": [
            "sliding_attention",
            "sliding_attention",
            "full_attention",
            "sliding_attention",
        ],
        "max_position_embeddings": 256,
        "num_attention_heads": 2,
        "num_hidden_layers": 4,
        "num_key_value_heads": 1,
        "pad_token_id": 0,
        "query_pre_attn_scalar": 32,
        "rms_norm_eps": 1e-6,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "rope_theta": 1000000.0,
        "sliding_window": 8,
    },
    # Linear and full attention, three value heads for each key head, a quarter of a head rotary,
    # language model nested in a multimodal configuration; separate head; bfloat16; two shards.
    "qwen35": {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "image_token_id": 1,
        "model_type": "qwen3_5",
        "text_config": {
            "attention_bias": False,
            "attn_output_gate": True,
            "dtype": "bfloat16",
            "eos_token_id": 2,
            "full_attention_interval": 2,
            "head_dim": 32,
            "hidden_act": "silu",
            "hidden_size": 64,
            "intermediate_size": 96,
            "layer_types": ["linear_attention", "full_attention"] * 2,
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 6,
            "linear_value_head_dim": 16,
            "max_position_embeddings": 256,
            "model_type": "qwen3_5_text",
            "mtp_num_hidden_layers": 1,
            "mtp_use_dedicated_embeddings": False,
            "num_attention_heads": 4,
            "num_hidden_layers": 4,
            "num_key_value_heads": 2,
            "partial_rotary_factor": 0.25,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "mrope_interleaved": True,
                "mrope_section": [2, 1, 1],
                "partial_rotary_factor": 0.25,
                "rope_theta": 10000000,
                "rope_type": "default",
            },
            "tie_word_embeddings": False,
        },
        "tie_word_embeddings": False,
        "vision_config": {"depth": 1, "hidden_size": 16, "model_type": "qwen3_5_vision"},
    },
}

N_SHARDS = {"qwen2": 3, "qwen35": 2}
EXTRA_ROWS = {"qwen2": 8, "qwen35": 8}
FIRST_SEQUENCE = {"qwen35": 80}  # longer than the chunks of 64 of its linear layers
SPECIALS = {
    "llama": ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
    "qwen2": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "qwen3": ("<|endoftext|>", "<|im_end|>", "<think>"),
    "gemma3": ("<pad>", "<eos>", "<bos>", "<unk>"),
    "qwen35": ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>"),
}
TOKENIZER_CONFIGS: dict[str, Json] = {
    "llama": {
        "bos_token": "<|begin_of_text|>",
        "eos_token": "<|end_of_text|>",
        "chat_template": "{{ bos_token }}{% for m in messages %}{{ m['content'] }}"
        "<|eot_id|>{% endfor %}",
    },
    "qwen2": {
        "add_bos_token": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
    },
    "qwen3": {"add_bos_token": False, "bos_token": None, "eos_token": "<|im_end|>"},
    "qwen35": {
        "add_bos_token": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "pretokenize_regex": SPLIT_QWEN35,
    },
    "gemma3": {
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": {"content": "<bos>", "special": True},
        "eos_token": {"content": "<eos>", "special": True},
        "pad_token": {"content": "<pad>", "special": True},
        "unk_token": {"content": "<unk>", "special": True},
    },
}


def byte_level(family: str, text: str) -> tokenizers.Tokenizer:
    """Train a byte-level BPE tokenizer in the form of the family."""
    llama = family == "llama"
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=llama))
    if not llama:
        tokenizer.normalizer = normalizers.NFC()
    splits = {"llama": SPLIT_LLAMA3, "qwen35": SPLIT_QWEN35}
    pattern = Regex(splits.get(family, SPLIT_QWEN2))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        text.splitlines(),
        trainers.BpeTrainer(
            vocab_size=320,
            show_progress=False,
            special_tokens=list(SPECIALS[family]),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        ),
    )
    if llama:
        bos = SPECIALS[family][0]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A",
            pair=f"{bos} $A {bos} $B",
            special_tokens=[(bos, tokenizer.token_to_id(bos))],
        )
    return tokenizer


def sentencepiece_like(family: str, text: str) -> tokenizers.Tokenizer:
    """Train a BPE tokenizer with byte fallback, as Gemma's tokenizer.json has it."""
    bytes_as_tokens = [f"<0x{b:02X}>" for b in range(256)]
    specials = list(SPECIALS[family])
    trained = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    trained.normalizer = normalizers.Replace(" ", "\u2581")
    trained.pre_tokenizer = pre_tokenizers.Split(Regex("(?<=.)(?=\u2581)"), "isolated")
    trained.train_from_iterator(
        text.splitlines(),
        trainers.BpeTrainer(
            vocab_size=384,
            show_progress=False,
            special_tokens=specials + bytes_as_tokens,
        ),
    )
    # The byte tokens belong to the vocabulary but are no added tokens: rebuild without them.
    state = json.loads(trained.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] in specials]
    state["model"]["fuse_unk"] = True
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A",
        pair="<bos> $A <bos> $B",
        special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))],
    )
    return tokenizer


def random_weights(model: torch.nn.Module, family: str, dtype: torch.dtype) -> None:
    """Fill the model with values that keep activations near 1 and make every tensor matter."""
    generator = torch.Generator().manual_seed(20260101 + len(family) + ord(family[-1]))
    minus_one = family in ("gemma3", "qwen35")  # how these store their norms
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                centre = 0.0 if minus_one and "linear_attn" not in name else 1.0
                value = centre + 0.2 * noise
            elif name.endswith(("A_log", "dt_bias")):
                value = noise - 1.0
            elif name.endswith("bias"):
                value = 0.3 * noise
            elif "embed_tokens" in name:
                value = (0.1 if model.config.tie_word_embeddings else 0.5) * noise
            else:
                value = noise * parameter.shape[-1] ** -0.5
            parameter.copy_(value.to(dtype).to(torch.float32))


def write_json(path: pathlib.Path, value: Any) -> None:
    """Write readable JSON."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def save_weights(folder: pathlib.Path, state: dict[str, torch.Tensor], n_shards: int) -> None:
    """Write one safetensors file, or shards with an index."""
    names = sorted(state)
    if n_shards == 1:
        path = folder / "model.safetensors"
        safetensors.torch.save_file({n: state[n] for n in names}, path, {"format": "pt"})
        return
    weight_map = {}
    for shard in range(n_shards):
        file = f"model-{shard + 1:05}-of-{n_shards:05}.safetensors"
        part = {name: state[name] for name in names[shard::n_shards]}
        safetensors.torch.save_file(part, folder / file, {"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    total = sum(t.numel() * t.element_size() for t in state.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    write_json(folder / "model.safetensors.index.json", index)


def as_released(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Rename the tensors of the language model and add what a released qwen35 has beside them."""
    generator = torch.Generator().manual_seed(35)
    dtype = state["lm_head.weight"].dtype

    def noise(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * 0.1).to(dtype)

    released = {name.replace("model.", "model.language_model.", 1): t for name, t in state.items()}
    # A block that predicts one more token: a full-attention layer and what joins it to the model.
    block = "model.layers.1."
    for name, tensor in state.items():
        if name.startswith(block):
            released["mtp.layers.0." + name.removeprefix(block)] = noise(*tensor.shape)
    width = state["model.norm.weight"].shape[0]
    released["mtp.fc.weight"] = noise(width, 2 * width)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        released[f"mtp.{name}.weight"] = noise(width)
    released["model.visual.patch_embed.proj.weight"] = noise(16, 3, 2, 4, 4)
    released["model.visual.blocks.0.norm1.weight"] = noise(16)
    return released


def make(family: str, folder: pathlib.Path) -> None:
    """Make one checkpoint and what is expected of it."""
    expected = folder / "expected"
    shutil.rmtree(folder, ignore_errors=True)
    expected.mkdir(parents=True)

    text = TRAINING_TEXT.read_text().replace("<|endoftext|>", "")
    make_tokenizer = sentencepiece_like if family == "gemma3" else byte_level
    tokenizer = make_tokenizer(family, text)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", TOKENIZER_CONFIGS[family])

    n_vocab = tokenizer.get_vocab_size() + EXTRA_ROWS.get(family, 0)
    written = {**CONFIGS[family]}
    if "text_config" in written:
        written["text_config"] = {**written["text_config"], "vocab_size": n_vocab}
    else:
        written["vocab_size"] = n_vocab
    write_json(folder / "config.json", written)
    config = transformers.AutoConfig.from_pretrained(folder).get_text_config()
    dtype = config.dtype
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    random_weights(model, family, dtype)
    state = {
        name: tensor.to(dtype).contiguous()
        for name, tensor in model.state_dict().items()
        if not (name == "lm_head.weight" and config.tie_word_embeddings)
    }
    if family == "qwen35":
        state = as_released(state)
    save_weights(folder, state, N_SHARDS.get(family, 1))

    # The logits come from the files, not from the model in memory.
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    generator = np.random.default_rng(7)
    sequences = [
        generator.integers(0, tokenizer.get_vocab_size(), FIRST_SEQUENCE.get(family, 28)).tolist(),
        tokenizer.encode(TEXTS[0] + " " + TEXTS[1]).ids[:16],
        [int(generator.integers(0, tokenizer.get_vocab_size()))],
    ]
    for number, ids in enumerate(sequences):
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0]
        np.save(expected / f"logits_{number}.npy", logits.numpy().astype("<f4"))
    write_json(expected / "sequences.json", sequences)
    encodings = [{"text": t, "ids": tokenizer.encode(t).ids} for t in TEXTS]
    write_json(expected / "encodings.json", encodings)
    libraries = (torch, transformers, tokenizers, safetensors, np)
    versions = {library.__name__: library.__version__ for library in libraries}
    write_json(expected / "versions.json", {"python": platform.python_version(), **versions})


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=pathlib.Path, help="folder that gets one folder per family")
    parser.add_argument("--family", choices=sorted(CONFIGS), help="only this one")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the same sums in every run
    for family in [options.family] if options.family else CONFIGS:
        make(family, options.output / family)


if __name__ == "__main__":
    main()
