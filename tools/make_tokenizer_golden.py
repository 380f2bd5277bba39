#!/usr/bin/env python3
"""Make the golden token ids in testdata/tokenizer/ with other people's tokenizers.

    tools/make_tokenizer_golden.py texts
    tools/make_tokenizer_golden.py qwen3 TOKENIZER_JSON
    tools/make_tokenizer_golden.py smollm2-135m MODEL.gguf
    tools/make_tokenizer_golden.py gemma3-270m MODEL.gguf

"texts" writes the texts; the others write the ids that Hugging Face's tokenizers (byte-level BPE)
or Google's sentencepiece (Gemma) give for them, without special tokens. For a GGUF file the
tokenizer is rebuilt from the file's own vocabulary, so the two implementations start from the same
data. Needs the packages tokenizers, sentencepiece, gguf and protobuf.
"""

from __future__ import annotations

import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "tokenizer"

CODE = '''#include <vector>
// Sum of squares, e.g. 1+4+9=14
template <typename T>
T sum(const std::vector<T>& xs) {
\tT s{};
\tfor (auto x : xs) s += x*x;   /* no overflow check */
\treturn s;
}
'''
PYTHON = '''def f(x: int, *args, **kw) -> dict[str, "list[int]"]:
    """Doc-string."""
    if x != 0 and not (x >= 10_000):
        return {"a": [x ** 2, 0xFF, 1e-9], 'b': f"{x!r:>8}"}
    raise ValueError(f"bad {x}")  # TODO(#123)
'''
MARKDOWN = '''# Title

* item one
* item **two**, `code`, [link](https://example.org/a?b=c&d=%20e#f)

| a | b |
|---|---|
| 1 | 2.50 |

> quote -- with dashes…

```json
{"k": [1, 2, {"n": null}], "s": "\\u00e9\\n"}
```
'''


def texts() -> list[str]:
    out = [CODE, PYTHON, MARKDOWN, CODE.replace("\n", "\r\n")]
    # Digits, numbers in other scripts, units.
    out += ["1234567", "0", "12 345,67 €", "3.14159e-10", "2025-11-30T08:00:00Z", "v1.2.3-rc4",
            "1/2 ½ ¾ ² ³ ₄", "٠١٢٣٤٥٦٧٨٩", "१२३ ४५६", "一二三 〇 ㊿ Ⅷ ⅷ", "1,000,000.00$", "0x1F 0b101",
            "100%", "№5", "7 7  7   7    7", "1a2b3c", "a1 b22 c333 d4444"]
    # Punctuation and symbols.
    out += ["->", "(x):\n", "a->b::c", "!!!", "...", "…", "?!?!", "<=>", "{{}}", "[[1]]", "//", "/* */",
            "#!/bin/sh", "$HOME/.config", "C:\\Users\\x", "a_b_c", "__init__", "--flag=value", "&amp;",
            "<div class=\"a\">x</div>", "~!@#$%^&*()_+`-={}|[]\\:\";'<>?,./", "“curly” ‘quotes’ «guillemets»",
            "—–-", "§ ¶ † ‡ • ‰ ™ ©", "≤ ≥ ≠ ± × ÷ ∑ ∫ √ ∞", "→ ← ⇒ ⇔", "¡Hola! ¿Qué tal?"]
    # Contractions in either case, apostrophes.
    out += ["I'm you're he's she'll we've they'd don't", "I'M YOU'RE HE'S SHE'LL WE'VE THEY'D DON'T",
            "'s 't 're", "''s", "'S'T'RE'VE'M'LL'D", "rock 'n' roll", "y'all'd've", "l'été d'abord",
            "'tis", "dogs' 'quoted' it’s", "'ſ 'LL'l", "can't've'nt"]
    # White space.
    out += [" ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r\n", "\r", " \n", "\n ", " \n ",
            "a b", "a  b", "a   b", "a    b", " a", "  a", "a ", "a  ", "\na", "a\n", "a\n\nb", "a \n b",
            "a\n  b\n    c\n", "\t\tif (a) {  // c", "x\t y \t z", "  two  spaces\n\n  x\n", "end   ",
            "a\u00a0b", "a\u2003b\u2003", "\u3000全角\u3000", "a\u2028b\u2029c", "a\u0085b", "a\x0bb\x0cc",
            "a\u180eb", "a\u200bb", "\ufeffBOM", " " * 40 + "x", "\n" * 20 + "x", "x" + " \n" * 10, "\t" * 12 + "y"]
    # Scripts.
    out += ["Größe, Fußgänger, naïve café", "Привет, мир! Ёлка", "Γειά σου Κόσμε", "שלום עולם", "مرحبا بالعالم",
            "हिन्दी में लिखा", "क्षि", " क्षि", "বাংলা ভাষা", "தமிழ் மொழி", "ภาษาไทย", "ខ្មែរ", "မြန်မာ", "አማርኛ", "ქართული",
            "Հայերեն", "日本語のテキスト、です。", "中文字符测试，没有空格。", "한국어 문장입니다.", "Tiếng Việt đẹp lắm",
            "İstanbul ığdır", "ǅ ǆ Ǆ", "ﬁ ﬂ ﬃ", "ＡＢＣ１２３", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛", "𐎠𐏐 𓀀", "ᏣᎳᎩ", "ᚠᚢᚦ",
            "mixed文字andЛатиница混ぜる"]
    # Combining marks, both normal forms, zalgo.
    out += ["e\u0301", "é", "a\u0300e\u0301i\u0302o\u0303u\u0308", "Vie\u0323\u0302t", "Z\u0351\u036b\u0343a\u0329\u034el\u0321g\u0322o\u0328",
            "\u0301", " \u0301x", "x\u20dd", "각", "\u1100\u1161\u11a8"]
    # Emoji: modifiers, joiners, flags, keycaps.
    out += ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "1️⃣ #️⃣", "❤️ ❤", "I ❤️ NY 🗽!", "🧑🏿‍🚀🧑🏻‍🔬", "😶‍🌫️ done", "🚀🚀🚀", "a😀b", " 😀 "]
    # Control characters, odd code points.
    out += ["\x00", "a\x00b", "\x01\x02\x1f", "\x7f", "\x80\x9f", "\ufffd", "\ufffe", "\U0010ffff", "\ue000",
            "\u202eabc\u202c", "\u00ad", "\u0378"]
    # Texts that look like special tokens or bytes, in parts.
    out += ["<|im_start", "|im_end|>", "<0x41>", "<0x0A>", "< s >", "<unk", "[PAD1]", "▁", "a▁b", "Ġ", "Ċ x Ġy", "<bos", "<think"]
    # Prose, names, long words, repetition.
    out += ["The quick brown fox jumps over the lazy dog.", "Hello, we can use", "The capital of France is",
            "Hello world! 123", "Café déjà vu.", "  multiple   spaces", "HTTPServer getURLForID XMLHttpRequest",
            "camelCase PascalCase snake_case SCREAMING_CASE kebab-case", "Donaudampfschifffahrtsgesellschaft",
            "antidisestablishmentarianism " * 3, "A" * 300, "ab" * 150, "=" * 100, "-" * 33 + "\n", "ha" * 20 + "!",
            "aaaa bbbb aaaa bbbb", "user@example.com https://a.b/c?d=e", "TGljZW5zZWQgdW5kZXIgdGhlIEFwYWNoZSBMaWNlbnNl/+==",
            "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "SELECT * FROM t WHERE a='b' AND c IS NOT NULL;",
            "\\frac{a}{b} + \\sqrt{x^2}", "E = mc²; F⃗ = ma⃗", "x=[1,2];\r\n\tfoo()", "Explain in two sentences why the sky is blue."]
    assert len(out) == len(set(out)) and len(out) >= 200, (len(out), len(set(out)))
    return out


def write(name: str, value: object) -> None:
    path = FOLDER / name
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    path.write_text(text.replace("],[", "],\n[").replace('","', '",\n"') + "\n", encoding="utf-8")
    print(path)


def gguf_fields(path: str) -> dict[str, object]:
    import gguf

    reader = gguf.GGUFReader(path)
    return {key: field.contents() for key, field in reader.fields.items()}


def smollm2(path: str):
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    fields = gguf_fields(path)
    assert fields["tokenizer.ggml.pre"] == "smollm"
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ", 1)) for m in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.add_special_tokens(
        [AddedToken(t, normalized=False, special=True) for t, k in zip(tokens, types, strict=True) if k == 3])
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def qwen3(path: str):
    from tokenizers import Tokenizer

    data = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    data["normalizer"] = None  # normal form C is not part of the GGUF form of this tokenizer
    tokenizer = Tokenizer.from_str(json.dumps(data))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def gemma3(path: str):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as proto

    fields = gguf_fields(path)
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    model = proto.ModelProto()
    for token, kind, score in zip(tokens, types, fields["tokenizer.ggml.scores"], strict=True):
        piece = model.pieces.add()
        piece.piece, piece.type, piece.score = token.replace(" ", "\u2581"), int(kind), float(score)
    model.trainer_spec.model_type = proto.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.vocab_size = len(tokens)
    for name, key in (("unk", "unknown"), ("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        setattr(model.trainer_spec, f"{name}_id", int(fields[f"tokenizer.ggml.{key}_token_id"]))
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    return lambda text: processor.encode(text)


def main() -> int:
    if len(sys.argv) == 2 and sys.argv[1] == "texts":
        write("texts.json", texts())
        return 0
    makers = {"qwen3": qwen3, "smollm2-135m": smollm2, "gemma3-270m": gemma3}
    if len(sys.argv) != 3 or sys.argv[1] not in makers:
        print(__doc__, file=sys.stderr)
        return 2
    encode = makers[sys.argv[1]](sys.argv[2])
    write(f"{sys.argv[1]}.ids.json", [encode(text) for text in texts()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
