"""Groups of equal symbols: pairs of twins, or a list and its copy. The smallest example in which the order matters."""

import numpy as np
from numba import njit

from sims.oracles.oracle import binary_probability, check_distribution, check_length, draw, plogp
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray


class Duplicates:
    """x_i = z_{g(i)} with z_1 .. z_G independent draws from `symbol_probability` and g = `group` [length].

    H(X0) = G h, h the entropy of one symbol; once a member of a group is revealed the others are certain. Two unrevealed
    members of one group in one batch cost exactly h nats of total correlation.
    Off the support (members revealed with different values) the masked members follow the first revealed one.

    Raises:
        InputError: `symbol_probability` is no distribution, or `group` does not number its groups 0 .. G - 1.
    """

    entropy_error_nats = 0.0

    def __init__(self, group: IntArray, symbol_probability: FloatArray):
        self.group = np.asarray(group, dtype=np.int64)
        self.symbol_probability = check_distribution("Duplicates.symbol_probability", symbol_probability)
        self.length = check_length("Duplicates", self.group.shape[0])
        self.num_symbols = self.symbol_probability.shape[0]
        self.num_groups = int(self.group.max()) + 1
        if not np.array_equal(np.unique(self.group), np.arange(self.num_groups)):
            raise InputError("Duplicates.group must number its groups 0 .. G - 1 without a gap")
        self.symbol_entropy_nats = float(-plogp(self.symbol_probability).sum())
        self.entropy_nats = self.num_groups * self.symbol_entropy_nats

    @classmethod
    def pairs(cls, length: int, pair_entropy_nats: float = 0.01) -> "Duplicates":
        """Adjacent twins, binary, h = `pair_entropy_nats` a pair; at odd length the last position stands alone."""
        p = binary_probability(pair_entropy_nats)
        return cls(np.arange(check_length("Duplicates.pairs", length)) // 2, np.array([1.0 - p, p]))

    @classmethod
    def copy_list(cls, length: int, num_symbols: int = 4) -> "Duplicates":
        """A uniform random list and, half the length later, its copy; at odd length the last position stands alone."""
        half = (check_length("Duplicates.copy_list", length) + 1) // 2
        return cls(np.arange(length) % half, np.full(num_symbols, 1.0 / num_symbols))

    def _group_tokens(self, tokens: IntArray) -> IntArray:
        """[rows, G] revealed symbol of each group, -1 where none is; the first member wins."""
        return _group_tokens(tokens, self.group, self.num_groups)

    def marginals(self, tokens: IntArray) -> FloatArray:
        return _marginals(tokens, self._group_tokens(tokens), self.group, self.symbol_probability)

    def log_probability(self, tokens: IntArray) -> FloatArray:
        known = self._group_tokens(tokens)
        with np.errstate(divide="ignore"):
            log_p = np.log(self.symbol_probability)
        clash = ((tokens >= 0) & (tokens != known[:, self.group])).any(axis=1)
        return np.where(clash, -np.inf, np.where(known >= 0, log_p[np.maximum(known, 0)], 0.0).sum(axis=1))

    def batch_entropy(self, tokens: IntArray, batch: BoolArray) -> FloatArray:
        touched = self._group_tokens(np.where(batch & (tokens < 0), 0, -1)) >= 0
        return self.symbol_entropy_nats * (touched & (self._group_tokens(tokens) < 0)).sum(axis=1)

    def sample(self, rng: np.random.Generator, rows: int) -> IntArray:
        return draw(rng, np.broadcast_to(self.symbol_probability, (rows, self.num_groups, self.num_symbols)))[
            :, self.group
        ]


@njit(cache=True, nogil=True)
def _group_tokens(tokens, group, num_groups):
    known = np.full((tokens.shape[0], num_groups), -1, dtype=np.int64)
    for row in range(tokens.shape[0]):
        for i in range(tokens.shape[1]):
            if tokens[row, i] >= 0 and known[row, group[i]] < 0:
                known[row, group[i]] = tokens[row, i]
    return known


@njit(cache=True, nogil=True)
def _marginals(tokens, known, group, symbol_probability):
    rows, length = tokens.shape
    n = symbol_probability.shape[0]
    out = np.empty((rows, length, n))
    for row in range(rows):
        for i in range(length):
            token = tokens[row, i] if tokens[row, i] >= 0 else known[row, group[i]]
            for s in range(n):
                if token < 0:
                    out[row, i, s] = symbol_probability[s]
                else:
                    out[row, i, s] = 1.0 if s == token else 0.0
    return out
