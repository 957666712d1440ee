"""Pictures of routing, as PNG bytes: a probe, the manifold of the three numbers, accuracy against tokens, reasons."""

import io
from collections.abc import Mapping, Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from controllers.routing.descriptors import Descriptors
from controllers.routing.heuristic import HeuristicRouter
from workbench.protocols import Strategy
from workbench.routing.comparison import RouterRow
from workbench.routing.null_study import NullRow
from workbench.routing.panel import Panel
from workbench.signals import FloatArray

COLOURS = {"standard": "#6b7280", "direct": "#2563eb", "cot": "#d97706"}
REASONS = {
    "overload": "#1e3a8a",
    "rising": "#60a5fa",
    "falling": "#d97706",
    "no_trend": "#9ca3af",
    "too_short": "#d1d5db",
    "fixed": "#e5e7eb",
    "learned": "#10b981",
}


def probe_picture(entropy_nats: FloatArray, title: str) -> bytes:
    """Entropy of each probe token with its least-squares line."""
    figure, axes = plt.subplots(figsize=(7.0, 2.8), layout="constrained")
    index = np.arange(1, len(entropy_nats) + 1)
    axes.plot(index, entropy_nats, color="#2563eb", marker=".", lw=1)
    if len(entropy_nats) >= 3:
        axes.plot(index, np.polyval(np.polyfit(index, entropy_nats, 1), index), color="#d97706", ls="--", lw=1.5)
    axes.set(xlabel="probe token", ylabel="H raw (nats)", title=title, ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    return _png(figure)


def manifold_picture(groups: Mapping[str, Descriptors]) -> bytes:
    """Every probe as a point (S_H, V_sp, avnr), a colour per task."""
    figure = plt.figure(figsize=(7.5, 6.0), layout="constrained")
    axes = figure.add_subplot(projection="3d")
    for name, numbers in groups.items():
        axes.scatter(numbers.sum_nats, numbers.trend, numbers.avnr, s=9, alpha=0.6, label=name)
    axes.set_xlabel("S_H (nats)", labelpad=8)
    axes.set_ylabel("V_sp", labelpad=10)
    axes.set_zlabel("avnr", labelpad=8)
    axes.legend(loc="upper left", fontsize=8)
    axes.view_init(elev=18, azim=-60)
    axes.set_box_aspect(None, zoom=0.9)
    return _png(figure)


def accuracy_picture(rows: Sequence[RouterRow]) -> bytes:
    """Accuracy against mean output tokens (probe included), 95 % intervals; one panel a task."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    columns = min(len(tasks), 2)
    lines = -(-len(tasks) // columns)
    figure, grid = plt.subplots(
        lines, columns, figsize=(5.4 * columns, 4.0 * lines), layout="constrained", squeeze=False
    )
    for axes in grid.flat[len(tasks) :]:
        axes.set_visible(False)
    names = list(dict.fromkeys(row.router for row in rows))
    markers = dict(zip(names, "osD^v<>PX*hp" * 4, strict=False))
    colours = {name: plt.get_cmap("tab10")(i % 10) for i, name in enumerate(names)}
    for axes, task in zip(grid.flat, tasks, strict=False):
        for row in (row for row in rows if row.task == task):
            a, t = row.accuracy, row.tokens_mean
            axes.errorbar(
                t.value, a.value, xerr=[[t.value - t.low], [t.high - t.value]],
                yerr=[[a.value - a.low], [a.high - a.value]], fmt=markers[row.router], color=colours[row.router],
                ms=7, lw=0.8, label=row.router,
            )  # fmt: skip
        scoring = next(row.scoring for row in rows if row.task == task)
        axes.set(title=f"{task} (by {scoring})", xlabel="output tokens a question", ylabel="accuracy")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return _png(figure)


def reason_picture(rows: Sequence[RouterRow]) -> bytes:
    """Why each router decided as it did: stacked shares, a bar per task and router that looks."""
    rows = [row for row in rows if row.reasons.get("fixed", 0.0) < 1.0]
    figure, axes = plt.subplots(figsize=(8.5, 0.32 * len(rows) + 1.3), layout="constrained")
    labels = [f"{row.task} · {row.router}" for row in rows]
    left = np.zeros(len(rows))
    for reason, colour in REASONS.items():
        share = np.array([row.reasons.get(reason, 0.0) for row in rows])
        if share.any():
            axes.barh(labels, share, left=left, color=colour, label=reason.replace("_", " "))
            left += share
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="share of questions")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    figure.legend(loc="outside lower center", ncols=7, fontsize=8, frameon=False)
    return _png(figure)


def null_picture(rows: Sequence[NullRow]) -> bytes:
    """Share of trend-free traces each rule routes, against phi, with Monte-Carlo intervals."""
    figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
    for name, colour in zip(dict.fromkeys(row.router for row in rows), ("#d97706", "#2563eb"), strict=False):
        part = [row for row in rows if row.router == name]
        axes.errorbar(
            [r.phi for r in part], [r.routed for r in part], yerr=[r.error for r in part], marker="o", color=colour,
            label=name,
        )  # fmt: skip
    axes.axhline(0.05, color="#6b7280", ls="--", lw=1)
    axes.set(xlabel="lag-1 correlation phi of a trend-free trace", ylabel="routed by chance", ylim=(0, 1))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return _png(figure)


def power_picture(rows: Sequence[NullRow]) -> bytes:
    """Share sent to CoT against the size of the fall, a line per phi; one panel a rule."""
    names = list(dict.fromkeys(row.router for row in rows))
    figure, grid = plt.subplots(1, len(names), figsize=(4.6 * len(names), 3.2), layout="constrained", sharey=True)
    for axes, name in zip(np.atleast_1d(grid), names, strict=True):
        for phi, style in zip(dict.fromkeys(row.phi for row in rows), ("-", "--", ":", "-."), strict=False):
            part = [row for row in rows if row.router == name and row.phi == phi]
            axes.plot([r.fall_sd for r in part], [r.share_cot for r in part], style, marker=".", label=f"phi = {phi:g}")
        axes.axhline(0.8, color="#6b7280", lw=0.8)
        axes.set(title=name, xlabel="fall over the probe (sd)", ylim=(0, 1))
        axes.spines[["top", "right"]].set_visible(False)
    np.atleast_1d(grid)[0].set_ylabel("sent to CoT")
    np.atleast_1d(grid)[0].legend(frameon=False, fontsize=8)
    return _png(figure)


def threshold_picture(panels: Sequence[Panel]) -> bytes:
    """Accuracy and tokens of the heuristic as k goes from 0 to 0.5 (overload off), beside the fixed strategies."""
    figure, grid = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 3.2), layout="constrained", squeeze=False)
    for axes, panel in zip(grid[0], panels, strict=True):
        points = []
        for k in np.linspace(0.0, 0.5, 26):
            strategy = panel.route(HeuristicRouter(k=float(k), overload_nats=float("inf"))).strategy
            correct, tokens = panel.outcome(strategy, probed=True)
            points.append((tokens.mean(), correct.mean(), k))
        tokens, accuracy, k = np.array(points).T
        axes.plot(tokens, accuracy, color="#d1d5db", lw=1, zorder=1)
        shown = axes.scatter(tokens, accuracy, c=k, s=16, cmap="viridis", zorder=2)
        for strategy in Strategy:
            right, paid = panel.outcome(np.full(len(panel), int(strategy)), probed=False)
            name = strategy.name.lower()
            axes.scatter(paid.mean(), right.mean(), marker="X", s=60, color=COLOURS[name], label=f"always {name}")
        axes.set(title=f"{panel.task} ({panel.scoring})", xlabel="output tokens", ylabel="accuracy")
        axes.spines[["top", "right"]].set_visible(False)
    grid[0][0].legend(fontsize=7, frameon=False)
    figure.colorbar(shown, ax=grid[0][-1], label="k")
    return _png(figure)


def _png(figure: plt.Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90, metadata={"Software": None})
    plt.close(figure)
    return buffer.getvalue()
