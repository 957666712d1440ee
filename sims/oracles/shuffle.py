"""A shuffled list: uniform over the arrangements of a multiset. Holds permutations and k-of-n as special cases."""

import numpy as np
from scipy.special import gammaln
from scipy.stats import hypergeom

from sims.oracles.oracle import check_length, one_hot_rows
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray

MAX_TABLE_ENTRIES = 2**27  # of one [length, num_symbols] table of marginals


class Shuffle:
    """Uniform over the arrangements of c_s = `counts[s]` copies of each symbol s, length n = sum c_s.

    H(X0) = ln n! - sum ln c_s!. With r_s copies left among n' masked positions each marginal is r_s / n', and a batch of
    m masked positions has H = ln n'!/(n' - m)! - sum_s (ln r_s! - E ln(r_s - T_s)!), T_s hypergeometric (n', r_s, m).
    Off the support (more copies revealed than exist) the shares of the copies that are left; uniform if none is.

    Raises:
        InputError: counts not positive integers, or a table of marginals too large to hold.
    """

    entropy_error_nats = 0.0

    def __init__(self, counts: IntArray):
        self.counts = np.asarray(counts, dtype=np.int64)
        if self.counts.ndim != 1 or self.counts.size == 0 or np.any(self.counts < 0):
            raise InputError(f"Shuffle.counts must be non-negative integers, one a symbol, got {counts!r}")
        self.num_symbols = self.counts.shape[0]
        self.length = check_length("Shuffle", int(self.counts.sum()))
        if self.length * self.num_symbols > MAX_TABLE_ENTRIES:
            raise InputError(
                f"Shuffle: {self.length} positions x {self.num_symbols} symbols exceed {MAX_TABLE_ENTRIES} table entries; "
                "shorten the list or give it fewer distinct symbols"
            )
        self.entropy_nats = float(gammaln(self.length + 1.0) - gammaln(self.counts + 1.0).sum())

    @classmethod
    def k_of_n(cls, length: int, k: int) -> "Shuffle":
        if not 0 <= k <= length:
            raise InputError(f"Shuffle.k_of_n: k must be in [0, {length}], got {k}")
        return cls(np.array([length - k, k]))

    @classmethod
    def permutation(cls, length: int) -> "Shuffle":
        return cls(np.ones(check_length("Shuffle.permutation", length), dtype=np.int64))

    @classmethod
    def balanced(cls, length: int, num_symbols: int) -> "Shuffle":
        """A list in which each of `num_symbols` items occurs equally often, as nearly as the length allows."""
        check_length("Shuffle.balanced", length)
        return cls(np.bincount(np.arange(length) % num_symbols, minlength=num_symbols))

    def _left(self, tokens: IntArray) -> IntArray:
        """[rows, num_symbols] copies left, negative where too many are revealed."""
        seen = np.zeros((tokens.shape[0], self.num_symbols), dtype=np.int64)
        row, position = np.nonzero(tokens >= 0)
        np.add.at(seen, (row, tokens[row, position]), 1)
        return self.counts - seen

    def marginals(self, tokens: IntArray) -> FloatArray:
        left = np.maximum(self._left(tokens), 0).astype(np.float64)
        total = left.sum(axis=1, keepdims=True)
        share = np.where(total > 0.0, left / np.maximum(total, 1.0), 1.0 / self.num_symbols)
        return one_hot_rows(np.repeat(share[:, None, :], self.length, axis=1), tokens)

    def log_probability(self, tokens: IntArray) -> FloatArray:
        left = self._left(tokens)
        masked = (tokens < 0).sum(axis=1)
        ways = gammaln(masked + 1.0) - gammaln(np.maximum(left, 0) + 1.0).sum(axis=1)
        return np.where((left < 0).any(axis=1), -np.inf, ways - self.entropy_nats)

    def batch_entropy(self, tokens: IntArray, batch: BoolArray) -> FloatArray:
        """The rows must be on the support: off it there is no conditional to take the entropy of."""
        left = self._left(tokens)
        out = np.empty(tokens.shape[0])
        for row in range(tokens.shape[0]):
            masked, m = int((tokens[row] < 0).sum()), int((batch[row] & (tokens[row] < 0)).sum())
            # ln (1 - T)! is 0 for single copies; equal counts share one expectation.
            values, copies = np.unique(left[row], return_counts=True)
            if values[0] < 0:
                raise InputError(f"Shuffle.batch_entropy: row {row} reveals more copies of a symbol than exist")
            spread = 0.0
            for r, times in zip(values.tolist(), copies.tolist(), strict=True):
                if r >= 2 and m > 0:
                    t = np.arange(max(0, m - (masked - r)), min(r, m) + 1)
                    weight = hypergeom.pmf(t, masked, r, m)
                    spread += times * (gammaln(r + 1.0) - float(weight @ gammaln(r - t + 1.0)))
            out[row] = gammaln(masked + 1.0) - gammaln(masked - m + 1.0) - spread
        return np.maximum(out, 0.0)

    def sample(self, rng: np.random.Generator, rows: int) -> IntArray:
        return rng.permuted(np.repeat(np.repeat(np.arange(self.num_symbols), self.counts)[None], rows, axis=0), axis=1)
