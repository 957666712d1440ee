"""The temperature loop: plant gain, phase portrait and limit cycle, delay, saturation, drift, a live run over the bound."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.figure import Figure

from controllers.temperature.pi import PITemperature
from controllers.temperature.positional import PositionalPI
from workbench.analysis.drift import TokenRange, drift_bound, token_range
from workbench.analysis.figures import BLUE, GREEN, GREY, ORANGE
from workbench.analysis.logit_plant import Trajectory, made_up_text, run_law, weighted_statistics, widest_levels
from workbench.signals import FloatArray, max_varentropy

N = 49152  # SmolLM2's vocabulary
CLAMP = (0.2, 2.0)
RECORDED_TEMPERATURES = (0.5, 0.7, 1.0, 1.4)  # at which a live record keeps H and V of each token


def _panels(count: int, width: float = 4.1, height: float = 3.3) -> tuple[Figure, list]:
    figure, axes = plt.subplots(1, count, figsize=(width * count, height), layout="constrained")
    panels = list(np.atleast_1d(axes))
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def plant_gain() -> Figure:
    """H and V of the widest logits against ln T; the slope of the first is the second."""
    levels, counts = widest_levels(N)
    u = np.linspace(np.log(0.4), np.log(2.5), 300)
    h, v = weighted_statistics(levels, counts, np.exp(u))
    figure, (left, right) = _panels(2)
    left.plot(u, h, color=BLUE)
    left.set(xlabel="$u = \\ln T$", ylabel="H (nats)", title="entropy of the widest logits")
    right.plot(u, v, color=ORANGE, lw=3, alpha=0.5, label="V, varentropy")
    right.plot(u, np.gradient(h, u), color="k", lw=0.8, ls="--", label="dH/du, by differences")
    right.axhline(max_varentropy(N), color=GREY, lw=0.8)
    right.text(u[0], max_varentropy(N) - 2.2, f"$V_{{max}}$ = {max_varentropy(N):.2f}", color=GREY)
    right.set(xlabel="$u = \\ln T$", ylabel="nats²", title="the plant gain", ylim=(-1, 41))
    right.legend(frameon=False, loc="upper right", fontsize=8)
    return figure


def phase_portrait(
    loop_gains: tuple[float, ...] = (0.5, 1.9, 2.3), tokens: int = 60
) -> tuple[Figure, list[Trajectory]]:
    """u+ against u for the I law on the widest logits, and the path of the real controller, at k_i V_max = loop_gains."""
    levels, counts = widest_levels(N)
    target = float(weighted_statistics(levels, counts, 1.0)[0])
    figure, panels = _panels(len(loop_gains), 3.6, 3.6)
    runs = []
    for panel, gain in zip(panels, loop_gains, strict=True):
        law = PITemperature(
            target_entropy_nats=target, vocab_size=N, k_i=gain / max_varentropy(N), unsafe=True,
            temperature_start=1.06, temperature_min=0.5, temperature_max=2.0,
        )  # fmt: skip
        run = run_law(law, np.tile(levels, (tokens, 1)), counts)
        runs.append(run)
        path = np.log(run.temperature)
        span = max(0.08, 1.25 * np.abs(path).max())
        u = np.linspace(-span, span, 200)
        entropy, _ = weighted_statistics(levels, counts, np.exp(u))
        panel.plot(u, u, color=GREY, lw=0.8)
        panel.plot(u, u + law.gain * (target - entropy), color=BLUE)
        steps = np.repeat(path, 2)
        panel.plot(steps[:-2], steps[1:-1], color=ORANGE, lw=0.7)
        panel.set(xlabel="$u_k$", title=f"$k_i V_{{max}}$ = {gain:g}")
    panels[0].set_ylabel("$u_{k+1}$")
    return figure, runs


def saturation(tokens: int = 500, release: int = 150) -> tuple[Figure, dict[str, int]]:
    """An unreachable target, then a reachable one: with and without anti-windup. Tokens needed to come within 0.1 nats."""
    levels, counts = made_up_text(1, N, seed=1)
    rows = np.tile(levels, (tokens, 1))
    reachable = float(weighted_statistics(levels[0], counts, 0.6)[0])
    common = {
        "target_entropy_nats": 20.0, "vocab_size": N, "target_steps": ((release, reachable),), "unsafe": True,
        "k_i": 0.03, "temperature_min": CLAMP[0], "temperature_max": CLAMP[1],
    }  # fmt: skip
    laws = {
        "velocity form (state is the applied u)": (PITemperature(**common), BLUE),
        "positional, back-calculation": (PositionalPI(**common, tracking_gain=1.0), GREEN),
        "positional, no anti-windup": (PositionalPI(**common, tracking_gain=0.0), ORANGE),
    }
    figure, (panel,) = _panels(1, 7.4, 3.3)
    needed = {}
    for name, (law, colour) in laws.items():
        run = run_law(law, rows, counts)
        panel.plot(run.temperature, color=colour, label=name, lw=1.4)
        near = np.abs(run.entropy_nats[release:] - reachable) < 0.1
        needed[name] = int(np.argmax(near)) if near.any() else tokens - release
    panel.axvline(release, color=GREY, lw=0.8, ls=":")
    panel.set(xlabel="token", ylabel="T", title=f"target 20 nats (ln n = {np.log(N):.2f}), then {reachable:.2f} nats")
    panel.set_ylim(0.5, 2.75)
    panel.legend(frameon=False, fontsize=8, loc="upper right", ncols=3)
    return figure, needed


def ranges_of(levels: FloatArray, counts: FloatArray, target_nats: float, num_grid: int = 513) -> TokenRange:
    """Solutions and V on the clamp for level logits [K, L]."""
    grid = np.linspace(*np.log(CLAMP), num_grid)
    entropy, varentropy = weighted_statistics(levels[:, None, :], counts, np.exp(grid)[None, :])
    return token_range(entropy, varentropy, grid, target_nats)


def drift(target_nats: float = 3.5, floor_nats2: float = 0.25) -> tuple[Figure, dict[str, dict[str, float]]]:
    """u against the token's own solution u*, and the bound, on a lively made-up text with a near-deterministic passage
    (tokens 150 to 179) and on a calm one."""
    lively, counts = made_up_text(240, N, seed=4)
    lively[150:180, 0] += 60.0  # a quoted passage: nothing to control
    calm, _ = made_up_text(240, N, seed=4, wander_nats=0.05)
    k_i = 1.0 / max_varentropy(N)
    figure, panels = _panels(3, 4.4, 3.3)
    numbers = {}
    for name, levels, panel in (("lively", lively, panels[1]), ("calm", calm, panels[2])):
        found = ranges_of(levels, counts, target_nats)
        law = PITemperature(
            target_entropy_nats=target_nats, vocab_size=N, k_i=k_i, temperature_min=CLAMP[0], temperature_max=CLAMP[1],
            temperature_start=float(np.exp(found.log_temperature_solution[0])),
        )  # fmt: skip
        run = run_law(law, levels, counts)
        bound = drift_bound(found, k_i, 0.0, floor_nats2)
        error = np.abs(np.log(run.temperature) - found.log_temperature_solution)
        if name == "lively":
            panels[0].plot(np.exp(found.log_temperature_solution), color=GREY, lw=1, label="the token's own solution")
            panels[0].plot(run.temperature, color=BLUE, lw=1.4, label="PI law")
            panels[0].set(xlabel="token", ylabel="T", title="a lively text")
            panels[0].legend(frameon=False, fontsize=8)
        panel.plot(error, color=BLUE, lw=1, label="$|u - u^*|$")
        panel.plot(bound.bound[:-1], color=ORANGE, label="drift bound")
        panel.set(xlabel="token", title=f"{name}: {bound.covered_frac:.0%} of tokens covered")
        panel.set_ylim(0.0, 1.3 * float(bound.bound.max()))
        panel.legend(frameon=False, fontsize=8, loc="upper right", ncols=2)
        numbers[name] = {
            "mean_error": float(error.mean()),
            "mean_bound": float(bound.bound.mean()),
            "covered_frac": bound.covered_frac,
            "violations": float((error > bound.bound[:-1] + 1e-4).sum()),
        }
    return figure, numbers


LIVE_COLUMNS = (
    "point", "step", "request_id", "token_index", "entropy_at_temperature", "varentropy_at_temperature", "obs_request_id",
    "obs_temperature_applied", "obs_entropy_nats", "obs_varentropy_nats2", "act_temperature",
)  # fmt: skip


def record_live(table: Path, target_nats: float = 2.0, num_requests: int = 2, max_tokens: int = 48) -> None:
    """Run the PI law at half its proven gain on SmolLM2 and keep what the pictures need: a file of some 20 KB.

    Needs the model and about a minute; the notebook reads the file that this wrote.
    """
    import tempfile

    from workbench.arm import run_arm
    from workbench.scenario import parse_scenario

    plan = parse_scenario(
        {
            "name": "temperature-loop",
            "plant": "live",
            "level": "full",
            "workload": {"num_requests": num_requests, "max_tokens": max_tokens},
            "controllers": {"temperature": {"kind": "pi", "target_entropy_nats": target_nats}},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        keep_live(run_arm(plan, 0, Path(folder) / "arm"), table)


def keep_live(run: Path, table: Path) -> None:
    """The columns of `LIVE_COLUMNS` from an arm's folder."""
    pl.read_parquet(run / "sequences.parquet").select(LIVE_COLUMNS).write_parquet(table)


def live_over_portrait(table: Path, target_nats: float = 2.0) -> tuple[Figure, dict[str, float]]:
    """A live run over what is proven: T per token, the steps of u against H* - H (all on one line), and k_i V."""
    tokens = pl.read_parquet(table).filter(pl.col("point") == "temperature")
    tokens = tokens.sort("obs_request_id", "step")
    k_i = 1.0 / max_varentropy(N)
    figure, (left, middle, right) = _panels(3, 4.2, 3.3)
    gains, worst = [], 0.0
    for request, rows in tokens.group_by("obs_request_id", maintain_order=True):
        asked, applied = rows["act_temperature"].to_numpy(), rows["obs_temperature_applied"].to_numpy()
        entropy, varentropy = rows["obs_entropy_nats"].to_numpy(), rows["obs_varentropy_nats2"].to_numpy()
        left.plot(asked, lw=1, label=f"request {request[0]}")
        known = np.isfinite(entropy)
        step = np.log(asked[known]) - np.log(applied[known])
        middle.plot(target_nats - entropy[known], step, ".", ms=4)
        inside = (asked[known] > 0.1001) & (asked[known] < 1.999)
        worst = max(worst, float(np.abs(step - k_i * (target_nats - entropy[known]))[inside].max(initial=0.0)))
        gains.append(k_i * varentropy[known])
    x = np.array([-6.0, 2.0])
    middle.plot(x, k_i * x, color=GREY, lw=0.8, zorder=0)
    gain = np.concatenate(gains)
    right.hist(gain, bins=30, color=BLUE)
    right.axvline(2.0, color=ORANGE, lw=1)
    right.set(
        xlabel="$k_i V$ of the tokens", ylabel="tokens", xlim=(0, 2.1), title="at most 1 at this gain; the limit is 2"
    )
    left.set(xlabel="token", ylabel="T asked")
    middle.set(xlabel="$H^* - H_k$ (nats)", ylabel="$u_{k+1} - u_k$", title="the law, on the live model")
    left.legend(frameon=False, fontsize=8)
    return figure, {
        "tokens": float(gain.size),
        "largest_loop_gain": float(gain.max()),
        "median_loop_gain": float(np.median(gain)),
        "share_below_0.05": float((gain < 0.05).mean()),
        "largest_deviation_from_law": worst,
    }


def drift_on_record(
    table: Path, target_nats: float = 2.0, floors: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5)
) -> pl.DataFrame:
    """The drift bound on the tokens of a live run, whose H and V were recorded on a grid of T: per floor on V, the share
    of tokens it covers, for the PI law at half its proven gain; and how much of the clamp the bound leaves on average."""
    tokens = pl.read_parquet(table).filter(pl.col("point") == "measure")
    tokens = tokens.filter(pl.col("entropy_at_temperature").is_not_null()).sort("request_id", "token_index")
    grid = np.log(np.array(RECORDED_TEMPERATURES))
    rows = []
    for floor in floors:
        covered, size, left = 0.0, 0, 0.0
        for _, one in tokens.group_by("request_id", maintain_order=True):
            h = np.array(one["entropy_at_temperature"].to_list())
            v = np.array(one["varentropy_at_temperature"].to_list())
            found = drift_bound(token_range(h, v, grid, target_nats), 1.0 / max_varentropy(N), None, floor)
            covered += found.covered_frac * len(one)
            left += float(found.bound[1:].sum()) / float(grid[-1] - grid[0])
            size += len(one)
        rows.append((floor, round(covered / size, 3), round(left / size, 3)))
    return pl.DataFrame(rows, schema=["V at least", "share of tokens", "bound / clamp width"], orient="row")
