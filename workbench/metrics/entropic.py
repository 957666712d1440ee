"""Entropic time and what it cost, entropy against its target, quality, and the bytes and joules behind them.

    tau = (net drop + TV) / 2                    so tau is shown beside net drop and TV, never alone
    dtau/dC = sum tau / sum C                    C in FLOPs, KV bytes read, busy seconds, joules
    tracking error = mean |H - H*|               per request, weighted by its tokens
    NLL = sum -ln p(token) / tokens              p raw: T = 1, no truncation
    KV read share = bytes read / bytes of reading every block

Source: tau, arXiv 2603.03310; the identity and the rest ours.
"""

import numpy as np

from workbench.metrics.figure import Undefined, Value, mean, ratio
from workbench.metrics.records import Records
from workbench.signals import FloatArray

NO_TAU = "entropic time is not in the record"


def tau_nats(records: Records) -> Value:
    return mean(records.request("tau_nats"), NO_TAU)


def net_drop_nats(records: Records) -> Value:
    return mean(records.request("net_drop_nats"), NO_TAU)


def total_variation_nats(records: Records) -> Value:
    return mean(records.request("total_variation_nats"), NO_TAU)


def _tau_per(records: Records, cost: FloatArray, scale: float, reason: str) -> Value:
    tau = records.served.request("tau_nats")
    if np.isnan(tau).all():
        return Undefined(NO_TAU)
    return ratio(float(np.nansum(tau)), float(total(cost)) / scale, reason)


def tau_per_tflop(records: Records) -> Value:
    return _tau_per(records, records.step("flops"), 1e12, "FLOPs are not in the record")


def tau_per_kv_gb(records: Records) -> Value:
    return _tau_per(records, records.step("kv_bytes_read"), 1e9, "no KV byte was read")


def tau_per_busy_s(records: Records) -> Value:
    return _tau_per(records, records.step("elapsed_s"), 1.0, "no step took time")


def tau_per_j(records: Records) -> Value:
    return _tau_per(records, records.step("energy_j"), 1.0, "no power model")


def kv_read_frac(records: Records) -> Value:
    read, dense = total(records.step("kv_bytes_read")), total(records.step("kv_bytes_dense"))
    return ratio(read, dense, "no KV byte to read in the record")


def kv_gb_per_request(records: Records) -> Value:
    return ratio(total(records.step("kv_bytes_read")) / 1e9, records.served.num_requests, "no request completed")


def energy_per_token_j(records: Records) -> Value:
    energy = total(records.step("energy_j"))
    if np.isnan(energy):
        return Undefined("no power model")
    return ratio(energy, float(np.nansum(records.served.request("output_tokens"))), "no token was produced")


def entropy_error_nats(records: Records) -> Value:
    return _per_token(records, records.request("entropy_error_nats"), "no target entropy, or no token measured")


def nll_nats(records: Records) -> Value:
    tokens = records.request("output_tokens")
    with np.errstate(invalid="ignore", divide="ignore"):
        per_token = records.request("nll_raw_nats") / tokens
    return _per_token(records, per_token, "raw log-probabilities are not in the record")


def dropped_mass(records: Records) -> Value:
    return mean(records.request("dropped_mass_mean"), "attention mass is not in the record")


def entropy_mean_nats(records: Records) -> Value:
    return _over_tokens(records, "entropy_mean_nats")


def temperature_mean(records: Records) -> Value:
    return _over_tokens(records, "temperature_mean")


def _per_token(records: Records, values: FloatArray, reason: str) -> Value:
    """Mean over completed requests, each weighted by its output tokens."""
    weight = records.request("output_tokens")
    known = records.completed & np.isfinite(values) & (weight > 0)
    return ratio(float((values[known] * weight[known]).sum()), float(weight[known].sum()), reason)


def _over_tokens(records: Records, name: str) -> Value:
    """Mean of a per-step mean, each step weighted by the tokens it drew."""
    values, weight = records.step(name), records.step("num_sampled" if "num_sampled" in records.steps else "num_decode")
    known = ~np.isnan(values) & (weight > 0)
    return ratio(float((values[known] * weight[known]).sum()), float(weight[known].sum()), f"no step reports {name}")


def total(values: FloatArray) -> float:
    """Sum of the measured values; NaN where nothing was measured (a sum of nothing is not zero cost)."""
    return float(np.nansum(values)) if (~np.isnan(values)).any() else float("nan")
