"""Every oracle against plain sums over a joint that each test writes down itself, never through the oracle."""

import numpy as np

from sims.oracles.oracle import Oracle
from sims.oracles.table import all_sequences


def check_against_joint(oracle: Oracle, joint: np.ndarray, seed: int = 0, cases: int = 60) -> None:
    """`joint` [num_symbols^length] in the order of `all_sequences`. Marginals, log-probabilities, batch entropies, H(X0)."""
    length, n = oracle.length, oracle.num_symbols
    sequences = all_sequences(length, n)
    assert joint.shape == (len(sequences),)
    np.testing.assert_allclose(joint.sum(), 1.0, atol=1e-12)
    support = joint[joint > 0.0]
    np.testing.assert_allclose(
        oracle.entropy_nats, -(support * np.log(support)).sum(), atol=1e-10 + oracle.entropy_error_nats
    )
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(oracle.log_probability(sequences), np.log(joint), rtol=1e-10, atol=1e-10)

    rng = np.random.default_rng(seed)
    for _ in range(cases):
        truth = sequences[rng.choice(len(sequences), p=joint)]
        revealed = rng.random(length) < rng.random()
        batch = ~revealed & (rng.random(length) < rng.random())
        tokens = np.where(revealed, truth, -1)[None]
        agrees = (sequences[:, revealed] == truth[revealed]).all(axis=1)
        weight = joint * agrees
        total = weight.sum()
        np.testing.assert_allclose(np.exp(oracle.log_probability(tokens)), total, rtol=1e-10)
        marginals = oracle.marginals(tokens)
        assert marginals.shape == (1, length, n)
        for i in range(length):
            want = np.bincount(sequences[:, i], weights=weight, minlength=n) / total
            np.testing.assert_allclose(marginals[0, i], want, atol=1e-10)
        groups: dict[tuple[int, ...], float] = {}
        for sequence, w in zip(sequences[agrees], weight[agrees], strict=True):
            key = tuple(sequence[batch])
            groups[key] = groups.get(key, 0.0) + w / total
        p = np.array([v for v in groups.values() if v > 0.0])
        np.testing.assert_allclose(oracle.batch_entropy(tokens, batch[None])[0], -(p * np.log(p)).sum(), atol=1e-9)


def check_samples(oracle: Oracle, joint: np.ndarray, rows: int = 40_000) -> None:
    """Chi-square of exact samples against the joint, at five standard deviations of its null."""
    n, length = oracle.num_symbols, oracle.length
    samples = oracle.sample(np.random.default_rng(7), rows)
    code = samples @ (n ** np.arange(length - 1, -1, -1))
    seen = np.bincount(code, minlength=len(joint))
    assert not np.any(seen[joint == 0.0])
    expected = rows * joint
    big = expected >= 5.0
    chi2 = ((seen[big] - expected[big]) ** 2 / expected[big]).sum()
    freedom = big.sum() - 1
    assert chi2 < freedom + 5.0 * np.sqrt(2.0 * max(freedom, 1)) + 1e-9


def check_defined_off_support(oracle: Oracle) -> None:
    """Whatever is revealed, possible or not, the marginals are distributions and keep revealed tokens."""
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, oracle.num_symbols, (200, oracle.length))
    tokens[rng.random(tokens.shape) < 0.4] = -1
    marginals = oracle.marginals(tokens)
    assert np.all(np.isfinite(marginals))
    assert np.all(marginals >= 0.0)
    np.testing.assert_allclose(marginals.sum(axis=2), 1.0, atol=1e-12)
    row, at = np.nonzero(tokens >= 0)
    assert np.all(marginals[row, at, tokens[row, at]] == 1.0)
