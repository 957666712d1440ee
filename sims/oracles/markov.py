"""A Markov chain: exact conditionals in time linear in the length, from powers of the transition matrix."""

import numpy as np
from numba import njit

from sims.oracles.oracle import check_distribution, check_length, draw, plogp
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray

MAX_POWER_ENTRIES = 2**25  # of the table of transition powers


class Markov:
    """p(x) = initial(x_1) prod_i A(x_{i-1}, x_i), A = `transition` [n, n], length up to 4096 and beyond.

    Between neighbouring revealed positions l < r, p(x_i | revealed) is proportional to A^{i-l}(x_l, .) A^{r-i}(., x_r): the
    powers A^0 .. A^L are tabulated once, so a pass costs n multiplications a position where forward-backward costs 2 n^2
    (`forward_backward.py` is the independent reference). H(X0) = H(initial) + sum_i E H(A(x_{i-1}, .)).
    The joint entropy of a batch is a sum of H(X_t | previous batch or revealed position, next revealed one).
    Off the support the marginals are uniform.

    Raises:
        InputError: a row is no distribution, shapes disagree, or the table of powers would be too large.
    """

    entropy_error_nats = 0.0

    def __init__(self, initial: FloatArray, transition: FloatArray, length: int):
        self.initial = check_distribution("Markov.initial", initial)
        self.transition = check_distribution("Markov.transition", transition)
        self.length = check_length("Markov", length)
        self.num_symbols = self.initial.shape[0]
        if self.transition.shape != (self.num_symbols, self.num_symbols):
            raise InputError(
                f"Markov.transition must be {self.num_symbols} x {self.num_symbols} like initial, got {transition.shape}"
            )
        if length * self.num_symbols**2 > MAX_POWER_ENTRIES:
            raise InputError(
                f"Markov: {length} powers of a {self.num_symbols}-state matrix exceed {MAX_POWER_ENTRIES} entries; "
                "shorten the chain or take fewer states"
            )
        self._powers = np.empty((length, self.num_symbols, self.num_symbols))
        self._powers[0] = np.eye(self.num_symbols)
        for gap in range(1, length):
            self._powers[gap] = self._powers[gap - 1] @ self.transition
        self._powers_t = np.ascontiguousarray(self._powers.transpose(0, 2, 1))
        self.prior = np.einsum("a,gab->gb", self.initial, self._powers)
        row_entropy = -plogp(self.transition).sum(axis=1)
        self.entropy_nats = float(-plogp(self.initial).sum() + (self.prior[:-1] @ row_entropy).sum())

    @classmethod
    def sticky(cls, length: int, num_symbols: int = 8, entropy_nats: float | None = None) -> "Markov":
        """Uniform start, stays with one probability, else moves to any other state alike; H(X0) = `entropy_nats`
        (default: 0.05 nats a step beyond the first). Reachable: ln n to length x ln n."""
        check_length("Markov.sticky", length)
        first = float(np.log(num_symbols))
        wanted = first + 0.05 * (length - 1) if entropy_nats is None else float(entropy_nats)
        if length == 1:
            wanted = first
        rate = 0.0 if length == 1 else (wanted - first) / (length - 1)
        if not 0.0 <= rate <= first + 1e-12:
            raise InputError(
                f"Markov.sticky.entropy_nats must be in [{first:.4g}, {length * first:.4g}] for {num_symbols} states and "
                f"length {length}, got {wanted:.6g}"
            )
        low, high = 0.0, 1.0 - 1.0 / num_symbols
        for _ in range(200):
            move = 0.5 * (low + high)
            h = -plogp(np.array([1.0 - move, move])).sum() + move * np.log(max(num_symbols - 1, 1))
            low, high = (move, high) if h < rate else (low, move)
        move = 0.5 * (low + high)
        transition = np.full((num_symbols, num_symbols), move / max(num_symbols - 1, 1))
        np.fill_diagonal(transition, 1.0 - move if num_symbols > 1 else 1.0)
        return cls(np.full(num_symbols, 1.0 / num_symbols), transition, length)

    def marginals(self, tokens: IntArray) -> FloatArray:
        return _marginals(tokens, self.prior, self._powers, self._powers_t)

    def log_probability(self, tokens: IntArray) -> FloatArray:
        out = np.zeros(tokens.shape[0])
        with np.errstate(divide="ignore"):
            for row, sequence in enumerate(tokens):
                at = np.flatnonzero(sequence >= 0)
                if at.size:
                    x = sequence[at]
                    out[row] = np.log(self.prior[at[0], x[0]]) + np.log(self._powers[np.diff(at), x[:-1], x[1:]]).sum()
        return out

    def batch_entropy(self, tokens: IntArray, batch: BoolArray) -> FloatArray:
        return _batch_entropy(tokens, batch, self.prior, self._powers, self._powers_t)

    def sample(self, rng: np.random.Generator, rows: int) -> IntArray:
        out = np.empty((rows, self.length), dtype=np.int64)
        out[:, 0] = draw(rng, np.repeat(self.initial[None], rows, axis=0))
        for i in range(1, self.length):
            out[:, i] = draw(rng, self.transition[out[:, i - 1]])
        return out


@njit(cache=True, nogil=True)
def _left_right(sequence, prior, powers, powers_t, left_at, right_at, i, left, right):
    """Fill `left` and `right` with the two factors of the marginal of position i."""
    for s in range(prior.shape[1]):
        left[s] = prior[i, s] if left_at < 0 else powers[i - left_at, sequence[left_at], s]
        right[s] = 1.0 if right_at < 0 else powers_t[right_at - i, sequence[right_at], s]


@njit(cache=True, nogil=True)
def _next_revealed(sequence):
    following = np.empty(sequence.shape[0], dtype=np.int64)
    at = -1
    for i in range(sequence.shape[0] - 1, -1, -1):
        following[i] = at
        if sequence[i] >= 0:
            at = i
    return following


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _marginals(tokens, prior, powers, powers_t):
    rows, length = tokens.shape
    n = prior.shape[1]
    out = np.empty((rows, length, n))
    for row in range(rows):
        sequence = tokens[row]
        following = _next_revealed(sequence)
        left_at = -1
        for i in range(length):
            cell = out[row, i]
            if sequence[i] >= 0:
                cell[:] = 0.0
                cell[sequence[i]] = 1.0
                left_at = i
                continue
            right_at = following[i]
            left = prior[i] if left_at < 0 else powers[i - left_at, sequence[left_at]]
            if right_at < 0:
                for s in range(n):
                    cell[s] = left[s]
                continue
            right = powers_t[right_at - i, sequence[right_at]]
            total = 0.0
            for s in range(n):
                cell[s] = left[s] * right[s]
                total += cell[s]
            scale = 1.0 / total if total > 0.0 else 0.0
            for s in range(n):
                cell[s] = cell[s] * scale if total > 0.0 else 1.0 / n
    return out


@njit(cache=True, nogil=True)
def _entropy(p):
    value = 0.0
    for s in range(p.shape[0]):
        if p[s] > 0.0:
            value -= p[s] * np.log(p[s])
    return value


@njit(cache=True, nogil=True)
def _batch_entropy(tokens, batch, prior, powers, powers_t):
    rows, length = tokens.shape
    n = prior.shape[1]
    out = np.zeros(rows)
    left = np.empty(n)
    right = np.empty(n)
    previous = np.empty(n)
    joint = np.empty((n, n))
    for row in range(rows):
        sequence = tokens[row]
        following = _next_revealed(sequence)
        left_at = -1
        batch_at = -1  # previous batch position since left_at, -1 if none
        for i in range(length):
            if sequence[i] >= 0:
                left_at, batch_at = i, -1
                continue
            if not batch[row, i]:
                continue
            _left_right(sequence, prior, powers, powers_t, left_at, following[i], i, left, right)
            total = 0.0
            if batch_at < 0:
                for s in range(n):
                    left[s] *= right[s]
                    total += left[s]
                if total > 0.0:
                    out[row] += _entropy(left / total)
            else:
                step = powers[i - batch_at]
                for a in range(n):
                    previous[a] = (
                        prior[batch_at, a] if left_at < 0 else powers[batch_at - left_at, sequence[left_at], a]
                    )
                    for b in range(n):
                        joint[a, b] = previous[a] * step[a, b] * right[b]
                        total += joint[a, b]
                if total > 0.0:
                    joint /= total
                    for a in range(n):
                        previous[a] = joint[a].sum()
                        out[row] += _entropy(joint[a])
                    out[row] -= _entropy(previous)
            batch_at = i
    return np.maximum(out, 0.0)
