"""Independent positions: total correlation is zero, so every policy decodes without error, in one iteration if it dares."""

import numpy as np

from sims.oracles.oracle import check_distribution, draw, one_hot_rows, plogp
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray


class Independent:
    """p(x) = prod_i t_i(x_i) with t = `table` [length, num_symbols]. H(X0) = sum_i H(t_i). Full support or not, all
    conditionals are the t_i themselves.

    Raises:
        InputError: a row of `table` is not a distribution.
    """

    entropy_error_nats = 0.0

    def __init__(self, table: FloatArray):
        self.table = check_distribution("Independent.table", table)
        if self.table.ndim != 2:
            raise InputError(f"Independent.table must have shape [length, num_symbols], got {self.table.shape}")
        self.length, self.num_symbols = self.table.shape
        self.position_entropy_nats = -plogp(self.table).sum(axis=-1)
        self.entropy_nats = float(self.position_entropy_nats.sum())

    def marginals(self, tokens: IntArray) -> FloatArray:
        return one_hot_rows(np.repeat(self.table[None], tokens.shape[0], axis=0), tokens)

    def log_probability(self, tokens: IntArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            log_table = np.log(self.table)
        picked = np.take_along_axis(log_table[None], np.maximum(tokens, 0)[..., None], axis=2)[..., 0]
        return np.where(tokens >= 0, picked, 0.0).sum(axis=1)

    def batch_entropy(self, tokens: IntArray, batch: BoolArray) -> FloatArray:
        return np.where(batch & (tokens < 0), self.position_entropy_nats, 0.0).sum(axis=1)

    def sample(self, rng: np.random.Generator, rows: int) -> IntArray:
        return draw(rng, np.repeat(self.table[None], rows, axis=0))
