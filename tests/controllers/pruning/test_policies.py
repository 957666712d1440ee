"""The pruning policies against their laws on hand-made masses, and the trap against its guard."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controllers.pruning.entropy_adaptive import EntropyAdaptive
from controllers.pruning.entropy_share import EntropyShare, GuardedEntropyShare
from controllers.pruning.h2o import H2O
from controllers.pruning.mass_memory import LastMass, LinearMemory, RunningMass, SummedMass
from controllers.pruning.pyramid import Pyramid
from controllers.pruning.quest import Quest
from controllers.pruning.snapkv import SnapKV
from controllers.pruning.streaming_llm import StreamingLLM
from kernels.selection_numpy import keep_blocks
from tests.controllers.pruning.test_least_mass import observation
from workbench.catalog import CATALOG
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, KeepAction, KeepRule


def kept(action: KeepAction, num_blocks: int, row: int = 0) -> list[int]:
    """Blocks the op keeps for one row of an action that reads scores."""
    chosen = keep_blocks(
        action.score, None, np.full(action.rule.size, num_blocks), rule=action.rule, mass_budget=action.mass_budget,
        block_budget_frac=action.block_budget_frac, sink_blocks=action.sink_blocks, recent_blocks=action.recent_blocks,
    )  # fmt: skip
    return np.flatnonzero(chosen[row]).tolist()


def run(policy: Any, masses: list[list[float]], **values: Any) -> list[KeepAction]:
    state, actions = policy.init(1), []
    for step, mass in enumerate(masses):
        state, action = policy.step(state, observation(step, [mass], **values))
        actions.append(action)
    return actions


def test_predictors_follow_their_recursions() -> None:
    first, second = [[0.6, 0.3, 0.1]], [[0.2, 0.7, 0.1]]
    for predictor, expected in (
        (LastMass(), [0.2, 0.7, 0.1]),
        (RunningMass(0.25), [0.5, 0.4, 0.1]),
        (SummedMass(), [0.8, 1.0, 0.2]),
    ):
        known = predictor.update(predictor.init(1), observation(0, first))
        np.testing.assert_allclose(predictor.update(known, observation(1, second)), [expected])


def test_what_is_not_read_keeps_its_share_of_the_prediction() -> None:
    """Blocks 0 and 1 hold 0.8 of the known mass: what is measured over them is brought to that scale."""
    memory = RunningMass(0.5)
    known = memory.update(memory.init(1), observation(0, [[0.5, 0.3, 0.2]]))
    np.testing.assert_allclose(memory.update(known, observation(1, [[0.5, 0.5, np.nan]])), [[0.45, 0.35, 0.2]])
    gone = memory.update(known, observation(1, [[0.5, 0.5, np.nan]]), evict=True)
    np.testing.assert_allclose(gone, [[0.5, 0.4, 0.2]])


def test_streaming_keeps_sinks_and_a_window() -> None:
    (action,) = run(StreamingLLM(sink_blocks=1, block_budget_frac=0.4), [[0.1] * 10])
    assert kept(action, 10) == [0, 7, 8, 9]
    (action,) = run(StreamingLLM(sink_blocks=2, window_blocks=1), [[0.1] * 10])
    assert kept(action, 10) == [0, 1, 9]


def test_h2o_goes_by_the_sum_where_a_running_mean_would_not() -> None:
    masses = [[0.05, 0.8, 0.05, 0.05, 0.05, 0.0]] + [[0.05, 0.05, 0.3, 0.3, 0.3, 0.0]] * 2
    assert kept(run(H2O(block_budget_frac=0.34), masses)[-1], 6) == [1, 4, 5]


def test_h2o_begins_with_the_sum_over_the_prompt_where_it_is_told() -> None:
    """Block 0 had most of the prompt's attention and has none now: only the sum over the prompt keeps it. Told once, at joining."""
    policy, now = H2O(block_budget_frac=0.5), [[0.0, 0.1, 0.9, 0.0], [0.0, 0.1, 0.9, 0.0]]
    prompt = np.array([[30.0, 1.0, 2.0, np.nan], [np.nan] * 4])
    state, action = policy.step(policy.init(2), replace(observation(0, now), prompt_mass=prompt))
    np.testing.assert_allclose(action.score[0], [30.0, 1.1, 2.9, 0.0])
    np.testing.assert_allclose(action.score[1], now[1])
    assert (kept(action, 4, 0), kept(action, 4, 1)) == ([0, 3], [2, 3])
    _, action = policy.step(state, replace(observation(1, now), prompt_mass=prompt))
    np.testing.assert_allclose(action.score[0], [30.0, 1.2, 3.8, 0.0])


def test_snapkv_votes_once() -> None:
    policy = SnapKV(block_budget_frac=0.5, window_tokens=2, recent_blocks=1)
    actions = run(policy, [[0.7, 0.1, 0.1, 0.1], [0.7, 0.1, 0.1, 0.1], [0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    assert [int(a.rule[0]) for a in actions] == [int(KeepRule.ALL)] + [int(KeepRule.TOP_BLOCKS)] * 3
    assert kept(actions[-1], 4) == [0, 3], "what comes after the window changes nothing"


def test_short_prompts_have_nothing_to_drop() -> None:
    """A window as long as the prompt: until it is over every block is read."""
    for action in run(SnapKV(window_tokens=64), [[1.0]] * 10):
        assert kept(action, 1) == [0]


def test_pyramid_and_quest_hand_over_their_numbers() -> None:
    action = run(Pyramid(block_budget_frac=0.3, taper=0.5, window_tokens=1), [[0.25] * 4])[0]
    assert action.layer_taper is not None
    assert (action.layer_taper[0], action.block_budget_frac[0]) == (0.5, 0.3)
    assert run(Quest(block_budget_frac=0.3), [[0.25] * 4])[0].rule[0] == int(KeepRule.TOP_BOUND)


def test_the_trap_drops_the_dominant_block_and_the_guard_does_not() -> None:
    mass = [[0.9, 0.05, 0.02, 0.02, 0.01]]
    trap, guarded = run(EntropyShare(block_budget_frac=0.6), mass)[0], run(GuardedEntropyShare(), mass)[0]
    np.testing.assert_allclose(trap.score[0, :2], [0.0948, 0.1498], atol=5e-5)
    assert kept(trap, 5) == [0, 1, 4]
    assert kept(run(EntropyShare(block_budget_frac=0.4), mass)[0], 5) == [1, 4], "mass 0.9 is gone"
    assert kept(run(GuardedEntropyShare(block_budget_frac=0.4), mass)[0], 5) == [0, 4]
    assert np.all(np.diff(guarded.score[0]) <= 0.0)
    grid = np.linspace(0.0, 1.0, 1001)
    assert np.all(np.diff(GuardedEntropyShare().share(grid)) > 0.0)
    assert EntropyShare.trap
    assert GuardedEntropyShare.trap is None


def test_adaptive_budget_falls_with_entropy_and_does_not_chatter() -> None:
    policy = EntropyAdaptive(mass_budget=0.2, floor_nats=1.0, dense_nats=3.0, hysteresis_nats=0.3)

    def budgets(entropies: list[float]) -> list[float]:
        state, out = policy.init(1), []
        for step, h in enumerate(entropies):
            state, action = policy.step(state, observation(step, [[0.5, 0.5]], entropy_raw_nats=h))
            out.append(float(action.mass_budget[0]))
            assert action.rule[0] == int(KeepRule.LEAST_MASS if out[-1] > 0.0 else KeepRule.ALL)
        return out

    np.testing.assert_allclose(budgets([0.2, 1.0, 2.0, 3.0, 9.0]), [0.2, 0.2, 0.1, 0.0, 0.0])
    np.testing.assert_allclose(budgets([2.0, 2.2, 1.8, 2.1, 1.5]), [0.1, 0.1, 0.1, 0.1, 0.15])
    np.testing.assert_allclose(budgets([np.nan]), [0.0], err_msg="nothing measured: read everything")


OUT_OF_RANGE = (
    ("block_budget_frac", 0.0), ("block_budget_frac", 1.01), ("block_budget_frac", np.nan), ("mass_budget", 1.0),
    ("mass_budget", -0.01), ("sink_blocks", -1), ("recent_blocks", 0), ("window_blocks", 0), ("window_tokens", 0),
    ("taper", 1.0), ("weight", 0.0), ("dense_nats", 0.1), ("hysteresis_nats", -1.0), ("output_budget", 1.0),
    ("output_budget", -0.1),
)  # fmt: skip
REFUSED = [
    (kind, field, bad)
    for kind, cls in CATALOG[DecisionPoint.KEEP].items()
    for field, bad in OUT_OF_RANGE
    if field in cls.__dataclass_fields__
]


@pytest.mark.parametrize(("kind", "field", "bad"), REFUSED)
def test_refusals_name_the_range(kind: str, field: str, bad: float) -> None:
    with pytest.raises(InputError, match=field):
        CATALOG[DecisionPoint.KEEP][kind](**{field: bad})


def test_every_number_out_of_range_was_tried_somewhere() -> None:
    assert {field for _, field, _ in REFUSED} == {field for field, _ in OUT_OF_RANGE}


def test_a_memory_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="keep"):
        LinearMemory(1.5, 1.0)
