"""Pictures of a study as PNG bytes: the step, temperatures, gains over a constant, texts, dither, estimators."""

import io
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from workbench.temper.laws import NOTHING
from workbench.temper.loop_gain import OuterSlope
from workbench.temper.measures import Estimate, trailing_mean
from workbench.temper.study import GRID, Study

COLOURS = ("#5b6068", "#2f6fb2", "#c8871a", "#1f8a70", "#a2387d", "#cf6a1d", "#6a4fb3")
STYLES = ("-", "-", "--", "-.", ":", "-", "--")
STEP_SHOWN = ("pi", "anchored, delay 1", "pi, delay 1", "gain-scheduled", "exact")


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    # A fixed creation text keeps equal studies equal byte for byte.
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": "workbench"})
    return buffer.getvalue()


def _figure(width: float = 9.0, height: float = 4.2) -> Figure:
    with matplotlib.rc_context({"font.size": 9.5}):
        return Figure(figsize=(width, height), layout="constrained")


def step_picture(study: Study) -> bytes:
    figure = _figure()
    axes = figure.add_subplot()
    names = [name for name in (NOTHING.name, *STEP_SHOWN) if name in study.stepped]
    for index, name in enumerate(names):
        curve = trailing_mean(study.stepped[name].entropy_nats)
        axes.plot(curve, STYLES[index], color=COLOURS[index], label=name, lw=1.6)
    num_tokens = curve.size
    target = np.where(np.arange(num_tokens) < study.step_token, *study.step_nats)
    axes.plot(target, color="black", lw=0.8, label="H*", drawstyle="steps-post")
    axes.set(xlabel="token", ylabel="H, nats (mean over prompts and 16 tokens)", xlim=(0, num_tokens - 1))
    axes.legend(frameon=False, ncols=2)
    axes.set_title("Step of H* at half length", loc="left")
    return png(figure)


def temperature_picture(study: Study, prompt: int = 0) -> bytes:
    figure = _figure(9.0, 4.6)
    above, below = figure.subplots(2, 1, sharex=True)
    names = [name for name in ("pi", "gain-scheduled", "exact", "edt") if name in study.constant]
    for index, name in enumerate(names, start=1):
        run = study.constant[name]
        above.plot(run.temperature[prompt], STYLES[index], color=COLOURS[index], lw=1.1, label=name)
        below.plot(run.entropy_nats[prompt], STYLES[index], color=COLOURS[index], lw=0.8)
    below.axhline(study.target_nats, color="black", lw=0.8)
    above.set(ylabel="T applied")
    below.set(ylabel="H, nats", xlabel="token")
    above.legend(frameon=False, ncols=4, loc="upper right")
    above.set_title("One text: temperature and entropy (the black line is H*)", loc="left")
    return png(figure)


def gain_picture(study: Study) -> bytes:
    rows = [row for row in study.rows if row.law is not NOTHING]
    figure = _figure(9.0, 0.7 + 0.3 * len(rows))
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (name, title) in zip(
        panels,
        (
            ("tracking_gain", "mean |H - H*|, nats"),
            ("spread_gain", "spread of text means, nats"),
            ("nll_gain", "NLL, nats a token"),
        ),
        strict=True,
    ):
        axes.axvline(0.0, color="black", lw=0.8)
        for place, row in enumerate(rows):
            e: Estimate = getattr(row, name)
            clear = e.high < 0.0 or e.low > 0.0
            colour = "#9aa0a8" if not clear else "#2f6fb2" if e.value < 0.0 else "#cf6a1d"
            axes.plot([e.low, e.high], [place, place], color=colour, lw=1.6)
            axes.plot(e.value, place, "o", color=colour, ms=4)
        axes.set_title(title, loc="left", fontsize=9.5)
    panels[0].set_yticks(range(len(rows)), [row.law.name for row in rows])
    panels[0].invert_yaxis()
    figure.suptitle("Law minus constant T of equal mean H (left is lower; grey: the interval holds zero)", fontsize=10)
    return png(figure)


def texts_picture(study: Study) -> bytes:
    figure = _figure(9.0, 3.4)
    axes = figure.add_subplot()
    pi = next((row for row in study.rows if row.law.name == "pi"), None)
    nearest = min(GRID, key=lambda t: abs(np.log(t / pi.matched_temperature))) if pi else 1.0
    shown = [(f"T = {nearest:g}", study.grid[nearest])]
    shown += [(name, study.constant[name]) for name in ("pi", "gain-scheduled", "exact") if name in study.constant]
    for place, (_, run) in enumerate(shown):
        means = run.entropy_nats.mean(axis=1)
        axes.plot(means, np.full(means.size, place), "o", color=COLOURS[place], alpha=0.6, ms=6)
    axes.axvline(study.target_nats, color="black", lw=0.8)
    axes.set_yticks(range(len(shown)), [name for name, _ in shown])
    axes.set(xlabel="mean H of a text, nats (the line is H*)", ylim=(-0.6, len(shown) - 0.4))
    axes.set_title("Spread between texts", loc="left")
    return png(figure)


def dither_picture(slope: OuterSlope) -> bytes:
    figure = _figure(9.0, 3.4)
    axes = figure.add_subplot()
    estimates = [slope.inner, *slope.lags]
    for lag, e in enumerate(estimates):
        axes.plot([lag, lag], [e.low, e.high], color=COLOURS[1 if lag else 2], lw=1.6)
        axes.plot(lag, e.value, "o", color=COLOURS[1 if lag else 2])
    axes.plot(-0.25, slope.mean_varentropy, "_", color="black", ms=16)
    axes.axhline(0.0, color="black", lw=0.8)
    axes.set(xlabel="tokens after the dithered one (0: tempered H of that token; the dash is mean V)")
    axes.set(ylabel="nats per neper of T")
    axes.set_title("What raising T does to this token and to the next ones", loc="left")
    return png(figure)


def estimator_picture(rows: Sequence[tuple[str, float, float]]) -> bytes:
    figure = _figure(9.0, 0.8 + 0.28 * len(rows))
    axes = figure.add_subplot()
    axes.barh(range(len(rows)), [row[1] for row in rows], color=COLOURS[1], height=0.6)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="mean |H - H*| of the law fed with the estimate, nats (recorded logits)")
    axes.set_title("Tracking lost when only the top k are seen", loc="left")
    return png(figure)
