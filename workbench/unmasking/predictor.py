"""What a masked-diffusion model is to a policy: marginals of every position given the revealed tokens."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sims.oracles.oracle import Oracle
from workbench.signals import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Marginals:
    """One forward pass. Statistics may come from a fused op of the model; where they are None they are computed."""

    probability: FloatArray  # [rows, length, num_symbols], each masked position's row sums to 1
    entropy_nats: FloatArray | None = None  # [rows, length]
    confidence: FloatArray | None = None  # [rows, length] largest probability
    runner_up: FloatArray | None = None  # [rows, length] second largest


class MaskedPredictor(Protocol):
    """A model of masked sequences: BERT, RoBERTa, LLaDA, Dream, or an oracle."""

    num_symbols: int

    def predict(self, tokens: IntArray) -> Marginals:
        """tokens [rows, length], -1 where masked. Rows are independent requests."""
        ...


class OraclePredictor:
    """An exact joint in the place of a model: its marginals are the true conditionals."""

    def __init__(self, oracle: Oracle):
        self.oracle = oracle
        self.num_symbols = oracle.num_symbols

    def predict(self, tokens: IntArray) -> Marginals:
        return Marginals(probability=self.oracle.marginals(tokens))


class SharedContext:
    """Wraps a predictor whose rows often coincide: equal token rows are predicted once.

    Worth it where many orders of one short sequence are enumerated; `predict` is a function of the tokens, so nothing
    changes but the time.
    """

    def __init__(self, inner: MaskedPredictor):
        self.inner = inner
        self.num_symbols = inner.num_symbols

    def predict(self, tokens: IntArray) -> Marginals:
        distinct, back = np.unique(tokens, axis=0, return_inverse=True)
        found = self.inner.predict(distinct)
        return Marginals(probability=found.probability[back.reshape(-1)])
