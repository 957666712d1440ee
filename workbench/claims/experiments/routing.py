"""EDRM on recorded generations of SmolLM2-135M: tokens and accuracy, the trend as a predictor, bimodality.

Everything is greedy and paired over the recorded questions; token accounts include the probe. By extraction. The record is one;
another seed redraws the resamples, not the questions.

TASK_saved, TASK_accuracy       instance level, the rule: 1 - tokens / tokens of always-CoT; accuracy minus that of always-CoT
TASK_set_saved, TASK_set_accuracy   data-set level: one strategy chosen on the first 50 questions, judged on the others
trend_auroc        P(V_sp of a question that only CoT answers < V_sp of another of its task), ties half
bimodality         Sarle's coefficient (skewness^2 + 1) / kurtosis of V_sp; a uniform law has 5/9
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from controllers.routing.dataset_level import DatasetRouter
from controllers.routing.descriptors import describe
from workbench.claims.claim import Measured
from workbench.claims.interval import bootstrap
from workbench.claims.not_at_hand import NotAtHand
from workbench.claims.setting import Setting
from workbench.protocols import Strategy
from workbench.routing.calibrate import routers
from workbench.routing.generation_record import Settings
from workbench.routing.panel import Panel, make_panel, split
from workbench.signals import BoolArray, FloatArray, IntArray

RECORD = Path(__file__).resolve().parents[3] / "notebooks" / "data" / "11_smollm2_routing.parquet"
TASKS = ("arc-easy", "boolq", "svamp", "gsm8k")
SETTINGS = Settings(probe_tokens=64)


@cache
def recorded() -> pl.DataFrame:
    if not RECORD.is_file():
        raise NotAtHand(f"the recorded generations, as {RECORD.name} in notebooks/data: run from a source tree")
    return pl.read_parquet(RECORD)


def measure(setting: Setting) -> Mapping[str, Measured]:
    return quantities({task: make_panel(recorded(), task, SETTINGS) for task in TASKS}, setting.seed)


def quantities(panels: Mapping[str, Panel], seed: int) -> dict[str, Measured]:
    found, trends, positive, place = {}, [], [], []
    for k, (task, panel) in enumerate(panels.items()):
        chosen = panel.route(routers(task, None)["heuristic"]).strategy.astype(np.int64)
        found |= {f"{task}_{name}": one for name, one in against_cot(panel, chosen, True, seed).items()}
        first, rest = split(panel, SETTINGS)
        level = DatasetRouter.calibrated(describe(first.probe_entropy_nats, first.probe_tokens))
        whole = np.full(len(rest), int(level.strategy))
        found |= {f"{task}_set_{name}": one for name, one in against_cot(rest, whole, False, seed).items()}
        trends.append(describe(panel.probe_entropy_nats, panel.probe_tokens).trend)
        others = panel.correct[:, Strategy.STANDARD] | panel.correct[:, Strategy.DIRECT]
        positive.append(panel.correct[:, Strategy.COT] & ~others)
        place.append(np.full(len(panel), k))
    trend, helped, task_of = (np.concatenate(x) for x in (trends, positive, place))
    known = np.isfinite(trend)
    trend, helped, task_of = trend[known], helped[known], task_of[known]
    found["trend_auroc"] = bootstrap(auroc(trend, helped, task_of), trend.size, seed)
    found["bimodality"] = bootstrap(sarle(trend), trend.size, seed)
    return found


def against_cot(panel: Panel, chosen: IntArray, probed: bool, seed: int) -> dict[str, Measured]:
    """`saved` tokens and `accuracy` gained over always reasoning."""
    n = len(panel)
    correct, tokens = panel.outcome(chosen, probed=probed)
    cot_right, cot_tokens = panel.outcome(np.full(n, int(Strategy.COT)), probed=False)
    gain = correct.astype(float) - cot_right
    return {
        "saved": bootstrap(lambda w: 1.0 - (w @ tokens) / (w @ cot_tokens), n, seed),
        "accuracy": bootstrap(lambda w: w @ gain / n, n, seed),
    }


Statistic = Callable[[FloatArray], FloatArray]  # weights [resamples, units] -> [resamples]


def auroc(trend: FloatArray, helped: BoolArray, task: IntArray) -> Statistic:
    """Of a falling trend, within tasks."""
    earlier = (trend[:, None] < trend[None, :]) + 0.5 * (trend[:, None] == trend[None, :])
    within = task[:, None] == task[None, :]

    def area(w: FloatArray) -> FloatArray:
        ups, downs = w * helped, w * ~helped
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.einsum("ri,ri->r", ups @ (earlier * within), downs) / np.einsum(
                "ri,ri->r", ups @ within.astype(float), downs
            )

    return area


def sarle(trend: FloatArray) -> Statistic:
    """Bimodality coefficient."""

    def coefficient(w: FloatArray) -> FloatArray:
        n = w.sum(axis=1)
        mean = w @ trend / n
        # Moments about the sample's mean: from weighted powers, so that no array of resamples by units is made.
        centred = trend - trend.mean()
        shift = (mean - trend.mean())[:, None]
        raw = np.stack([w @ centred**p / n for p in (1, 2, 3, 4)], axis=1)
        d = shift[:, 0]
        m2 = raw[:, 1] - d**2
        m3 = raw[:, 2] - 3.0 * d * raw[:, 1] + 2.0 * d**3
        m4 = raw[:, 3] - 4.0 * d * raw[:, 2] + 6.0 * d**2 * raw[:, 1] - 3.0 * d**4
        return (m3**2 / m2**3 + 1.0) / (m4 / m2**2)

    return coefficient
