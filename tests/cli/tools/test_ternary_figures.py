"""tools/ternary_figures.py: its arithmetic against definitions."""

import importlib.util
import pathlib
import unittest

import numpy as np

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "tools" / "ternary_figures.py"


class Figures(unittest.TestCase):
    def setUp(self):
        spec = importlib.util.spec_from_file_location("ternary_figures", SCRIPT)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.rng = np.random.default_rng(7)

    def test_transform(self):
        block = 8
        matrix = np.array([[(-1.0) ** (r & c).bit_count() for c in range(block)]
                           for r in range(block)]) / np.sqrt(block)
        x = self.rng.normal(size=(3, 2 * block))
        expected = (x.reshape(-1, block) @ matrix).reshape(x.shape)
        np.testing.assert_allclose(self.module.walsh_hadamard(x, block), expected, atol=1e-12)

    def test_best_fit_is_the_best_of_all(self):
        x = self.rng.normal(size=40)
        thresholds = [t for t in np.abs(x) if t < np.abs(x).max()]
        zeros, decibels = max((self.module.ternary_fit(x, t) for t in thresholds),
                              key=lambda fit: fit[1])
        _, best_zeros, best_decibels = self.module.best_ternary(x)
        self.assertAlmostEqual(best_decibels, decibels, places=9)
        self.assertAlmostEqual(best_zeros, zeros, places=9)

    def test_gaussian(self):
        threshold, zeros, decibels = self.module.best_ternary(self.rng.normal(size=400_000))
        self.assertAlmostEqual(threshold, 0.612, delta=0.02)
        self.assertAlmostEqual(zeros, 0.459, delta=0.01)
        self.assertAlmostEqual(decibels, 7.21, delta=0.05)

    def test_energy(self):
        self.assertAlmostEqual(self.module.energy_of_largest(np.array([[3.0, 0, 4, 0, 0]])), 16 / 25)
        gaussian = self.rng.normal(size=(50, 5000))
        self.assertAlmostEqual(self.module.energy_of_largest(gaussian), 0.65, delta=0.01)

    def test_mistakes_are_mistakes(self):
        for row in self.module.mistakes(self.rng):
            if row["mistake"] == "none":
                self.assertAlmostEqual(row["cosine"], 1.0)
            else:
                self.assertLess(abs(row["cosine"]), 0.15, row["mistake"])


if __name__ == "__main__":
    unittest.main()
