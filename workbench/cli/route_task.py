"""A task through one router, as it would be served: only the replies the decisions need."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.table import Table

from workbench.cli.console import Output
from workbench.protocols import RouteReason, Strategy


def run_task(
    out: Output,
    load: Callable[[], Any],
    tasks: Mapping[str, Sequence[Any]],
    routers: Mapping[str, Any],
    router_name: str,
    prompts: Any,
    settings: Any,
    directory: Path | None,
) -> NoReturn:
    import numpy as np
    import polars as pl

    from workbench.routing.serve import serve
    from workbench.routing.subsample import subsample

    model = load()
    served = {}
    with out.progress(f"route {', '.join(tasks)}") as tell:
        for index, (task, questions) in enumerate(tasks.items()):
            chosen = subsample(questions, settings.num_questions, settings.seed)
            served[task] = serve(
                model, chosen, routers[task], prompts, settings, lambda x, i=index: tell((i + x) / len(tasks))
            )
    rows = [row for part in served.values() for row in part]
    table = Table("task", "questions", "accuracy", "tokens", "direct", "standard", "CoT", "no answer", "reasons")
    for task, part in served.items():
        reasons = {r.name.lower(): sum(row.reason is r for row in part) for r in RouteReason}
        table.add_row(
            task,
            str(len(part)),
            f"{np.mean([row.correct for row in part]):.3f}",
            f"{np.mean([row.output_tokens for row in part]):.1f}",
            *(f"{np.mean([row.strategy is s for row in part]):.0%}" for s in _SHOWN),
            f"{np.mean([row.extraction.answer is None for row in part]):.0%}",
            ", ".join(f"{name} {count}" for name, count in reasons.items() if count),
        )
    out.say(table)
    paths = {}
    run = directory or Path("runs/route")
    run.mkdir(parents=True, exist_ok=True)
    paths["run"] = run
    paths["routed"] = run / "routed.parquet"
    pl.DataFrame(
        [
            {
                "task": row.question.task,
                "question_id": row.question.question_id,
                "router": router_name,
                "strategy": row.strategy.name.lower(),
                "reason": row.reason.name.lower(),
                "sum_nats": row.sum_nats,
                "trend": None if math.isnan(row.trend) else row.trend,
                "avnr": None if math.isnan(row.avnr) else row.avnr,
                "probe_tokens": len(row.probe_entropy_nats),
                "output_tokens": row.output_tokens,
                "extracted": row.extraction.answer,
                "correct": row.correct,
                "text": row.text,
            }
            for row in rows
        ]
    ).write_parquet(paths["routed"])
    figures = {
        "accuracy": float(np.mean([row.correct for row in rows])),
        "tokens_mean": float(np.mean([row.output_tokens for row in rows])),
        **{f"share_{s.name.lower()}": float(np.mean([row.strategy is s for row in rows])) for s in Strategy},
        "no_answer_share": float(np.mean([row.extraction.answer is None for row in rows])),
    }
    out.done(True, figures, paths)


_SHOWN = (Strategy.DIRECT, Strategy.STANDARD, Strategy.COT)
