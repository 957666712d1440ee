"""Step cost against a plain enumeration of queries and keys."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sims.step_cost import StepCost, step_totals
from workbench.errors import InputError


def made(**changes) -> StepCost:
    fields = dict(
        name="made up",
        dense_s=np.array([0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]),
        output_s=np.array([0.0, 0.25, 0.5]),
        host_s=0.125,
        row_s=0.0625,
        kv_s_per_token=2.0**-10,
        pair_s=2.0**-12,
        dense_flop_per_token=1e3,
        output_flop_per_sample=1e2,
        attention_flop_per_pair=10.0,
        weight_bytes=5e3,
        kv_bytes_per_token=8.0,
        power_idle_w=50.0,
        power_peak_w=250.0,
        flop_per_s=1e5,
        bytes_per_s=1e5,
    )
    return StepCost(**{**fields, **changes})


def brute_force(cost: StepCost, start, tokens, samples, window):
    """Count every query's visible keys one by one."""
    attention = pairs = 0.0
    for s, n in zip(start, tokens, strict=True):
        seen = [set(range(max(0, p + 1 - window) if window else 0, p + 1)) for p in range(s, s + n)]
        row_pairs, row_keys = sum(map(len, seen)), len(set.union(*seen))
        pairs += row_pairs
        attention += row_keys * cost.kv_s_per_token + max(0, row_pairs - row_keys) * cost.pair_s
    drawn = sum(samples)
    return cost.host_s + drawn * cost.row_s + cost.dense_s[sum(tokens)] + cost.output_s[drawn] + attention, pairs


@given(
    rows=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 4)), min_size=1, max_size=2),
    window=st.sampled_from([0, 1, 3, 8, 100]),
    drawn=st.integers(0, 2),
)
def test_a_step_is_the_sum_of_what_it_reads_and_multiplies(rows, window, drawn):
    cost = made(window_tokens=window)
    start, tokens = (np.array(v) for v in zip(*rows, strict=True))
    samples = np.arange(len(rows)) < drawn
    elapsed, pairs = brute_force(cost, start, tokens, samples, window)
    result = step_totals(cost.rates, start, tokens, samples, np.full(len(rows), -1.0))
    assert result[0] == pytest.approx(elapsed, rel=1e-12)
    flops = tokens.sum() * 1e3 + samples.sum() * 1e2 + pairs * 10.0
    assert result[2] == pytest.approx(flops, rel=1e-12)


@given(st.integers(1, 400), st.integers(1, 400))
def test_time_never_falls_with_tokens_and_grows_at_least_linearly_far_out(few, more):
    cost = made()
    few, more = sorted((few, more))
    at = [cost.step_s(np.array([0]), np.array([n]), np.array([True])) for n in (few, more, 2 * more)]
    assert at[0] <= at[1] <= at[2]
    if more > 2 * cost.max_tokens:
        assert at[2] - cost.host_s >= 1.7 * (at[1] - cost.host_s)


def test_a_window_of_w_means_w_keys():
    cost = made(window_tokens=8, kv_s_per_token=0.0)
    rates = cost.rates
    one = step_totals(rates, np.array([19]), np.array([1]), np.array([True]), np.array([-1.0]))
    assert one[4] == 8 * cost.kv_bytes_per_token
    assert one[2] == 1e3 + 1e2 + 8 * 10.0


def test_pruned_reads_cost_less_and_are_reported_beside_the_dense_ones():
    rates = made().rates
    dense = step_totals(rates, np.array([99]), np.array([1]), np.array([True]), np.array([-1.0]))
    pruned = step_totals(rates, np.array([99]), np.array([1]), np.array([True]), np.array([40.0]))
    assert dense[3] == dense[4] == pruned[4] == 800.0
    assert pruned[3] == 320.0
    assert dense[0] - pruned[0] == pytest.approx(60 * 2.0**-10)


@given(st.integers(0, 100), st.integers(1, 8))
def test_power_stays_between_idle_and_the_board_limit(start, tokens):
    elapsed, energy, *_ = step_totals(
        made().rates, np.array([start]), np.array([tokens]), np.array([True]), -np.ones(1)
    )
    assert 50.0 * elapsed <= energy <= 250.0 * elapsed


def test_without_a_power_model_energy_is_missing_not_zero():
    cost = made(power_idle_w=np.nan, power_peak_w=np.nan)
    assert np.isnan(step_totals(cost.rates, np.array([3]), np.array([1]), np.array([True]), -np.ones(1))[1])


def test_the_share_of_steps_outside_the_table():
    assert made().outside(np.array([1, 8, 9, 16])) == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dense_s": np.array([0.0, 2.0, 1.0])}, "falls with its argument"),
        ({"dense_s": np.array([0.0, np.nan])}, "finite"),
        ({"host_s": -1.0}, "host_s"),
    ],
)
def test_impossible_costs_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        made(**change)
