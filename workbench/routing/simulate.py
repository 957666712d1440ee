"""What a router does to a loaded server: recorded questions as requests, lengths by decision, the simulated engine beneath.

Each request is a recorded question (its reasoning regime: the probe's entropies, what every strategy costs and whether it is
right there). The router decides on the recorded probe, and the decision sets the request's length:

    fixed        prompt of the strategy                      reply
    Standard     standard prompt                             standard reply (the probe is its beginning)
    Direct, CoT  standard prompt + prompt of the strategy    probe + reply

Accuracy model [ours]: a request is right exactly when the recorded reply of its strategy is; a refused or unfinished
request is wrong. All routers see the same requests at the same times (common random numbers).
Deviates: the second prompt is prefilled together with the first, not after the probe; both KV spans are held to the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.philox import uniform
from workbench.engine.requests import RequestSpec, RequestStatus
from workbench.errors import InputError
from workbench.protocols import Controller, Strategy
from workbench.routing.panel import Panel, needs_probe
from workbench.scenario import Scenario

STREAM = 13


@dataclass(frozen=True, kw_only=True)
class LoadRow:
    """One router at one arrival rate. Latency from arrival to the last token."""

    router: str
    rate_per_s: float
    num_requests: int
    completed: int
    accuracy: float
    latency_mean_s: float | None
    latency_p95_s: float | None
    output_tokens_mean: float
    requests_per_s: float | None
    right_answers_per_s: float | None
    share_direct: float
    share_standard: float
    share_cot: float


def simulate_load(
    panels: Sequence[Panel],
    routers_by_task: Mapping[str, Mapping[str, Controller[Any, Any, Any]]],
    rates_per_s: Sequence[float],
    *,
    num_requests: int = 2000,
    gpu: str = "H100",
    model: str = "Llama-3-8B",
    seed: int = 0,
    max_running: int = 64,
) -> list[LoadRow]:
    """A row per router and rate. `routers_by_task[task]` holds the same names for every task."""
    if any(not (np.isfinite(rate) and rate > 0.0) for rate in rates_per_s):
        raise InputError(f"arrival rates must be finite and above 0, got {list(rates_per_s)}")
    if num_requests < 2:
        raise InputError(f"num_requests must be at least 2, got {num_requests}")
    total = sum(len(panel) for panel in panels)
    ids = np.arange(num_requests)
    drawn = np.minimum((uniform(seed, STREAM, ids, np.zeros_like(ids)) * total).astype(np.int64), total - 1)
    names = list(routers_by_task[panels[0].task])
    rows = []
    for name in names:
        lengths = [_lengths(panel, routers_by_task[panel.task][name]) for panel in panels]
        prompt, output, correct, strategy = (np.concatenate(parts)[drawn] for parts in zip(*lengths, strict=True))
        for rate in rates_per_s:
            rows.append(
                _run(name, rate, prompt, output, correct, strategy, gpu, model, seed, max_running),
            )
    return rows


def _lengths(panel: Panel, router: Controller[Any, Any, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Per question: prompt tokens, output tokens, right, strategy."""
    strategy = panel.route(router).strategy
    probed = needs_probe(router)
    correct, output = panel.outcome(strategy, probed)
    prompt = panel.prompt_tokens[np.arange(len(panel)), strategy]
    if probed:
        prompt = prompt + np.where(strategy == Strategy.STANDARD, 0, panel.prompt_tokens[:, Strategy.STANDARD])
    return prompt, np.maximum(output, 1), correct, strategy


def _run(
    name: str,
    rate: float,
    prompt: np.ndarray,
    output: np.ndarray,
    correct: np.ndarray,
    strategy: np.ndarray,
    gpu: str,
    model: str,
    seed: int,
    max_running: int,
) -> LoadRow:
    from sims.arrivals import poisson_arrivals
    from sims.calibration import builtin_calibration
    from sims.clock import SimClock
    from sims.executor import SimExecutor
    from sims.leap import can_leap, leap_through
    from sims.plant import served_by
    from workbench.engine.plant import EnginePlant
    from workbench.loop import close_loop

    n = len(prompt)
    spec = RequestSpec(
        arrival_s=poisson_arrivals(n, rate, seed),
        prompt_tokens=prompt.astype(np.int64),
        output_tokens=output.astype(np.int64),
        kind=np.zeros(n, np.int64),
        priority=np.zeros(n, np.int64),
    )
    scenario = Scenario.model_validate(
        {"name": "routing", "hardware": {"gpu": gpu, "model": model}, "engine": {"max_running": max_running}}
    )
    calibration = builtin_calibration()
    cost, num_blocks, context, _ = served_by(scenario, calibration, spec)
    scenario = scenario.with_changes(engine={**scenario.engine, "max_context_tokens": context})
    executor = SimExecutor(cost, calibration.process, spec.kind_names, seed=seed, temperature=1.0, mass=None)
    plant = EnginePlant(spec, executor, SimClock(), scenario.engine_config(num_blocks), frozenset(), 0)
    if can_leap(plant):
        plant.leap = leap_through
    close_loop(plant, {}, _NoRecord())
    done = plant.ledger.status == RequestStatus.COMPLETED
    latency = (plant.ledger.finished_s - spec.arrival_s)[done]
    span = float(plant.ledger.finished_s[done].max() - spec.arrival_s[0]) if done.any() else float("nan")
    right = correct & done
    share = np.bincount(strategy, minlength=len(Strategy)) / n
    return LoadRow(
        router=name,
        rate_per_s=rate,
        num_requests=n,
        completed=int(done.sum()),
        accuracy=float(right.mean()),
        latency_mean_s=float(latency.mean()) if done.any() else None,
        latency_p95_s=float(np.quantile(latency, 0.95)) if done.any() else None,
        output_tokens_mean=float(output.mean()),
        requests_per_s=float(done.sum() / span) if span > 0 else None,
        right_answers_per_s=float(right.sum() / span) if span > 0 else None,
        share_direct=float(share[Strategy.DIRECT]),
        share_standard=float(share[Strategy.STANDARD]),
        share_cot=float(share[Strategy.COT]),
    )


class _NoRecord:
    def decision(self, observation: Any, action: Any, applied: Any) -> None:
        pass
