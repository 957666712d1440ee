"""A hidden Markov model: exact conditionals by forward-backward, H(X0) inside a certified bracket."""

import numpy as np
from numba import njit

from sims.oracles.forward_backward import forward_backward
from sims.oracles.oracle import check_distribution, check_length, draw, one_hot_rows, plogp
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray

MAX_ENUMERATED = 2**20  # outcomes of a batch


class HiddenMarkov:
    """z a chain (`initial` [S], `transition` [S, S]), x_i drawn from `emission[z_i]` [S, n].

    The entropy of a batch has no closed form: it is enumerated, up to `MAX_ENUMERATED` outcomes. H(X0) is enumerated
    too where it can be; elsewhere, for a stationary chain, each H(X_k | X_<k) lies between H(X_k | X_{k-m} .. X_{k-1}, Z_{k-m})
    and H(X_k | X_{k-m} .. X_{k-1}): `entropy_nats` is the middle of that bracket, `entropy_error_nats` its half width.
    Source: Cover and Thomas, Elements of Information Theory, section 4.5, for the bracket.
    Off the support the hidden posterior is uniform where the evidence contradicts itself.

    Raises:
        InputError: a row is no distribution, shapes disagree, the chain is long and not stationary, or a batch is too
            large to enumerate.
    """

    def __init__(self, initial: FloatArray, transition: FloatArray, emission: FloatArray, length: int, depth: int = 14):
        self.initial = check_distribution("HiddenMarkov.initial", initial)
        self.transition = check_distribution("HiddenMarkov.transition", transition)
        self.emission = check_distribution("HiddenMarkov.emission", emission)
        self.length = check_length("HiddenMarkov", length)
        self.num_states, self.num_symbols = self.emission.shape
        if self.transition.shape != (self.num_states,) * 2 or self.initial.shape != (self.num_states,):
            raise InputError(
                f"HiddenMarkov: initial {self.initial.shape}, transition {self.transition.shape} and emission "
                f"{self.emission.shape} must agree on the number of states"
            )
        # Blocks of the bracket are enumerated, so their depth gives way to the alphabet.
        self.depth = min(depth, int(np.log(MAX_ENUMERATED) / np.log(max(self.num_symbols, 2))) - 2, length)
        self.entropy_nats, self.entropy_error_nats = self._entropy()

    @classmethod
    def noisy_switch(cls, length: int, num_symbols: int = 2, move: float = 0.02, noise: float = 0.1) -> "HiddenMarkov":
        """Sticky hidden states seen through noise: state s shows symbol s, with probability `noise` any other alike."""
        n = int(num_symbols)
        if n < 2:
            raise InputError(f"HiddenMarkov.noisy_switch.num_symbols must be at least 2, got {num_symbols}")
        transition = np.full((n, n), move / (n - 1))
        np.fill_diagonal(transition, 1.0 - move)
        emission = np.full((n, n), noise / (n - 1))
        np.fill_diagonal(emission, 1.0 - noise)
        return cls(np.full(n, 1.0 / n), transition, emission, length)

    def _entropy(self) -> tuple[float, float]:
        masked = np.full((1, min(self.length, self.depth + 1)), -1)
        blocks = [0.0]
        for k in range(1, masked.shape[1] + 1):
            blocks.append(self._enumerate(masked[0, :k], np.ones(k, dtype=np.bool_), self.initial))
        if self.length < len(blocks):
            return blocks[self.length], 0.0
        if np.abs(self.initial @ self.transition - self.initial).max() > 1e-12:
            raise InputError(
                f"HiddenMarkov: initial must be stationary beyond length {self.depth + 1}, where H(X0) is bracketed; "
                "shorten the sequence or start it from the stationary distribution"
            )
        m = len(blocks) - 1
        upper = blocks[m] - blocks[m - 1]
        # H(X_1 .. X_m | Z_1) - H(X_1 .. X_{m-1} | Z_1): the start state is known, the block otherwise the same.
        known = np.zeros(2)
        for state in range(self.num_states):
            start = np.eye(self.num_states)[state]
            for j, k in enumerate((m, m - 1)):
                block = np.full(k, -1)
                known[j] += self.initial[state] * self._enumerate(block, np.ones(k, dtype=np.bool_), start)
        lower = known[0] - known[1]
        rest = self.length - m
        return float(blocks[m] + rest * 0.5 * (upper + lower)), float(rest * 0.5 * max(upper - lower, 0.0))

    def _enumerate(self, sequence: IntArray, batch: BoolArray, initial: FloatArray) -> float:
        """Joint entropy of the batch positions of one sequence given its revealed ones, by growing a tree of outcomes."""
        taken = int((batch & (sequence < 0)).sum())
        if taken == 0:
            return 0.0
        if taken * np.log(self.num_symbols) > np.log(MAX_ENUMERATED):
            raise InputError(
                f"HiddenMarkov.batch_entropy: {taken} positions of {self.num_symbols} symbols exceed {MAX_ENUMERATED} "
                "outcomes; use smaller batches, or the account by log-ratios"
            )
        belief = initial[None].copy()  # [outcomes, S], unnormalised: p(outcome so far, evidence so far, state)
        for i in range(sequence.shape[0]):
            if i > 0:
                belief = belief @ self.transition
            if sequence[i] >= 0:
                belief = belief * self.emission[:, sequence[i]]
            elif batch[i]:
                belief = (belief[:, None, :] * self.emission.T[None]).reshape(-1, self.num_states)
        weight = belief.sum(axis=1)
        return max(float(-plogp(weight / weight.sum()).sum()), 0.0) if weight.sum() > 0.0 else 0.0

    def marginals(self, tokens: IntArray) -> FloatArray:
        posterior, _ = forward_backward_rows(tokens, self.initial, self.transition, self.emission)
        return one_hot_rows(posterior @ self.emission, tokens)

    def log_probability(self, tokens: IntArray) -> FloatArray:
        return forward_backward_rows(tokens, self.initial, self.transition, self.emission)[1]

    def batch_entropy(self, tokens: IntArray, batch: BoolArray) -> FloatArray:
        return np.array([self._enumerate(*row, self.initial) for row in zip(tokens, batch, strict=True)])

    def sample(self, rng: np.random.Generator, rows: int) -> IntArray:
        out = np.empty((rows, self.length), dtype=np.int64)
        state = draw(rng, np.repeat(self.initial[None], rows, axis=0))
        for i in range(self.length):
            if i > 0:
                state = draw(rng, self.transition[state])
            out[:, i] = draw(rng, self.emission[state])
        return out


@njit(cache=True, nogil=True)
def forward_backward_rows(tokens, initial, transition, emission):
    """Posterior of the hidden states [rows, length, S] and ln p(revealed) [rows] for tokens [rows, length], -1 masked."""
    rows, length = tokens.shape
    num_states = initial.shape[0]
    posterior = np.empty((rows, length, num_states))
    log_likelihood = np.empty(rows)
    evidence = np.empty((length, num_states))
    for row in range(rows):
        for i in range(length):
            for s in range(num_states):
                evidence[i, s] = emission[s, tokens[row, i]] if tokens[row, i] >= 0 else 1.0
        posterior[row], log_likelihood[row] = forward_backward(initial, transition, evidence)
    return posterior, log_likelihood
