"""The mass process from recorded block masses, by least squares on logarithms.

ln mass of block b >= 1 with age a falls on  level - decay ln a + heavy_b + flicker;  decay is the within-decision slope,
heavy_b the mean residual of a block over the decisions of its text (its variance is spread^2), what is left flicker^2. The
first block's excess over that line gives the sink. Source: ours.
"""

import numpy as np

from sims.mass_process import MassProcess
from workbench.signals import FloatArray

MIN_DECISIONS = 20
FLOOR = 1e-6


def fit_mass(masses: list[tuple[int, FloatArray]]) -> tuple[MassProcess, dict[str, float]]:
    """`masses`: (text, [blocks] dense masses) per decision. Too few: the assumed process, saying so."""
    if len(masses) < MIN_DECISIONS:
        return MassProcess(), {}
    texts, blocks, ages, logs, weights = [], [], [], [], []
    for text, mass in masses:
        count = mass.size
        # The newest block is part full; the first is the sink.
        index = np.arange(1, count - 1)
        if index.size < 2:
            continue
        values = np.log(np.maximum(mass[index], FLOOR))
        age = np.log(count - index)
        texts.append(np.full(index.size, text))
        blocks.append(index)
        ages.append(age - age.mean())
        logs.append(values - values.mean())
        weights.append(np.full(index.size, 1.0 / index.size))
    if not texts:
        return MassProcess(), {}
    text, block, age, log, weight = map(np.concatenate, (texts, blocks, ages, logs, weights))
    decay = float(np.clip(-(weight * age * log).sum() / max((weight * age * age).sum(), 1e-12), 0.0, 3.0))
    residual = log + decay * age
    group = text * 100_000 + block
    _, inverse, count = np.unique(group, return_inverse=True, return_counts=True)
    mean = np.bincount(inverse, residual) / count
    within = residual - mean[inverse]
    degrees = max(len(residual) - len(mean), 1)
    flicker2 = float((within**2).sum() / degrees)
    spread2 = float(np.average((mean - np.average(mean, weights=count)) ** 2, weights=count)) - flicker2 / count.mean()
    excess = []
    for _, mass in masses:
        n = mass.size
        index = np.arange(1, n - 1)
        if index.size < 2:
            continue
        # Weights are relative to age^-decay: the mean of mass x age^decay is one unit of weight.
        unit = np.mean(mass[index] * (n - index) ** decay) / np.exp(0.5 * (max(spread2, 0.0) + flicker2))
        excess.append(mass[0] / unit - n**-decay * np.exp(0.5 * max(spread2, 0.0)))
    process = MassProcess(
        sink=float(max(np.median(excess), 0.0)),
        decay=decay,
        spread=float(np.sqrt(max(spread2, 0.0))),
        flicker=float(np.sqrt(flicker2)),
        source=f"fitted to {len(masses)} recorded decisions",
    )
    return process, {"mass_decisions": float(len(masses)), "mass_sink_share": float(np.mean([m[0] for _, m in masses]))}
