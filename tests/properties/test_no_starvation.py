"""The wait bound of aging schedulers under an adversary who sets every ratio and every arrival."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.scheduling.entropy_aging import EntropyAging
from tests.controllers.scheduling.queue_plant import observation


@dataclass(frozen=True)
class Adversary:
    """An expected-reduction estimator that says what it is told through the raw entropy."""

    def init(self, capacity: int) -> None:
        return None

    def step(self, state: None, obs: object) -> tuple[None, np.ndarray]:
        return None, obs.entropy_raw_nats


@settings(max_examples=150)
@given(
    num_ready=st.integers(2, 12),
    num_served=st.integers(1, 6),
    alpha=st.floats(0.05, 2.0),
    ratio_max=st.floats(0.1, 8.0),
    seed=st.integers(0, 2**32 - 1),
    mood=st.sampled_from(["hot", "random", "targeted"]),
    leave=st.floats(0.0, 1.0),
)
def test_wait_is_bounded(
    num_ready: int, num_served: int, alpha: float, ratio_max: float, seed: int, mood: str, leave: float
) -> None:
    """Slots are refilled as soon as requests leave; "targeted" always favours everyone except the longest waiting."""
    rng = np.random.default_rng(seed)
    scheduler = EntropyAging(
        aging_nats_per_s=alpha, ratio_max_nats_per_s=ratio_max, cost_min_s=1.0, estimator=Adversary()
    )
    bound = scheduler.wait_bound_steps(num_ready, num_served)
    assert bound == np.ceil(ratio_max / alpha) + np.ceil((num_ready - 1) / num_served) + 1
    state = scheduler.init(num_ready)
    rank = np.arange(num_ready)
    age = np.zeros(num_ready, dtype=int)
    joined, served = np.ones(num_ready, bool), np.zeros(num_ready, bool)
    for step in range(int(3 * bound) + 20):
        if mood == "hot":
            nats = np.full(num_ready, ratio_max)
            nats[0] = 0.0
        elif mood == "random":
            nats = rng.uniform(0.0, 2.0 * ratio_max, num_ready)
        else:
            nats = np.full(num_ready, 2.0 * ratio_max)
            nats[np.argmax(age)] = 0.0
        obs = observation(
            num_ready,
            step,
            joined=joined,
            served=served,
            arrival_rank=rank,
            entropy_raw_nats=nats,
            marginal_step_s=1.0,
        )
        state, action = scheduler.step(state, obs)
        served = action.rank < num_served
        age = np.where(served, 0, age + 1)
        assert age.max() <= bound
        # Some of those served end; a new request takes the slot, as the youngest.
        joined = served & (rng.random(num_ready) < leave)
        rank = np.where(joined, num_ready + step * num_ready + np.arange(num_ready), rank)
        served = served & ~joined
