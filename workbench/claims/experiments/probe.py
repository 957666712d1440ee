"""How long must a probe be: Standard replies of SmolLM2-135M generated anew with the entropy of every token kept.

The questions, prompts and settings are those of the recorded evaluation of all three strategies (`experiments/routing.py`), so
that what each strategy would have scored is known; only the replies to the Standard prompt are made again, up to 160
tokens. Questions whose reply is longer than 64 tokens count: for others every longer probe is the same probe.

decision_changes     share of questions that the rule, without its overload limit, routes otherwise after LONG tokens than after 64
auroc_gained         AUROC of a falling trend, LONG tokens minus 64, for: only the chain of thought is right
bimodality_N         Sarle's coefficient of V_sp over probes of N tokens
bimodality_growth    that of the longest N minus that of the shortest
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from controllers.routing.descriptors import describe
from controllers.routing.heuristic import HeuristicRouter
from workbench.claims.claim import Measured
from workbench.claims.experiments.routing import TASKS, auroc, recorded, sarle
from workbench.claims.interval import bootstrap
from workbench.claims.not_at_hand import NotAtHand
from workbench.claims.setting import Setting
from workbench.protocols import Strategy
from workbench.routing.generation_record import Settings
from workbench.routing.panel import Panel, make_panel
from workbench.signals import BoolArray

SHORT, LONG = 64, 128
LENGTHS = (16, 32, 64, 128)
RECORDED_SEED = 0  # of the recorded evaluation, which chose its questions


def measure(setting: Setting) -> Mapping[str, Measured]:
    from workbench.pruning.texts import tasks_folder
    from workbench.routing.evaluate import evaluate
    from workbench.routing.live_text_model import LiveTextModel
    from workbench.routing.prompts import load_prompts
    from workbench.routing.task_files import load_task

    folder = tasks_folder(None)
    if folder is None:
        raise NotAtHand("the task files, as data/tasks in the folder that $ENTROPIC_DATA names")
    # The longest replies belong to the arithmetic tasks; quick takes those alone.
    tasks = setting.size(TASKS[2:], TASKS)
    settings = Settings(
        num_questions=setting.size(10, 60), num_calibration=0, seed=RECORDED_SEED, probe_tokens=LONG,
        max_standard_tokens=160, chunk_questions=64,
    )  # fmt: skip
    record = evaluate(
        LiveTextModel("smollm2"), {task: load_task(task, folder) for task in tasks}, load_prompts(), settings,
        setting.directory / "replies", strategies=(Strategy.STANDARD,), on_progress=setting.tell,
    )  # fmt: skip
    return quantities([joined(record.table(), task, settings) for task in tasks], setting.seed)


def joined(long: pl.DataFrame, task: str, settings: Settings) -> Panel:
    """The new Standard replies beside the recorded Direct and CoT ones, question by question."""
    known = recorded().filter((pl.col("task") == task) & (pl.col("strategy") != "standard"))
    return make_panel(pl.concat([known, long.filter(pl.col("task") == task)], how="vertical_relaxed"), task, settings)


def quantities(panels: Sequence[Panel], seed: int) -> dict[str, Measured]:
    longer = [p.rows(p.probe_tokens > SHORT) for p in panels]
    entropy = np.concatenate([p.probe_entropy_nats for p in longer])
    tokens = np.concatenate([p.probe_tokens for p in longer])
    place = np.concatenate([np.full(len(p), k) for k, p in enumerate(longer)])
    helped: BoolArray = np.concatenate(
        [
            p.correct[:, Strategy.COT] & ~(p.correct[:, Strategy.STANDARD] | p.correct[:, Strategy.DIRECT])
            for p in longer
        ]
    )
    trend = {n: describe(entropy[:, :n], np.minimum(tokens, n)).trend for n in LENGTHS}
    router = HeuristicRouter(overload_nats=float("inf"))
    chosen = {n: np.concatenate([shortened(p, n).route(router).strategy for p in longer]) for n in (SHORT, LONG)}
    changed = (chosen[SHORT] != chosen[LONG]).astype(np.float64)
    count = changed.size
    areas = [auroc(trend[n], helped, place) for n in (SHORT, LONG)]
    shapes = {n: sarle(trend[n]) for n in LENGTHS}
    found = {
        "decision_changes": bootstrap(lambda w: w @ changed / count, count, seed),
        "auroc_gained": bootstrap(lambda w: areas[1](w) - areas[0](w), count, seed),
        "bimodality_growth": bootstrap(lambda w: shapes[LENGTHS[-1]](w) - shapes[LENGTHS[0]](w), count, seed),
    }
    found |= {f"bimodality_{n}": bootstrap(shape, count, seed) for n, shape in shapes.items()}
    return found


def shortened(panel: Panel, num_tokens: int) -> Panel:
    """The same questions with probes of at most `num_tokens`."""
    return replace(
        panel,
        probe_tokens=np.minimum(panel.probe_tokens, num_tokens),
        probe_entropy_nats=panel.probe_entropy_nats[:, :num_tokens],
        probe_surprisal_nats=panel.probe_surprisal_nats[:, :num_tokens],
    )
