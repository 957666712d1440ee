"""Logits as (levels, multiplicities): any distribution shape in a few numbers, over up to a million outcomes."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from workbench.signals import FloatArray


@dataclass(frozen=True)
class LevelLogits:
    """`multiplicity[i]` outcomes share the logit `level[i]`."""

    level: tuple[float, ...]
    multiplicity: tuple[int, ...]

    @property
    def num_outcomes(self) -> int:
        return sum(self.multiplicity)

    def entropy_and_varentropy(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """H and V at T = exp(u), for an array of u; the sums run over levels, in float64."""
        z = np.array(self.level)[:, None] / np.exp(np.asarray(u, dtype=np.float64).ravel())[None, :]
        z -= z.max(axis=0)
        w = np.array(self.multiplicity, dtype=np.float64)[:, None] * np.exp(z)
        total = w.sum(axis=0)
        mean = (w * z).sum(axis=0) / total
        h = np.log(total) - mean
        v = (w * (z - mean) ** 2).sum(axis=0) / total
        return h.reshape(np.shape(u)), v.reshape(np.shape(u))

    def full(self) -> FloatArray:
        """The logits written out [n]."""
        return np.repeat(self.level, self.multiplicity)


# Multiplicities over several decades: single atoms and large equal tails alike.
multiplicities = st.one_of(st.integers(1, 5), st.integers(1, 200), st.sampled_from([1000, 5000, 49151, 10**6]))


@st.composite
def level_logits(draw: st.DrawFn, max_levels: int = 6) -> LevelLogits:
    count = draw(st.integers(2, max_levels))
    level = draw(st.lists(st.floats(-20.0, 20.0, width=32), min_size=count, max_size=count))
    multiplicity = draw(st.lists(multiplicities, min_size=count, max_size=count))
    return LevelLogits(tuple(level), tuple(multiplicity))
