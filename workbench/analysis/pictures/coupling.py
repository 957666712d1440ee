"""Temperature and pruning on one entropy: where the pair is stable, where small gain says so, and one that is not."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from workbench.analysis.coupling import CoupledLoops, simulate
from workbench.analysis.figures import BLUE, GREEN, GREY, ORANGE


def stability_map(count: int = 161) -> tuple[Figure, dict[str, float]]:
    """Over the two loop gains: stable, and certified by small gain; shares of the square where each loop is stable alone."""
    temperature, pruning = np.linspace(0.0125, 1.9875, count), np.linspace(0.00625, 0.99375, count)
    stable = np.zeros((count, count))
    certified = np.zeros((count, count))
    for i, p in enumerate(pruning):
        for j, g in enumerate(temperature):
            loops = CoupledLoops(float(g), float(p), reads_raw_entropy=False)
            stable[i, j] = loops.spectral_radius() < 1.0
            certified[i, j] = loops.small_gain()
    figure, axes = plt.subplots(figsize=(5.4, 3.8), layout="constrained")
    axes.contourf(temperature, pruning, stable, levels=[0.5, 1.5], colors=[GREY], alpha=0.3)
    axes.contourf(temperature, pruning, certified, levels=[0.5, 1.5], colors=[BLUE], alpha=0.45)
    axes.plot(1.5, 0.3, "o", color=ORANGE)
    axes.annotate("counterexample", (1.5, 0.3), (1.36, 0.42), color=ORANGE)
    axes.text(0.55, 0.22, "small gain", color=BLUE, weight="bold")
    axes.text(0.18, 0.66, "stable, not certified", color="#555a61")
    axes.text(1.38, 0.75, "unstable,\nthough each loop\nis stable alone", color="#555a61")
    axes.set(
        xlabel="temperature loop gain $k_i V$", ylabel="pruning loop gain $s L$", title="both read tempered entropy"
    )
    return figure, {"stable_frac": float(stable.mean()), "certified_frac": float(certified.mean())}


def counterexample(steps: int = 24) -> Figure:
    """k_i V = 1.5, s L = 0.3: temperature alone, pruning alone, both on tempered entropy, both with the pruner on raw."""
    runs = {
        "temperature alone": (simulate(CoupledLoops(1.5, 0.0, True), steps), GREY, "--"),
        "both, pruner reads raw entropy": (simulate(CoupledLoops(1.5, 0.3, True), steps, (1.0, 1.0)), GREEN, "-"),
        "both, pruner reads tempered entropy": (simulate(CoupledLoops(1.5, 0.3, False), steps), ORANGE, "-"),
    }
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    for name, (path, colour, style) in runs.items():
        axes.plot(path[:, 0], style, color=colour, lw=1.2, label=name)
    axes.set(xlabel="token", ylabel="$u - u^*$", title="$k_i V = 1.5$, $s L = 0.3$")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure


def margins_table(pruning_gains: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4)) -> list[tuple[float, float, float]]:
    """(s L, largest k_i V by small gain, largest k_i V that is stable), by bisection; 2 - 2 s L in closed form."""
    rows = []
    for p in pruning_gains:
        limits = []
        for test in (CoupledLoops.small_gain, lambda loops: loops.spectral_radius() < 1.0):
            low, high = 1.0, 2.0
            for _ in range(40):
                middle = 0.5 * (low + high)
                low, high = (middle, high) if test(CoupledLoops(middle, p, False)) else (low, middle)
            limits.append(low)
        rows.append((p, *limits))
    return rows
