"""Routed requests in the queue: what a probe costs, what the decision changes, and that the accounts add up."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from controllers.routing.fixed import FixedRouter
from controllers.routing.heuristic import HeuristicRouter
from controllers.scheduling.fcfs import FCFS
from tests.fakes import FormulaExecutor
from workbench.engine.clock import CountedClock
from workbench.engine.config import EngineConfig
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestSpec, RequestStatus
from workbench.engine.routing import Regimes, RoutedEnginePlant
from workbench.errors import InputError
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint, RouteReason, Strategy

N = 20  # probe tokens
TOKEN_S = 1e-3
PROMPT = {Strategy.STANDARD: 10, Strategy.DIRECT: 14, Strategy.COT: 18}
OUTPUT = {Strategy.STANDARD: 40, Strategy.DIRECT: 5, Strategy.COT: 60}


class Sloped(FormulaExecutor):
    """H_raw of token k falls (even requests) or rises (odd ones), without noise."""

    def __init__(self) -> None:
        super().__init__(base_s=0.0, per_token_s=TOKEN_S, mass=False)

    def execute(self, batch, sampling, keep):
        result = super().execute(batch, sampling, keep)
        sign = np.where(batch.request_id % 2 == 0, -1.0, 1.0)
        result.entropy_raw_nats[:] = np.where(batch.samples, 2.0 + sign * 0.01 * batch.token_index, np.nan)
        return result

    @property
    def computed(self) -> int:
        return sum(int(batch.num_tokens.sum()) for batch in self.batches)


@dataclass
class Log:
    decisions: list = field(default_factory=list)

    def decision(self, observation, action, applied):
        self.decisions.append((observation, action))


def regimes(n, *, standard=None, probe_tokens=N, **more):
    prompt, output = (np.tile([table[s] for s in Strategy], (n, 1)) for table in (PROMPT, OUTPUT))
    if standard is not None:
        output[:, Strategy.STANDARD] = standard
    return Regimes(probe_tokens=probe_tokens, prompt_tokens=prompt, output_tokens=output, **more)


def spec(regime, arrival=None):
    n = regime.prompt_tokens.shape[0]
    return RequestSpec(
        arrival_s=np.zeros(n) if arrival is None else np.asarray(arrival, float),
        prompt_tokens=regime.prompt_tokens[:, 0],
        output_tokens=regime.output_tokens[:, 0],
        kind=np.zeros(n, np.int64),
        priority=np.zeros(n, np.int64),
    )


def serve(regime, router, *, arrival=None, config=None, more=None):
    controllers = {DecisionPoint.ROUTE: router} | (more or {})
    config = config or EngineConfig(num_blocks=400, block_size=8)
    left = []
    plant = RoutedEnginePlant(
        spec(regime, arrival), Sloped(), CountedClock(), config, regime, frozenset(controllers), None,
        lambda request, strategy: left.append((request, strategy)),
    )  # fmt: skip
    log = Log()
    close_loop(plant, controllers, log)
    return plant, log, left


RULE = HeuristicRouter(overload_nats=np.inf, min_tokens=8)


def test_falling_goes_to_cot_and_rising_to_direct_probe_paid():
    plant, log, left = serve(regimes(2), RULE)
    assert plant.strategy.tolist() == [Strategy.COT, Strategy.DIRECT]
    assert plant.reason.tolist() == [RouteReason.FALLING, RouteReason.RISING]
    assert plant.ledger.generated_tokens.tolist() == [N + 60, N + 5]
    assert plant.probe_length.tolist() == [N, N]
    assert left == [(0, Strategy.COT), (1, Strategy.DIRECT)]
    # Standard prompt and probe, then the other prompt anew: nothing of the probe's KV is reused.
    assert plant.executor.computed == (10 + N - 1 + 18 + 59) + (10 + N - 1 + 14 + 4)
    assert np.all(plant.ledger.status == RequestStatus.COMPLETED)
    assert len(log.decisions) == 1, "both probes end in the same step"


def test_standard_goes_on_from_its_probe():
    plant, _, left = serve(regimes(1), HeuristicRouter(k=1e9, overload_nats=np.inf))
    assert plant.strategy.tolist() == [Strategy.STANDARD]
    assert left == []
    assert plant.ledger.generated_tokens.tolist() == [40]
    assert plant.executor.computed == 10 + 39


def test_a_standard_answer_within_the_probe_is_decided_at_its_end():
    plant, log, _ = serve(regimes(2, standard=4), RULE)
    assert plant.reason.tolist() == [RouteReason.TOO_SHORT] * 2
    assert plant.ledger.generated_tokens.tolist() == [4, 4]
    observation, _ = log.decisions[0]
    assert observation.num_probe_tokens.tolist() == [4, 4]
    assert np.isnan(observation.probe_entropy_nats[:, 4:]).all()
    # It may still be sent elsewhere: overload looks at the sum alone.
    plant, _, _ = serve(regimes(2, standard=4), HeuristicRouter(overload_nats=1.0))
    assert plant.strategy.tolist() == [Strategy.DIRECT] * 2
    assert plant.ledger.generated_tokens.tolist() == [4 + 5] * 2


def test_a_router_that_does_not_look_pays_for_no_probe():
    for strategy in Strategy:
        plant, log, _ = serve(regimes(3, probe_tokens=0), FixedRouter(strategy=strategy), arrival=[0, 0, 1])
        assert plant.probe_length.tolist() == [0, 0, 0]
        assert plant.ledger.generated_tokens.tolist() == [OUTPUT[strategy]] * 3
        assert plant.executor.computed == 3 * (PROMPT[strategy] + OUTPUT[strategy] - 1)
        assert sum(int(o.active.sum()) for o, _ in log.decisions) == 3
        # First come, first served, at once: the same clock as an engine that only knows these requests.
        alone = EnginePlant(
            RequestSpec(
                arrival_s=np.array([0.0, 0.0, 1.0]), prompt_tokens=np.full(3, PROMPT[strategy]),
                output_tokens=np.full(3, OUTPUT[strategy]), kind=np.zeros(3, np.int64), priority=np.zeros(3, np.int64),
            ),
            Sloped(), CountedClock(), EngineConfig(num_blocks=400, block_size=8),
        )  # fmt: skip
        close_loop(alone, {}, Log())
        assert plant.ledger.finished_s == pytest.approx(alone.ledger.finished_s)


@pytest.mark.parametrize("delay", [1, 2])
def test_a_late_decision_costs_the_tokens_drawn_meanwhile(delay):
    config = EngineConfig(num_blocks=400, block_size=8, delay_steps=delay)
    plant, log, _ = serve(regimes(2), RULE, config=config)
    assert plant.probe_length.tolist() == [N + delay] * 2
    assert plant.ledger.generated_tokens.tolist() == [N + delay + 60, N + delay + 5]
    assert log.decisions[0][0].num_probe_tokens.tolist() == [N, N]


def test_recorded_probes_are_what_the_router_sees():
    falling = np.linspace(3.0, 1.0, N)
    recorded = regimes(2, probe_entropy_nats=np.stack([falling[::-1], falling]), correct=np.eye(3, dtype=bool)[[1, 0]])
    plant, log, _ = serve(recorded, RULE)
    assert plant.strategy.tolist() == [Strategy.DIRECT, Strategy.COT], "the executor's own trends are the other way"
    assert log.decisions[0][0].probe_surprisal_raw_nats is None
    assert plant.route_columns()["correct"].tolist() == [True, False]


def test_scarce_blocks_preempt_but_everything_ends_with_its_tokens():
    config = EngineConfig(num_blocks=24, block_size=8, preemption_quantum_tokens=4, max_running=8)
    plant, _, _ = serve(regimes(6), RULE, config=config, more={DecisionPoint.ORDER: FCFS()})
    assert np.all(plant.ledger.status == RequestStatus.COMPLETED)
    assert plant.ledger.num_preempted.sum() > 0
    assert plant.ledger.generated_tokens.tolist() == [N + 60, N + 5] * 3
    assert int(plant.pool.num_free[0]) == 24


def test_the_longest_strategy_decides_what_is_refused():
    config = EngineConfig(num_blocks=400, block_size=8, max_context_tokens=77)
    plant, _, _ = serve(regimes(1), RULE, config=config)
    assert plant.ledger.status.tolist() == [RequestStatus.REFUSED]  # 18 + 60 = 78 as a chain of thought
    assert plant.route_columns()["strategy"] == ["undecided"]


def test_bad_input_is_one_line():
    with pytest.raises(InputError, match="shape"):
        Regimes(probe_tokens=4, prompt_tokens=np.ones((2, 2), int), output_tokens=np.ones((2, 3), int))
    with pytest.raises(InputError, match="probe_tokens"):
        regimes(1, probe_tokens=-1)
    made = regimes(1)
    with pytest.raises(InputError, match="needs a router"):
        RoutedEnginePlant(spec(made), Sloped(), CountedClock(), EngineConfig(num_blocks=9), made, frozenset())
    with pytest.raises(InputError, match="Standard"):
        RoutedEnginePlant(spec(regimes(1, standard=7)), Sloped(), CountedClock(), EngineConfig(num_blocks=9), made)
