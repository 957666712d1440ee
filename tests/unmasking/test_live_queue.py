"""A decoder and an encoder in one live engine: what each request gets is what it gets alone."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from controllers.scheduling.fcfs import FCFS
from controllers.unmasking.entropy_sum import EntropySum
from tests.live.tiny import save, tiny_reference
from workbench.engine.requests import RequestStatus
from workbench.errors import InputError
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint
from workbench.scenario import Scenario, parse_scenario
from workbench.unmasking.plant import UnmaskPlant, decode

pytestmark = pytest.mark.skipif(find_spec("sapiens") is None, reason="the package sapiens is not installed")


class NoRecord:
    def decision(self, observation, action, applied):
        pass


def scenario(directory: Path, **diffusion) -> Scenario:
    prompts = directory / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps({"token_ids": [3 + i, 9, 20 + i]}) for i in range(6)))
    return parse_scenario(
        {
            "plant": "live",
            "workload": {"num_requests": 6, "prompts": str(prompts), "max_tokens": 9},
            "live": {"model": str(directory), "dtype": "fp32", "backend": "torch"},
            "engine": {"temperature": 0.0},
            "diffusion": {"share_frac": 0.5} | diffusion,
            "controllers": {"order": {"kind": "fcfs"}, "reveal": {"kind": "entropy-sum", "eta_nats": 20.0}},
        }
    )


def test_text_and_proteins_share_the_engine_and_decode_as_they_do_alone(tmp_path: Path) -> None:
    from workbench.live.build import build_plant, loaded_model
    from workbench.live.masked_model import MaskedModel
    from workbench.unmasking.model_predictor import ModelPredictor

    save(tiny_reference("llama"), tmp_path)
    plan = scenario(tmp_path, length_tokens=110)
    plant = build_plant(plan, 2, frozenset({DecisionPoint.ORDER, DecisionPoint.REVEAL}), None)
    policy = EntropySum(eta_nats=20.0)
    close_loop(plant, {DecisionPoint.ORDER: FCFS(), DecisionPoint.REVEAL: policy}, NoRecord())
    assert np.all(plant.ledger.status == RequestStatus.COMPLETED)
    assert plant.executor.diffusion_s > 0.0
    masked = np.flatnonzero(plant.rows.is_diffusion)
    assert 0 < masked.size < 6
    encoder = MaskedModel.load("sapiens-heavy")
    for request in masked:
        alone = decode(
            UnmaskPlant(ModelPredictor(encoder), np.full((1, 110), -1), seed=2, request_id=np.array([request])), policy
        )
        assert np.array_equal(plant.rows.tokens[int(request)], alone.tokens[0])
        assert plant.iterations[request] == alone.ledger.iterations[0]
    text = loaded_model(str(tmp_path), "fp32", "torch")
    for request in np.flatnonzero(~plant.rows.is_diffusion):
        alone = text.generate([[3 + int(request), 9, 20 + int(request)]], max_tokens=9, temperature=0.0)[0]
        assert list(plant.executor.inner.outputs[int(request)]) == list(alone.token_ids)


def test_a_sequence_longer_than_the_model_is_one_line(tmp_path: Path) -> None:
    from workbench.live.build import build_plant

    save(tiny_reference("llama"), tmp_path)
    with pytest.raises(InputError, match=r"diffusion\.length_tokens must be at most 142"):
        build_plant(scenario(tmp_path, length_tokens=500), 0, frozenset(), None)
