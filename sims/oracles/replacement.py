"""A known list in which exactly one item is replaced: nearly every position is nearly certain, and all depend on all."""

import numpy as np

from sims.oracles.oracle import check_length, one_hot_rows, plogp
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray


class Replacement:
    """Base list 0, 1, .., taken modulo num_symbols; one position J, uniform, holds one of the other symbols, uniform.

    H(X0) = ln L + ln(n - 1). With m positions masked and no replacement seen, each is replaced with probability 1/m.
    A batch of b of them has one of b (n - 1) replacements with probability b/m, or none.
    Off the support: a second replacement leaves the rest at the base list; if none was seen and one position is masked,
    that one is replaced for certain, as on the support.

    Raises:
        InputError: fewer than two symbols.
    """

    entropy_error_nats = 0.0

    def __init__(self, length: int, num_symbols: int = 4):
        self.length, self.num_symbols = check_length("Replacement", length), int(num_symbols)
        if self.num_symbols < 2:
            raise InputError(f"Replacement.num_symbols must be at least 2, got {num_symbols}")
        self.base = np.arange(self.length) % self.num_symbols
        self.entropy_nats = float(np.log(self.length) + np.log(self.num_symbols - 1.0))

    def _seen(self, tokens: IntArray) -> IntArray:
        return ((tokens >= 0) & (tokens != self.base)).sum(axis=1)

    def marginals(self, tokens: IntArray) -> FloatArray:
        masked = np.maximum((tokens < 0).sum(axis=1), 1)
        replaced = np.where(self._seen(tokens) == 0, 1.0 / masked, 0.0)
        out = np.repeat((replaced / (self.num_symbols - 1))[:, None], self.length, axis=1)[..., None]
        out = np.repeat(out, self.num_symbols, axis=2)
        out[:, np.arange(self.length), self.base] = (1.0 - replaced)[:, None]
        return one_hot_rows(out, tokens)

    def log_probability(self, tokens: IntArray) -> FloatArray:
        seen, masked = self._seen(tokens), (tokens < 0).sum(axis=1)
        with np.errstate(divide="ignore"):
            none_seen = np.log(masked / self.length)
        return np.select([seen == 0, seen == 1], [none_seen, np.full(len(seen), -self.entropy_nats)], -np.inf)

    def batch_entropy(self, tokens: IntArray, batch: BoolArray) -> FloatArray:
        masked = np.maximum((tokens < 0).sum(axis=1), 1)
        share = (batch & (tokens < 0)).sum(axis=1) / masked
        value = -plogp(1.0 - share) + share * (np.log(masked) + np.log(self.num_symbols - 1.0))
        return np.where(self._seen(tokens) == 0, np.maximum(value, 0.0), 0.0)

    def sample(self, rng: np.random.Generator, rows: int) -> IntArray:
        out = np.repeat(self.base[None], rows, axis=0)
        where = rng.integers(0, self.length, rows)
        shift = rng.integers(1, self.num_symbols, rows)
        out[np.arange(rows), where] = (self.base[where] + shift) % self.num_symbols
        return out
