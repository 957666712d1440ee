from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import check_grad

from controllers.routing.descriptors import describe
from controllers.routing.mlp import MLPRouter
from controllers.routing.null_threshold import ar1_traces
from tests.controllers.routing.observe import observe
from workbench.errors import InputError
from workbench.protocols import RouteReason, Strategy
from workbench.routing.fit_mlp import best_strategy, expected_calibration_error, fit_mlp, loss_and_gradient
from workbench.routing.panel import Panel


def panel(n, seed=0, informative=True, only=None):
    """Falling traces are right by CoT only, rising ones by Direct only."""
    rng = np.random.default_rng(seed)
    falls = rng.random(n) < 0.5
    slope = np.linspace(1.0, -1.0, 64)
    probes = 3.0 + 0.3 * ar1_traces(0.2, n, 64, rng) + np.where(falls, 1.0, -1.0)[:, None] * slope
    if not informative:
        falls = rng.random(n) < 0.5
    correct = np.zeros((n, 3), dtype=bool)
    correct[falls, Strategy.COT] = True
    correct[~falls, Strategy.DIRECT] = True
    if only is not None:
        correct[:] = False
        correct[:, only] = True
    return Panel(
        task="made",
        scoring="extraction",
        position=np.arange(n),
        correct=correct,
        answered=np.ones((n, 3), dtype=bool),
        output_tokens=np.tile([100, 5, 200], (n, 1)),
        prompt_tokens=np.full((n, 3), 30),
        probe_tokens=np.full(n, 64),
        probe_entropy_nats=probes,
        probe_surprisal_nats=probes,
        chance=float("nan"),
    )


def test_labels_are_the_cheapest_right_strategy():
    made = panel(4)
    made.correct[:] = [[True, True, True], [True, False, True], [False, False, True], [False, False, False]]
    # Direct costs 5 + 64, Standard 100, CoT 200 + 64.
    assert list(best_strategy(made)) == [Strategy.DIRECT, Strategy.STANDARD, Strategy.COT, Strategy.DIRECT]


def test_gradient_against_finite_differences():
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(40, 3)), rng.integers(0, 3, 40)
    start = rng.normal(size=4 * 3 + 4 + 3 * 4 + 3)
    error = check_grad(
        lambda w: loss_and_gradient(w, x, labels, 4, 0.1)[0],
        lambda w: loss_and_gradient(w, x, labels, 4, 0.1)[1],
        start,
    )
    assert error < 1e-5


def test_it_learns_from_fifty_samples_and_is_seeded():
    fitted = fit_mlp([panel(50)])
    fresh = panel(400, seed=1)
    _, action = fitted.router.step(None, fresh.observation())
    assert (action.strategy == best_strategy(fresh)).mean() > 0.95
    assert set(action.reason.tolist()) == {int(RouteReason.LEARNED)}
    assert fit_mlp([panel(50)]).router == fitted.router
    assert fit_mlp([panel(50)], seed=1).router != fitted.router


def test_probabilities_are_calibrated_even_where_there_is_nothing_to_learn():
    """An overfitted network is sure of noise; the held-out temperature takes that back."""
    calibrated, raw = [], []
    for seed in range(0, 50, 10):
        router = fit_mlp([panel(100, seed, informative=False)], weight_decay=0.002).router
        fresh = panel(2000, seed + 5, informative=False)
        numbers, labels = describe(fresh.probe_entropy_nats, fresh.probe_tokens), best_strategy(fresh)
        p = router.probabilities(numbers)
        assert np.allclose(p.sum(axis=1), 1.0)
        calibrated.append(expected_calibration_error(p, labels))
        raw.append(expected_calibration_error(replace(router, temperature=1.0).probabilities(numbers), labels))
    assert np.mean(calibrated) < 0.1  # 100 labels fix a share to about 0.05
    assert np.mean(raw) > 2.0 * np.mean(calibrated)


def test_saved_and_loaded_router_decides_alike(tmp_path):
    router = fit_mlp([panel(50)]).router
    path = tmp_path / "router.json"
    router.save(path)
    again = MLPRouter.load(path)
    assert again == router
    fresh = panel(100, seed=3)
    assert np.array_equal(
        again.step(None, fresh.observation())[1].strategy, router.step(None, fresh.observation())[1].strategy
    )


def test_a_short_probe_is_standard():
    router = fit_mlp([panel(50)]).router
    _, action = router.step(None, observe(np.linspace(3.0, 1.0, 64), [5]))
    assert (action.strategy[0], action.reason[0]) == (Strategy.STANDARD, RouteReason.TOO_SHORT)


def test_bad_calibration_sets_and_files_are_named(tmp_path):
    with pytest.raises(InputError, match="best answered cot: there is nothing to learn"):
        fit_mlp([panel(50, only=Strategy.COT)])
    with pytest.raises(InputError, match="at least 20"):
        fit_mlp([panel(19)])
    path = tmp_path / "router.json"
    for text in ("{", "[]", '{"format": "other"}', '{"format": "entropic-workbench routing mlp 1"}'):
        path.write_text(text)
        with pytest.raises(InputError, match=r"router\.json"):
            MLPRouter.load(path)
    router = fit_mlp([panel(50)]).router
    router.save(path)
    path.write_text(path.read_text().replace('"scale"', '"scala"'))
    with pytest.raises(InputError, match=r"router\.json"):
        MLPRouter.load(path)
