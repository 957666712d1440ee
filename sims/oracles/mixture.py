"""A mixture of product distributions: one hidden choice couples all positions, and a few reveals settle it."""

import numpy as np
from scipy.special import gammaln, logsumexp

from sims.oracles.oracle import binary_probability, check_distribution, check_length, draw, one_hot_rows
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray

MAX_COUNT_VECTORS = 2**23


class Mixture:
    """p(x) = sum_c w_c prod_i t_{c, g(i)}(x_i): `weight` [K], `table` [K, classes, n], g = `position_class` [length].

    Positions of one class are exchangeable given what is revealed, so a batch's joint entropy is a sum over symbol counts a
    class, exact and far smaller than the outcomes. H(X0) is the batch of everything.
    Off the support (every component excluded) the marginals are those of the prior weights.

    Raises:
        InputError: a row is no distribution, shapes disagree, or a batch has too many count vectors.
    """

    entropy_error_nats = 0.0

    def __init__(self, weight: FloatArray, table: FloatArray, position_class: IntArray):
        self.weight = check_distribution("Mixture.weight", weight)
        self.table = check_distribution("Mixture.table", table)
        self.position_class = np.asarray(position_class, dtype=np.int64)
        self.length = check_length("Mixture", self.position_class.shape[0])
        if self.table.ndim != 3 or self.table.shape[0] != self.weight.shape[0]:
            raise InputError(
                f"Mixture.table must have shape [components, classes, symbols] with {self.weight.shape[0]} components, "
                f"got {self.table.shape}"
            )
        self.num_classes, self.num_symbols = self.table.shape[1:]
        if self.position_class.min() < 0 or self.position_class.max() >= self.num_classes:
            raise InputError(f"Mixture.position_class must be in [0, {self.num_classes})")
        with np.errstate(divide="ignore"):
            self._log_table = np.log(self.table)
            self._log_weight = np.log(self.weight)
        class_size = np.bincount(self.position_class, minlength=self.num_classes)
        self.entropy_nats = self._counts_entropy(self.weight, class_size)

    @classmethod
    def codewords(cls, length: int, entropy_nats: float | None = None) -> "Mixture":
        """Three equally likely binary words over even and odd positions (00, 10, 11 repeated) seen through noise.

        H(X0 | word) = length x h(noise) = `entropy_nats` - ln 3 (default: 0.02 nats a position); H(X0) is that plus the
        entropy of the word less what the text leaves open about it, so it reaches `entropy_nats` as the text grows long.
        """
        check_length("Mixture.codewords", length)
        rate = 0.02 if entropy_nats is None else (entropy_nats - float(np.log(3.0))) / length
        if not 0.0 <= rate <= np.log(2.0):
            raise InputError(
                f"Mixture.codewords.entropy_nats must be in [1.0987, {1.0986 + length * 0.6931:.5g}] at length {length}, "
                f"got {entropy_nats}"
            )
        noise = binary_probability(rate)
        word = np.array([[0, 0], [1, 0], [1, 1]])
        table = np.where(word[..., None] == np.arange(2), 1.0 - noise, noise)
        return cls(np.full(3, 1.0 / 3.0), table, np.arange(length) % 2)

    def _log_joint(self, tokens: IntArray) -> FloatArray:
        """[rows, K] ln w_c + ln p(revealed | c)."""
        rows, k = tokens.shape[0], self.weight.shape[0]
        counts = np.zeros((rows, self.num_classes, self.num_symbols))
        row, position = np.nonzero(tokens >= 0)
        np.add.at(counts, (row, self.position_class[position], tokens[row, position]), 1.0)
        out = np.empty((rows, k))
        for c in range(k):
            # A symbol never seen contributes nothing, even where its probability is zero.
            out[:, c] = self._log_weight[c] + np.where(
                counts > 0.0, counts * np.where(counts > 0.0, self._log_table[c], 0.0), 0.0
            ).sum(axis=(1, 2))
        return out

    def posterior(self, tokens: IntArray) -> FloatArray:
        """[rows, K] p(c | revealed)."""
        joint = self._log_joint(tokens)
        top = joint.max(axis=1, keepdims=True)
        lost = ~np.isfinite(top[:, 0])
        scaled = np.where(lost[:, None], self.weight, np.exp(joint - np.where(lost[:, None], 0.0, top)))
        return scaled / scaled.sum(axis=1, keepdims=True)

    def marginals(self, tokens: IntArray) -> FloatArray:
        by_class = np.einsum("rc,cjs->rjs", self.posterior(tokens), self.table)
        return one_hot_rows(by_class[:, self.position_class].copy(), tokens)

    def log_probability(self, tokens: IntArray) -> FloatArray:
        joint = self._log_joint(tokens)
        return np.where(np.isfinite(joint).any(axis=1), logsumexp(joint, axis=1), -np.inf)

    def batch_entropy(self, tokens: IntArray, batch: BoolArray) -> FloatArray:
        posterior = self.posterior(tokens)
        out = np.empty(tokens.shape[0])
        for row in range(tokens.shape[0]):
            taken = self.position_class[batch[row] & (tokens[row] < 0)]
            out[row] = self._counts_entropy(posterior[row], np.bincount(taken, minlength=self.num_classes))
        return out

    def _counts_entropy(self, weight: FloatArray, class_size: IntArray) -> float:
        """-E ln p(x) over batches with `class_size[j]` positions of class j under component weights `weight`."""
        vectors = [_compositions(int(size), self.num_symbols) for size in class_size]
        if np.prod([float(len(v)) for v in vectors]) > MAX_COUNT_VECTORS:
            raise InputError(
                f"Mixture: {' x '.join(str(len(v)) for v in vectors)} count vectors exceed {MAX_COUNT_VECTORS}; shorten the "
                "batch, or use fewer classes or symbols"
            )
        keep = weight > 0.0
        ways = np.zeros(1)  # ln of the number of batches with these counts
        log_likelihood = np.log(weight[keep])[:, None]  # [K, count vectors]
        for j, counts in enumerate(vectors):
            ways_j = gammaln(counts.sum(axis=1) + 1.0) - gammaln(counts + 1.0).sum(axis=1)
            terms = np.where(counts > 0, counts * np.where(counts > 0, self._log_table[keep][:, j, None, :], 0.0), 0.0)
            likelihood_j = terms.sum(axis=-1)
            ways = (ways[:, None] + ways_j[None]).reshape(-1)
            log_likelihood = (log_likelihood[:, :, None] + likelihood_j[:, None, :]).reshape(keep.sum(), -1)
        top = log_likelihood.max(axis=0)
        fine = np.isfinite(top)
        log_p = np.log(np.exp(log_likelihood[:, fine] - top[fine]).sum(axis=0)) + top[fine]
        return max(float(-(np.exp(ways[fine] + log_p) * log_p).sum()), 0.0)

    def sample(self, rng: np.random.Generator, rows: int) -> IntArray:
        component = draw(rng, np.repeat(self.weight[None], rows, axis=0))
        return draw(rng, self.table[component][:, self.position_class])


def _compositions(total: int, parts: int) -> IntArray:
    """[count, parts] all non-negative integer vectors that sum to `total`."""
    if parts == 1:
        return np.array([[total]])
    if parts == 2:
        first = np.arange(total + 1)
        return np.stack([first, total - first], axis=1)
    blocks = []
    for first in range(total + 1):
        rest = _compositions(total - first, parts - 1)
        blocks.append(np.concatenate([np.full((len(rest), 1), first), rest], axis=1))
    return np.concatenate(blocks)
