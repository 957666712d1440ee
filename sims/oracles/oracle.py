"""What every exact oracle offers: a joint distribution over sequences whose conditionals have a closed form.

An oracle stands where a masked-diffusion model would: it gives the marginal of each masked position given the revealed
ones, except that here the marginals are *right*, so the divergence of a decoding policy can be computed, not guessed.
Tokens have shape [rows, length]; a masked position holds `MASKED`. Everything is in nats.

Off the support. A sampler that takes dependent positions together can reveal values of joint probability zero. Marginals
must still be defined there; each class says what it does. On the support they are the exact conditionals.
"""

from typing import Protocol

import numpy as np

from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray

MASKED = -1


class Oracle(Protocol):
    """A joint p over {0 .. num_symbols - 1}^length."""

    length: int
    num_symbols: int
    entropy_nats: float  # H(X0)
    entropy_error_nats: float  # half width of the bracket around H(X0); 0 where it is exact

    def marginals(self, tokens: IntArray) -> FloatArray:
        """[rows, length, num_symbols]: p(x_i | revealed). A revealed position has all its mass on its token."""
        ...

    def log_probability(self, tokens: IntArray) -> FloatArray:
        """[rows]: ln p(revealed tokens), masked positions summed out; 0 where nothing is revealed."""
        ...

    def batch_entropy(self, tokens: IntArray, batch: BoolArray) -> FloatArray:
        """[rows]: exact joint entropy of the masked positions in `batch` given the revealed ones."""
        ...

    def sample(self, rng: np.random.Generator, rows: int) -> IntArray:
        """[rows, length] exact independent draws from p."""
        ...


def plogp(p: FloatArray) -> FloatArray:
    """p ln p with 0 ln 0 = 0."""
    return np.where(p > 0.0, p * np.log(np.where(p > 0.0, p, 1.0)), 0.0)


def one_hot_rows(out: FloatArray, tokens: IntArray) -> FloatArray:
    """Set the revealed positions of `out` [rows, length, n] to all mass on their token, in place, and return it."""
    row, position = np.nonzero(tokens >= 0)
    out[row, position] = 0.0
    out[row, position, tokens[row, position]] = 1.0
    return out


def draw(rng: np.random.Generator, probability: FloatArray) -> IntArray:
    """One draw per row of `probability` [..., n], by inverse distribution function; never a symbol of probability 0."""
    cumulative = np.cumsum(probability, axis=-1)
    u = rng.random(probability.shape[:-1])[..., None] * cumulative[..., -1:]
    token = (u >= cumulative).sum(axis=-1)
    last = probability.shape[-1] - 1 - np.argmax(probability[..., ::-1] > 0.0, axis=-1)
    return np.minimum(token, last).astype(np.int64)


def check_distribution(where: str, probability: FloatArray) -> FloatArray:
    """Rows of `probability` [..., n] as float64, each summing to one.

    Raises:
        InputError: a negative or non-finite entry, or a row whose sum is not 1 within 1e-9.
    """
    p = np.asarray(probability, dtype=np.float64)
    if p.ndim < 1 or p.size == 0 or not np.all(np.isfinite(p)) or np.any(p < 0.0):
        raise InputError(f"{where} must hold finite probabilities in [0, 1]")
    worst = float(np.abs(p.sum(axis=-1) - 1.0).max())
    if worst > 1e-9:
        raise InputError(f"{where} must have rows that sum to 1, one is off by {worst:.3g}; normalise them")
    return p


def check_length(where: str, length: int, least: int = 1) -> int:
    if length < least:
        raise InputError(f"{where}.length must be at least {least}, got {length}")
    return int(length)


def binary_probability(entropy_nats: float) -> float:
    """The p <= 1/2 whose binary entropy is `entropy_nats`, by bisection.

    Raises:
        InputError: entropy outside [0, ln 2].
    """
    if not 0.0 <= entropy_nats <= np.log(2.0) + 1e-15:
        raise InputError(f"a binary symbol's entropy must be in [0, ln 2] = [0, 0.6931] nats, got {entropy_nats:.6g}")
    low, high = 0.0, 0.5
    for _ in range(200):
        middle = 0.5 * (low + high)
        if -plogp(np.array([middle, 1.0 - middle])).sum() < entropy_nats:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
