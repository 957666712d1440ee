"""What a simulated sequence reads: the keep rules against the twin that live decoding uses, and what is told of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.selection_numpy import keep_blocks
from sims.attend import choose_blocks, evict_dropped, keep_by_threshold, scores_that_may_go, tell
from sims.mass_process import forget_slot
from tests.sims.test_mass_process import drawn
from workbench.protocols import KeepRule

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
    told = np.zeros((2, 64))
    one, yes = np.array([30]), np.array([True])
    for place, by_slot in ((0, False), (0, True)):
        told[:] = -1.0
        tell(state.mass, state.kept, state.gone, state.dropped, np.array([0]), one, yes, told, by_slot)
        assert np.nansum(told[place, :30]) == pytest.approx(1.0)
        np.testing.assert_array_equal(np.isnan(told[place, :30]), ~state.kept[0, :30])
        assert np.all(told[place, 30:] == -1.0 if by_slot else np.isnan(told[place, 30:]))
        assert np.all(told[1] == -1.0)
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


def by_threshold(state, count, budget, sinks, recent, score):
    """(found, changed) of the choice without a sort, for slot 0."""
    found, changed, slot, blocks = np.array([True]), np.array([False]), np.array([0]), np.array([count])
    may_go = scores_that_may_go(score[None], slot, blocks, np.array([sinks]), np.array([recent]), found)
    keep_by_threshold(
        state.mass, state.kept, state.threshold, state.dropped, state.num_read, slot, blocks, np.array([budget]), may_go,
        found, changed,
    )  # fmt: skip
    return found[0], changed[0]


@given(
    seed=st.integers(0, 2**31),
    count=st.integers(1, 40),
    budget=st.floats(0.0, 0.9),
    sinks=st.integers(0, 3),
    recent=st.integers(1, 4),
    unknown=st.floats(0.0, 0.5),
)
def test_the_choice_without_a_sort_is_the_sorted_one(seed, count, budget, sinks, recent, unknown):
    rng = np.random.default_rng(seed)
    fast, slow = drawn(count, seed % 7), drawn(count, seed % 7)
    score = np.full(64, np.nan)
    score[:count] = rng.dirichlet(np.full(count, 0.5))
    for _ in range(6):  # scores that move slowly: the threshold of the step before is nearly right
        score[:count] = np.maximum(score[:count] + 0.01 * rng.standard_normal(count), 0.0)
        score[:count][rng.random(count) < unknown / 6] = np.nan
        found, changed = by_threshold(fast, count, budget, sinks, recent, score)
        expected = choose_blocks(slow, 0, count, KeepRule.LEAST_MASS, budget, 1.0, sinks, recent, score)
        if found:
            np.testing.assert_array_equal(fast.kept, slow.kept)
            assert fast.dropped[0] == pytest.approx(slow.dropped[0], abs=1e-14)
            assert (fast.num_read[0], changed) == (slow.num_read[0], expected)
        else:
            for mine, other in zip(fast, slow, strict=True):
                mine[:] = other


def test_the_choice_without_a_sort_is_found_unless_scores_tie():
    state = drawn(30)
    score = np.concatenate([state.mass[0, :30], np.full(34, np.nan)])
    choose_blocks(state, 0, 30, KeepRule.LEAST_MASS, 0.1, 1.0, 1, 4, score)  # leaves its threshold
    assert by_threshold(state, 30, 0.1, 1, 4, score)[0]
    assert not by_threshold(state, 30, 0.1, 1, 4, np.full(64, 0.04))[0]
