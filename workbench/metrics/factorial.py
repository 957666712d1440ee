"""Differences against the baseline arm, and the 2x2x2 factorial: main effects and interactions with intervals.

Arms of one seed share arrivals and random draws (common random numbers), so every comparison is paired: the contrast
is taken within a seed (or a batch of one) before its scatter is measured.

    effect of a set of controllers A = 1/4 sum over arms y[arm] prod_{c in A} (+1 if c on, -1 if off)

A main effect is the mean over the other two switches of on minus off; an interaction of two is half the change of one
one's effect when the other is switched on; likewise for three.
Source: Box, Hunter and Hunter, Statistics for Experimenters, ch. 5.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from workbench.metrics.arm import ARM_CODES, BASELINE, ArmSample
from workbench.metrics.figure import Figure
from workbench.metrics.interval import contrast_interval, relative_interval
from workbench.metrics.table import METRICS
from workbench.signals import FloatArray

EFFECTS: tuple[str, ...] = ARM_CODES[1:]
SAME = 1e-9


@dataclass(frozen=True)
class Change:
    """Of one metric: difference, the same as a share of the baseline, and whether every replicate agreed exactly."""

    difference: Figure
    relative: Figure
    identical: bool


def paired(samples: Mapping[str, ArmSample], codes: tuple[str, ...]) -> tuple[FloatArray, FloatArray]:
    """Values of the seeds all these arms share: [arms, seeds, metrics] and [arms, seeds, batches, metrics]."""
    shared = sorted(set.intersection(*(set(samples[code].seeds) for code in codes)))
    batches = min(samples[code].batch_values.shape[1] for code in codes)
    same_cut = all(samples[code].batch_values.shape[1] == batches for code in codes)
    rows = [[samples[code].seeds.index(seed) for seed in shared] for code in codes]
    seed_values = np.stack([samples[c].seed_values[r] for c, r in zip(codes, rows, strict=True)])
    batch_values = np.stack(
        [samples[c].batch_values[r][:, : batches if same_cut else 0] for c, r in zip(codes, rows, strict=True)]
    )
    return seed_values, batch_values


def changes(samples: Mapping[str, ArmSample], code: str) -> list[Change]:
    """Arm `code` against the baseline arm, on the seeds both have: one `Change` a metric."""
    seed_values, batch_values = paired(samples, (BASELINE, code))
    found = _contrasts(seed_values, batch_values, np.array([-1.0, 1.0]))
    return [
        # What cannot be negative cannot fall by more than all of it.
        replace(one, relative=replace(one.relative, low=max(one.relative.low, -1.0)))
        if metric.least == 0.0 and one.relative.low is not None
        else one
        for metric, one in zip(METRICS, found, strict=True)
    ]


def effects(samples: Mapping[str, ArmSample]) -> dict[str, list[Change]]:
    """Main effects ("S") and interactions ("ST", "STP"), one `Change` a metric; empty unless all eight arms share a seed."""
    if not set(ARM_CODES) <= set(samples) or not set.intersection(*(set(s.seeds) for s in samples.values())):
        return {}
    seed_values, batch_values = paired(samples, ARM_CODES)
    found = {}
    for controllers in EFFECTS:
        signs = [np.prod([1.0 if letter in code else -1.0 for letter in controllers]) for code in ARM_CODES]
        found[controllers] = _contrasts(seed_values, batch_values, np.array(signs, dtype=np.float64) / 4.0)
    return found


def _contrasts(seed_values: FloatArray, batch_values: FloatArray, weights: FloatArray) -> list[Change]:
    return [_contrast(seed_values[..., m], batch_values[..., m], weights) for m in range(seed_values.shape[-1])]


def _contrast(seed_values: FloatArray, batch_values: FloatArray, weights: FloatArray) -> Change:
    difference = contrast_interval(seed_values, batch_values, weights)
    scale = np.abs(seed_values).max(axis=0, initial=0.0)
    spread = np.abs(np.tensordot(weights, seed_values, 1))
    identical = bool(spread.size) and bool((spread <= SAME * scale).all())
    if identical:
        # Rounding of equal sums is no finding: an exact zero with a zero interval says so.
        zero = Figure(0.0, 0.0, 0.0, "identical in every seed", seed_values.shape[1])
        return Change(zero, zero, True)
    return Change(difference, relative_interval(seed_values, batch_values, weights), False)
