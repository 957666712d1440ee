"""Masked-diffusion requests in the queue: what they cost, beside whom, and that they decode as they would alone."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from controllers.scheduling.fcfs import FCFS
from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.uniform import Uniform
from sims.oracles.markov import Markov
from workbench.engine.clock import CountedClock
from workbench.engine.config import EngineConfig
from workbench.engine.diffusion import DiffusionEnginePlant
from workbench.engine.executor import StepResult
from workbench.engine.requests import RequestSpec, RequestStatus
from workbench.errors import InputError
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.predictor import OraclePredictor
from workbench.unmasking.rows import MaskedRows

TOKEN_S = 1e-3


class TokenCost:
    """An executor whose step takes `TOKEN_S` a computed token and that draws token 7 wherever one is drawn."""

    vocab_size = 10

    def __init__(self):
        self.computed = 0

    def admit(self, request_id, slot): ...

    def release(self, request_id, slot): ...

    def marginal_step_s(self, start, num_tokens):
        return TOKEN_S * num_tokens.astype(float)

    def execute(self, batch, sampling, keep):
        n = batch.slot.size
        self.computed += int(batch.num_tokens.sum())
        nan = np.full(n, np.nan)
        return StepResult(
            elapsed_s=TOKEN_S * float(batch.num_tokens.sum()), energy_j=0.0, flops=0.0, kv_bytes_read=0.0, kv_bytes_dense=0.0,
            token_id=np.where(batch.samples, 7, -1), ended=np.zeros(n, bool), entropy_raw_nats=nan, varentropy_raw_nats2=nan,
            entropy_nats=nan, varentropy_nats2=nan, surprisal_nats=nan, surprisal_raw_nats=nan, temperature_applied=nan,
            block_mass=None, dropped_mass=np.zeros(n),
        )  # fmt: skip


@dataclass
class Log:
    decisions: list = field(default_factory=list)

    def decision(self, observation, action, applied):
        self.decisions.append((observation, action))


ORACLES = {n: OraclePredictor(Markov.sticky(n, 4, entropy_nats=0.2 * n + 2.0)) for n in (16, 24, 40)}


def serve(output, diffuses, policy, *, arrival=None, prompt=8, config=None, controlled=None):
    n = len(output)
    requests = RequestSpec(
        arrival_s=np.zeros(n) if arrival is None else np.asarray(arrival, float),
        prompt_tokens=np.full(n, prompt),
        output_tokens=np.asarray(output),
        kind=np.asarray(diffuses, int),
        priority=np.zeros(n, int),
        kind_names=("autoregressive", "diffusion"),
    )
    rows = MaskedRows(np.asarray(diffuses, bool), requests.output_tokens, lambda r: ORACLES[output[r]], seed=3)
    controllers = {} if policy is None else {DecisionPoint.REVEAL: policy}
    if controlled:
        controllers |= controlled
    config = config or EngineConfig(num_blocks=200, block_size=8)
    plant = DiffusionEnginePlant(requests, TokenCost(), CountedClock(), config, rows, frozenset(controllers))
    log = Log()
    close_loop(plant, controllers, log)
    return plant, log


def test_each_iteration_costs_a_full_forward_of_all_positions():
    plant, _ = serve([24], [True], Uniform(num_iterations=6))
    assert plant.iterations[0] == 6
    assert plant.ledger.finished_s[0] == pytest.approx(6 * (8 + 24) * TOKEN_S)
    assert plant.ledger.first_token_s[0] == pytest.approx((8 + 24) * TOKEN_S)
    assert plant.ledger.generated_tokens[0] == 24


def test_without_a_policy_one_position_a_pass():
    plant, _ = serve([16], [True], None)
    assert plant.iterations[0] == 16


def test_a_request_decodes_in_the_queue_as_it_does_alone():
    lengths = [16, 24, 40]
    plant, _ = serve(lengths, [True] * 3, EntropySum(eta_nats=0.7))
    for r, length in enumerate(lengths):
        alone = decode(
            UnmaskPlant(ORACLES[length], np.full((1, length), -1), seed=3, request_id=np.array([r])),
            EntropySum(eta_nats=0.7),
        )
        assert np.array_equal(plant.rows.tokens[r], alone.tokens[0])
        assert plant.iterations[r] == alone.ledger.iterations[0]


def test_both_kinds_share_the_queue_and_all_end_with_the_asked_tokens():
    output, diffuses = [24, 24, 16, 40, 16], [True, False, True, False, True]
    controlled = {DecisionPoint.ORDER: FCFS()}
    plant, log = serve(
        output, diffuses, EntropySum(eta_nats=1.0), arrival=[0, 0, 0.01, 0.02, 0.02], controlled=controlled
    )
    assert np.all(plant.ledger.status == RequestStatus.COMPLETED)
    assert plant.ledger.generated_tokens.tolist() == output
    assert plant.iterations[[1, 3]].tolist() == [0, 0]
    assert np.all(plant.iterations[[0, 2, 4]] >= 1)
    assert {o.point for o, _ in log.decisions} == {DecisionPoint.ORDER, DecisionPoint.REVEAL}
    # What was computed is what was asked: prompts and decodes of one kind, whole passes of the other.
    passes = sum(int(plant.iterations[r]) * (8 + output[r]) for r in (0, 2, 4))
    assert plant.executor.computed == passes + sum(8 + output[r] - 1 for r in (1, 3))


def test_a_pass_longer_than_the_budget_is_spread_over_steps_and_costs_the_same():
    config = EngineConfig(num_blocks=200, block_size=8, token_budget=10, max_chunk_tokens=10)
    plant, _ = serve([24], [True], Uniform(num_iterations=3), config=config)
    assert plant.iterations[0] == 3
    assert plant.ledger.finished_s[0] == pytest.approx(3 * 32 * TOKEN_S)


def test_scarce_blocks_preempt_but_everything_ends_and_revealed_tokens_stay():
    config = EngineConfig(num_blocks=8, block_size=8, preemption_quantum_tokens=4)
    plant, _ = serve([40, 40, 24], [True, False, True], EntropySum(eta_nats=1.0), config=config)
    assert np.all(plant.ledger.status == RequestStatus.COMPLETED)
    alone = decode(
        UnmaskPlant(ORACLES[40], np.full((1, 40), -1), seed=3, request_id=np.array([0])), EntropySum(eta_nats=1.0)
    )
    assert np.array_equal(plant.rows.tokens[0], alone.tokens[0])


def test_recorded_observations_replay_to_the_same_actions():
    policy = EntropySum(eta_nats=0.7)
    _, log = serve([16, 24, 40], [True] * 3, policy)
    for observation, action in log.decisions:
        _, again = policy.step(None, observation)
        assert np.array_equal(action.rank, again.rank)
        assert np.array_equal(action.cost, again.cost)


def test_refuses_rows_of_another_run():
    requests = RequestSpec(
        arrival_s=np.zeros(2), prompt_tokens=np.ones(2, int), output_tokens=np.full(2, 16), kind=np.zeros(2, int),
        priority=np.zeros(2, int),
    )  # fmt: skip
    rows = MaskedRows(np.ones(3, bool), np.full(3, 16), lambda r: ORACLES[16])
    with pytest.raises(InputError, match="3 requests, the run has 2"):
        DiffusionEnginePlant(requests, TokenCost(), CountedClock(), EngineConfig(num_blocks=9), rows)
