"""A `Generate` without a language model: logits wander by text, tokens are drawn, the drawn token feeds back."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.controllers.temperature.closed_loop import observation
from workbench.signals import entropy_and_varentropy
from workbench.temper.study import Generate, Job, Run

VOCAB = 300


def fake_generate(num_prompts: int = 8, num_tokens: int = 96, seed: int = 0, feedback: float = 0.0) -> Generate:
    """`feedback`: how much an improbable token widens the next distribution (the outer loop)."""

    def one(law: Any, delay_steps: int) -> Run:
        rng = np.random.default_rng(seed)
        kinds = rng.uniform(1.5, 4.0, (num_prompts, 1))
        state, told, columns = law.init(num_prompts), [], []
        surprise = np.zeros(num_prompts)
        for token in range(num_tokens):
            noise = rng.normal(0.0, 1.0, (num_prompts, VOCAB))
            draw = rng.random(num_prompts)
            z = kinds * noise / (1.0 + feedback * surprise[:, None])
            source = token - 1 - delay_steps
            state, action = law.step(state, observation(num_prompts, token, **(told[source] if source >= 0 else {})))
            t = action.temperature
            h_raw, v_raw = entropy_and_varentropy(z)
            if action.target_entropy_nats is not None:
                t = np.array([solve(row, goal) for row, goal in zip(z, action.target_entropy_nats, strict=True)])
            h, v = entropy_and_varentropy(z, t)
            p = np.exp((z - z.max(axis=1, keepdims=True)) / t[:, None])
            p /= p.sum(axis=1, keepdims=True)
            ids = np.minimum((p.cumsum(axis=1) < draw[:, None]).sum(axis=1), VOCAB - 1)
            q = np.exp(z - z.max(axis=1, keepdims=True))
            q /= q.sum(axis=1, keepdims=True)
            s_raw = -np.log(q[np.arange(num_prompts), ids])
            surprise = s_raw - s_raw.mean() if feedback else surprise
            surprise = np.clip(surprise, 0.0, None)
            told.append(
                {
                    "measured": True,
                    "measured_step": token,
                    "entropy_nats": h,
                    "varentropy_nats2": v,
                    "entropy_raw_nats": h_raw,
                    "varentropy_raw_nats2": v_raw,
                    "surprisal_nats": -np.log(p[np.arange(num_prompts), ids]),
                    "temperature_applied": t,
                }
            )
            columns.append((h, h_raw, v, s_raw, t, ids))
        return Run(*(np.array(column).T for column in zip(*columns, strict=True)))

    def generate(jobs: Sequence[Job], progress: Callable[[float], None] = lambda share: None) -> list[Run]:
        return [one(job.controller, job.delay_steps) for job in jobs]

    return generate


def solve(logits: np.ndarray, target: float) -> float:
    low, high = np.log(0.1), np.log(2.0)
    for _ in range(40):
        u = 0.5 * (low + high)
        low, high = (u, high) if entropy_and_varentropy(logits, np.exp(u))[0] < target else (low, u)
    return float(np.exp(u))
