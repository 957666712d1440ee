"""The certified rule that runs live is the one that `workbench prune` measures: same blocks, same bytes, same bound."""

import numpy as np
import pytest

from controllers.pruning.certified import Certified
from controllers.pruning.keep_all import KeepAll
from controllers.pruning.sketch_mass import SketchMass
from workbench.engine.config import EngineConfig
from workbench.live.sequence_sketch import fit_positions
from workbench.live.session import LiveModel
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint
from workbench.pruning.decode import Arm, decode
from workbench.pruning.key_rules import KeyRules
from workbench.pruning.prefix import dense_queries, prefill

TOKENS, TAIL = 420, 6
POLICIES = {
    "mass": Certified(mass_budget=0.2),
    "output": Certified(mass_budget=0.3, output_budget=0.95),
    "estimate": SketchMass(mass_budget=0.5, floor_frac=0.1),
}
IDS = np.random.default_rng(0).integers(3, 97, TOKENS).tolist()


class NoRecord:
    def decision(self, observation, action, applied):
        pass


def live(model: LiveModel, policy, prompts, forced, output, **options):
    """Runs under `policy`; the plant."""
    config = EngineConfig(num_blocks=100, block_size=16, max_running=4, **options)
    made = model.plant(
        prompts, output, config=config, controlled=frozenset({DecisionPoint.KEEP}), forced=forced, measure_mass=True,
        sketched_keys=True,
    )  # fmt: skip
    close_loop(made.plant, {DecisionPoint.KEEP: policy}, NoRecord())
    return made


@pytest.fixture(scope="module")
def studied(tiny_llama: LiveModel):
    prefix = prefill(tiny_llama.decoder, IDS, TOKENS - TAIL, spare_blocks=40)
    rules = KeyRules(prefix, dense_queries(prefix, fit_positions(TOKENS - TAIL)))
    warmup = dense_queries(prefix, range(TOKENS - TAIL - 32, TOKENS - TAIL))
    arms = [Arm("none", None, KeepAll()), *(Arm(name, None, policy) for name, policy in POLICIES.items())]
    return [arm.name for arm in arms], decode(prefix, warmup, arms, rules, lambda share: None)


@pytest.mark.parametrize("name", POLICIES)
def test_live_bytes_are_those_of_the_study(tiny_llama: LiveModel, studied, name: str) -> None:
    names, found = studied
    tail = IDS[TOKENS - TAIL :]
    made = live(tiny_llama, POLICIES[name], [IDS[: TOKENS - TAIL]], {0: tail}, TAIL)
    steps = made.plant.telemetry.step_table()
    share = (np.asarray(steps["kv_bytes_read"]) / np.asarray(steps["kv_bytes_dense"]))[-(TAIL - 1) :]
    expected = found.bytes_frac[:, names.index(name)]
    assert expected.min() < 0.99, "something is dropped"
    np.testing.assert_allclose(share, expected, atol=1e-6)


def test_the_bound_stands_in_the_record_and_is_true(tiny_llama: LiveModel) -> None:
    """Three prompts at once, long enough for groups to fill up while decoding; one shares its beginning with another."""
    rng = np.random.default_rng(5)
    prompts = [IDS[:300], [*IDS[:256], *rng.integers(3, 97, 20).tolist()], rng.integers(3, 97, 40).tolist()]
    made = live(tiny_llama, Certified(mass_budget=0.2), prompts, None, 120, prefix_caching=True)
    tokens = made.plant.telemetry.tokens
    bound = np.concatenate([step["dropped_mass_bound"] for step in tokens if "dropped_mass_bound" in step])
    true = np.concatenate([step["dropped_mass"] for step in tokens if "dropped_mass_bound" in step])
    known = ~np.isnan(bound)
    assert known.sum() > 200
    assert np.all(true[known] <= bound[known] + 1e-6)
    assert np.all(bound[known] <= 0.2)
    assert bound[known].max() > 0.01
    assert true[known].max() > 0.0


def test_a_sequence_nobody_watched_is_read_whole_until_it_has_queries(tiny_llama: LiveModel) -> None:
    made = tiny_llama.plant(
        [IDS[:300]], 24, config=EngineConfig(num_blocks=40, block_size=16, max_running=1),
        controlled=frozenset({DecisionPoint.KEEP}),
    )  # fmt: skip
    close_loop(made.plant, {DecisionPoint.KEEP: Certified(mass_budget=0.3)}, NoRecord())
    steps = made.plant.telemetry.step_table()
    share = (np.asarray(steps["kv_bytes_read"]) / np.asarray(steps["kv_bytes_dense"]))[1:]
    assert np.all(share[:16] == 1.0)
    assert share[17:].min() < 0.95


def test_recomputed_kv_gets_a_sketch_of_its_own(tiny_llama: LiveModel) -> None:
    """Preempted and recomputed: the old sketch is forgotten, bounds stay true."""
    rng = np.random.default_rng(6)
    prompts = [rng.integers(3, 97, 140).tolist() for _ in range(3)]
    config = EngineConfig(num_blocks=21, block_size=16, max_running=3, preemption_quantum_tokens=0)
    made = tiny_llama.plant(prompts, 40, config=config, controlled=frozenset({DecisionPoint.KEEP}), sketched_keys=True)
    close_loop(made.plant, {DecisionPoint.KEEP: Certified(mass_budget=0.2)}, NoRecord())
    assert made.plant.ledger.num_preempted.sum() > 0
    tokens = [step for step in made.plant.telemetry.tokens if "dropped_mass_bound" in step]
    bound = np.concatenate([step["dropped_mass_bound"] for step in tokens])
    true = np.concatenate([step["dropped_mass"] for step in tokens])
    known = ~np.isnan(bound)
    assert known.any()
    assert np.all(true[known] <= bound[known] + 1e-6)
    assert not made.executor._key_index.slots, "nothing is kept of requests that have left"
