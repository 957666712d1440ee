import numpy as np
import pytest

from kernels.dispatch import backend
from workbench.errors import InputError
from workbench.live.keep_list import choose_blocks
from workbench.protocols import KeepAction, KeepRule

OPS = backend("torch")


def action(
    rule: KeepRule, score: list[float], *, budget: float = 0.2, share: float = 0.5, evict: bool = True, recent: int = 1
):
    return KeepAction(
        rule=np.array([int(rule)]),
        mass_budget=np.array([budget]),
        block_budget_frac=np.array([share]),
        sink_blocks=np.array([1]),
        recent_blocks=np.array([recent]),
        score=np.array([score]),
        evict=np.array([evict]),
    )


def choose(made: KeepAction, held: list[bool], spent: float = 0.0):
    n = len(held)
    return choose_blocks(made, np.array([0]), np.array([n]), np.array([held]), np.array([spent]), OPS)


def test_least_mass_stays_within_its_budget_and_spares_sinks_and_recent_blocks() -> None:
    score = [0.01, 0.05, 0.3, 0.1, 0.04, 0.5]
    kept = choose(action(KeepRule.LEAST_MASS, score), [True] * 6)
    assert kept.keep[0].tolist() == [True, False, True, False, False, True]
    assert kept.evicted_score[0] == pytest.approx(0.19)


def test_a_budget_is_not_spent_twice() -> None:
    """What was evicted before goes on counting: with 0.19 of 0.2 spent, only 0.01 is left."""
    score = [0.01, 0.05, 0.3, 0.1, 0.009, 0.5]
    kept = choose(action(KeepRule.LEAST_MASS, score), [True, False, True, False, True, True], spent=0.19)
    assert kept.keep[0].tolist() == [True, False, True, False, False, True]
    kept = choose(action(KeepRule.LEAST_MASS, score), [True, False, True, False, True, True], spent=0.195)
    assert kept.keep[0].tolist() == [True, False, True, False, True, True]


def test_a_share_is_a_share_of_all_blocks_ever_filled() -> None:
    score = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    first = choose(action(KeepRule.TOP_BLOCKS, score), [True] * 8)
    assert first.keep.sum() == 4
    again = choose(action(KeepRule.TOP_BLOCKS, score), first.keep[0].tolist())
    assert again.keep.sum() == 4, "the second time nothing more has to go"
    assert not again.evict.any()


def test_the_newest_block_is_read_whatever_the_action_says() -> None:
    kept = choose(action(KeepRule.WINDOW, [np.nan] * 5, recent=0), [True] * 5)
    assert kept.keep[0].tolist() == [True, False, False, False, True]


def test_blocks_without_a_score_are_kept_and_masks_do_not_evict() -> None:
    kept = choose(action(KeepRule.TOP_BLOCKS, [0.1, np.nan, 0.1, np.nan, 0.9], share=0.1, evict=False), [True] * 5)
    assert kept.keep[0].tolist() == [True, True, False, True, True]
    assert not kept.evict.any()


def test_rules_that_read_keys_drop_nothing_here_and_unknown_ones_are_refused() -> None:
    kept = choose(action(KeepRule.CERTIFIED, [0.1] * 4), [True, False, True, True])
    assert kept.keep[0].tolist() == [True, False, True, True]
    assert not kept.evict.any()
    made = action(KeepRule.ALL, [0.1] * 4)
    made.rule[0] = 99
    with pytest.raises(InputError, match="99"):
        choose(made, [True] * 4)
