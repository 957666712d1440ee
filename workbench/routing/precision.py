"""How often arithmetic alone changes a decision: the same probe tokens, entropies in bf16 and in fp32.

The recorded Standard reply is read again, teacher-forced, by a second model of another dtype; only the entropies can differ, so a
changed decision is a flip by rounding. (Free generation in two dtypes also picks different tokens; that is not counted here.)
Source: ours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from workbench.protocols import Controller, Strategy
from workbench.routing.generation_record import Settings
from workbench.routing.panel import Panel
from workbench.routing.prompts import Prompts
from workbench.routing.question import Question
from workbench.routing.text_model import Branch, TextModel
from workbench.signals import FloatArray

SCHEMA = {"task": pl.String, "position": pl.Int64, "entropy_raw_nats": pl.List(pl.Float64)}


@dataclass(frozen=True, kw_only=True)
class FlipRow:
    task: str
    router: str
    num_questions: int
    flip_share: float
    mean_shift_nats: float  # mean |H - H'| over probe tokens
    max_shift_nats: float


def reread_probes(
    model: TextModel,
    table: pl.DataFrame,
    questions: Mapping[str, Sequence[Question]],
    prompts: Prompts,
    settings: Settings,
    path: Path,
    on_progress: Callable[[float], None] = lambda share: None,
) -> pl.DataFrame:
    """Entropies of the recorded probes under `model`, kept in `path` (a folder, one file a task; finished tasks are reused)."""
    path.mkdir(parents=True, exist_ok=True)
    done = 0
    total = table.filter(pl.col("strategy") == "standard").height
    for task, asked in questions.items():
        file = path / f"{task}.parquet"
        rows = table.filter((pl.col("task") == task) & (pl.col("strategy") == "standard")).sort("position")
        by_id = {question.question_id: question for question in asked}
        if not file.is_file():
            out = []
            for row in rows.iter_rows(named=True):
                prompt, _ = model.prompt(prompts.messages(by_id[row["question_id"]], Strategy.STANDARD))
                ids = row["token_ids"][: settings.probe_tokens]
                score = model.score(prompt, [Branch(len(prompt), tuple(ids))])[0]
                out.append({"task": task, "position": row["position"], "entropy_raw_nats": score.entropy_nats.tolist()})
                done += 1
                on_progress(done / total)
            temporary = file.with_suffix(".part")
            pl.DataFrame(out, schema=SCHEMA).write_parquet(temporary)
            temporary.replace(file)
    return pl.concat([pl.read_parquet(path / f"{task}.parquet") for task in questions])


def flip_rows(panel: Panel, reread: pl.DataFrame, routers: Mapping[str, Controller[Any, Any, Any]]) -> list[FlipRow]:
    """A row per router: the share of questions whose decision differs between the two entropy traces."""
    rows = {r["position"]: r["entropy_raw_nats"] for r in reread.filter(pl.col("task") == panel.task).to_dicts()}
    keep = np.array([int(p) in rows for p in panel.position])
    if not keep.any():
        return []
    panel = panel.rows(keep)
    other: FloatArray = np.full_like(panel.probe_entropy_nats, np.nan)
    for i, position in enumerate(panel.position):
        other[i, : len(rows[int(position)])] = rows[int(position)]
    shift = np.abs(other - panel.probe_entropy_nats)
    second = replace(panel, probe_entropy_nats=other)
    return [
        FlipRow(
            task=panel.task,
            router=name,
            num_questions=len(panel),
            flip_share=float((panel.route(router).strategy != second.route(router).strategy).mean()),
            mean_shift_nats=float(np.nanmean(shift)),
            max_shift_nats=float(np.nanmax(shift)),
        )
        for name, router in routers.items()
    ]
