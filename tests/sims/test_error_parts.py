"""The parts of a step-time error on steps whose every fault was put there on purpose."""

import numpy as np
import pytest

from sims.error_parts import (
    ArmSteps,
    best_factor,
    figure_parts,
    kinds_table,
    scaled_cost,
    sentence,
    speed_of,
    step_parts,
)
from sims.recorded import RecordedSteps
from tests.sims.conftest import made_cost

COUNT = 400


def made_arm(name, seed=0, *, machine=1.0, prefill=1.0, noise=0.0) -> ArmSteps:
    """Predictions are 10 ms a step; measured times differ from them by the given factors, and by `noise` each."""
    rng = np.random.default_rng(seed)
    running = rng.choice([1.0, 2.0, 8.0], COUNT)
    chunks = (rng.random(COUNT) < 0.3).astype(float)
    predicted = np.full(COUNT, 0.01)
    measured = predicted * machine * np.where(chunks > 0, prefill, 1.0) * np.exp(noise * rng.standard_normal(COUNT))
    steps = RecordedSteps(
        elapsed_s=measured, tokens=running + 20 * chunks, sampled=running, running=running,
        kv_read_tokens=100.0 * running, pairs=100.0 * running, chunks=chunks, measures=np.zeros(COUNT),
    )  # fmt: skip
    return ArmSteps(name, steps, predicted)


def test_parts_sum_to_the_whole_and_name_the_fault():
    quiet = step_parts([made_arm("a"), made_arm("b", 1)])
    assert quiet.mape == quiet.floor == 0.0
    slow = step_parts([made_arm("a", machine=1.25), made_arm("b", 1, machine=1.25)])
    assert slow.mape == pytest.approx(0.2)
    assert slow.bias == pytest.approx(0.2)
    drifting = step_parts([made_arm("a", machine=1.25), made_arm("b", 1)])
    assert drifting.drift == pytest.approx(drifting.mape, abs=1e-12)
    wrong = step_parts([made_arm("a", prefill=2.0), made_arm("b", 1, prefill=2.0)])
    assert wrong.shape == pytest.approx(wrong.mape, abs=1e-12)
    for parts in (slow, drifting, wrong):
        whole = parts.bias + parts.shape + parts.drift + parts.rest + parts.floor
        assert whole == pytest.approx(parts.mape, abs=1e-12)
        assert parts.covered == 1.0


def test_noise_of_equal_batches_is_the_floor_and_nothing_else():
    sigma = 0.1
    parts = step_parts([made_arm(str(i), i, noise=sigma) for i in range(4)])
    # E|exp(-sigma z) - 1| is sigma sqrt(2 / pi) to first order; a median of some 30 others adds little to it.
    assert parts.floor == pytest.approx(sigma * np.sqrt(2.0 / np.pi), rel=0.1)
    assert parts.floor == pytest.approx(parts.mape, rel=0.05)
    assert "floor" in sentence(parts)


def test_the_best_factor_is_the_best():
    ratio = np.exp(0.4 * np.random.default_rng(0).standard_normal(301))
    best = best_factor(ratio)
    for other in best * np.array([0.9, 0.99, 1.01, 1.1]):
        assert np.abs(best * ratio - 1.0).mean() <= np.abs(other * ratio - 1.0).mean()


def test_a_kind_shows_its_own_bias():
    table = kinds_table([made_arm("a", prefill=2.0)])
    bias = dict(zip(table["kind"], table["bias"], strict=True))
    assert bias["decode, up to 2 rows"] == pytest.approx(0.0, abs=1e-12)
    assert bias["prefill, up to 8 rows"] == pytest.approx(-0.5)
    assert table["time_frac"].sum() == pytest.approx(1.0)


def test_speed_and_a_machine_of_that_speed():
    assert speed_of(made_arm("a", machine=1.25)) == pytest.approx(1.25)
    cost = made_cost(mass_s=1e-4)
    start, one, yes = np.array([100, 7]), np.array([1, 30]), np.array([True, True])
    assert scaled_cost(cost, 1.25).step_s(start, one, yes) == pytest.approx(1.25 * cost.step_s(start, one, yes))


def test_figures_say_what_the_speed_explains():
    live, simulated = [1.0, 2.0, np.nan], [1.2, 2.4, 1.0]
    parts = figure_parts(live, simulated, [1.0, 2.2, 1.0], [[1.2, 1.2], [2.4, 2.4], [1.0, 1.0]])
    assert parts.error == parts.bias == pytest.approx(0.2)
    assert parts.error_at_own_speed == pytest.approx(0.05)
    assert parts.draw_sd == 0.0
    assert np.isnan(figure_parts([np.nan], [1.0], [1.0], [[1.0]]).error)
