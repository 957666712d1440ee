"""Intervals cover as they say."""

import numpy as np
import pytest

from workbench.claims.interval import bootstrap, jackknife, over_seeds, share_difference


def test_t_interval_covers_as_it_says() -> None:
    generator = np.random.default_rng(0)
    hits = [m.low <= 0.0 <= m.high for m in (over_seeds(generator.normal(size=5)) for _ in range(4000))]
    assert np.mean(hits) == pytest.approx(0.99, abs=0.006)


def test_bootstrap_of_a_mean_agrees_with_the_normal_law() -> None:
    x = np.random.default_rng(1).normal(size=400)
    found = bootstrap(lambda w: w @ x / 400, 400, 0)
    half = 2.576 * x.std() / 20.0
    assert found.value == pytest.approx(x.mean())
    assert found.high - found.low == pytest.approx(2.0 * half, rel=0.06)


def test_jackknife_of_a_mean_is_its_t_interval() -> None:
    x = np.random.default_rng(2).normal(3.0, 1.0, 9)
    found, plain = jackknife(lambda c: float(x[c].mean()), 9, "texts"), over_seeds(x)
    assert (found.value, found.low, found.high) == pytest.approx((plain.value, plain.low, plain.high))


def test_jackknife_of_a_ratio_covers() -> None:
    generator, hits = np.random.default_rng(4), []
    for _ in range(600):
        x, y = generator.normal(2.0, 0.3, 10), generator.normal(4.0, 0.3, 10)
        found = jackknife(lambda c, x=x, y=y: float(x[c].mean() / y[c].mean()), 10, "texts")
        hits.append(found.low <= 0.5 <= found.high)
    assert np.mean(hits) >= 0.975


def test_share_difference_has_width_where_nothing_differs() -> None:
    none = share_difference(0, 0, 300, "questions")
    assert none.value == 0.0
    # The largest share that 300 draws miss with probability 0.25 %.
    assert none.high == pytest.approx(1.0 - 0.0025 ** (1 / 300))
    assert none.low == -none.high
    assert share_difference(30, 10, 100, "questions").value == pytest.approx(0.2)
    assert share_difference(100, 0, 100, "questions").high == 1.0


def test_share_difference_covers() -> None:
    generator, hits = np.random.default_rng(5), []
    for _ in range(1500):
        lost, gained, _ = generator.multinomial(120, [0.06, 0.03, 0.91])
        found = share_difference(int(lost), int(gained), 120, "questions")
        hits.append(found.low <= 0.03 <= found.high)
    assert np.mean(hits) >= 0.985
