"""Even parity: every proper subset is uniform, yet the last bit of a block is certain. Entropies warn of nothing."""

import numpy as np

from sims.oracles.oracle import check_length, one_hot_rows
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray


class Parity:
    """Binary; consecutive blocks of `block_length` positions, each uniform over the strings of even parity.

    H(X0) = (length - number of blocks) ln 2 (the last block may be shorter; a block of one position is the constant 0).
    Taking the last m masked positions of a block together costs ln 2 for m >= 2: the marginals see no dependence at all.
    Off the support (a block fully revealed with odd parity) nothing is left to predict.

    Raises:
        InputError: `block_length` below 1.
    """

    num_symbols = 2
    entropy_error_nats = 0.0

    def __init__(self, length: int, block_length: int | None = None):
        self.length = check_length("Parity", length)
        self.block_length = self.length if block_length is None else int(block_length)
        if self.block_length < 1:
            raise InputError(f"Parity.block_length must be at least 1, got {block_length}")
        self.starts = np.arange(0, self.length, self.block_length)
        self.block = np.arange(self.length) // self.block_length
        self.entropy_nats = float((self.length - self.starts.size) * np.log(2.0))

    def _per_block(self, values: IntArray | BoolArray) -> IntArray:
        return np.add.reduceat(values.astype(np.int64), self.starts, axis=1)

    def marginals(self, tokens: IntArray) -> FloatArray:
        num_masked = self._per_block(tokens < 0)
        odd = self._per_block(np.maximum(tokens, 0)) % 2
        out = np.full((*tokens.shape, 2), 0.5)
        last = np.where(num_masked == 1, odd, -1)[:, self.block]
        return one_hot_rows(one_hot_rows(out, last), tokens)

    def log_probability(self, tokens: IntArray) -> FloatArray:
        num_masked = self._per_block(tokens < 0)
        odd = self._per_block(np.maximum(tokens, 0)) % 2
        free = (tokens >= 0).sum(axis=1) - (num_masked == 0).sum(axis=1)
        return np.where(((num_masked == 0) & (odd == 1)).any(axis=1), -np.inf, -free * np.log(2.0))

    def batch_entropy(self, tokens: IntArray, batch: BoolArray) -> FloatArray:
        taken = self._per_block(batch & (tokens < 0))
        closes = (taken > 0) & (taken == self._per_block(tokens < 0))
        return (taken.sum(axis=1) - closes.sum(axis=1)) * np.log(2.0)

    def sample(self, rng: np.random.Generator, rows: int) -> IntArray:
        bits = rng.integers(0, 2, (rows, self.length))
        last = np.append(self.starts[1:], self.length) - 1
        bits[:, last] = 0
        bits[:, last] = self._per_block(bits) % 2
        return bits
