"""Arms of one factorial compared pair by pair: the same requests and draws under each, so that every seed is one replicate.

A gain is exp(mean ln(arm / baseline)) - 1, oriented so that more is better and told as a share of the baseline. With g_c the
log gain of arm c and x_j = +1 where controller j is on, -1 where it is off,

    effect_S      = mean of g over arms with S - mean over arms without          main effect
    effect_SxT    = mean over arms of g x_S x_T, times 2                           interaction; 0 where gains multiply
    excess_log    = g_STP - (g_S + g_T + g_P)                                    multiplicative null
    excess_add    = the same with gains instead of their logarithms              additive null
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from workbench.claims.claim import Measured
from workbench.claims.interval import over_seeds
from workbench.metrics.arm import ARM_CODES, BASELINE, CONTROLLERS
from workbench.metrics.figure import Undefined, Value
from workbench.metrics.leaf import Cell, Leaf
from workbench.metrics.records import Records
from workbench.metrics.table import BY_NAME
from workbench.record import read_manifest
from workbench.signals import FloatArray

# name of the gain: (metric, +1 higher is better, -1 lower is better)
GAINS = {
    "latency": ("e2e_mean_s", -1),
    "throughput": ("output_tokens_per_s", +1),
    "tau_per_busy_s": ("tau_per_busy_s", +1),
    "tau_per_tflop": ("tau_per_tflop", +1),
    "tau_per_kv_gb": ("tau_per_kv_gb", +1),
    "tau_per_j": ("tau_per_j", +1),
    "kv_bytes": ("kv_gb_per_request", -1),
    "energy": ("energy_per_token_j", -1),
    "entropy_error": ("entropy_error_nats", -1),
}
TOLD = ("latency", "throughput", "tau_per_busy_s")  # whose effects and interactions are told
EFFECTS = tuple("x".join(letters) for n in (1, 2, 3) for letters in combinations(CONTROLLERS, n))
Values = Mapping[str, FloatArray]  # arm code -> [seeds, GAINS]


def records_of(directory: Path) -> Records:
    leaf = Leaf(directory, Cell("sim", None, None), BASELINE, 0, read_manifest(directory))
    return leaf.records(with_token_times=False)


def number(value: Value) -> float:
    return np.nan if isinstance(value, Undefined) else float(value)


def arm_values(records: Records) -> FloatArray:
    """The metrics of GAINS, NaN where undefined."""
    return np.array([number(BY_NAME[metric].compute(records)) for metric, _ in GAINS.values()])


def value_of(records: Records, metric: str) -> float:
    return number(BY_NAME[metric].compute(records))


def log_gains(values: Values, name: str) -> dict[str, FloatArray]:
    """ln of the gain over the baseline, [seeds] of every other arm; above 0 is better."""
    m, sign = list(GAINS).index(name), GAINS[name][1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            c: sign * (np.log(x[:, m]) - np.log(values[BASELINE][:, m])) for c, x in values.items() if c != BASELINE
        }


def gains(values: Values, names: Sequence[str] = tuple(GAINS)) -> dict[str, Measured]:
    """ARM_NAME of every arm, as a share of the baseline. What no record holds (joules of a live run) is left out."""
    found = {}
    for name in names:
        sign = GAINS[name][1]
        for code, x in log_gains(values, name).items():
            if not np.isnan(x).all():
                # A fall is told as a share of the baseline, a rise likewise.
                found[f"{code}_{name}"] = over_seeds(x, lambda v, s=sign: float(s * np.expm1(s * v)))
    return found


def excesses(values: Values, names: Sequence[str] = TOLD) -> dict[str, Measured]:
    """excess_log_NAME and excess_add_NAME: the whole beyond its parts under the two nulls."""
    found = {}
    for name in names:
        logs, sign = log_gains(values, name), GAINS[name][1]
        if not {"S", "T", "P", "STP"} <= logs.keys():
            continue
        found[f"excess_log_{name}"] = over_seeds(logs["STP"] - np.sum([logs[c] for c in "STP"], axis=0))
        shares = {code: sign * np.expm1(sign * x) for code, x in logs.items()}
        found[f"excess_add_{name}"] = over_seeds(shares["STP"] - np.sum([shares[c] for c in "STP"], axis=0))
    return found


def effects(values: Values, names: Sequence[str] = TOLD) -> dict[str, Measured]:
    """effect_SxT_NAME of every main effect and interaction, in ln; empty unless all eight arms ran."""
    found = {}
    if set(values) != set(ARM_CODES):
        return found
    for name in names:
        logs = {BASELINE: np.zeros(len(values[BASELINE]))} | log_gains(values, name)
        for effect in EFFECTS:
            letters = effect.split("x")
            signs = {code: np.prod([1.0 if letter in code else -1.0 for letter in letters]) for code in ARM_CODES}
            found[f"effect_{effect}_{name}"] = over_seeds(np.sum([signs[c] * logs[c] for c in ARM_CODES], axis=0) / 4.0)
    return found


def quantities(values: Values) -> dict[str, Measured]:
    """Everything above."""
    return gains(values) | excesses(values) | effects(values)
