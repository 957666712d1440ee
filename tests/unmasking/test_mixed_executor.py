import numpy as np
import pytest

from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.uniform import Uniform
from tests.engine.test_diffusion import ORACLES, Log, TokenCost
from workbench.engine.clock import CountedClock
from workbench.engine.config import EngineConfig
from workbench.engine.diffusion import DiffusionEnginePlant
from workbench.engine.requests import RequestSpec, RequestStatus
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint
from workbench.unmasking.mixed_executor import MixedExecutor
from workbench.unmasking.rows import MaskedRows


class OnlyAutoregressive(TokenCost):
    """Refuses to see a diffusion request."""

    def __init__(self, diffuses):
        super().__init__()
        self.diffuses = diffuses

    def admit(self, request_id, slot):
        assert not self.diffuses[request_id]

    def execute(self, batch, sampling, keep):
        assert not self.diffuses[batch.request_id].any()
        assert batch.block_table.shape[0] == batch.slot.size
        return super().execute(batch, sampling, keep)


@pytest.mark.parametrize("policy", [EntropySum(eta_nats=1.0), Uniform(num_iterations=4)])
def test_each_kind_goes_to_its_own_model_and_everything_ends(policy):
    output = np.array([24, 24, 16, 40, 16])
    diffuses = np.array([True, False, True, False, True])
    requests = RequestSpec(
        arrival_s=np.array([0.0, 0.0, 0.01, 0.02, 0.02]), prompt_tokens=np.full(5, 8), output_tokens=output,
        kind=diffuses.astype(int), priority=np.zeros(5, int), kind_names=("autoregressive", "diffusion"),
    )  # fmt: skip
    rows = MaskedRows(diffuses, output, lambda r: ORACLES[int(output[r])], seed=3)
    executor = MixedExecutor(OnlyAutoregressive(diffuses), rows)
    config = EngineConfig(num_blocks=200, block_size=8, token_budget=40, max_chunk_tokens=20)
    plant = DiffusionEnginePlant(
        requests, executor, CountedClock(), config, rows, frozenset({DecisionPoint.REVEAL})
    )  # fmt: skip
    close_loop(plant, {DecisionPoint.REVEAL: policy}, Log())
    assert np.all(plant.ledger.status == RequestStatus.COMPLETED)
    assert plant.ledger.generated_tokens.tolist() == output.tolist()
    assert executor.diffusion_s > 0.0
    assert sorted(rows.tokens) == [0, 2, 4]
    assert all(np.all(tokens >= 0) for tokens in rows.tokens.values())
