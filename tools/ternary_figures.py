#!/usr/bin/env python3
"""Figures about ternary weights and the Hadamard rotation: what is true of claims in circulation.

    python3 tools/ternary_figures.py [--json] [--weights FILE.npy]

Everything is computed here from random numbers of a fixed seed (and from a matrix of real weights, if
one is given, rows last). Needs NumPy only; takes about ten seconds.
"""

import argparse
import json

import numpy as np

BLOCK = 1024
WIDTH = 5120  # of the hidden state of the 27B model
HEADS, KEY_HEADS = 48, 16  # of its recurrent layers, 128 wide


def walsh_hadamard(x: np.ndarray, block: int = BLOCK) -> np.ndarray:
    """The normalised transform in Sylvester order of each block of the last axis."""
    shape = x.shape
    x = x.reshape(-1, block).astype(np.float64)
    half = 1
    while half < block:
        pairs = x.reshape(-1, block // (2 * half), 2, half)
        x = np.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), axis=2)
        half *= 2
    return x.reshape(shape) / np.sqrt(block)


def ternary_fit(x: np.ndarray, threshold: float) -> tuple[float, float]:
    """Share of zeros and signal to noise in dB when |x| <= threshold becomes 0 and the rest the mean."""
    kept = np.abs(x) > threshold
    scale = np.abs(x[kept]).mean()
    error = x - np.where(kept, np.sign(x) * scale, 0.0)
    return 1.0 - kept.mean(), 10 * np.log10((x**2).mean() / (error**2).mean())


def best_ternary(x: np.ndarray) -> tuple[float, float, float]:
    """Threshold (in rms), share of zeros and dB of the fit with the least error."""
    magnitude = np.sort(np.abs(x).ravel())[::-1]
    n = np.arange(1, magnitude.size + 1)
    # With the k largest kept at their mean m the error is sum(x^2) - k m^2.
    gain = np.cumsum(magnitude) ** 2 / n
    k = int(np.argmax(gain)) + 1
    energy = (magnitude**2).sum()
    rms = np.sqrt(energy / magnitude.size)
    return (magnitude[k - 1] / rms, 1 - k / magnitude.size,
            10 * np.log10(energy / (energy - gain[k - 1])))


def energy_of_largest(x: np.ndarray, share: float = 0.2) -> float:
    """Share of each row's energy that its largest `share` of values holds."""
    energy = np.sort(x.reshape(-1, x.shape[-1]) ** 2, axis=-1)[:, ::-1]
    count = round(share * x.shape[-1])
    return float((energy[:, :count].sum(-1) / energy.sum(-1)).mean())


def kurtosis(x: np.ndarray) -> float:
    return float((x**4).mean() / (x**2).mean() ** 2)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def sources(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Rows of weights of several kinds; the smooth one is what transforms of images are good at."""
    rows = 200
    t = np.arange(WIDTH) / WIDTH
    smooth = sum(rng.normal(size=(rows, 1)) / f * np.sin(2 * np.pi * f * t + rng.uniform(0, 6.28, (rows, 1)))
                 for f in range(1, 9))
    outliers = rng.normal(size=(rows, WIDTH))
    outliers[:, rng.choice(WIDTH, 26, replace=False)] *= 20
    return {
        "Gaussian": rng.normal(size=(rows, WIDTH)),
        "Laplace": rng.laplace(size=(rows, WIDTH)),
        "Student t, 4 degrees": rng.standard_t(4, size=(rows, WIDTH)),
        "Gaussian, 0.5 % of the columns 20 times as large": outliers,
        "smooth curve (not weights)": smooth,
    }


def fits(rng: np.random.Generator, weights: np.ndarray | None) -> list[dict]:
    kinds = sources(rng)
    if weights is not None:
        kinds["given weights"] = weights[:, : weights.shape[1] // BLOCK * BLOCK].astype(np.float64)
    results = []
    for name, rows in kinds.items():
        signs = rng.choice([-1.0, 1.0], rows.shape[1])
        for basis, x in (("original", rows), ("rotated", walsh_hadamard(rows * signs))):
            groups = x.reshape(-1, 128)  # each with a scale of its own, as the formats have
            groups = groups[np.abs(groups).max(-1) > 0]
            fitted = np.array([best_ternary(g)[1:] for g in groups[:2000]])
            results.append({
                "source": name, "basis": basis, "kurtosis": kurtosis(x),
                "zeros_at_least_error": fitted[:, 0].mean(),
                "snr_db": fitted[:, 1].mean(),
                "energy_in_largest_20_percent": energy_of_largest(x),
            })
    return results


def gaussian_thresholds(rng: np.random.Generator) -> list[dict]:
    x = rng.normal(size=4_000_000)
    best = best_ternary(x)
    rules = [("least error", best[0])]
    rules.append(("half the mean magnitude", 0.5 * np.abs(x).mean()))
    rules.append(("forced to 85 % zeros", float(np.quantile(np.abs(x), 0.85))))
    rules.append(("largest magnitude as scale (rounding)", None))
    results = []
    for name, threshold in rules:
        if threshold is None:  # per group of 128
            groups = x.reshape(-1, 128)
            scale = np.abs(groups).max(-1, keepdims=True)
            codes = np.round(groups / scale)
            error = groups - codes * scale
            zeros, snr = (codes == 0).mean(), 10 * np.log10((groups**2).mean() / (error**2).mean())
        else:
            zeros, snr = ternary_fit(x, threshold)
        results.append({"rule": name, "threshold_rms": threshold, "zeros": float(zeros), "snr_db": float(snr)})
    return results


def mistakes(rng: np.random.Generator) -> list[dict]:
    """Cosine between the right product and the one with a step done wrongly, on stored ternary rows."""
    n_out, head = 2048, 128
    results = []

    def add(name: str, wrong: np.ndarray, right: np.ndarray) -> None:
        results.append({"mistake": name, "cosine": cosine(wrong, right)})

    w = rng.integers(-1, 2, (n_out, WIDTH)).astype(np.float64)
    x, s = rng.normal(size=WIDTH), rng.choice([-1.0, 1.0], WIDTH)
    right = w @ walsh_hadamard(x * s)
    add("none", w @ walsh_hadamard(x * s), right)
    add("transform left out", w @ x, right)
    add("signs after the transform", w @ (s * walsh_hadamard(x)), right)
    add("signs left out", w @ walsh_hadamard(x), right)
    add("signs of another width", w @ walsh_hadamard(x * rng.choice([-1.0, 1.0], WIDTH)), right)
    add("blocks of 128 in place of 1024", w @ walsh_hadamard(x * s, 128), right)

    width = HEADS * head
    w = rng.integers(-1, 2, (n_out, width)).astype(np.float64)
    x, s = rng.normal(size=width), rng.choice([-1.0, 1.0], width)
    tiled = x.reshape(HEADS // KEY_HEADS, KEY_HEADS, head)
    grouped = tiled.transpose(1, 0, 2).reshape(-1)
    right = w @ walsh_hadamard(grouped * s)
    add("heads of ssm_out left in the other order", w @ walsh_hadamard(x * s), right)

    # A row of the embedding, looked up but not rotated back.
    z = rng.integers(-1, 2, (n_out, WIDTH)).astype(np.float64)
    s = rng.choice([-1.0, 1.0], WIDTH)
    add("embedding not rotated back", z, s * walsh_hadamard(z))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--weights", help="a matrix as .npy, rows of at least 1024 values")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    weights = None
    if arguments.weights:
        try:
            weights = np.load(arguments.weights)
        except (OSError, ValueError) as error:
            parser.error(f"{arguments.weights}: {error}")
    if weights is not None and (weights.ndim != 2 or weights.shape[1] < BLOCK):
        parser.error(f"{arguments.weights}: expected a matrix with rows of at least {BLOCK} values, "
                     f"found shape {weights.shape}")
    ternary = rng.integers(-1, 2, (400, WIDTH)).astype(np.float64)
    report = {
        "gaussian": gaussian_thresholds(rng),
        "sources": fits(rng, weights),
        "mistakes": mistakes(rng),
        "ternary_rows_kurtosis": kurtosis(ternary),
        "ternary_rows_rotated_back_kurtosis": kurtosis(walsh_hadamard(ternary)),
    }
    if arguments.json:
        print(json.dumps(report))
        return
    print("Gaussian, groups of any size      threshold/rms   zeros   SNR dB")
    for r in report["gaussian"]:
        threshold = "" if r["threshold_rms"] is None else f"{r['threshold_rms']:.3f}"
        print(f"  {r['rule']:38} {threshold:>5}   {r['zeros']:6.1%}   {r['snr_db']:5.2f}")
    print("\nbest ternary fit of groups of 128                   basis     kurtosis  zeros  SNR dB  energy of top 20 %")
    for r in report["sources"]:
        print(f"  {r['source']:49} {r['basis']:9} {r['kurtosis']:7.2f}  {r['zeros_at_least_error']:6.1%}  "
              f"{r['snr_db']:5.2f}  {r['energy_in_largest_20_percent']:6.1%}")
    print("\ncosine of a wrongly computed product with the right one")
    for r in report["mistakes"]:
        print(f"  {r['mistake']:45} {r['cosine']:6.3f}")
    print(f"\nkurtosis of ternary rows {report['ternary_rows_kurtosis']:.2f}, rotated back "
          f"{report['ternary_rows_rotated_back_kurtosis']:.2f} (a Gaussian has 3)")


if __name__ == "__main__":
    main()
