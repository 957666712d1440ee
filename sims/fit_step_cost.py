"""The step cost of a machine from its recorded steps: nonnegative least squares on relative errors.

    t = host + dense[N] + S row + P chunk + kv KV tokens read + pair prefill pairs + mass [masses measured]

dense rises piecewise linearly between knots at N = 0, 1, 2, 4, 8, ..; every increment is nonnegative, so the table never
falls. P counts rows of prefill. Each step weighs 1 / t^2. Steps that took more than three times what the fit says (a pause of the machine) are left out
once and counted; they come back as noise: the quantiles of measured over predicted time, scaled to mean 1. Source: ours.
"""

import numpy as np
from scipy.optimize import nnls

from sims.recorded import RecordedSteps
from sims.step_cost import StepCost
from workbench.errors import InputError
from workbench.signals import FloatArray

MIN_STEPS = 30
OUTLIER = 3.0
NUM_RATES = 6
NOISE_GRID = 200  # quantiles of the noise


def fit_step_cost(
    steps: RecordedSteps,
    *,
    name: str,
    flops: tuple[float, float, float],
    kv_bytes_per_token: float,
    weight_bytes: float,
) -> tuple[StepCost, dict[str, float]]:
    """`flops`: a token of the layers, a row of the output layer, a query-key pair. Raises `InputError`."""
    if steps.elapsed_s.size < MIN_STEPS:
        raise InputError(f"{steps.elapsed_s.size} recorded steps are too few for a step cost; {MIN_STEPS} are needed")
    largest = int(steps.tokens.max())
    knots = np.unique(np.concatenate([[0.0], 2.0 ** np.arange(0, np.ceil(np.log2(max(largest, 2))) + 1)]))
    # A knot nobody is near would be free: keep those with steps between their neighbours.
    used = [0]
    for k in range(1, knots.size):
        near = (steps.tokens > knots[used[-1]]) & (steps.tokens <= knots[k])
        if near.any() or k == knots.size - 1:
            used.append(k)
    knots = knots[used]
    design = _design(steps, knots)
    keep = np.ones(steps.elapsed_s.size, bool)
    solution = np.zeros(design.shape[1])
    for _ in range(3):
        weight = 1.0 / steps.elapsed_s[keep]
        solution, _ = nnls(design[keep] * weight[:, None], np.ones(int(keep.sum())))
        fresh = steps.elapsed_s <= OUTLIER * np.maximum(design @ solution, 1e-12)
        if np.array_equal(fresh, keep) or fresh.sum() < MIN_STEPS:
            break
        keep = fresh
    predicted = design @ solution
    relative = predicted[keep] / steps.elapsed_s[keep] - 1.0
    host, row, kv, pair, chunk, mass = solution[:NUM_RATES]
    dense_at_knots = np.concatenate([[0.0], np.cumsum(solution[NUM_RATES:])])
    # Relative errors favour short steps: scaled so that the steps together take as long as they did, pauses included.
    scale = float(steps.elapsed_s.sum() / predicted.sum())
    noise = np.quantile(steps.elapsed_s / np.maximum(predicted, 1e-12), (np.arange(NOISE_GRID) + 0.5) / NOISE_GRID)
    table = np.interp(np.arange(int(knots[-1]) + 1), knots, dense_at_knots)
    rows = max(2, int(steps.sampled.max()) + 1)
    cost = StepCost(
        name=name,
        dense_s=scale * (table if table.size > 1 else np.array([0.0, 0.0])),
        output_s=np.zeros(rows),
        host_s=scale * float(host),
        row_s=scale * float(row),
        kv_s_per_token=scale * float(kv),
        pair_s=scale * float(pair),
        chunk_s=scale * float(chunk),
        mass_s=scale * float(mass),
        noise=noise / noise.mean(),
        dense_flop_per_token=flops[0],
        output_flop_per_sample=flops[1],
        attention_flop_per_pair=flops[2],
        weight_bytes=weight_bytes,
        kv_bytes_per_token=kv_bytes_per_token,
        source=f"fitted to {int(keep.sum())} recorded steps of {name}",
    )
    figures = {
        "step_mape_fit": float(np.mean(np.abs(relative))),
        "step_bias_fit": float(np.mean(relative)),
        "step_time_scale": scale,
        "steps_left_out": float((~keep).sum()),
        "steps_fitted": float(keep.sum()),
        "step_noise_floor": noise_floor(steps),
    }
    return cost, figures


def noise_floor(steps: RecordedSteps) -> float:
    """Mean |t / median - 1| of steps of decode rows only, among those of one batch size: what no step cost can predict."""
    alike = (steps.chunks == 0.0) & (steps.tokens == steps.sampled)
    parts = []
    for n in np.unique(steps.tokens[alike]):
        t = steps.elapsed_s[alike & (steps.tokens == n)]
        parts.append(np.abs(t / np.median(t) - 1.0))
    return float(np.mean(np.concatenate(parts))) if parts else float("nan")


def _design(steps: RecordedSteps, knots: FloatArray) -> FloatArray:
    """[steps, NUM_RATES + knots - 1]: host, row, kv, pair, chunk, mass, then the filled share of each knot interval."""
    decode_pairs = steps.kv_read_tokens  # a decode row has one pair a KV token: no extra
    prefill_pairs = np.maximum(steps.pairs - decode_pairs, 0.0)
    lengths = np.diff(knots)
    filled = np.clip((steps.tokens[:, None] - knots[:-1]) / lengths, 0.0, 1.0)
    return np.column_stack([
        np.ones_like(steps.tokens), steps.sampled, steps.kv_read_tokens, prefill_pairs, steps.chunks, steps.measures, filled,
    ])  # fmt: skip
