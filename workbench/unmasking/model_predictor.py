"""A real masked model as a predictor: its logits through the statistics and selection ops of `kernels.dispatch`."""

from typing import Any

import numpy as np
import torch

from kernels.dispatch import backend as choose_backend
from workbench.live.masked_model import MaskedModel
from workbench.signals import BoolArray, FloatArray, IntArray
from workbench.unmasking.predictor import Marginals


class ModelPredictor:
    """Marginals at T = 1 with entropy and confidence from `logit_stats` of the backend, in one pass over the logits.

    Counts forward passes: `passes` calls and `rows` sequences.
    """

    def __init__(self, model: MaskedModel, backend: str = "torch"):
        self.model, self.ops = model, choose_backend(backend)
        self.num_symbols = model.num_symbols
        self.passes = self.rows = 0

    def predict(self, tokens: IntArray) -> Marginals:
        logits = self.model.logits(tokens)
        self.passes += 1
        self.rows += tokens.shape[0]
        rows, length, n = logits.shape
        stats = self.ops.logit_stats(
            torch.from_numpy(logits.reshape(-1, n)).float(),
            torch.ones(rows * length),
            seed=0,
            request_id=torch.zeros(rows * length, dtype=torch.int64),
            token_index=torch.arange(rows * length),
        )
        probability = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return Marginals(
            probability=probability / probability.sum(axis=-1, keepdims=True),
            entropy_nats=stats.entropy_raw_nats.double().numpy().reshape(rows, length),
            confidence=stats.max_probability.double().numpy().reshape(rows, length),
        )

    def select(self, *numbers: Any) -> BoolArray:
        """`reveal_prefix` of the same backend, for `UnmaskPlant(select=..)`."""
        return self.ops.reveal_prefix(*(torch.from_numpy(np.array(x)) for x in numbers)).numpy()


def pseudo_nll(model: MaskedModel, tokens: IntArray, positions: IntArray) -> FloatArray:
    """[rows] mean over `positions` of -ln p(x_i | all others), each position masked alone: ln of the pseudo-perplexity.

    Equal rows are computed once.
    """
    distinct, back = np.unique(tokens, axis=0, return_inverse=True)
    out = np.empty(distinct.shape[0])
    for row, sequence in enumerate(distinct):
        masked = np.repeat(sequence[None], positions.size, axis=0)
        masked[np.arange(positions.size), positions] = -1
        z = model.logits(masked)[np.arange(positions.size), positions]
        top = z.max(axis=1)
        log_sum = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
        out[row] = float((log_sum - z[np.arange(positions.size), sequence[positions]]).mean())
    return out[back.reshape(-1)]
