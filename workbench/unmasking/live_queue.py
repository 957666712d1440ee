"""Masked-diffusion requests of a live run: an encoder decodes them beside the decoder's text, in one engine.

    requests -> DiffusionEnginePlant -> MixedExecutor -> LiveExecutor (decoder) and MaskedRows (encoder)

Every step takes what the two models took, measured. A masked request decodes a protein sequence from nothing; it has one
prompt token (the begin token) beside its positions.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.philox import uniform
from workbench.engine.diffusion import DiffusionEnginePlant
from workbench.engine.plant import EnginePlant
from workbench.errors import InputError
from workbench.live.masked_model import MaskedModel
from workbench.live.plant import LiveRequest
from workbench.live.tokenizer import Prompt
from workbench.protocols import DecisionPoint
from workbench.scenario import Scenario
from workbench.unmasking.mixed_executor import MixedExecutor
from workbench.unmasking.model_predictor import ModelPredictor
from workbench.unmasking.rows import KIND, KIND_STREAM, MaskedRows, measures_divergence


class LiveQueue:
    """What a live run with masked requests adds to one without. Raises `InputError` for an unknown model."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.diffusion, self.seed = scenario.diffusion, seed
        self.encoder = MaskedModel.load(self.diffusion.model)
        self.measure_divergence = measures_divergence(scenario.controllers.get(DecisionPoint.REVEAL))

    def requests(self, texts: Sequence[LiveRequest]) -> list[LiveRequest]:
        """`texts` with a share of them, drawn by (seed, request), made masked. Raises `InputError` where one is too long."""
        ids, longest = np.arange(len(texts)), self.encoder.max_length
        chosen = uniform(self.seed, KIND_STREAM, ids, np.zeros_like(ids)) < self.diffusion.share_frac
        if (self.diffusion.length_tokens or 0) > longest:
            raise InputError(
                f"diffusion.length_tokens must be at most {longest}, the positions of {self.diffusion.model}, "
                f"got {self.diffusion.length_tokens}"
            )
        begin = Prompt([self.encoder.begin_id], "")
        made = []
        for text, is_masked in zip(texts, chosen, strict=True):
            length = self.diffusion.length_tokens or min(text.max_tokens, longest)
            made.append(replace(text, prompt=begin, max_tokens=length, kind=KIND) if is_masked else text)
        return made

    def make_plant(self, spec: Any, executor: Any, *common: Any) -> EnginePlant:
        """For `live_plant(make_plant=..)`."""
        clock, config, controlled, window_steps = common
        masked = spec.kind_names.index(KIND) if KIND in spec.kind_names else -1
        predictor = ModelPredictor(self.encoder)
        self.rows = MaskedRows(
            spec.kind == masked, spec.output_tokens, lambda request: predictor, seed=self.seed,
            measure_divergence=self.measure_divergence, temperature=self.diffusion.temperature,
        )  # fmt: skip
        mixed = MixedExecutor(executor, self.rows)
        return DiffusionEnginePlant(spec, mixed, clock, config, self.rows, controlled, window_steps)

    def columns(self, plant: DiffusionEnginePlant, other: dict[str, Any]) -> dict[str, Any]:
        """The record's columns, `other` those of the text requests."""
        finish, text = list(other["finish_reason"]), list(other["output_text"])
        for request, tokens in self.rows.tokens.items():
            finish[request], text[request] = "revealed", self.encoder.decode(tokens)
        return other | {"finish_reason": finish, "output_text": text} | self.rows.columns(plant.iterations)
