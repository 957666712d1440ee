"""A generation loop for masked-diffusion models of transformers, under any unmasking policy of ours.

    found = fill_masks(model, token_ids, mask_id, scenario, seed=0)     # token_ids [rows, length], mask_id where to fill

Each iteration is one forward pass of the model over whole sequences, marginals at the masked positions, the policy's
decision, and draws by `UnmaskPlant`: what our own engine does, with the model of another library as predictor. Everything
that is not the mask token stays as it is, begin and end tokens included; rows end on their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernels.dispatch import backend as choose_backend
from workbench.errors import InputError
from workbench.live.engines.deployment import deploy
from workbench.protocols import DecisionPoint
from workbench.scenario import Scenario
from workbench.signals import IntArray
from workbench.unmasking.ledger import Ledger
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.predictor import Marginals


class TransformersPredictor:
    """A `MaskedPredictor`: any model whose logits at a position speak of that position (BERT, RoBERTa, LLaDA).

    shifted     the logits at i - 1 speak of position i, as in models grown from a decoder (Dream)
    forbidden   token ids never drawn, the mask token among them
    """

    def __init__(
        self, model: Any, mask_id: int, *, forbidden: Sequence[int] = (), shifted: bool = False, backend: str = "torch"
    ) -> None:
        self.model, self.mask_id, self.shifted = model, mask_id, shifted
        self.ops = choose_backend(backend)
        self.num_symbols = int(model.config.vocab_size)
        self.forbidden = sorted({mask_id, *forbidden})
        if not 0 <= mask_id < self.num_symbols:
            raise InputError(f"mask_id must be in [0, {self.num_symbols}), got {mask_id}")
        self.passes = 0

    @torch.inference_mode()
    def predict(self, tokens: IntArray) -> Marginals:
        ids = torch.from_numpy(np.where(tokens < 0, self.mask_id, tokens)).to(self.model.device)
        logits = self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.float()
        self.passes += 1
        if self.shifted:
            logits = torch.cat([logits[:, :1], logits[:, :-1]], dim=1)
        logits[..., self.forbidden] = float("-inf")
        rows, length, n = logits.shape
        flat = logits.reshape(-1, n)
        zero = torch.zeros(rows * length, dtype=torch.int64, device=flat.device)
        stats = self.ops.logit_stats(
            flat, torch.ones_like(zero, dtype=torch.float32), seed=0, request_id=zero, token_index=zero
        )
        return Marginals(
            probability=flat.double().softmax(dim=1).cpu().numpy().reshape(rows, length, n),
            entropy_nats=stats.entropy_raw_nats.double().cpu().numpy().reshape(rows, length),
            confidence=stats.max_probability.double().cpu().numpy().reshape(rows, length),
        )


@dataclass(frozen=True)
class Filled:
    """token_ids [rows, length], nothing masked; `ledger` says what it took."""

    token_ids: torch.Tensor
    ledger: Ledger
    passes: int


def fill_masks(
    model: Any,
    token_ids: torch.Tensor,
    mask_id: int,
    scenario: Scenario | Path | str | Mapping[str, Any],
    *,
    seed: int | None = None,
    **options: Any,
) -> Filled:
    """Fill every `mask_id` under the scenario's reveal policy. `options` as in `TransformersPredictor`.

    Raises `InputError` for a scenario without a reveal policy, or where a row has nothing to fill.
    """
    deployment = deploy(scenario, "transformers-masked", int(model.config.vocab_size))
    policy = deployment.controllers.get(DecisionPoint.REVEAL)
    if policy is None:
        raise InputError("the scenario has no [controllers.reveal]; name a policy, for example kind = 'entropy-sum'")
    predictor = TransformersPredictor(model, mask_id, **options)
    given = token_ids.cpu().numpy().astype(np.int64)
    plant = UnmaskPlant(
        predictor, np.where(given == mask_id, -1, given), seed=deployment.seed if seed is None else seed,
        measure_divergence=getattr(policy, "needs_divergence", False),
    )  # fmt: skip
    done = decode(plant, policy)
    return Filled(torch.from_numpy(done.tokens).to(token_ids.device), done.ledger, predictor.passes)
