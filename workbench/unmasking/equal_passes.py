"""Two rules at equal numbers of forward passes, paired unit by unit (a unit: one sequence, whatever its maskings).

A rule swept over its number gives each unit a curve: what was reached against the passes it took. Both curves are read off at one
number of passes, linearly in ln(passes), and the difference is taken within the unit, so that what makes one sequence
harder than another drops out:

    d_u = value_u(ours, P) - value_u(theirs, P),    mean over u, with Student's interval over units

Nothing is extrapolated: P must lie within every curve of both rules. Source: ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from workbench.errors import InputError
from workbench.signals import FloatArray
from workbench.unmasking.estimate import Estimate, estimate


@dataclass(frozen=True)
class Curve:
    """What one unit reached against its passes; `passes` rise strictly."""

    passes: FloatArray
    value: FloatArray

    def at(self, passes: float) -> float:
        """Raises InputError outside the curve."""
        if not self.passes[0] <= passes <= self.passes[-1]:
            raise InputError(f"passes must be in [{self.passes[0]:g}, {self.passes[-1]:g}], got {passes:g}")
        return float(np.interp(np.log(passes), np.log(self.passes), self.value))


Curves = Mapping[str, Curve]  # by unit


def curve(passes: FloatArray, value: FloatArray) -> Curve:
    """Settings that took equally many passes are averaged. Raises InputError where there is none, or a number below one."""
    at, back = np.unique(np.asarray(passes, dtype=np.float64), return_inverse=True)
    if at.size == 0 or not at[0] >= 1.0:
        raise InputError(f"a curve needs settings of at least one pass each, got {at}")
    total = np.bincount(back, weights=np.asarray(value, dtype=np.float64))
    return Curve(at, total / np.bincount(back))


def common_range(*rules: Curves) -> tuple[float, float]:
    """Lowest and highest number of passes that every unit reaches under every rule; low > high where there is none."""
    every = [one for rule in rules for one in rule.values()]
    return max(c.passes[0] for c in every), min(c.passes[-1] for c in every)


def paired_difference(ours: Curves, theirs: Curves, passes: float) -> Estimate:
    """Mean over units of ours minus theirs at `passes`. Raises InputError where the units differ."""
    if set(ours) != set(theirs):
        raise InputError("the two rules must have decoded the same sequences")
    return estimate(np.array([ours[unit].at(passes) - theirs[unit].at(passes) for unit in sorted(ours)]))
