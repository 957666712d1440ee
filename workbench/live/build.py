"""The live plant of a scenario: model, prompts and arrivals from its tables.

Prompts come from the scenario's file or the built-in set, taken in order and from the start again where more are asked
for. They arrive at the times of the trace, at a Poisson rate, at their own times, or all at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sims.arrivals import KindMix, gamma_arrivals, poisson_arrivals, requests_from_trace
from sims.models import ModelShape
from sims.traces import read_trace
from sims.workload import cancellations
from workbench.catalog import build_controller
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestStatus
from workbench.errors import InputError
from workbench.live.executor import CALIBRATION_TEMPERATURES
from workbench.live.plant import LivePlant, LiveRequest, ample_blocks
from workbench.live.prompts import PromptSpec, builtin_prompts, load_prompts
from workbench.live.session import LiveModel
from workbench.protocols import DecisionPoint
from workbench.scenario import Scenario, Workload

DEFAULT_MAX_TOKENS = 128
GIVEN_UP = (RequestStatus.TIMED_OUT, RequestStatus.CANCELLED)


@lru_cache(maxsize=1)
def loaded_model(path_or_name: str, dtype: str, backend: str) -> LiveModel:
    """Arms of one run share the model."""
    return LiveModel.load(path_or_name, dtype=dtype, backend=backend)


def build_plant(
    scenario: Scenario, seed: int, controlled: frozenset[DecisionPoint], window_steps: int | None
) -> EnginePlant:
    """Raises `InputError`."""
    refuse_simulated_only(scenario)
    live = scenario.live
    model = loaded_model(live.model, live.dtype, live.backend)
    settings = scenario.engine_config(1)
    limit = min(settings.max_context_tokens, model.config.max_context_tokens)
    specs, workload_note = prompt_specs(scenario.workload, seed)
    routed = queue = None
    make_plant: Callable[..., EnginePlant] = EnginePlant
    if DecisionPoint.ROUTE in controlled:
        from workbench.live.routed import routed_requests

        routed = routed_requests(model, scenario, specs, limit, DEFAULT_MAX_TOKENS, seed)
        requests, largest, make_plant = routed.requests, routed.longest, routed.make_plant
    else:
        requests = live_requests(model, specs, scenario.workload)
        if scenario.diffusion.share_frac > 0.0:
            from workbench.unmasking.live_queue import LiveQueue

            queue = LiveQueue(scenario, seed)
            requests, make_plant = queue.requests(requests), queue.make_plant
        requests = [replace(r, max_tokens=max(1, min(r.max_tokens, limit - len(r.prompt.token_ids)))) for r in requests]
        if scenario.workload.cancel_frac > 0.0:
            goes_s = cancellations(np.array([r.arrival_s for r in requests]), scenario.workload, seed)
            requests = [replace(r, cancel_s=float(t)) for r, t in zip(requests, goes_s, strict=True)]
        largest = requests
    blocks = ample_blocks(largest, settings.block_size, settings.max_running, settings.watermark_frac)
    made = model.plant(
        requests,
        config=scenario.engine_config(blocks),
        controlled=controlled,
        seed=seed,
        window_steps=window_steps,
        make_plant=make_plant,
        measure_mass=DecisionPoint.KEEP in controlled,
        sketched_keys=_reads_sketches(scenario),
        calibration_temperatures=() if scenario.level == "summary" else CALIBRATION_TEMPERATURES,
    )
    ops = model.decoder.ops
    made.plant.request_columns = request_columns(model, made, routed, queue)
    made.plant.notes = {
        "workload": workload_note,
        "hardware": "this machine",
        "model_shape": model_shape(model, Path(live.model).name, live.dtype),
        "backend": model.decoder.implementation,
        "sampler": ops.sampler,
        "calibration_temperatures": list(CALIBRATION_TEMPERATURES),
        "prompt_warnings": sorted({w for request in requests for w in request.prompt.warnings}),
        **({"regimes": routed.note} if routed else {}),
        **({"diffusion": f"masked requests decoded by {scenario.diffusion.model}"} if queue else {}),
    }
    return made.plant


def _reads_sketches(scenario: Scenario) -> bool:
    """Whether the scenario's keep rule goes by key sketches."""
    table = scenario.controllers.get(DecisionPoint.KEEP)
    return table is not None and bool(getattr(build_controller(DecisionPoint.KEEP, table, {}), "needs_sketch", False))


def refuse_simulated_only(scenario: Scenario) -> None:
    """One line for what this machine cannot do. Raises `InputError`."""
    for given, what in (
        (scenario.hardware.num_replicas > 1, "hardware.num_replicas"),
        (scenario.faults.slow is not None or scenario.faults.failure is not None, "faults"),
        (scenario.workload.prefix_tokens > 0, "workload.prefix_tokens"),
    ):
        if given:
            raise InputError(f'{what} is simulated only; leave it out or set plant = "sim"')


def prompt_specs(workload: Workload, seed: int) -> tuple[list[PromptSpec], str]:
    """The prompts of a scenario with their arrival times, and one line on where they come from."""
    if workload.prompts is None:
        specs, source = builtin_prompts(), "built-in prompts"
    else:
        specs, source = load_prompts(workload.prompts), workload.prompts.name
    count = workload.num_requests
    taken = [specs[(workload.first_request + i) % len(specs)] for i in range(count)]
    arrival_s, how = _arrivals(workload, taken, seed)
    cap = workload.max_tokens or DEFAULT_MAX_TOKENS
    made = [replace(spec, arrival_s=float(time_s)) for spec, time_s in zip(taken, arrival_s, strict=True)]
    return made, f"{count} requests from {len(specs)} {source}, {how}, at most {cap} tokens each"


def live_requests(model: LiveModel, specs: Sequence[PromptSpec], workload: Workload) -> list[LiveRequest]:
    cap = workload.max_tokens or DEFAULT_MAX_TOKENS
    return [model.request(replace(spec, max_tokens=min(spec.max_tokens or cap, cap)), cap) for spec in specs]


def _arrivals(workload: Workload, specs: Sequence[PromptSpec], seed: int) -> tuple[np.ndarray, str]:
    count, rate = len(specs), workload.rate_per_s
    if workload.trace is not None:
        trace = read_trace(workload.trace, format=workload.trace_format)
        spec = requests_from_trace(
            trace, first=workload.first_request, count=count, rate_multiplier=workload.rate_multiplier,
            rate_per_s=rate, kinds=KindMix(names=("any",), weights=(1.0,)), seed=seed,
        )  # fmt: skip
        if len(spec) < count:
            raise InputError(f"{workload.trace} holds {len(spec)} requests from the first one asked for, not {count}")
        return spec.arrival_s, f"arriving as in {workload.trace.name}"
    if rate is not None:
        rate *= workload.rate_multiplier
        if workload.arrivals == "gamma":
            return gamma_arrivals(count, rate, 2.0, seed), f"gamma arrivals at {rate:.3g} requests/s"
        return poisson_arrivals(count, rate, seed), f"Poisson arrivals at {rate:.3g} requests/s"
    own = np.array([spec.arrival_s for spec in specs]) / workload.rate_multiplier
    return own, "arriving at their own times" if own.any() else "all at once"


def request_columns(
    model: LiveModel, made: LivePlant, routed: Any = None, queue: Any = None
) -> Callable[[], Mapping[str, Any]]:
    """What the record says of each request beside the engine's own columns, asked for when the run has ended.

    `routed` and `queue`: `RoutedRequests` and `LiveQueue` of a run that has them.
    """

    def decode(token_ids: Sequence[int]) -> str:
        return model.tokenizer.decode([t for t in token_ids if t >= 0]) if model.tokenizer else ""

    def columns() -> dict[str, Any]:
        executor, plant = made.executor, made.plant
        answers: list[list[int]] = executor.outputs
        # A probe that was left is no part of the answer.
        left = np.zeros(len(answers), np.int64)
        if routed is not None:
            left = np.where(plant.strategy > 0, plant.probe_length, 0)
        own = [answer[start:] for answer, start in zip(answers, left, strict=True)]
        # A pruned run judges its tokens by pruned logits: quality is what the whole model says of them.
        nll = np.array(plant.telemetry.request_columns()["nll_raw_nats"], np.float64)
        for i in np.flatnonzero(executor.pruned):
            if own[i] and min(own[i]) >= 0:
                nll[i] = model.score(executor.prompts[i], own[i]).surprisal_raw_nats.sum()
        found = {
            "finish_reason": [
                RequestStatus(s).name.lower() if s in GIVEN_UP else reason or "unfinished"
                for s, reason in zip(plant.ledger.status, executor.finish_reasons, strict=True)
            ],
            "prompt_text": [request.prompt.text for request in made.requests],
            "output_text": [decode(answer) for answer in own],
            "nll_raw_nats": nll,
        }
        if routed is not None:
            probes = [decode(answer[:start]) for answer, start in zip(answers, left, strict=True)]
            found |= routed.columns(plant, probes, found["output_text"])
        return queue.columns(plant, found) if queue is not None else found

    return columns


def model_shape(model: LiveModel, name: str, dtype: str) -> dict[str, Any]:
    """The model as the simulator's table of shapes would hold it."""
    config = model.config
    windows = {w for w in config.windows if w is not None}
    shape = ModelShape(
        name="SmolLM2-135M" if name == "smollm2" else name,
        num_layers=config.num_layers,
        hidden=config.hidden_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_size=config.head_dim,
        intermediate=config.intermediate_size,
        vocab=config.vocab_size,
        max_context_tokens=config.max_context_tokens,
        tied_embeddings=config.tied_embeddings,
        qkv_bias=config.qkv_bias,
        bytes_per_weight=4 if dtype == "fp32" else 2,
        window_tokens=min(windows) if len(windows) == 1 and None not in config.windows else None,
        source="the recorded model",
    )
    return asdict(shape)
