#!/usr/bin/env python3
"""The float64 forward pass of tools/reference against worked examples and the stored files."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "tools" / "reference"
MODELS = ROOT / "testdata" / "qwen35"
sys.path.insert(0, str(REFERENCE))

import blocks  # noqa: E402
import gguf_file  # noqa: E402
import golden  # noqa: E402
import hf_qwen35  # noqa: E402
import qwen35  # noqa: E402

import hadamard  # noqa: E402


def contract(block: int, signs: list[int]) -> hadamard.Contract:
    """A contract with the signs of one width."""
    return hadamard.Contract(block=block, signs={len(signs): np.array(signs, dtype=np.float64)})


class Transform(unittest.TestCase):
    """Worked by hand."""

    def test_signs_come_first(self) -> None:
        rotation = contract(4, [1, -1, -1, 1, 1, 1, -1, -1])
        x = np.arange(1.0, 9.0)
        turned = rotation.forward(x)
        self.assertEqual(turned.tolist(), [0, -2, -1, 5, -2, 0, 13, -1])
        self.assertEqual(rotation.inverse(turned).tolist(), x.tolist())

    def test_factor_of_eight(self) -> None:
        turned = hadamard.walsh_hadamard(np.arange(1.0, 9.0), 8) * np.sqrt(8.0)
        np.testing.assert_allclose(turned, [36, -4, -8, 0, -16, 0, 0, 0], atol=1e-12)

    def test_whole_heads_move(self) -> None:
        tiled = np.arange(12.0)
        grouped = hadamard.tiled_to_grouped(tiled, n_k=2, n_v=6)
        self.assertEqual(grouped.tolist(), [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11])
        self.assertEqual(hadamard.grouped_to_tiled(grouped, 2, 6).tolist(), tiled.tolist())

    def test_input_of_ssm_out(self) -> None:
        signs = [1, -1, -1, -1, 1, 1, 1, 1, 1, 1, -1, -1, -1, 1, 1, 1]
        grouped = hadamard.tiled_to_grouped(np.arange(1.0, 17.0), n_k=2, n_v=4)
        turned = contract(4, signs).forward(grouped)
        expected = [-4, 2, 3, 1, 21, -1, -2, 0, -2, 0, 13, -1, 16, -14, -15, -13]
        self.assertEqual(turned.tolist(), expected)


class Blocks(unittest.TestCase):
    """Packing and decoding."""

    def test_worked_example(self) -> None:
        i = np.arange(128)
        codes = ((i + i // 16) % 3 - 1).astype(np.int8).reshape(1, 128)
        scale = np.array([0.5], dtype=np.float16)
        self.assertEqual(
            blocks.pack_ptq1_0(codes, scale).tobytes().hex(),
            "456ccf456ccf456ccf456ccf456ccf455ed1515ed1515ed16cce0038",
        )
        self.assertEqual(
            blocks.pack_pq2_0(codes, scale).tobytes().hex(),
            "0038"
            + "2449922492244992"
            + "4992244924499224"
            + "9224499249922449"
            + "2449922492244992",
        )

    def test_packs_decode_to_what_was_packed(self) -> None:
        rng = np.random.default_rng(1)
        for kind in (blocks.PTQ1_0, blocks.PQ2_0, blocks.Q2_0, blocks.TQ2_0):
            codes = rng.integers(-1, 2, (40, kind.n_elements)).astype(np.int8)
            scales = rng.random(40).astype(np.float16)
            packed = blocks.PACKERS[kind.number](codes, scales)
            self.assertEqual(packed.shape, (40, kind.n_bytes), kind.name)
            np.testing.assert_array_equal(
                kind.decode(packed), codes * scales[:, None].astype(float)
            )


class StoredFiles(unittest.TestCase):
    """The files of testdata/qwen35."""

    def test_random_models_are_made_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = REFERENCE / "make_qwen35_models.py"
            subprocess.run([sys.executable, str(script), folder], check=True)
            made = sorted(p.name for p in pathlib.Path(folder).glob("*.gguf"))
            self.assertGreaterEqual(len(made), 8)
            for name in made:
                new, old = pathlib.Path(folder) / name, MODELS / name
                self.assertEqual(new.read_bytes(), old.read_bytes(), name)

    def test_logits(self) -> None:
        paths = sorted(MODELS.glob("*.golden.json"))
        self.assertGreaterEqual(len(paths), 8)
        for path in paths:
            model = path.with_name(json.loads(path.read_text())["model"])
            self.assertLess(golden.check(model, path), golden.TOLERANCE, path.name)

    def test_forms_of_one_model_agree(self) -> None:
        names = ("unfolded", "folded_ptq1_0", "folded_pq2_0")
        records = [json.loads((MODELS / f"{n}.golden.json").read_text()) for n in names]
        first = np.array(records[0]["logits"])
        for record in records[1:]:
            self.assertEqual(record["ids"], records[0]["ids"])
            np.testing.assert_allclose(np.array(record["logits"]), first, atol=1e-6)

    def test_misreadings_show(self) -> None:
        path = MODELS / "folded_ptq1_0.power.json"
        power = json.loads(path.read_text())
        record = json.loads((MODELS / "folded_ptq1_0.golden.json").read_text())
        for name in ("signs_after", "no_inverse", "tiled_order", "plain_head", "no_rotation"):
            row = power[name]
            model = qwen35.Model.load(MODELS / "folded_ptq1_0.gguf", qwen35.Mistake[name.upper()])
            wrong = model.forward(record["ids"])[row["position"]]
            np.testing.assert_allclose(wrong, row["logits"], atol=1e-6)
            self.assertGreater(row["max_abs_error"], 1.0, name)
            self.assertGreater(row["mean_kl"], 0.5, name)

    def test_keys_give_the_same_misreadings(self) -> None:
        metadata, tensors = gguf_file.read(MODELS / "folded_ptq1_0.gguf")
        weights = {name: tensor.decode() for name, tensor in tensors.items()}
        record = json.loads((MODELS / "folded_ptq1_0.golden.json").read_text())
        power = json.loads((MODELS / "folded_ptq1_0.power.json").read_text())
        prefix = hadamard.PREFIX
        names = [n for n in metadata[prefix + "weight_names"] if n != hadamard.HEAD]
        without = {
            "no_inverse": {k: v for k, v in metadata.items() if "inverse" not in k},
            "tiled_order": {k: v for k, v in metadata.items() if "gdn_v_grouped" not in k},
            "plain_head": metadata | {prefix + "weight_names": names},
            "no_rotation": {k: v for k, v in metadata.items() if not k.startswith(prefix)},
        }
        for name, keys in without.items():
            wrong = qwen35.Model(keys, weights).forward(record["ids"])[power[name]["position"]]
            np.testing.assert_allclose(wrong, power[name]["logits"], atol=1e-6)

    def test_packs_of_the_trained_model_are_equal(self) -> None:
        packs = [MODELS / f"tiny_trained.{pack}.gguf" for pack in ("ptq1_0", "pq2_0")]
        files = [gguf_file.read(path) for path in packs]
        ternary = 0
        for (name, one), (other_name, other) in zip(
            files[0][1].items(), files[1][1].items(), strict=True
        ):
            self.assertEqual(name, other_name)
            np.testing.assert_array_equal(one.decode(), other.decode(), name)
            ternary += one.kind is blocks.PTQ1_0 and other.kind is blocks.PQ2_0
        keys = files[0][0]
        self.assertEqual(ternary, len(keys[hadamard.PREFIX + "weight_names"]) + 1)
        self.assertEqual(
            {k: v for k, v in keys.items() if k != "general.file_type"},
            {k: v for k, v in files[1][0].items() if k != "general.file_type"},
        )
        for path in packs:
            self.assertLess(path.stat().st_size, 3_000_000)

    def test_folding_changes_no_logit(self) -> None:
        metadata, weights = hf_qwen35.convert(ROOT / "testdata" / "hf" / "qwen35")
        ids = list(range(5, 25))
        plain = qwen35.Model(metadata, weights).forward(ids)
        kinds = (
            "attn_q attn_k attn_v attn_output attn_qkv attn_gate ssm_out ffn_gate ffn_up ffn_down"
        )
        named = tuple(f".{kind}.weight" for kind in kinds.split())
        folded = [n for n in weights if n.endswith(named) or n == hadamard.HEAD]
        widths = sorted({weights[n].shape[1] for n in folded})
        self.assertEqual(widths, [64, 96, 128])
        signs = np.random.default_rng(3).choice([-1, 1], sum(widths)).tolist()
        keys = {
            "version": 1,
            "block_size": 32,
            "transform": "normalized-sylvester-walsh-hadamard",
            "axis": "input-last-dimension",
            "sign_mode": "explicit",
            "sign_widths": widths,
            "sign_values": signs,
            "weight_names": folded,
            "inverse_weight_names": [hadamard.EMBEDDING],
            "gdn_v_grouped": True,
        }
        metadata |= {hadamard.PREFIX + key: value for key, value in keys.items()}
        rotation = qwen35.Model(metadata, weights).contract
        for name in [*folded, hadamard.EMBEDDING]:
            rows = weights[name]
            if name.endswith("ssm_out.weight"):
                rows = hadamard.tiled_to_grouped(rows, n_k=2, n_v=6)
            weights[name] = rotation.forward(rows)
        again = qwen35.Model(metadata, weights).forward(ids)
        np.testing.assert_allclose(again, plain, atol=1e-10)

    def test_checkpoint_of_the_family(self) -> None:
        script = REFERENCE / "hf_qwen35.py"
        folder = ROOT / "testdata" / "hf" / "qwen35"
        subprocess.run(
            [sys.executable, str(script), str(folder)], check=True, stdout=subprocess.DEVNULL
        )


if __name__ == "__main__":
    unittest.main()
