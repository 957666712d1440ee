"""EDRM on recorded generations of SmolLM2-135M: tokens and accuracy, the trend as a predictor, bimodality.

Everything is greedy and paired over the recorded questions; token accounts include the probe. By extraction. The record is one;
another seed redraws the resamples, not the questions.

TASK_saved         1 - tokens(rule) / tokens(always CoT)
TASK_accuracy      accuracy(rule) - accuracy(always CoT)
trend_auroc        P(V_sp of a question that only CoT answers < V_sp of another of its task), ties half
bimodality         Sarle's coefficient (skewness^2 + 1) / kurtosis of V_sp; a uniform law has 5/9
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from controllers.routing.descriptors import describe
from workbench.claims.claim import Measured
from workbench.claims.interval import bootstrap
from workbench.claims.setting import Setting
from workbench.errors import InputError
from workbench.protocols import Strategy
from workbench.routing.calibrate import routers
from workbench.routing.generation_record import Settings
from workbench.routing.panel import Panel, make_panel
from workbench.signals import FloatArray

RECORD = Path(__file__).resolve().parents[3] / "notebooks" / "data" / "11_smollm2_routing.parquet"
TASKS = ("arc-easy", "boolq", "svamp", "gsm8k")


@cache
def panel_of(task: str) -> Panel:
    if not RECORD.is_file():
        raise InputError(
            f"no recorded generations at {RECORD}; run these claims from a source tree, which carries them"
        )
    return make_panel(pl.read_parquet(RECORD), task, Settings(probe_tokens=64))


def measure(setting: Setting) -> Mapping[str, Measured]:
    return quantities({task: panel_of(task) for task in TASKS}, setting.seed)


def quantities(panels: Mapping[str, Panel], seed: int) -> dict[str, Measured]:
    found, trends, positive, place = {}, [], [], []
    for k, (task, panel) in enumerate(panels.items()):
        n = len(panel)
        chosen = panel.route(routers(task, None)["heuristic"]).strategy.astype(np.int64)
        correct, tokens = panel.outcome(chosen, probed=True)
        cot_right, cot_tokens = panel.outcome(np.full(n, int(Strategy.COT)), probed=False)
        found[f"{task}_saved"] = bootstrap(lambda w, a=tokens, b=cot_tokens: 1.0 - (w @ a) / (w @ b), n, seed)
        gain = correct.astype(float) - cot_right
        found[f"{task}_accuracy"] = bootstrap(lambda w, g=gain, n=n: w @ g / n, n, seed)
        trends.append(describe(panel.probe_entropy_nats, panel.probe_tokens).trend)
        others = panel.correct[:, Strategy.STANDARD] | panel.correct[:, Strategy.DIRECT]
        positive.append(panel.correct[:, Strategy.COT] & ~others)
        place.append(np.full(n, k))
    trend, helped, task_of = (np.concatenate(x) for x in (trends, positive, place))
    known = np.isfinite(trend)
    trend, helped, task_of = trend[known], helped[known], task_of[known]
    earlier = (trend[:, None] < trend[None, :]) + 0.5 * (trend[:, None] == trend[None, :])
    within = task_of[:, None] == task_of[None, :]

    def area(w: FloatArray) -> FloatArray:
        ups, downs = w * helped, w * ~helped
        with np.errstate(invalid="ignore"):
            return np.einsum("ri,ri->r", ups @ (earlier * within), downs) / np.einsum(
                "ri,ri->r", ups @ within.astype(float), downs
            )

    def sarle(w: FloatArray) -> FloatArray:
        n = w.sum(axis=1)
        mean = w @ trend / n
        m2, m3, m4 = np.stack([(w * (trend - mean[:, None]) ** p).sum(axis=1) / n for p in (2, 3, 4)])
        return (m3**2 / m2**3 + 1.0) / (m4 / m2**2)

    found["trend_auroc"] = bootstrap(area, trend.size, seed)
    found["bimodality"] = bootstrap(sarle, trend.size, seed)
    return found
