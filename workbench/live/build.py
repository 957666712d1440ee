"""From a scenario to a live plant: the model, the prompts, when they arrive, how much KV memory there is."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sims.arrivals import poisson_arrivals
from workbench.engine.plant import EnginePlant
from workbench.errors import InputError
from workbench.live.executor import CALIBRATION_TEMPERATURES
from workbench.live.plant import LiveRequest, ample_blocks
from workbench.live.prompts import builtin_prompts, load_prompts
from workbench.live.session import LiveModel
from workbench.protocols import DecisionPoint
from workbench.scenario import Scenario
from workbench.signals import FloatArray

DEFAULT_MAX_TOKENS = 128


@lru_cache(maxsize=2)
def load_once(path_or_name: str, dtype: str, backend: str) -> LiveModel:
    """The model of earlier arms in this process again, instead of another copy."""
    return LiveModel.load(path_or_name, dtype=dtype, backend=backend)


def unpruned_nll_nats(model: LiveModel, prompts: Sequence[Sequence[int]], outputs: Sequence[list[int]]) -> FloatArray:
    """Surprisal of each whole output at T = 1 with every KV block read [requests]: quality does not grade itself."""
    return np.array(
        [
            float(model.score(prompt, output).surprisal_raw_nats.sum()) if output and min(output) >= 0 else np.nan
            for prompt, output in zip(prompts, outputs, strict=True)
        ]
    )


def build_plant(
    scenario: Scenario, seed: int, controlled: frozenset[DecisionPoint], window_steps: int | None
) -> EnginePlant:
    """Prompts of the scenario in turn until `num_requests`; Poisson arrivals where a rate is given, else all at once."""
    workload, live = scenario.workload, scenario.live
    if workload.trace is not None:
        raise InputError('workload.trace is for plant = "sim"; a live run takes workload.prompts')
    model = load_once(live.model, live.dtype, live.backend)
    specs = builtin_prompts() if workload.prompts is None else load_prompts(Path(workload.prompts))
    cap = workload.max_tokens or DEFAULT_MAX_TOKENS
    count = workload.num_requests
    arrivals = np.zeros(count)
    if workload.rate_per_s is not None:
        arrivals = poisson_arrivals(count, workload.rate_per_s * workload.rate_multiplier, seed)
    chosen = [specs[(workload.first_request + i) % len(specs)] for i in range(count)]
    made_of = [model.request(spec, cap) for spec in chosen]
    requests = [
        LiveRequest(prompt=r.prompt, max_tokens=r.max_tokens, kind=r.kind, arrival_s=float(arrivals[i]), seed=r.seed)
        for i, r in enumerate(made_of)
    ]
    config = scenario.engine_config(num_blocks=1)
    ample = ample_blocks(requests, config.block_size, config.max_running, config.watermark_frac)
    config = scenario.engine_config(num_blocks=max(2, ample))
    made = model.plant(
        requests,
        config=config,
        controlled=controlled,
        seed=seed,
        window_steps=window_steps,
        calibration_temperatures=CALIBRATION_TEMPERATURES if window_steps != 0 else (),
        measure_mass=DecisionPoint.KEEP in controlled or window_steps != 0,
    )
    plant = made.plant

    def request_columns() -> dict[str, Any]:
        outputs = made.executor.outputs
        decode = model.tokenizer.decode if model.tokenizer else (lambda ids: "")
        quality = {}
        if DecisionPoint.KEEP in controlled:
            quality["nll_raw_nats"] = unpruned_nll_nats(model, [r.prompt.token_ids for r in made.requests], outputs)
        return {
            **quality,
            "prompt": pa.array([request.prompt.text for request in made.requests]),
            "text": pa.array([decode([t for t in ids if t >= 0]) for ids in outputs]),
            "finish_reason": pa.array(made.executor.finish_reasons),
        }

    plant.request_columns = request_columns
    plant.notes = {
        "workload": f"{count} requests from {'the built-in prompts' if workload.prompts is None else workload.prompts}",
        "model": live.model,
        "backend": live.backend,
        "dtype": live.dtype,
    }
    return plant
