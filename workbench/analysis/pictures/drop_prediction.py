"""Which estimator of the expected entropy reduction predicts the next drop of a recorded text best?"""

from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.figure import Figure

from controllers.scheduling.expected_reduction import Ewma, Kalman, LastDrop
from workbench.analysis.figures import BLUE, GREY
from workbench.signals import FloatArray

RESAMPLES = 2000


def expected_drops(estimator: Any, entropy_nats: FloatArray) -> FloatArray:
    """E[max(0, H_k - H_{k+1})] after each measurement [texts, tokens] of H_raw (NaN: the text has ended)."""
    texts, tokens = entropy_nats.shape
    state, out = estimator.init(texts), np.full((texts, tokens), np.nan)
    for k in range(tokens):
        here = np.isfinite(entropy_nats[:, k])
        seen = SimpleNamespace(
            active=np.ones(texts, np.bool_),
            joined=np.full(texts, k == 0),
            measured=here,
            entropy_raw_nats=entropy_nats[:, k].copy(),
        )
        state, expected = estimator.step(state, seen)
        out[here, k] = expected[here]
    return out


def compare(table: pl.DataFrame, seed: int = 0) -> tuple[Figure, pl.DataFrame]:
    """Fitted to the texts of even number, judged on the others.

    `table`: request_id, token_index, entropy_raw_nats. Explained: 1 - squared error / that of the mean drop of the
    fitted texts, with a 95 % bootstrap interval over the judged texts. 0 is a constant, below 0 is worse than one.
    """
    wide = table.pivot(on="token_index", index="request_id", values="entropy_raw_nats", sort_columns=True)
    entropy = wide.sort("request_id").drop("request_id").to_numpy().astype(np.float64)
    fit, judge = entropy[::2], entropy[1::2]
    drop = np.maximum(0.0, judge[:, :-1] - judge[:, 1:])
    mean_drop = float(np.nanmean(np.maximum(0.0, fit[:, :-1] - fit[:, 1:])))
    estimators = {
        "last drop": LastDrop(),
        "EWMA, default": Ewma(),
        "EWMA, fitted": Ewma.fitted(list(fit)),
        "Kalman, default": Kalman(),
        "Kalman, fitted": Kalman.fitted(list(fit)),
    }
    expected = {name: expected_drops(law, judge)[:, :-1] for name, law in estimators.items()}
    known = np.isfinite(drop) & np.all([np.isfinite(e) for e in expected.values()], axis=0)
    draws = np.random.default_rng(seed).integers(len(judge), size=(RESAMPLES, len(judge)))
    constant = np.where(known, (drop - mean_drop) ** 2, 0.0).sum(axis=1)
    rows = []
    for name, guess in expected.items():
        error = np.where(known, (drop - guess) ** 2, 0.0).sum(axis=1)
        spread = 1.0 - error[draws].sum(axis=1) / constant[draws].sum(axis=1)
        low, high = np.quantile(spread, [0.025, 0.975])
        rows.append(
            {
                "estimator": name,
                "parameters": ", ".join(f"{k} {v:.3g}" for k, v in vars(estimators[name]).items() if k != "kind"),
                "explained": 1.0 - error.sum() / constant.sum(),
                "low": low,
                "high": high,
            }
        )
    found = pl.DataFrame(rows)
    figure, axes = plt.subplots(figsize=(5.6, 2.6), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    y = np.arange(len(rows))[::-1]
    value = found["explained"].to_numpy()
    span = np.abs(found.select("low", "high").to_numpy() - value[:, None]).T
    axes.errorbar(value, y, xerr=span, fmt="o", color=BLUE, capsize=3)
    axes.axvline(0.0, color=GREY, linewidth=1)
    axes.set_yticks(y, found["estimator"].to_list())
    axes.set(
        xlabel="share of the next drop's variance explained", title=f"{int(known.sum()):,} drops, texts not fitted to"
    )
    return figure, found
