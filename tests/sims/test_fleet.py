"""A fleet against a lone engine, dispatchers against what they promise, failures against what must survive."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest

from sims.dispatcher import POLICIES, Choice, make_policy
from sims.executor import SimExecutor
from sims.faults import Failures
from sims.fleet import Fleet
from sims.plant import build_plant
from tests.sims.conftest import TABLES, VOCAB, drive, made_cost, made_plant, made_process, made_requests
from tests.sims.test_plant import scenario
from workbench.arm import run_arm
from workbench.catalog import build_controllers
from workbench.engine.config import EngineConfig
from workbench.engine.prompt_blocks import blocks_of_groups
from workbench.engine.requests import RequestStatus
from workbench.errors import InputError
from workbench.protocols import DecisionPoint
from workbench.record import read_manifest
from workbench.replay import replay_arm

CONFIG = EngineConfig(num_blocks=60, max_running=8, token_budget=256)

AMPLE = replace(CONFIG, num_blocks=2000)


def made_fleet(requests, replicas=3, dispatcher="round-robin", arm="", config=CONFIG, seed=0, mass=None, process=None):
    executors = [
        SimExecutor(made_cost(), process or made_process(), requests.kind_names, seed=seed, draw_ends=True, mass=mass)
        for _ in range(replicas)
    ]
    tables = {DecisionPoint(k): v for letter in arm for k, v in TABLES[letter].items()}
    controllers = build_controllers(tables, {"vocab_size": VOCAB, "delay_steps": config.delay_steps})
    fleet = Fleet(requests, executors, config, dispatcher, controlled=frozenset(controllers), seed=seed)
    return fleet, controllers


@pytest.mark.parametrize("dispatcher", ["round-robin", "central-queue"])
@pytest.mark.parametrize("arm", ["", "T"])
def test_one_replica_is_a_lone_engine_bit_for_bit(dispatcher, arm):
    requests = made_requests(40, rate=200.0)
    # A central queue gives out no more requests than can run at once, preempted ones included: let there be none.
    config = CONFIG if dispatcher == "round-robin" else AMPLE
    alone = drive(*made_plant(requests, arm, config=config, mass=False))
    fleet = drive(*made_fleet(requests, 1, dispatcher, arm, config))
    for name, column in alone.telemetry.step_table().items():
        if name == "num_backlog" and dispatcher == "central-queue":
            continue  # there they wait in slots, here at the dispatcher
        if name == "num_waiting" and dispatcher == "central-queue":
            continue
        np.testing.assert_array_equal(fleet.telemetry.step_table()[name], column, err_msg=name)
    for name in ("status", "first_scheduled_s", "first_token_s", "finished_s", "num_preempted", "recomputed_tokens"):
        np.testing.assert_array_equal(getattr(fleet.ledger, name), getattr(alone.ledger, name), err_msg=name)


def test_a_fleet_with_all_controllers_is_recorded_and_replayed(tmp_path):
    plan = scenario(
        hardware={"num_replicas": 2, "dispatcher": "two-choices"}, level="full",
        faults={"failure": {"mean_gap_s": 0.5, "repair_s": 0.2}},
    )  # fmt: skip
    first = run_arm(plan, 3, tmp_path / "a")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as another:
        again = another.submit(run_arm, plan, 3, tmp_path / "b").result()
    assert read_manifest(first)["tables"] == read_manifest(again)["tables"]
    assert sum(read_manifest(first)["notes"]["replicas"]["failures"]) > 0
    result = replay_arm(first)
    assert result.ok, result.first_difference
    assert result.num_decisions > 50


def test_events_that_do_nothing_change_nothing():
    def run(noisy):
        requests = made_requests(30, rate=100.0)
        fleet, none = made_fleet(requests, 2, "least-loaded")
        if noisy:
            times = np.sort(np.concatenate([requests.arrival_s, np.linspace(0.0, 1.0, 57)]))

            def nothing(env):
                for time_s in times:
                    if time_s > env.now:
                        yield env.timeout(time_s - env.now)

            fleet.env.process(nothing(fleet.env))
        return drive(fleet, none)

    quiet, noisy = run(False), run(True)
    for name, column in quiet.telemetry.step_table().items():
        np.testing.assert_array_equal(noisy.telemetry.step_table()[name], column, err_msg=name)
    np.testing.assert_array_equal(quiet.ledger.finished_s, noisy.ledger.finished_s)


@pytest.mark.parametrize("dispatcher", sorted(set(POLICIES) - {"prefix-aware"}))
def test_every_request_is_served_once_whoever_dispatches(dispatcher):
    requests = made_requests(60, rate=300.0)
    fleet = drive(*made_fleet(requests, 3, dispatcher))
    assert np.all(fleet.ledger.status == RequestStatus.COMPLETED)
    assert set(fleet.ledger.replica.tolist()) == {0, 1, 2}
    steps = fleet.telemetry.step_table()
    assert sorted(steps["step"].tolist()) == list(range(steps["step"].size))
    for i in range(3):  # a replica's steps never overlap
        mine = steps["replica"] == i
        ends = steps["start_s"][mine] + steps["elapsed_s"][mine]
        assert np.all(steps["start_s"][mine][1:] >= ends[:-1] - 1e-9)


def choice(load, up=None, request=0, places=8):
    return Choice(request, 0, np.arange(len(load)) if up is None else np.array(up), np.array(load), places)


def test_policies_by_hand():
    turn = make_policy("round-robin", 3, 0, None)
    assert [turn.choose(choice([0, 0, 0])) for _ in range(4)] == [0, 1, 2, 0]
    assert [turn.choose(choice([0, 0, 0], up=[0, 2])) for _ in range(3)] == [2, 0, 2]
    least = make_policy("least-loaded", 3, 0, None)
    assert least.choose(choice([4, 1, 2])) == 1
    assert [least.choose(choice([1, 1, 1])) for _ in range(3)] == [0, 2, 1]
    central = make_policy("central-queue", 2, 0, None)
    assert central.choose(choice([8, 8])) is None
    assert central.choose(choice([8, 7])) == 1
    two = make_policy("two-choices", 3, 0, None)
    picks = [two.choose(choice([9, 0, 9], request=r)) for r in range(600)]
    # The empty one is among two of three draws, and then it wins.
    assert np.mean(np.array(picks) == 1) == pytest.approx(2 / 3, abs=0.06)
    even = make_policy("random", 3, 0, None)
    assert np.bincount([even.choose(choice([9, 0, 9], request=r)) for r in range(900)]) == pytest.approx(300, abs=60)


def test_affinity_keeps_a_beginning_where_it_is_until_the_load_is_too_uneven():
    blocks = blocks_of_groups(np.array([0, 1, 0, 1, 0]), 32, np.full(5, 100), 2, 16)
    policy = make_policy("prefix-aware", 2, 0, blocks)
    assert [policy.choose(choice([0, 0], request=0)), policy.choose(choice([1, 0], request=1))] == [0, 1]
    assert policy.choose(choice([3, 0], request=2)) == 0
    assert policy.choose(choice([9, 0], request=4)) == 1
    assert policy.choose(choice([0, 0], up=[0], request=3)) == 0, "its home is down"
    with pytest.raises(InputError, match="prefix_caching"):
        make_policy("prefix-aware", 2, 0, None)


def test_affinity_finds_more_of_its_prompts_in_memory_than_turns_do():
    requests = made_requests(80, rate=40.0, prompt=(150, 200), output=(5, 10))
    group = np.random.default_rng(1).integers(0, 6, 80)
    requests = replace(requests, prompt_blocks=blocks_of_groups(group, 128, requests.prompt_tokens, 6, 16))
    config = replace(CONFIG, prefix_caching=True, num_blocks=70)
    hits = [
        drive(*made_fleet(requests, 3, name, config=config)).ledger.prefix_hit_tokens.sum()
        for name in ("round-robin", "prefix-aware")
    ]
    assert hits[1] > hits[0] > 0


def test_tokens_that_are_out_stay_out_when_a_replica_fails():
    requests = made_requests(20, rate=100.0, output=(40, 60))
    fleet, none = made_fleet(requests, 2, "least-loaded", config=AMPLE)
    Failures(mean_gap_s=0.3, repair_s=0.1).start(fleet.env, fleet, 1, 0)
    drive(fleet, none)
    ledger = fleet.ledger
    retried = ledger.num_retried > 0
    assert retried.any()
    assert np.all(ledger.status == RequestStatus.COMPLETED)
    # Every token was drawn once: steps that never ended drew none.
    assert fleet.telemetry.step_table()["num_sampled"].sum() == ledger.generated_tokens.sum()
    assert ledger.recomputed_tokens[retried].sum() > 0
    assert ledger.recomputed_tokens[~retried].sum() == 0


def test_with_nobody_up_requests_wait_at_the_dispatcher():
    requests = made_requests(5, rate=100.0, output=(5, 6))
    fleet, none = made_fleet(requests, 1)
    fleet.env.process(iter_fail(fleet, 0.0, 3.0))
    drive(fleet, none)
    assert np.all(fleet.ledger.status == RequestStatus.COMPLETED)
    assert fleet.ledger.first_scheduled_s.min() == 3.0
    assert fleet.notes["replicas"]["down_s"] == [3.0]


@pytest.mark.parametrize("at_s", [0.0, 0.1, 0.1037, 0.25])
def test_a_text_goes_on_where_it_stood_when_its_replica_fails(at_s):
    # Between steps or within one: entropies are those of the text, whoever computes it and however often.
    requests = made_requests(24, rate=300.0, output=(30, 60))
    process = made_process(
        autocorrelation=0.9, request_share=0.3, regime_weights=(0.25,) * 4, dwell_tokens=10.0, settle_tokens=5.0
    )
    calm, controllers = made_fleet(requests, 2, config=AMPLE, process=process)
    drive(calm, controllers)
    troubled, controllers = made_fleet(requests, 2, config=AMPLE, process=process)
    troubled.env.process(iter_fail(troubled, at_s, 0.1))
    drive(troubled, controllers)
    assert (troubled.ledger.num_retried > 0).any() or at_s == 0.0
    assert troubled.ledger.finished_s.max() > calm.ledger.finished_s.max() or at_s == 0.0
    for name, values in calm.telemetry.request_columns().items():
        np.testing.assert_array_equal(troubled.telemetry.request_columns()[name], values, err_msg=name)


def iter_fail(fleet, at_s, repair_s):
    yield fleet.env.timeout(at_s)
    fleet.fail(0)
    yield fleet.env.timeout(repair_s)
    fleet.recover(0)


def test_availability_is_what_gap_and_repair_make_it():
    requests = made_requests(400, rate=2.0, output=(2, 3), prompt=(2, 5))
    fleet, none = made_fleet(requests, 4, "least-loaded")
    for i in range(4):
        Failures(mean_gap_s=3.0, repair_s=1.0).start(fleet.env, fleet, 5, i)
    drive(fleet, none)
    up = 1.0 - fleet.down_s.sum() / (4 * fleet.clock.now_s)
    assert up == pytest.approx(0.75, abs=0.04)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hardware": {"num_replicas": 2, "dispatcher": "least-loadad"}}, "unknown dispatcher 'least-loadad'; did you mean"),
        ({"hardware": {"dispatcher": "nobody"}}, "unknown dispatcher"),
        ({"hardware": {"num_replicas": 0}}, "num_replicas"),
        ({"hardware": {"num_replicas": 2, "dispatcher": "prefix-aware"}}, "needs engine.prefix_caching"),
        ({"engine": {"prefix_caching": True}}, "needs to know how prompts begin"),
        ({"engine": {"prefix_caching": True}, "workload": {"prefix_tokens": 7}}, "at least a KV block"),
        ({"engine": {"preemption": "page"}}, "preemption"),
        ({"faults": {"failure": {"mean_gap_s": 0.0, "repair_s": 1.0}}}, "mean_gap_s"),
        ({"faults": {"failur": {"mean_gap_s": 1.0, "repair_s": 1.0}}}, "did you mean failure"),
        ({"hardware": {"model": "Llama-3-70B", "gpu": "L4", "num_gpus": 4}}, "does not fit 4 x L4"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused_in_one_line(changes, message):
    with pytest.raises(InputError, match=message) as caught:
        build_plant(scenario(**changes), 0, frozenset(), 0)
    assert "\n" not in str(caught.value)


def test_a_swap_costs_what_pcie_takes():
    plant = build_plant(scenario(engine={"preemption": "swap"}, hardware={"gpu": "A100-80G"}), 0, frozenset(), 0)
    # Llama-3-8B: 131,072 bytes of KV a token, blocks of 16, 32 GB/s one way.
    assert plant.config.swap_block_s == pytest.approx(16 * 131_072 / 32e9)
    pair = build_plant(
        scenario(engine={"preemption": "swap"}, hardware={"gpu": "A100-80G", "num_gpus": 2}), 0, frozenset(), 0
    )
    assert pair.config.swap_block_s == pytest.approx(16 * 131_072 / 64e9)
