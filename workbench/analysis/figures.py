"""Pictures of the certificates: the limits on the loop gain, the Jury region, invariant polytopes, the counterexample,
the largest varentropy, the two-cycle. Each function draws from the same code the certificates use."""

from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.spatial import ConvexHull

from workbench.analysis.certificates.switching import CRITICAL
from workbench.analysis.closed_loop import integral, simulate
from workbench.analysis.invariant_polytope import apply, grow
from workbench.analysis.joint_spectral_radius import switching_matrix
from workbench.analysis.margins import jury_region
from workbench.analysis.stability import frozen_limit, proven_limit, switching_limit
from workbench.analysis.surd import Surd
from workbench.signals import entropy_and_varentropy, max_varentropy

BLUE, ORANGE, GREEN, GREY = "#2f6fb2", "#cf6a1d", "#1f8a70", "#8b9098"


def _figure(width: float = 5.2, height: float = 3.7) -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def gain_limits() -> Figure:
    """k_i V_max against delay: proven, exact for switching, exact for frozen V."""
    figure, axes = _figure()
    delays = np.arange(9)
    axes.plot(
        delays, [frozen_limit(int(d)) for d in delays], "o--", color=GREY, label="frozen V, exact: necessary only"
    )
    known = [int(d) for d in delays if switching_limit(int(d)) is not None]
    axes.plot(known, [switching_limit(d) for d in known], "s-", color=ORANGE, label="V varying, exact (polytope)")
    axes.plot(delays, [proven_limit(int(d)) for d in delays], "o-", color=BLUE, label="2/(2d+1): constructors")
    axes.fill_between(delays, 0, [proven_limit(int(d)) for d in delays], color=BLUE, alpha=0.12, lw=0)
    axes.set(
        xlabel="delay d (tokens)",
        ylabel="critical $k_i V_{max}$",
        title="How large may the loop gain be?",
        ylim=(0, 2.1),
    )
    axes.legend(frameon=False)
    return figure


def jury() -> Figure:
    """The frozen Jury region of PI and the part proven for varying V, in units of 1/V."""
    figure, axes = _figure()
    k_p, k_i = np.meshgrid(np.linspace(-1.2, 1.2, 481), np.linspace(-0.2, 4.2, 441))
    axes.contourf(k_p, k_i, jury_region(k_p, k_i, 1.0), levels=[0.5, 1.5], colors=[GREY], alpha=0.3)
    axes.contourf(k_p, k_i, (k_i > 0) & (k_i + 2 * np.abs(k_p) < 2), levels=[0.5, 1.5], colors=[BLUE], alpha=0.45)
    axes.text(0.0, 0.55, "V varying:\nproven", ha="center", color=BLUE, weight="bold")
    axes.text(-0.62, 2.1, "V frozen only", ha="center", color="#555a61")
    axes.set(xlabel="$k_p V$", ylabel="$k_i V$", title="Stable gains of the PI loop, no delay")
    return figure


def polytopes() -> Figure:
    """Invariant polytopes at the critical gains of delay 1 (in the plane) and delay 2 (projected)."""
    figure = plt.figure(figsize=(8.6, 3.9), layout="constrained")
    for d in (1, 2):
        a, b, m = CRITICAL[d]
        gain = Surd(Fraction(a), Fraction(b), m)
        one = gain * 0 + 1
        matrices = [switching_matrix(gain * 0, d), switching_matrix(gain, d)]
        vertices = grow(matrices, [[one] * (d + 1)], one) or []
        points = np.array([[float(x) for x in v] for v in vertices])
        points = np.vstack([points, -points])
        images = np.array([[float(x) for x in apply(matrices[1], v)] for v in vertices])
        images = np.vstack([images, -images])
        hull = ConvexHull(points)
        if d == 1:
            axes = figure.add_subplot(1, 2, 1)
            loop = np.append(hull.vertices, hull.vertices[0])
            axes.fill(*points[loop].T, color=BLUE, alpha=0.15, lw=0)
            axes.plot(*points[loop].T, color=BLUE)
            axes.scatter(*images.T, color=ORANGE, zorder=3, label="vertices after one token at full gain")
            axes.set(xlabel="$x_k$", ylabel="$x_{k-1}$", aspect="equal", ylim=(-1.15, 1.5))
            axes.legend(frameon=False, fontsize=8, loc="upper left")
        else:
            axes = figure.add_subplot(1, 2, 2, projection="3d")
            axes.plot_trisurf(*points.T, triangles=hull.simplices, color=BLUE, alpha=0.25, edgecolor=BLUE, lw=0.6)
            axes.scatter(*images.T, color=ORANGE, s=16)
            axes.set(xlabel="$x_k$", ylabel="$x_{k-1}$", zlabel="$x_{k-2}$")
        axes.set_title(f"delay {d}, critical $k_i V_{{max}}$ = {float(gain):.4g}", fontsize=10)
    return figure


def counterexample(gains: tuple[float, ...] = (0.58, 0.60), periods: int = 16) -> Figure:
    """Delay 2: frozen V settles at both gains; with V switching 0,0,a,a,a,a one settles and one diverges."""
    figure, panels = plt.subplots(1, len(gains), figsize=(8.6, 3.3), layout="constrained", sharey=True)
    for axes, gain in zip(np.atleast_1d(panels), gains, strict=True):
        law, tokens = integral(gain), 6 * periods
        axes.plot(simulate(law, [1.0] * tokens, 2), color=GREY, lw=1, label="V frozen")
        path = simulate(law, [0.0, 0.0, 1.0, 1.0, 1.0, 1.0] * periods, 2)
        axes.plot(path, color=ORANGE, lw=1.2, label="V switching 0,0,a,a,a,a")
        axes.set(xlabel="token", title=f"$k_i V$ = {gain:g}")
        axes.spines[["top", "right"]].set_visible(False)
    np.atleast_1d(panels)[0].set_ylabel("$u - u^*$")
    np.atleast_1d(panels)[0].legend(frameon=False, fontsize=8, loc="upper right")
    return figure


def largest_varentropy() -> Figure:
    """V_max over n and the bound ln^2(n-1)/4 + 1."""
    figure, axes = _figure()
    n = np.unique(np.round(np.logspace(np.log10(2), np.log10(2e5), 120)).astype(int))
    axes.semilogx(n, np.log(np.maximum(n - 1, 1)) ** 2 / 4 + 1, "--", color=GREY, label="bound $\\ln^2(n-1)/4 + 1$")
    axes.semilogx(n, [max_varentropy(int(k)) for k in n], color=BLUE, label="$V_{max}$")
    for size in (49152, 128256, 151936):
        axes.plot(size, max_varentropy(size), "o", color=ORANGE)
    axes.set(xlabel="outcomes n", ylabel="varentropy (nats²)", title="The largest plant gain")
    axes.legend(frameon=False)
    return figure


def two_cycle(limit: float = 0.25) -> Figure:
    """The gain-scheduled step on spike-plus-uniform logits: free, and with its step limited."""
    figure, axes = _figure()
    low, high, target, floor = np.log(0.5), np.log(2.0), 5.0, 1.0
    logits = np.zeros(49152)
    logits[0] = 10.8
    u = np.linspace(low, high, 141)
    found = [entropy_and_varentropy(logits, float(np.exp(x))) for x in u]
    step = np.array([0.5 * (target - float(h)) / max(float(v), floor) for h, v in found])
    axes.plot(u, u, color=GREY, lw=0.8)
    axes.plot(u, np.clip(u + step, low, high), color=ORANGE, label="no step limit: cycles clamp to clamp")
    axes.plot(u, np.clip(u + np.clip(step, -limit, limit), low, high), color=BLUE, label=f"|du| ≤ {limit:g}")
    axes.plot([low, low, high, high, low], [low, high, high, low, low], color=ORANGE, lw=0.8, ls=":")
    axes.set(
        xlabel="$u = \\ln T$", ylabel="$u^+$", title="Gain-scheduled law, gain 0.5, reachable target", ylim=(-0.8, 1.1)
    )
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    return figure


FIGURES = {
    "gain-limits": (gain_limits, ("delay-varying", "delay-frozen", "switching-limit")),
    "jury": (jury, ("pi-jury", "pi-varying")),
    "polytopes": (polytopes, ("switching-limit",)),
    "counterexample": (counterexample, ("delay-counterexample", "i-law-verdicts")),
    "largest-varentropy": (largest_varentropy, ("max-varentropy", "max-varentropy-values")),
    "two-cycle": (two_cycle, ("gain-scheduled-two-cycle",)),
}


def figures_of(names: set[str]) -> dict[str, Figure]:
    """The figures that show at least one of these certificates."""
    return {title: draw() for title, (draw, shows) in FIGURES.items() if names & set(shows)}


def close_all(figures: dict[str, Figure]) -> None:
    for figure in figures.values():
        plt.close(figure)
