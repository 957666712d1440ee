"""Temperature, pruning and scheduling act on one entropy: when do loops that are stable alone stay stable together?

Near an operating point, with x = u - u*, m the mass pruned away and H = V x + L m (pruning changes the logits),

    temperature   x+ = x - k_i (V x + L m)
    pruning       m+ = -s (V x + L m)      when its budget follows the tempered entropy (s > 0: sure means prune more)
                  m+ = -s L m              when it reads raw entropy, which the temperature cannot move within a token
    scheduling    decides which request runs next; it reads entropies and writes no logit, so its row drives nothing

On raw entropy the interconnection is a cascade: stable when each loop is. On tempered entropy it is not, and a bound on
the product of gains is needed: with M = [[|1 - k_i V|, k_i L], [s V, s L]] the errors obey |e+| <= M |e|, and the loops
stay stable when (1 - M_11)(1 - M_22) > M_12 M_21. For k_i V >= 1 that is also necessary: k_i V + 2 s L < 2.
Source: ours; small gain as in Desoer and Vidyasagar, Feedback Systems, chapter 3.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from workbench.analysis.exact import Matrix
from workbench.signals import FloatArray

Number = float | Fraction


@dataclass(frozen=True)
class CoupledLoops:
    """Frozen gains of the pair. `temperature_gain` = k_i V and `pruning_gain` = s L are the two loop gains."""

    temperature_gain: Number
    pruning_gain: Number
    reads_raw_entropy: bool

    def matrix(self) -> list[list[Number]]:
        """[[x+, m+]] with m scaled by L/V, so that only the two loop gains remain."""
        g, p = self.temperature_gain, self.pruning_gain
        return [[1 - g, -g], [0 * p if self.reads_raw_entropy else -p, -p]]

    def comparison(self) -> list[list[Number]]:
        return [[abs(entry) for entry in row] for row in self.matrix()]

    def small_gain(self) -> bool:
        return small_gain(self.comparison())

    def spectral_radius(self) -> float:
        return float(np.abs(np.linalg.eigvals(np.array(self.matrix(), dtype=np.float64))).max())


def small_gain(comparison: list[list[Number]]) -> bool:
    """(1 - M_11)(1 - M_22) > M_12 M_21 with both diagonal entries below 1."""
    (a, b), (c, d) = comparison
    return bool(a < 1 and d < 1 and (1 - a) * (1 - d) > b * c)


def weights(comparison: Matrix) -> list[Fraction]:
    """Positive w with M w < w, in closed form: w = (M_12 + 1 - M_22, M_21 + 1 - M_11)."""
    (a, b), (c, d) = comparison
    return [b + 1 - d, c + 1 - a]


def simulate(loops: CoupledLoops, steps: int, start: tuple[float, float] = (1.0, 0.0)) -> FloatArray:
    """[steps + 1, 2] errors of temperature and pruning."""
    path, a = [np.array(start)], np.array(loops.matrix(), dtype=np.float64)
    for _ in range(steps):
        path.append(a @ path[-1])
    return np.array(path)
