"""Block masses, and the keep rules against the twin that live decoding uses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.reference_numpy import keep_blocks
from sims.mass_process import (
    MassProcess,
    choose_blocks,
    draw_masses,
    evict_dropped,
    forget_slot,
    mass_law,
    new_mass_state,
    told_masses,
)
from workbench.errors import InputError
from workbench.protocols import KeepRule

LAW = mass_law(MassProcess(sink=4.0, decay=0.6, spread=0.8, flicker=0.3), 64)


def drawn(num_blocks, seed=1, request=0, slot=0, width=64, law=LAW):
    state = new_mass_state(4, width)
    draw_masses(state, law, seed, slot, request, num_blocks)
    state.kept[slot, :num_blocks] = True
    return state


def test_masses_sum_to_one_and_have_the_stated_law():
    blocks, ratios, sinks = 40, [], []
    for request in range(3000):
        mass = drawn(blocks, request=request).mass[0, :blocks]
        assert mass.sum() == pytest.approx(1.0)
        ratios.append(np.log(mass[9] / mass[29]))
        sinks.append(np.log(mass[0] / mass[1]))
    ratios = np.array(ratios)
    # ln w_9 - ln w_29 is normal: mean decay ln(ages), variance 2 (spread^2 + flicker^2).
    assert ratios.mean() == pytest.approx(-0.6 * np.log(31 / 11), abs=4 * ratios.std() / np.sqrt(3000))
    assert ratios.std() == pytest.approx(np.sqrt(2 * (0.8**2 + 0.3**2)), rel=0.05)
    assert np.mean(sinks) > np.log(4.0)


def test_heavy_hitters_stay_heavy_as_the_context_grows():
    state = drawn(40)
    before = state.mass[0, :40].copy()
    draw_masses(state, LAW, 1, 0, 0, 41)
    assert np.corrcoef(np.log(before[1:]), np.log(state.mass[0, 1:40]))[0, 1] > 0.7


def test_masses_do_not_depend_on_slot_or_on_what_was_drawn_before():
    one, other = drawn(20, slot=0), drawn(7, slot=3)
    draw_masses(other, LAW, 1, 3, 0, 20)
    np.testing.assert_array_equal(one.mass[0], other.mass[3])


RULES = st.sampled_from([KeepRule.ALL, KeepRule.LEAST_MASS, KeepRule.TOP_BLOCKS, KeepRule.WINDOW])


@given(
    rule=RULES,
    scores=st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, np.nan]), min_size=1, max_size=12),
    again=st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, np.nan]), min_size=12, max_size=12),
    budget=st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75]),
    share=st.floats(0.05, 1.0),
    sinks=st.integers(0, 3),
    recent=st.integers(1, 4),
)
def test_the_rules_are_those_of_the_kernels_twin(rule, scores, again, budget, share, sinks, recent):
    count = len(scores)
    state = drawn(count, width=12)
    # Twice, so that the threshold remembered from the first choice is tried in the second.
    for values in (scores, again[:count]):
        score = np.full(12, np.nan)
        score[:count] = values
        changed = choose_blocks(state, 0, count, rule, budget, share, sinks, recent, score)
        expected = keep_blocks(
            score[None], None, [count], rule=[rule], mass_budget=[budget], block_budget_frac=[share],
            sink_blocks=[min(sinks, count)], recent_blocks=[recent],
        )[0]  # fmt: skip
        if rule != KeepRule.LEAST_MASS or budget > 0.0:
            np.testing.assert_array_equal(state.kept[0], expected)
        assert state.kept[0, count - 1]
        assert state.dropped[0] == pytest.approx(state.mass[0, :count][~state.kept[0, :count]].sum())
        assert changed in (True, False)


def test_what_is_told_sums_to_one_over_what_was_read():
    state = drawn(30)
    score = np.concatenate([state.mass[0, :30], np.full(34, np.nan)])
    choose_blocks(state, 0, 30, KeepRule.LEAST_MASS, 0.1, 1.0, 1, 4, score)
    told = np.zeros(64)
    told_masses(state, 0, 30, told)
    assert np.nansum(told) == pytest.approx(1.0)
    np.testing.assert_array_equal(np.isnan(told[:30]), ~state.kept[0, :30])
    assert 0.0 < state.dropped[0] <= 0.1


def test_evicted_blocks_stay_gone_and_go_on_counting_against_the_budget():
    state = drawn(30)
    score = np.concatenate([state.mass[0, :30], np.full(34, np.nan)])
    out = np.zeros(64, bool)
    for _ in range(5):
        choose_blocks(state, 0, 30, KeepRule.LEAST_MASS, 0.1, 1.0, 1, 4, score)
        evict_dropped(state, 0, 30, score, out)
    gone = state.gone[0, :30]
    np.testing.assert_array_equal(gone, out[:30])
    assert state.mass[0, :30][gone].sum() == pytest.approx(state.dropped[0])
    assert state.dropped[0] <= 0.1
    forget_slot(state, 0)
    assert not state.gone[0].any()


def test_impossible_numbers_are_refused():
    with pytest.raises(InputError, match="spread"):
        MassProcess(spread=-1.0)
