"""Stories and tokenizer for the tiny model.

TinyStories (Eldan and Li), CDLA-Sharing-1.0, in either of the two plain forms it is passed around
in: stories separated by `<|endoftext|>`, or one story after the other where a blank line separates
paragraphs and a single line end separates stories.
"""

from __future__ import annotations

import pathlib
import random
import re
from collections.abc import Iterable

import numpy as np
import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

LICENCE_LINE = "Training text: TinyStories (Eldan and Li), CDLA-Sharing-1.0"

END_OF_TEXT, TURN_START, TURN_END = 0, 1, 2
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SEPARATOR = SPECIAL_TOKENS[END_OF_TEXT]

# The splitting rule that GGUF files call `qwen35`.
SPLIT_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

MIN_STORY, MAX_STORY = 150, 2400  # characters: drops fragments and rambling
CHAT_SHARE = 0.25

# Punctuation that was decoded as Windows-1252 once too often, and its plain form.
REPAIRS = {
    "\u00e2\u20ac\u0153": '"',
    "\u00e2\u20ac\u2122": "'",
    "\u00e2\u20ac\u02dc": "'",
    "\u00e2\u20ac": '"',
    "\u201c": '"',
    "\u201d": '"',
    "\u2019": "'",
    "\u2018": "'",
    "\u2014": " - ",
    "\u2013": " - ",
}


def tidy(story: str) -> str:
    """Plain quotes, one line end between paragraphs, no blanks at line ends."""
    for bad, good in REPAIRS.items():
        story = story.replace(bad, good)
    lines = (re.sub(r"\s+", " ", line).strip() for line in story.splitlines())
    return "\n".join(line for line in lines if line)


def read_stories(path: pathlib.Path) -> list[str]:
    """Return the stories of one file."""
    text = path.read_text(encoding="utf-8")
    raw = text.split(SEPARATOR) if SEPARATOR in text else re.split(r"(?<!\n)\n(?!\n)", text)
    return [story for story in map(tidy, raw) if story]


def training_stories(paths: Iterable[pathlib.Path], held_out: list[str]) -> list[str]:
    """Return the stories to train on: whole ones, and none that shares a line with `held_out`."""
    forbidden = {line for story in held_out for line in story.splitlines() if len(line) >= 30}
    kept: dict[str, None] = {}
    for path in paths:
        for story in read_stories(path):
            whole = MIN_STORY <= len(story) <= MAX_STORY and story[-1] in '.!?"'
            if whole and not forbidden.intersection(story.splitlines()):
                kept[story] = None
    return list(kept)


def train_tokenizer(stories: list[str], n_vocab: int) -> tokenizers.Tokenizer:
    """Train a byte-level BPE."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_QWEN35), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab,
        show_progress=False,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(stories, trainer)
    if tokenizer.get_vocab_size() != n_vocab:
        raise SystemExit(f"the text gives {tokenizer.get_vocab_size()} tokens, not {n_vocab}")
    return tokenizer


def request_for(story: str, rng: random.Random) -> str:
    """Return what a user would have typed to get this story."""
    name = re.search(r"\bnamed ([A-Z][a-z]+)", story)
    if name and rng.random() < 0.6:
        return f"Tell me a story about {name.group(1)}."
    return rng.choice(("Tell me a story.", "Please tell me a story.", "Write a short story."))


def token_stream(
    stories: list[str], tokenizer: tokenizers.Tokenizer, rng: random.Random
) -> np.ndarray:
    """Shuffle the stories and join their tokens; some as the answer in a conversation."""
    order = list(stories)
    rng.shuffle(order)
    texts = []
    for story in order:
        if rng.random() < CHAT_SHARE:
            texts.append(
                f"<|im_start|>user\n{request_for(story, rng)}<|im_end|>\n"
                f"<|im_start|>assistant\n{story}<|im_end|>\n"
            )
        else:
            texts.append(story)
    ids: list[int] = [END_OF_TEXT]
    for encoding in tokenizer.encode_batch(texts):
        ids += encoding.ids
        ids.append(END_OF_TEXT)
    return np.asarray(ids, dtype=np.int32)
