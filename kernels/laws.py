"""The in-step laws in words, their result types and the checks every backend shares. Torch-free.

Symbols: z a logit row of n outcomes, m = max z, x = z - m, p = softmax(z / T), u = ln T, H entropy, V varentropy.
"""

import math
from typing import Any, NamedTuple

import numpy as np

SAMPLERS = ("gumbel", "inverse_cdf")

# Solving H(T) = target: Newton in u with slope dH/du = V, inside a shrinking bracket. H never falls with u, so the
# bracket is safe; a step that leaves it, or fails to halve the gap, is replaced by bisection. With an open clamp the
# search stays within these temperatures.
SOLVE_TEMPERATURE_MIN = 1e-4
SOLVE_TEMPERATURE_MAX = 1e4
SOLVE_TOLERANCE_NATS = 1e-5
SOLVE_ITERATIONS = 60

# Rules of `keep_blocks`, the numbers of workbench.protocols.KeepRule. Sinks and recent blocks are never dropped; blocks
# whose score or mass is NaN are dropped by no rule that reads scores.
KEEP_ALL = 0
KEEP_LEAST_MASS = 1  # drop lowest score first (older first among ties) while the dropped mass stays <= mass_budget
KEEP_TOP_BLOCKS = 2  # drop lowest score first until ceil(block_budget_frac * num_blocks) blocks are left
KEEP_WINDOW = 3  # drop all but sinks and recent blocks; reads no score


class LogitStats(NamedTuple):
    """Statistics and one sample for each row of logits, arrays of shape [rows].

    A row with NaN, +inf or only -inf is bad: its floats are NaN, its token_id -1, and no other row is touched.

    Laws: T is clipped to [temperature_min, temperature_max]; where target_entropy_nats is not NaN, T solves H(T) =
    target inside those clamps (at the nearer end if out of reach), starting from `temperature`. T = 0 is greedy
    (lowest index among ties), H = V = 0. Truncation keeps the tokens that pass all of
        min-p      p >= min_p * max p
        top-H      the longest prefix, in falling p, whose renormalised entropy is at most top_h * H
        Mirostat   -ln p <= mu nats
    each judged on the tempered distribution before truncation (so their order does not matter), and always the most
    likely token; NaN switches a law off for its row. Sampling is Gumbel-max with one Philox lane per vocabulary index
    (`gumbel`), or inverse CDF with one 46-bit draw (`inverse_cdf`).
    Sources: min-p arXiv 2407.01082; top-H arXiv 2509.02510; Mirostat 2.0 arXiv 2007.14966; the solve is ours.
    Deviates: Gumbel lanes have 23 bits, so a token with p below 2**-24 is never drawn; inverse_cdf reaches 2**-47.
    """

    log_sum_exp: Any  # ln sum exp z, at T = 1
    entropy_raw_nats: Any
    varentropy_raw_nats2: Any
    entropy_nats: Any  # tempered, before truncation
    varentropy_nats2: Any
    max_probability: Any  # at T = 1
    token_id: Any  # int64
    surprisal_nats: Any  # of the sampled token, tempered, before truncation
    surprisal_raw_nats: Any
    temperature_applied: Any


class TopkEntropy(NamedTuple):
    """What the k largest probabilities say about the entropy, arrays of shape [rows]; NaN in bad rows.

    With tail mass r and p_k the smallest kept probability: H_k + r ln(1/p_k) <= H <= H_k + r ln((n-k)/r).
    Renormalising the top k never exceeds the lower end. `entropy_corrected_nats` is the middle of the bracket.
    Source: ours.
    """

    entropy_topk_nats: Any  # H_k = -sum over the top k of p ln p, not renormalised
    entropy_renormalised_nats: Any
    entropy_corrected_nats: Any
    lower_nats: Any
    upper_nats: Any
    tail_mass: Any


def solve_bracket(temperature_min: float, temperature_max: float) -> tuple[float, float]:
    """The search interval in u = ln T."""
    low = temperature_min if temperature_min > 0.0 else SOLVE_TEMPERATURE_MIN
    high = temperature_max if math.isfinite(temperature_max) else SOLVE_TEMPERATURE_MAX
    return math.log(low), math.log(max(high, low))


def float32_at_most(value: float) -> float:
    """The largest float32 not above `value`, so that a float32 clamp keeps H <= ln n exactly."""
    near = np.float32(value)
    return float(near if float(near) <= value else np.nextafter(near, np.float32(-np.inf)))


def check_sampling(temperature, target, temperature_min, temperature_max, min_p, top_h, sampler) -> None:
    """Refuse numbers outside their range; arrays may be NumPy or torch (on the CPU)."""
    if sampler not in SAMPLERS:
        raise ValueError(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}")
    if not (0.0 <= temperature_min <= temperature_max):
        raise ValueError(
            f"temperature_min and temperature_max must satisfy 0 <= min <= max, got {temperature_min} and "
            f"{temperature_max}"
        )
    if not bool(((temperature >= 0.0) & (temperature < math.inf)).all()):
        raise ValueError("temperature must be in [0, inf) in every row, NaN is not allowed; 0 means greedy")
    if target is not None and bool((target < 0.0).any()):
        raise ValueError("target_entropy_nats must be at least 0, or NaN to use the given temperature")
    if min_p is not None and bool(((min_p < 0.0) | (min_p > 1.0)).any()):
        raise ValueError("min_p must be in [0, 1], or NaN for none")
    if top_h is not None and bool(((top_h <= 0.0) | (top_h > 1.0)).any()):
        raise ValueError("top_h must be in (0, 1], or NaN for none")


def check_topk(k: int, n: int) -> int:
    """k clamped to n; below 1 is refused."""
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}; use k = n = {n} for the exact entropy")
    return min(int(k), n)


def check_keep_rules(score_shape, mass_shape, num_blocks, rule, mass_budget, frac, sinks, recent) -> None:
    """Refuse numbers of `keep_blocks` outside their range; arrays may be NumPy or torch (on the CPU)."""
    if tuple(score_shape) != tuple(mass_shape):
        raise ValueError(f"score and mass must have one shape, got {list(score_shape)} and {list(mass_shape)}")
    if bool(((num_blocks < 0) | (num_blocks > score_shape[1])).any()):
        raise ValueError(f"num_blocks must be in [0, max_blocks] = [0, {score_shape[1]}]")
    if bool(((rule < KEEP_ALL) | (rule > KEEP_WINDOW)).any()):
        raise ValueError(
            "keep_blocks knows the rules ALL, LEAST_MASS, TOP_BLOCKS, WINDOW; rules that need keys are ops"
        )
    if not bool(((mass_budget >= 0.0) & (mass_budget < 1.0))[rule == KEEP_LEAST_MASS].all()):
        raise ValueError("mass_budget must be in [0, 1) in every LEAST_MASS row")
    if not bool(((frac > 0.0) & (frac <= 1.0))[rule == KEEP_TOP_BLOCKS].all()):
        raise ValueError("block_budget_frac must be in (0, 1] in every TOP_BLOCKS row")
    if bool(((sinks < 0) | (recent < 0)).any()):
        raise ValueError("sink_blocks and recent_blocks must be at least 0")


def check_reveal(rank_shape, cost, masked, budget, min_count, max_count) -> None:
    """Refuse numbers of `reveal_prefix` outside their range.

    The law: masked positions are taken in rising `rank` (ties by index) while their summed cost is at most `budget`;
    the position that crosses it is taken too where `include_crossing`. At least `min_count` and at most `max_count`
    positions are taken, and never more than are masked.
    """
    if not (tuple(rank_shape) == tuple(cost.shape) == tuple(masked.shape)):
        raise ValueError("rank, cost and masked must have one shape [rows, length]")
    if not bool((budget >= 0.0).all()):
        raise ValueError("budget must be in [0, inf] in every row, NaN is not allowed")
    if not bool(((cost >= 0.0) | ~masked).all()):
        raise ValueError(
            "cost must be at least 0 at masked positions, NaN is not allowed; inf is never within a budget"
        )
    if bool((min_count < 1).any()) or bool((max_count < min_count).any()):
        raise ValueError("counts must satisfy 1 <= min_count <= max_count")
