"""Pictures of a pruning study as PNG bytes."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.figure import Figure

from workbench.pruning.figures import ArmFigures, at_one_per_cent
from workbench.pruning.regime import BATCHES, CONTEXTS, Regime

COLOURS = {
    "streaming-llm": "#9aa0a8", "h2o": "#cf6a1d", "snapkv": "#c8871a", "quest": "#a2387d", "pyramid": "#8a6d3b",
    "entropy-share": "#b3261e", "entropy-share-guarded": "#6b8f23", "least-mass": "#2f6fb2",
    "entropy-adaptive": "#6a4fb3", "sketch-mass": "#1f8a70", "certified": "#111418",
}  # fmt: skip
MARKERS = {"certified": "D", "sketch-mass": "o", "entropy-adaptive": "s", "least-mass": "^"}


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": "workbench"})
    return buffer.getvalue()


def _figure(width: float = 9.0, height: float = 4.2) -> Figure:
    with matplotlib.rc_context({"font.size": 9.5}):
        return Figure(figsize=(width, height), layout="constrained")


def pareto(figures: Sequence[ArmFigures]) -> Figure:
    """KL against bytes, a panel a context; vertical bars are intervals."""
    contexts = sorted({f.context for f in figures})
    figure = _figure(9.0 if len(contexts) > 1 else 6.0, 4.6)
    panels = np.atleast_1d(figure.subplots(1, len(contexts), sharey=True))
    for axes, context in zip(panels, contexts, strict=True):
        for name, colour in COLOURS.items():
            mine = [f for f in figures if f.context == context and f.arm.split(" ")[0] == name]
            if not mine:
                continue
            mine.sort(key=lambda f: f.metrics["bytes_frac"].value)
            x = [f.metrics["bytes_frac"].value for f in mine]
            y = [max(f.metrics["kl_nats"].value, 1e-7) for f in mine]
            ends = np.array([(max(f.metrics["kl_nats"].low, 1e-7), f.metrics["kl_nats"].high) for f in mine]).T
            axes.plot(
                x,
                y,
                "-",
                marker=MARKERS.get(name, "."),
                ms=5 if name in MARKERS else 7,
                color=colour,
                lw=1.2,
                label=name,
            )
            axes.vlines(x, *ends, color=colour, lw=0.8, alpha=0.6)
        axes.set_yscale("log")
        axes.set_xlim(left=0.0)
        axes.set(xlabel="KV bytes read, everything included, share of dense", title=f"context {context:,}")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("KL to the dense distribution, nats a token")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def retrieval(figures: Sequence[ArmFigures]) -> Figure:
    """Answers right by policy and budget, dense as a line."""
    shown = [f for f in figures if not np.isnan(f.metrics["accuracy"].value)]
    contexts = sorted({f.context for f in shown})
    figure = _figure(9.0, 0.8 + 0.2 * max(len([f for f in shown if f.context == c]) for c in contexts))
    panels = np.atleast_1d(figure.subplots(1, len(contexts)))
    for axes, context in zip(panels, contexts, strict=True):
        mine = [f for f in shown if f.context == context]
        for place, f in enumerate(mine):
            e, colour = f.metrics["accuracy"], COLOURS.get(f.arm.split(" ")[0], "black")
            axes.plot([e.low, e.high], [place, place], color=colour, lw=1.6)
            axes.plot(e.value, place, "o", color=colour, ms=4)
        axes.axvline(mine[0].metrics["accuracy"].value, color="black", lw=0.8)
        axes.set_yticks(range(len(mine)), [f.label for f in mine], fontsize=8)
        axes.invert_yaxis()
        axes.set(xlim=(-0.03, 1.03), xlabel="answers right", title=f"context {context:,}")
    return figure


def certificate_curves(curve: pl.DataFrame) -> Figure:
    """Bytes of the certified rule against dropped mass, against the change of the output where that stops it, and against
    context at a dropped mass of 0.01; dashed: the oracle's blocks."""
    both = bool((curve["stops_by"] == "output").any())
    figure = _figure(11.0 if both else 9.0, 4.2)
    panels = figure.subplots(1, 3 if both else 2, sharey=True)
    left, middle, right = panels[0], panels[1] if both else None, panels[-1]
    longest = curve["context"].max()
    full = curve.filter(
        (pl.col("context") == longest)
        & (pl.col("query_context") == pl.col("query_context").max().over("kind", "seed", "context"))
    )
    for number, kind in enumerate(sorted(curve["kind"].unique())):
        colour = ("#2f6fb2", "#cf6a1d", "#1f8a70", "#6a4fb3")[number % 4]
        shown = ("bytes_frac", "oracle_blocks_frac")
        for axes, stops_by in ((left, "mass"), (middle, "output")):
            if axes is None:
                continue
            mine = full.filter((pl.col("kind") == kind) & (pl.col("stops_by") == stops_by))
            by = mine.group_by("budget").agg(pl.col(shown).mean()).sort("budget")
            axes.plot(by["budget"], by["bytes_frac"], "o-", color=colour, label=kind)
            if stops_by == "mass":
                axes.plot(by["budget"], by["oracle_blocks_frac"], "--", color=colour, lw=1.0)
        at = at_one_per_cent(curve).filter(pl.col("kind") == kind)
        by_context = (
            at.with_columns(shown=2.0 ** pl.col("query_context").log(2.0).round())
            .group_by("shown")
            .agg(pl.col(shown).mean())
            .sort("shown")
        )
        right.plot(by_context["shown"], by_context["bytes_frac"], "o-", color=colour)
        right.plot(by_context["shown"], by_context["oracle_blocks_frac"], "--", color=colour, lw=1.0)
    left.set(xlabel="stops by the dropped mass of a head", ylabel="share of dense KV bytes", ylim=(0, 1.05))
    left.legend(frameon=False, loc="upper right", bbox_to_anchor=(1.0, 0.94))
    if middle is not None:
        middle.set(xlabel="stops by the change of its output, relative")
    for axes in panels[:-1]:
        axes.set(xscale="log", title=f"context {longest:,}")
    right.set_xscale("log", base=2)
    right.set(xlabel="context, tokens", title="dropped mass at most 0.01")
    for axes in panels:
        axes.axhline(1.0, color="black", lw=0.6)
        axes.grid(alpha=0.25)
    return figure


def beside_kvpress(figures: Sequence[ArmFigures], rows: Sequence[Mapping[str, Any]]) -> Figure:
    """KL by policy at each budget, all contexts together: ours and the baselines as run here (dots), kvpress' presses (crosses)."""
    targets = sorted({row["target_frac"] for row in rows}, reverse=True)
    figure = _figure(9.0, 4.8)
    panels = np.atleast_1d(figure.subplots(1, len(targets), sharex=True))
    for axes, target in zip(panels, targets, strict=True):
        told: list[tuple[str, float, str, str]] = []
        here = [f for f in figures if f.target_frac == target]
        for name in dict.fromkeys(f.arm for f in here):
            values = np.concatenate([f.by_text["kl_nats"] for f in here if f.arm == name])
            told.append((name, float(np.nanmean(values)), COLOURS.get(name, "black"), "o"))
        for press in dict.fromkeys(row["press"] for row in rows):
            kl = [
                row["kl_nats"]
                for row in rows
                if row["press"] == press and row["target_frac"] == target and "error" not in row
            ]
            if kl:
                told.append((f"kvpress {press}", float(np.mean(kl)), "#2b2f36", "x"))
        told.sort(key=lambda entry: entry[1])
        for place, (_, value, colour, marker) in enumerate(told):
            axes.plot(max(value, 1e-7), place, marker, color=colour, ms=6)
        axes.set_yticks(range(len(told)), [name for name, *_ in told], fontsize=8)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set(xlabel="KL to the dense distribution, nats a token", title=f"{target:.0%} of KV")
        axes.grid(alpha=0.25)
    return figure


def layers(certificates: pl.DataFrame) -> Figure:
    """By layer: bytes and vacuity of the certified rule; bound against truth."""
    figure = _figure(9.0, 4.2)
    left, right = figure.subplots(1, 2)
    rows = certificates.filter(pl.col("arm") == "certified 0.01")
    for number, context in enumerate(sorted(rows["context"].unique())):
        by = (
            rows.filter(pl.col("context") == context)
            .group_by("layer")
            .agg(pl.all().exclude("arm", "kind").mean())
            .sort("layer")
        )
        colour = ("#2f6fb2", "#cf6a1d", "#1f8a70")[number % 3]
        left.plot(by["layer"], by["bytes_frac"], "o-", ms=3, color=colour, label=f"bytes, {context:,}")
        left.plot(by["layer"], by["vacuous_frac"], ":", color=colour, label=f"heads read whole, {context:,}")
        right.plot(by["layer"], by["bound_mean"], "-", color=colour, label=f"bound, {context:,}")
        right.plot(by["layer"], by["dropped_mean"], "--", color=colour, label=f"true, {context:,}")
    left.axhline(1.0, color="black", lw=0.6)
    left.set(xlabel="layer", ylabel="share", title="What the certificate costs")
    right.set_yscale("log")
    right.set(xlabel="layer", ylabel="dropped mass, mean over heads and steps", title="Bound and truth")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
        axes.grid(alpha=0.25)
    return figure


def regime_map(found: Regime) -> Figure:
    """Speed-up by masking, batch against context; what does not fit is blank."""
    figure = _figure(9.0, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.3, 1.0))
    picture = left.imshow(found.mask, cmap="viridis", vmin=1.0, aspect="auto", origin="lower")
    for i in range(len(BATCHES)):
        for j in range(len(CONTEXTS)):
            told = "does not fit" if np.isnan(found.mask[i, j]) else f"{found.mask[i, j]:.2f}x"
            bright = not np.isnan(found.mask[i, j]) and found.mask[i, j] > 1.0 + 0.6 * (np.nanmax(found.mask) - 1.0)
            left.text(
                j,
                i,
                told,
                ha="center",
                va="center",
                fontsize=8,
                color="black" if bright or np.isnan(found.mask[i, j]) else "white",
            )
    left.set_xticks(range(len(CONTEXTS)), [f"{c:,}" for c in CONTEXTS])
    left.set_yticks(range(len(BATCHES)), [str(b) for b in BATCHES])
    left.set(xlabel="context, tokens", ylabel="batch", title=f"Masking at {found.bytes_frac:.0%} of bytes: tokens/s")
    figure.colorbar(picture, ax=left)
    right.bar(range(len(CONTEXTS)), found.evict, color="#1f8a70")
    right.axhline(1.0, color="black", lw=0.8)
    right.set_xticks(range(len(CONTEXTS)), [f"{c:,}" for c in CONTEXTS])
    right.set(
        xlabel="context, tokens",
        ylabel="ratio of tokens/s, largest batch each",
        title=f"Evicting to {found.blocks_frac:.0%}",
    )
    return figure
