"""Any joint over a short sequence, given as a table. Everything is a sum over all sequences: the reference for the rest."""

import itertools

import numpy as np

from sims.oracles.oracle import Oracle, check_distribution, one_hot_rows, plogp
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray

MAX_SEQUENCES = 2**17


def all_sequences(length: int, num_symbols: int) -> IntArray:
    """[num_symbols^length, length], the last position fastest.

    Raises:
        InputError: more than `MAX_SEQUENCES` of them.
    """
    if num_symbols**length > MAX_SEQUENCES:
        raise InputError(
            f"{num_symbols}^{length} sequences exceed the {MAX_SEQUENCES} that are enumerated; shorten the sequence"
        )
    return np.array(list(itertools.product(range(num_symbols), repeat=length)), dtype=np.int64).reshape(-1, length)


class Table:
    """p(x) = `joint[x_1, .., x_L]`, an array with one axis of size num_symbols a position.

    Off the support the marginals are uniform.

    Raises:
        InputError: the table is no distribution, has unequal axes, or is too large.
    """

    entropy_error_nats = 0.0

    def __init__(self, joint: FloatArray):
        joint = np.asarray(joint, dtype=np.float64)
        if joint.ndim < 1 or len(set(joint.shape)) != 1:
            raise InputError(f"Table.joint must have one axis of equal size a position, got shape {joint.shape}")
        self.length, self.num_symbols = joint.ndim, joint.shape[0]
        self.sequences = all_sequences(self.length, self.num_symbols)
        self.probability = check_distribution("Table.joint", joint.reshape(-1))
        self.entropy_nats = float(-plogp(self.probability).sum())
        self._one_hot = np.eye(self.num_symbols)[self.sequences].reshape(len(self.sequences), -1)

    @classmethod
    def of(cls, oracle: Oracle) -> "Table":
        """The same joint written out, for oracles short enough."""
        sequences = all_sequences(oracle.length, oracle.num_symbols)
        joint = np.exp(oracle.log_probability(sequences))
        return cls(joint.reshape((oracle.num_symbols,) * oracle.length))

    @classmethod
    def random(cls, rng: np.random.Generator, length: int, num_symbols: int, concentration: float = 0.3) -> "Table":
        all_sequences(length, num_symbols)
        joint = rng.dirichlet(np.full(num_symbols**length, concentration))
        return cls(joint.reshape((num_symbols,) * length))

    def _weights(self, tokens: IntArray) -> FloatArray:
        """[rows, sequences] probability of each sequence that agrees with the revealed tokens."""
        agrees = np.ones((tokens.shape[0], len(self.sequences)), dtype=np.bool_)
        for position in range(self.length):
            token = tokens[:, position, None]
            agrees &= (token < 0) | (token == self.sequences[None, :, position])
        return agrees * self.probability

    def marginals(self, tokens: IntArray) -> FloatArray:
        out = np.empty((tokens.shape[0], self.length, self.num_symbols))
        chunk = max(1, 2**24 // len(self.sequences))
        for start in range(0, tokens.shape[0], chunk):
            weights = self._weights(tokens[start : start + chunk])
            total = weights.sum(axis=1)[:, None, None]
            sums = (weights @ self._one_hot).reshape(-1, self.length, self.num_symbols)
            out[start : start + chunk] = np.where(
                total > 0.0, sums / np.where(total > 0.0, total, 1.0), 1.0 / self.num_symbols
            )
        return one_hot_rows(out, tokens)

    def log_probability(self, tokens: IntArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(np.minimum(self._weights(tokens).sum(axis=1), 1.0))

    def batch_entropy(self, tokens: IntArray, batch: BoolArray) -> FloatArray:
        weights = self._weights(tokens)
        place = self.num_symbols ** np.arange(self.length)
        out = np.zeros(tokens.shape[0])
        for row in range(tokens.shape[0]):
            total = weights[row].sum()
            if total > 0.0:
                code = self.sequences @ (place * (batch[row] & (tokens[row] < 0)))
                out[row] = -plogp(np.bincount(code, weights=weights[row]) / total).sum()
        return np.maximum(out, 0.0)

    def sample(self, rng: np.random.Generator, rows: int) -> IntArray:
        return self.sequences[rng.choice(len(self.sequences), size=rows, p=self.probability)]
