"""The gain bound k_i V_max < 2, attacked: no failing logits below it, and 5 % above it the search finds some."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings, target
from hypothesis import strategies as st

from tests.properties.level_logits import LevelLogits, level_logits
from workbench.counterexample import Counterexample, run_counterexample
from workbench.signals import entropy_and_varentropy, max_varentropy

PAIRS = 256  # pairs of temperatures tried for each logit vector
SLACK = 1e-12
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
FOLDER = Path(__file__).parent / "counterexamples"


def pairs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Temperatures in [0.05, 20]; half of the pairs are far apart, half neighbours."""
    rng = np.random.default_rng(seed)
    a = rng.uniform(np.log(0.05), np.log(20.0), PAIRS)
    b = np.where(rng.random(PAIRS) < 0.5, a + rng.normal(0.0, 1e-3, PAIRS), rng.uniform(a.min(), a.max(), PAIRS))
    return a, b


def growth(logits: LevelLogits, gain: float, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|f(a) - f(b)| - |a - b| for f(u) = u + gain (H* - H(u)); H* drops out. Clamping only takes away from it."""
    ha, _ = logits.entropy_and_varentropy(a)
    hb, _ = logits.entropy_and_varentropy(b)
    return np.abs((a - b) - gain * (ha - hb)) - np.abs(a - b)


@settings(max_examples=5000 if LONG else 200)
@given(level_logits(), st.integers(0, 2**32 - 1))
def test_nonexpansive_at_99_percent_of_the_bound(logits: LevelLogits, seed: int) -> None:
    """5000 x 256 = 1.28 million cases in the long profile."""
    a, b = pairs(seed)
    _, v = logits.entropy_and_varentropy(a)
    limit = max_varentropy(logits.num_outcomes)
    target(float(v.max() / limit), label="share of V_max")
    assert v.max() <= limit * (1.0 + 1e-12)
    assert growth(logits, 0.99 * 2.0 / limit, a, b).max() <= SLACK


@settings(max_examples=1000 if LONG else 60)
@given(level_logits(), st.integers(0, 2**32 - 1), st.floats(0.02, 0.99))
def test_contracts_on_a_clamp_where_varentropy_stays_away_from_zero(
    logits: LevelLogits, seed: int, share: float
) -> None:
    """rho = max(|1 - k V_lo|, |1 - k V_hi|) over a grid of the clamp."""
    u = np.linspace(np.log(0.5), np.log(2.0), PAIRS)
    h, _ = logits.entropy_and_varentropy(u)
    gain = share * 2.0 / max_varentropy(logits.num_outcomes)
    # Neighbours on the grid see a mean V between the extremes of V on that stretch.
    slope = np.diff(h) / np.diff(u)
    rho = max(abs(1.0 - gain * slope.min()), abs(1.0 - gain * slope.max()))
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, PAIRS, (2, PAIRS))
    gap = np.abs((u[i] - u[j]) - gain * (h[i] - h[j]))
    assert np.all(gap <= rho * np.abs(u[i] - u[j]) + 1e-10)
    assert rho <= 1.0 + 1e-9


def expands(logits: LevelLogits, factor: float) -> bool:
    """Two neighbouring temperatures are driven apart at `factor` times the bound."""
    u = np.linspace(np.log(0.05), np.log(20.0), 2048)
    limit = max_varentropy(logits.num_outcomes)
    worst = growth(logits, factor * 2.0 / limit, u[:-1], u[1:]).max()
    return bool(worst > SLACK)


def test_five_percent_above_the_bound_the_search_finds_a_failing_case() -> None:
    """Nothing in the strategy knows the maximiser (one atom against n - 1 equal outcomes)."""
    found = find(
        level_logits(),
        lambda logits: expands(logits, 1.05),
        settings=settings(max_examples=20_000, derandomize=not LONG, database=None, phases=[Phase.generate]),
    )
    assert expands(found, 1.05)
    assert not expands(found, 0.99)


@settings(max_examples=5000 if LONG else 300)
@given(level_logits(), st.integers(0, 2**32 - 1))
def test_entropy_never_falls_with_temperature_and_its_slope_is_the_varentropy(logits: LevelLogits, seed: int) -> None:
    u = np.sort(np.random.default_rng(seed).uniform(np.log(0.05), np.log(20.0), 64))
    h, v = logits.entropy_and_varentropy(u)
    assert np.all(np.diff(h) >= -1e-12)
    assert np.all((h >= -1e-12) & (h <= np.log(logits.num_outcomes) + 1e-12))
    step = 1e-4
    above, _ = logits.entropy_and_varentropy(u + step)
    below, _ = logits.entropy_and_varentropy(u - step)
    np.testing.assert_allclose((above - below) / (2 * step), v, atol=2e-4)


@settings(max_examples=200 if LONG else 30)
@given(level_logits(max_levels=4), st.floats(-2.0, 2.0))
def test_levels_agree_with_the_signal_definitions(logits: LevelLogits, u: float) -> None:
    if logits.num_outcomes > 60_000:
        return
    h, v = logits.entropy_and_varentropy(np.array(u))
    h_full, v_full = entropy_and_varentropy(logits.full(), np.exp(u))
    assert float(h) == pytest.approx(float(h_full), abs=1e-8)
    assert float(v) == pytest.approx(float(v_full), abs=1e-6)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_saved_counterexamples_still_do_what_they_say(path: Path) -> None:
    result = run_counterexample(Counterexample.load(path))
    assert result.ok, result.statement
    assert json.loads(path.read_text())["statement"]


def test_power_law_rows_with_a_spike_never_exceed_the_bound() -> None:
    """Shapes as a model's are: a noisy power law and a spike."""
    rng = np.random.default_rng(0)
    limit = max_varentropy(2000)
    ranks = np.log(np.arange(1, 2001))
    rows = -rng.uniform(0.2, 8.0, (2000, 1)) * ranks + rng.normal(0, 1, (2000, 2000)) * rng.uniform(0, 3, (2000, 1))
    rows[:, 0] += rng.uniform(0, 15, 2000)
    _, v = entropy_and_varentropy(rows)
    assert v.max() < limit
