"""The table of metrics: a name, what it is called on the page, its unit, which way is better, and its function.

A new metric is one row here. `better` is how a verdict reads a change: "lower", "higher", or "neither" for what a
controller does on purpose (a mechanism, not an outcome).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from workbench.metrics import entropic, latency, service
from workbench.metrics.figure import Value
from workbench.metrics.records import Records

Better = Literal["lower", "higher", "neither"]


@dataclass(frozen=True)
class Metric:
    name: str
    label: str
    unit: str
    better: Better
    group: str
    compute: Callable[[Records], Value]
    tail_q: float | None = None  # a quantile this far out needs 1 / (1 - q) requests to be resolved; 1 is a maximum
    least: float | None = 0.0  # no value lies below it, so no interval reaches below it

    @property
    def most(self) -> float | None:
        return 1.0 if self.unit.startswith("share") else None


def _quantiles(prefix: str, label: str, of: Callable[..., Value], better: Better = "lower") -> tuple[Metric, ...]:
    rows = [Metric(f"{prefix}_mean_s", f"{label} mean", "s", better, prefix, partial(of, q=None))]
    for q in (0.5, 0.9, 0.99):
        p = round(100 * q)
        rows.append(Metric(f"{prefix}_p{p}_s", f"{label} p{p}", "s", better, prefix, partial(of, q=q), tail_q=q))
    return tuple(rows)


METRICS: tuple[Metric, ...] = (
    *_quantiles("ttft", "TTFT", latency.ttft),
    *_quantiles("tpot", "TPOT", latency.tpot),
    *_quantiles("e2e", "End-to-end", latency.e2e),
    *_quantiles("itl", "ITL", latency.itl),
    *_quantiles("queue_wait", "Queue wait", latency.queue_wait),
    Metric("offered_per_s", "Offered", "requests/s", "neither", "service", service.offered_per_s),
    Metric("output_tokens_per_s", "Output", "tokens/s", "higher", "service", service.output_tokens_per_s),
    Metric("requests_per_s", "Throughput", "requests/s", "higher", "service", service.requests_per_s),
    Metric("goodput_per_s", "Goodput", "requests/s", "higher", "service", service.goodput_per_s),
    Metric("goodput_frac", "Inside SLO", "share", "higher", "service", service.goodput_frac),
    Metric("completed_frac", "Completed", "share", "higher", "service", service.completed_frac),
    Metric("refused_frac", "Refused", "share", "lower", "service", service.refused_frac),
    Metric("timed_out_frac", "Timed out", "share", "lower", "service", service.timed_out_frac),
    Metric("cancelled_frac", "Cancelled", "share", "neither", "service", service.cancelled_frac),
    Metric("wasted_tokens_frac", "Tokens for nobody", "share", "lower", "service", service.wasted_tokens_frac),
    Metric("preemptions_per_request", "Preemptions", "per request", "lower", "queue", service.preemptions_per_request),
    Metric("waiting_mean", "Waiting", "requests", "lower", "queue", service.waiting_mean),
    Metric("waiting_share", "Time with a queue", "share", "lower", "queue", service.waiting_share),
    Metric("running_mean", "Running", "requests", "neither", "queue", service.running_mean),
    Metric("kv_used_peak_frac", "KV peak", "share", "neither", "queue", service.kv_used_peak_frac, tail_q=1.0),
    Metric("prefix_hit_frac", "Prefix hits", "share of prompt", "higher", "memory", service.prefix_hit_frac),
    Metric("recomputed_frac", "Recomputed", "share of tokens", "lower", "memory", service.recomputed_frac),
    Metric("swaps_per_request", "Swaps", "per request", "neither", "memory", service.swaps_per_request),
    Metric("busy_frac", "Busy", "share", "neither", "replicas", service.busy_frac),
    Metric("busy_least_frac", "Least busy", "share", "neither", "replicas", service.busy_least_frac),
    Metric("busy_most_frac", "Most busy", "share", "neither", "replicas", service.busy_most_frac),
    Metric(
        "outside_table_frac", "Beyond the step table", "share of steps", "neither", "work", service.outside_table_frac
    ),
    Metric("retries_per_request", "Retries", "per request", "lower", "replicas", service.retries_per_request),
    Metric("tau_nats", "tau", "nats/request", "neither", "tau", entropic.tau_nats),
    Metric("net_drop_nats", "Net drop", "nats/request", "neither", "tau", entropic.net_drop_nats, least=None),
    Metric("total_variation_nats", "TV", "nats/request", "neither", "tau", entropic.total_variation_nats),
    Metric("tau_per_tflop", "dtau/dC", "nats/TFLOP", "neither", "rate", entropic.tau_per_tflop),
    Metric("tau_per_kv_gb", "dtau/dC", "nats/GB of KV", "neither", "rate", entropic.tau_per_kv_gb),
    Metric("tau_per_busy_s", "dtau/dC", "nats/busy s", "neither", "rate", entropic.tau_per_busy_s),
    Metric("tau_per_j", "dtau/dC", "nats/J", "neither", "rate", entropic.tau_per_j),
    Metric("kv_read_frac", "KV bytes read", "share of dense", "neither", "work", entropic.kv_read_frac),
    Metric("kv_gb_per_request", "KV bytes read", "GB/request", "neither", "work", entropic.kv_gb_per_request),
    Metric("energy_per_token_j", "Energy", "J/token", "lower", "work", entropic.energy_per_token_j),
    Metric("entropy_mean_nats", "H", "nats", "neither", "entropy", entropic.entropy_mean_nats),
    Metric("entropy_error_nats", "|H − H*|", "nats", "neither", "entropy", entropic.entropy_error_nats),
    Metric("temperature_mean", "T", "", "neither", "entropy", entropic.temperature_mean),
    Metric("nll_nats", "NLL at T = 1", "nats/token", "lower", "quality", entropic.nll_nats),
    Metric("dropped_mass", "Dropped mass", "share", "neither", "quality", entropic.dropped_mass),
    Metric("passes_per_request", "Passes", "per request", "lower", "diffusion", service.passes_per_request),
    Metric("positions_per_pass", "Revealed", "positions/pass", "higher", "diffusion", service.positions_per_pass),
    Metric("accuracy_frac", "Right answers", "share", "higher", "quality", service.accuracy_frac),
)

NAMES: tuple[str, ...] = tuple(metric.name for metric in METRICS)
INDEX: dict[str, int] = {name: k for k, name in enumerate(NAMES)}
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
