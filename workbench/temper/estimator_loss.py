"""What a law loses when it sees the top k log-probabilities only: tracking against k on recorded logits."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from controllers.estimators import Bracket, Estimator, Exact, TailCorrected, TopK
from workbench.protocols import TemperatureObservation, blank_like
from workbench.signals import FloatArray, entropy_and_varentropy

KS = (5, 20, 100, 1000)


def tracking_with(
    law: Any, estimator: Estimator, logits: FloatArray, target_nats: float, warm_up: int = 32
) -> tuple[float, float]:
    """Mean |H - H*| and mean H - H* (exact H) when `law` runs along recorded logits [tokens, n], sorted falling."""
    num_tokens, n = logits.shape
    state, told, errors = law.init(1), {}, []
    for token in range(num_tokens):
        arrays = blank_like(TemperatureObservation, 1)
        arrays["active"][:] = True
        arrays["joined"][:] = token == 0
        arrays["request_id"][:] = 0
        arrays["token_index"][:] = token
        for name, value in told.items():
            arrays[name][:] = value
        state, action = law.step(state, TemperatureObservation(step=token, **arrays))
        z = logits[token] / action.temperature[0]
        z = z - z[0]
        logp = (z - np.log(np.exp(z).sum()))[None, :]
        guess = estimator.estimate(logp, n)
        h, _ = entropy_and_varentropy(logits[token], action.temperature[0])
        errors.append(float(h) - target_nats)
        told = {
            "measured": True,
            "measured_step": token,
            "entropy_nats": guess.entropy_nats[0],
            "varentropy_nats2": guess.varentropy_nats2[0],
            "temperature_applied": action.temperature[0],
        }
    late = np.array(errors[warm_up:])
    return float(np.abs(late).mean()), float(late.mean())


def estimator_table(
    build: Callable[[], Any], recorded: Sequence[FloatArray], target_nats: float
) -> list[tuple[str, float, float]]:
    """(estimator, mean |H - H*|, mean H - H*) over recorded texts, exact first."""
    texts = [-np.sort(-np.asarray(text, dtype=np.float64), axis=1) for text in recorded]
    estimators: list[tuple[str, Estimator]] = [("exact", Exact())]
    for kind in (TopK, TailCorrected, Bracket):
        estimators += [(f"{kind(k=k).name}, k = {k}", kind(k=k)) for k in KS]
    rows = []
    for name, estimator in estimators:
        found = np.array([tracking_with(build(), estimator, text, target_nats) for text in texts])
        rows.append((name, float(found[:, 0].mean()), float(found[:, 1].mean())))
    return rows
