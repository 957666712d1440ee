"""The reasoning regime of each request of a scenario: recorded answers of an evaluation, or lengths made from the workload's.

    recorded   each request is a recorded question, drawn by (seed, request): its prompts, the length of its answer under
               every strategy, its probe, and whether each answer is right. Accuracy model [ours]: a request is right exactly
               when the recorded answer of its strategy is, and finished.
    made       Standard as the workload says, Direct at most `direct_tokens`, a chain of thought `cot_factor` times as long;
               the probe is what the entropy process gives, and nothing is said about accuracy.

Questions that an evaluation set aside for calibration are left out.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kernels.philox import uniform
from workbench.catalog import CATALOG
from workbench.engine.requests import RequestSpec
from workbench.engine.routing import Regimes
from workbench.errors import InputError, unknown_name
from workbench.protocols import DecisionPoint, Strategy
from workbench.routing.generation_record import MANIFEST, Settings, read_generations, read_manifest
from workbench.routing.panel import Panel, make_panel
from workbench.scenario import Routing, Scenario
from workbench.signals import IntArray

QUESTION_STREAM = 13  # of the run's counter-based generator


def probe_tokens(scenario: Scenario) -> int:
    """Tokens of the probe; 0 where the router looks at none (or there is no router)."""
    kind = str(scenario.controllers.get(DecisionPoint.ROUTE, {}).get("kind"))
    router = CATALOG[DecisionPoint.ROUTE].get(kind)
    looks = router is not None and getattr(router, "needs_probe", True)
    return scenario.routing.probe_tokens if looks else 0


def simulated_regimes(scenario: Scenario, requests: RequestSpec, seed: int) -> tuple[RequestSpec, Regimes, str]:
    """(requests as the Standard strategy has them, regimes, one line on where they come from)."""
    routing, width = scenario.routing, probe_tokens(scenario)
    if routing.evaluation is None:
        standard = requests.output_tokens
        output = np.stack([standard] * len(Strategy), axis=1)
        output[:, Strategy.DIRECT] = np.minimum(standard, routing.direct_tokens)
        output[:, Strategy.COT] = np.ceil(routing.cot_factor * standard)
        prompt = np.stack([requests.prompt_tokens] * len(Strategy), axis=1)
        text = (
            f"made: Direct at most {routing.direct_tokens} tokens, CoT {routing.cot_factor:g} x Standard; no accuracy"
        )
        return requests, Regimes(probe_tokens=width, prompt_tokens=prompt, output_tokens=output), text
    panels = recorded_panels(routing)
    drawn = drawn_questions(sum(len(p) for p in panels), len(requests), seed)
    regimes = regimes_of(panels, drawn, width)
    requests = replace(
        requests,
        prompt_tokens=regimes.prompt_tokens[:, Strategy.STANDARD],
        output_tokens=regimes.output_tokens[:, Strategy.STANDARD],
        prompt_blocks=None,
    )
    tasks = ", ".join(f"{len(p)} of {p.task}" for p in panels)
    return requests, regimes, f"recorded answers in {routing.evaluation.name}: {tasks}; they give the lengths too"


def recorded_panels(routing: Routing) -> list[Panel]:
    """The evaluation questions of every task in `routing.evaluation`, or of `routing.task` alone."""
    assert routing.evaluation is not None
    place = routing.evaluation
    folder = place / "generations" if (place / "generations").is_dir() else place
    try:
        table = pl.read_parquet(place) if place.is_file() else read_generations(folder)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"routing.evaluation {place}: no table of recorded answers ({error})") from None
    if missing := {"task", "strategy", "position", "entropy_raw_nats"} - set(table.columns):
        raise InputError(f"routing.evaluation {place}: column {min(missing)} is missing; not a routing evaluation")
    tasks = sorted(table["task"].unique().to_list())
    if routing.task is not None:
        if routing.task not in tasks:
            raise unknown_name(f"task in {place}", routing.task, tasks)
        tasks = [routing.task]
    width = routing.probe_tokens
    settings = Settings(probe_tokens=width, max_standard_tokens=max(width, Settings.max_standard_tokens))
    first = read_manifest(folder)["settings"]["num_calibration"] if (folder / MANIFEST).is_file() else 0
    panels = [make_panel(table, task, settings) for task in tasks]
    return [panel.rows(panel.position >= first) for panel in panels]


def drawn_questions(num_questions: int, num_requests: int, seed: int) -> IntArray:
    """[num_requests] which question each request is."""
    ids = np.arange(num_requests)
    u = uniform(seed, QUESTION_STREAM, ids, np.zeros_like(ids))
    return np.minimum((u * num_questions).astype(np.int64), num_questions - 1)


def regimes_of(panels: list[Panel], drawn: IntArray, width: int) -> Regimes:
    """Regimes of requests that are the questions `drawn` of the panels put end to end, probed for `width` tokens."""

    def column(name: str) -> Any:
        return np.concatenate([getattr(panel, name) for panel in panels])[drawn]

    return Regimes(
        probe_tokens=width,
        prompt_tokens=column("prompt_tokens"),
        output_tokens=np.maximum(column("output_tokens"), 1),
        correct=column("correct"),
        probe_entropy_nats=column("probe_entropy_nats") if width else None,
        probe_surprisal_raw_nats=column("probe_surprisal_nats") if width else None,
    )


def default_evaluation() -> Path | None:
    """The recorded evaluation beside the notebooks, where the project lies whole."""
    place = Path(__file__).resolve().parents[2] / "notebooks" / "data" / "11_smollm2_routing.parquet"
    return place if place.is_file() else None
