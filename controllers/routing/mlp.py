"""A small learned router: one hidden layer on the three numbers, probabilities calibrated.

    x = (features - centre) / scale          features = (S_H, V_sp, avnr), see `Descriptors.features`
    h = tanh(W1 x + b1)                      W1 [hidden, 3]
    p = softmax((W2 h + b2) / temperature)   W2 [3, hidden], over `Strategy`
    strategy = the one with the largest p

A probe under `min_tokens` is answered Standard. `temperature` is fitted on held-out folds (`workbench/routing/fit_mlp.py`), so
that p means what it says. The parameters are plain JSON.
Source: EDRM (arXiv 2605.22873) for a small MLP on the three numbers; size, training and calibration are ours.
"""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from controllers.routing.descriptors import Descriptors, describe
from workbench.errors import InputError
from workbench.protocols import DecisionPoint, RouteAction, RouteObservation, RouteReason, Strategy
from workbench.signals import FloatArray

NUM_FEATURES, NUM_STRATEGIES = 3, 3
FORMAT = "entropic-workbench routing mlp 1"


@dataclass(frozen=True, kw_only=True)
class MLPRouter:
    """Weights as nested tuples, so that the object is frozen, hashable and prints whole."""

    point: ClassVar[DecisionPoint] = DecisionPoint.ROUTE
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    hidden_weight: tuple[tuple[float, ...], ...]  # [hidden][3]
    hidden_bias: tuple[float, ...]
    output_weight: tuple[tuple[float, ...], ...]  # [3][hidden]
    output_bias: tuple[float, ...]
    temperature: float = 1.0
    min_tokens: int = 16

    def __post_init__(self) -> None:
        hidden = len(self.hidden_bias)
        shapes = {
            "centre": (NUM_FEATURES,),
            "scale": (NUM_FEATURES,),
            "hidden_weight": (hidden, NUM_FEATURES),
            "output_weight": (NUM_STRATEGIES, hidden),
            "output_bias": (NUM_STRATEGIES,),
        }
        for name, shape in shapes.items():
            try:
                value = np.asarray(getattr(self, name), dtype=np.float64)
            except ValueError:
                value = np.empty(0)
            if hidden < 1 or value.shape != shape or not np.isfinite(value).all():
                raise InputError(
                    f"MLPRouter.{name} must be finite with shape {shape}, got shape {value.shape}; retrain it"
                )
        if not (min(self.scale) > 0.0 and 0.0 < self.temperature < np.inf):
            raise InputError("MLPRouter.scale and temperature must be positive and finite; retrain it")

    def init(self, capacity: int) -> None:
        return None

    def probabilities(self, numbers: Descriptors) -> FloatArray:
        """[rows, 3] probability that each `Strategy` is the best choice."""
        x = (numbers.features() - np.asarray(self.centre)) / np.asarray(self.scale)
        hidden = np.tanh(x @ np.asarray(self.hidden_weight).T + np.asarray(self.hidden_bias))
        score = (hidden @ np.asarray(self.output_weight).T + np.asarray(self.output_bias)) / self.temperature
        score -= score.max(axis=1, keepdims=True)
        weight = np.exp(score)
        return weight / weight.sum(axis=1, keepdims=True)

    def step(self, state: None, observation: RouteObservation) -> tuple[None, RouteAction]:
        numbers = describe(observation.probe_entropy_nats, observation.num_probe_tokens)
        best = self.probabilities(numbers).argmax(axis=1)
        too_short = numbers.num_measured < self.min_tokens
        strategy = np.where(too_short, int(Strategy.STANDARD), best)
        reason = np.where(too_short, int(RouteReason.TOO_SHORT), int(RouteReason.LEARNED))
        return None, RouteAction(
            strategy=np.where(observation.active, strategy, 0).astype(np.int64),
            reason=np.where(observation.active, reason, 0).astype(np.int64),
        )

    def save(self, path: Path) -> None:
        path.write_text(
            json.dumps({"format": FORMAT, **asdict(self)}, indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )

    @classmethod
    def load(cls, path: Path) -> "MLPRouter":
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(
                f"router file {path} cannot be read: {error}; write it with `workbench route --calibrate`"
            ) from error
        names = {field.name for field in fields(cls)}
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT or set(data) - names:
            raise InputError(f"router file {path} is not {FORMAT!r}; write it with `workbench route --calibrate`")
        try:
            return cls(**{name: _frozen(value) for name, value in data.items()})
        except TypeError as error:
            raise InputError(f"router file {path} misses a field ({error}); write it again") from error


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
