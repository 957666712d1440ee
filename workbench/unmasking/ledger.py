"""What an iteration reveals, and what the rows have spent: the books of `UnmaskPlant`."""

from dataclasses import dataclass

import numpy as np
from numba import njit

from workbench.signals import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Batch:
    """What one iteration revealed: the rows that took part, their tokens before, and the positions revealed."""

    iteration: int
    rows: IntArray  # [active]
    tokens: IntArray  # [active, length] before the reveal
    revealed: BoolArray  # [active, length]
    entropy_nats: FloatArray  # [active, length] marginal entropies, NaN where not masked
    drawn: IntArray  # [active, length] tokens after the reveal


@dataclass
class Ledger:
    """What the rows have spent. All [rows] unless said otherwise; grows while the plant runs."""

    iterations: IntArray
    forwards: int  # predictor calls, over all rows together
    entropy_spent_nats: FloatArray  # sum of marginal entropies at the reveal
    excess_spent_nats: FloatArray  # sum over iterations of sum H - max H, which bounds the total correlation
    surprisal_nats: FloatArray  # -ln of the probability of the tokens drawn, along this order
    revealed_at: IntArray  # [rows, length] iteration of the last reveal, -1 for positions given beforehand

    @classmethod
    def blank(cls, rows: int, length: int) -> "Ledger":
        return cls(
            iterations=np.zeros(rows, dtype=np.int64),
            forwards=0,
            entropy_spent_nats=np.zeros(rows),
            excess_spent_nats=np.zeros(rows),
            surprisal_nats=np.zeros(rows),
            revealed_at=np.full((rows, length), -1, dtype=np.int64),
        )

    def enter(
        self,
        iteration: int,
        rows: IntArray,
        at: IntArray,
        position: IntArray,
        entropy: FloatArray,
        surprisal: FloatArray,
    ) -> None:
        """One iteration of the active `rows`: `position` was revealed in row rows[at], of marginal `entropy` [active, length]."""
        _enter(
            rows, at, position, entropy, surprisal, iteration, self.iterations, self.entropy_spent_nats,
            self.excess_spent_nats, self.surprisal_nats, self.revealed_at,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _enter(
    rows, at, position, entropy, surprisal, iteration, iterations, spent, excess, total, revealed_at
):  # fmt: skip
    summed = np.zeros(rows.shape[0])
    largest = np.zeros(rows.shape[0])
    for k in range(at.shape[0]):
        row, i = rows[at[k]], position[k]
        h = entropy[at[k], i]
        summed[at[k]] += h
        largest[at[k]] = max(largest[at[k]], h)
        total[row] += surprisal[k]
        revealed_at[row, i] = iteration
    for r in range(rows.shape[0]):
        iterations[rows[r]] += 1
        spent[rows[r]] += summed[r]
        excess[rows[r]] += max(summed[r] - largest[r], 0.0)
