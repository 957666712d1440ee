import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from workbench.routing.bootstrap import auroc, auroc_interval, interval, mean_interval, resamples


def test_mean_interval_covers_at_its_rate():
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(300):
        x = rng.random(100) < 0.3
        got = mean_interval(x, resamples(100, trial, 500))
        assert got.value == x.mean()
        covered += got.low <= 0.3 <= got.high
    assert 0.90 <= covered / 300 <= 0.98


def test_a_paired_difference_is_tighter_than_its_parts():
    rng = np.random.default_rng(1)
    a = rng.normal(0.0, 5.0, 200)
    b = a + 0.5 + rng.normal(0.0, 0.1, 200)
    draws = resamples(200, 0)
    paired = mean_interval(b - a, draws)
    assert paired.low > 0.45
    assert paired.high < 0.55
    general = interval(lambda rows: float((b - a)[rows].mean()), draws)
    assert (general.low, general.high) == pytest.approx((paired.low, paired.high))


def test_auroc_equals_sklearn_and_names_one_class():
    rng = np.random.default_rng(2)
    score, label = np.round(rng.normal(size=300), 1), rng.random(300) < 0.4
    assert auroc(score, label) == pytest.approx(roc_auc_score(label, score), abs=1e-12)
    score[5] = np.nan
    keep = np.isfinite(score)
    assert auroc(score, label) == pytest.approx(roc_auc_score(label[keep], score[keep]), abs=1e-12)
    assert np.isnan(auroc(score, np.zeros(300, dtype=bool)))
    draws = resamples(300, 0, 200)
    slow = interval(lambda rows: auroc(score[rows], label[rows]), draws)
    fast = auroc_interval(score, label, draws)
    assert (fast.value, fast.low, fast.high) == pytest.approx((slow.value, slow.low, slow.high), abs=1e-12)
    assert auroc_interval(score, np.zeros(300, dtype=bool), draws).value is None
