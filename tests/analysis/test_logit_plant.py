"""The logit plant against dense softmax statistics and the I law's closed form; what the pictures claim, in numbers."""

import math

import numpy as np
import pytest

from controllers.temperature.fixed import Fixed
from controllers.temperature.pi import PITemperature
from workbench.analysis.logit_plant import made_up_text, run_law, weighted_statistics, widest_levels
from workbench.analysis.pictures import coupling, entropic_time
from workbench.signals import entropy_and_varentropy, max_varentropy

N = 49152


def test_weighted_statistics_equal_those_of_the_expanded_logits():
    levels, counts = np.array([3.0, 1.5, -2.0, 0.0]), np.array([2.0, 5.0, 40.0, 3.0])
    for t in (0.2, 1.0, 3.0):
        dense = entropy_and_varentropy(np.repeat(levels, counts.astype(int)), t)
        assert np.allclose(weighted_statistics(levels, counts, t), dense, rtol=1e-12)


def test_the_widest_levels_attain_the_largest_varentropy():
    for n in (2, 25, N):
        _, v = weighted_statistics(*widest_levels(n), 1.0)
        assert float(v) == pytest.approx(max_varentropy(n), rel=1e-9)


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_a_run_follows_the_law_token_by_token(delay):
    levels, counts = made_up_text(60, N, seed=3)
    law = PITemperature(target_entropy_nats=3.0, vocab_size=N, delay_steps=delay, temperature_max=3.0)
    run = run_law(law, levels, counts, delay_steps=delay)
    u = np.log(run.temperature)
    assert np.allclose(u[: delay + 1], 0.0)
    for k in range(delay, 59):
        expected = np.clip(u[k] + law.gain * (3.0 - run.entropy_nats[k - delay]), math.log(0.1), math.log(3.0))
        assert u[k + 1] == pytest.approx(expected, abs=1e-12)


def test_a_plant_that_clamps_reports_what_it_applied():
    levels, counts = made_up_text(5, 200_000, seed=0)
    run = run_law(Fixed(temperature=1.5), levels, counts, temperature_limit=(0.0, 0.8))
    assert run.temperature == pytest.approx(0.8)
    assert run.entropy_raw_nats != pytest.approx(run.entropy_nats)


@pytest.mark.parametrize(("gain", "cycles"), [(1.9, False), (2.3, True)])
def test_a_limit_cycle_appears_beyond_the_bound_and_not_below(gain, cycles):
    levels, counts = widest_levels(N)
    target = float(weighted_statistics(levels, counts, 1.0)[0])
    law = PITemperature(
        target_entropy_nats=target, vocab_size=N, k_i=gain / max_varentropy(N), unsafe=True,
        temperature_start=1.06, temperature_min=0.5, temperature_max=2.0,
    )  # fmt: skip
    u = np.log(run_law(law, np.tile(levels, (400, 1)), counts).temperature)
    assert (abs(u[-1] - u[-2]) > 0.1) == cycles
    assert abs(u[-1] - u[-3]) < 1e-6, "period two, or at rest"


def test_noise_earns_entropic_time_at_the_closed_form_rate():
    table = entropic_time.noise_law(length=40_000)
    for _, found, closed in table.iter_rows():
        assert found == pytest.approx(closed, rel=0.03)


def test_progress_and_tau_part_ways():
    table = {row["trace"]: row for row in entropic_time.ledger(entropic_time.traces()).iter_rows(named=True)}
    assert table["white noise"]["tau (nats)"] > 10 * table["steady fall"]["tau (nats)"]
    assert abs(table["white noise"]["net drop (nats)"]) < 1.0
    for row in table.values():
        assert 2 * row["tau (nats)"] == pytest.approx(row["net drop (nats)"] + row["total variation (nats)"], abs=0.03)


def test_room_left_by_pruning_is_two_minus_two_loop_gains():
    for pruning, by_small_gain, by_poles in coupling.margins_table():
        assert by_small_gain == pytest.approx(2 - 2 * pruning, abs=1e-6)
        assert by_poles == pytest.approx(2 - 2 * pruning, abs=1e-6)


def test_recorded_temperatures_are_those_of_the_live_record():
    from workbench.analysis.pictures.temperature import RECORDED_TEMPERATURES
    from workbench.live.executor import CALIBRATION_TEMPERATURES

    assert RECORDED_TEMPERATURES == CALIBRATION_TEMPERATURES
