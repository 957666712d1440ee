"""What a valid action is at each decision point, and comparison of nested frozen records."""

import copy
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from workbench.protocols import (
    KeepAction,
    KeepRule,
    Observation,
    OrderAction,
    RevealAction,
    RevealObservation,
    RouteAction,
    RouteReason,
    SamplingAction,
    Strategy,
)


def leaves(value: Any) -> list[Any]:
    """Arrays and scalars of a nested state or action, in a fixed order."""
    if is_dataclass(value) and not isinstance(value, type):
        return [leaf for field in fields(value) for leaf in leaves(getattr(value, field.name))]
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def same(a: Any, b: Any) -> bool:
    """Equal bit for bit, NaN equal to NaN."""
    left, right = leaves(a), leaves(b)
    return len(left) == len(right) and all(
        np.array_equal(x, y, equal_nan=np.asarray(x).dtype.kind == "f") for x, y in zip(left, right, strict=True)
    )


def frozen_copy(value: Any) -> Any:
    """A deep copy, and the original made read-only, so that a write into it is an error at once."""
    kept = copy.deepcopy(value)
    for leaf in leaves(value):
        if isinstance(leaf, np.ndarray):
            leaf.flags.writeable = False
    return kept


def per_slot(action: Any, slot: int) -> list[Any]:
    """What an action says about one slot."""
    return [leaf[slot] if isinstance(leaf, np.ndarray) else leaf for leaf in leaves(action)]


def check_action(action: Any, observation: Observation) -> None:
    """Finite, bounded, and about every active row."""
    active = observation.active
    n, num_slots = int(active.sum()), observation.num_slots
    for leaf in leaves(action):
        if isinstance(leaf, np.ndarray):
            assert leaf.shape[0] == num_slots
            assert leaf.dtype in (np.float64, np.int64, np.bool_)
    if isinstance(action, OrderAction):
        assert sorted(action.rank[active]) == list(range(n))
        assert np.all(action.rank[~active] == num_slots)
    elif isinstance(action, SamplingAction):
        temperature = action.temperature[active]
        assert np.all(np.isfinite(temperature))
        assert np.all((temperature >= 0.0) & (temperature <= 100.0))
        assert 0.0 <= action.temperature_min <= action.temperature_max
        for bound, low, high in (("min_p", 0.0, 1.0), ("top_h", 0.0, 1.0), ("mirostat_mu_nats", 0.0, 1000.0)):
            value = getattr(action, bound)
            assert value is None or np.all((value[active] >= low) & (value[active] <= high))
        target = action.target_entropy_nats
        assert target is None or np.all(np.isnan(target[active]) | ((target[active] >= 0) & (target[active] < 20)))
    elif isinstance(action, KeepAction):
        assert np.isin(action.rule[active], [int(rule) for rule in KeepRule]).all()
        assert np.all((action.mass_budget[active] >= 0.0) & (action.mass_budget[active] < 1.0))
        assert np.all((action.block_budget_frac[active] > 0.0) & (action.block_budget_frac[active] <= 1.0))
        assert np.all(action.sink_blocks[active] >= 0)
        assert np.all(action.recent_blocks[active] >= 0)
        assert not np.isinf(action.score[active]).any()
    elif isinstance(action, RevealAction):
        assert isinstance(observation, RevealObservation)
        for slot in np.flatnonzero(active):
            masked = observation.masked[slot]
            ranks = action.rank[slot][masked]
            assert len(set(ranks)) == masked.sum()
            assert np.all(np.isfinite(action.cost[slot][masked]))
        assert not np.isnan(action.budget[active]).any()
        assert np.all(action.min_count[active] >= 1)
        assert np.all(action.max_count[active] >= action.min_count[active])
    else:
        assert isinstance(action, RouteAction)
        assert np.isin(action.strategy[active], [int(x) for x in Strategy]).all()
        assert np.isin(action.reason[active], [int(x) for x in RouteReason]).all()
