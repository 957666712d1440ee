"""The event engine reduced to textbook queues, and their closed forms.

A request of p prompt tokens and one output token is one engine step of p q seconds when a batch holds one row and the step
cost is q a token. So arrivals, order, batching, clock and ledger are those of every other run, while the mean sojourn is
known exactly: M/M/1, M/D/1, M/G/1 (Pollaczek-Khinchine), nonpreemptive priorities (Cobham), SRPT (Schrage and Miller). Several
replicas that hold one request each are M/M/k behind a central queue, k queues M/M/1 behind an even draw, and GI/M/1 behind a
round robin. A queue limit makes M/M/1/K, a TTFT timeout M/M/1+D.
Service times are rounded to multiples of q (1 / 2,000 of the mean): the closed forms use the mean and second moment
of the rounded times, so there is no bias of discretisation.
Source: Kleinrock, Queueing Systems (1975, 1976); Schrage and Miller, Operations Research 14 (1966); for M/M/1+D Barrer,
Operations Research 5 (1957).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import t as student

from kernels.philox import uniform_fine
from sims import streams
from sims.arrivals import poisson_arrivals
from sims.clock import SimClock
from sims.entropy_process import EntropyProcess, KindLaw
from sims.executor import SimExecutor
from sims.fleet import Fleet
from sims.leap import can_leap, leap_through
from sims.step_cost import StepCost
from workbench.engine.config import EngineConfig
from workbench.engine.plant import EnginePlant
from workbench.engine.requests import RequestLedger, RequestSpec
from workbench.errors import InputError
from workbench.loop import close_loop
from workbench.protocols import Controllers
from workbench.signals import FloatArray, IntArray

TOKENS_PER_MEAN = 2000  # a mean service time in tokens
MAX_TOKENS = 1 << 24


def service_tokens(name: str, count: int, seed: int) -> IntArray:
    """Service times in tokens of mean `TOKENS_PER_MEAN`: "deterministic", "exponential" or "hyperexponential" (cv^2 = 4)."""
    u = uniform_fine(seed, streams.LENGTH, np.arange(count), 0)
    if name == "deterministic":
        return np.full(count, TOKENS_PER_MEAN, np.int64)
    if name == "exponential":
        time = -np.log1p(-u)
    elif name == "hyperexponential":
        # Two exponentials with balanced means and squared coefficient of variation 4.
        p = 0.5 * (1.0 + np.sqrt(3.0 / 5.0))
        first = uniform_fine(seed, streams.LENGTH, np.arange(count), 1) < p
        time = -np.log1p(-u) / np.where(first, 2.0 * p, 2.0 * (1.0 - p))
    else:
        raise InputError(f"service must be deterministic, exponential or hyperexponential, got {name!r}")
    return np.clip(np.ceil(time * TOKENS_PER_MEAN), 1, MAX_TOKENS).astype(np.int64)


@dataclass(frozen=True)
class QueueRun:
    """Sojourn times [n] in units of the mean service, in order of arrival, and the moments that were really used.

    Sojourns of requests that were not served are NaN.
    """

    sojourn: FloatArray
    service: FloatArray
    priority: IntArray
    load: float
    ledger: RequestLedger

    @property
    def wait(self) -> FloatArray:
        """Time before service."""
        return self.sojourn - self.service


def run_queue(
    *, service: str, load: float, count: int, seed: int, controllers: Controllers | None = None,
    num_classes: int = 1, pieces: int = 1, servers: int = 1, dispatcher: str = "central-queue", **engine: Any,
) -> QueueRun:  # fmt: skip
    """`servers` at `load` each. Unit of time: the mean service. `pieces` > 1: service in so many steps, so that a controller
    can preempt between them (each request then has its service in whole steps of 1 / pieces). `engine`: further settings of
    it; with one that turns requests away the load may be 1 and more."""
    if not 0.0 < load < (np.inf if engine else 1.0):
        raise InputError(f"load must be in (0, 1), got {load}")
    tokens = service_tokens(service, count, seed)
    if pieces > 1:
        output = np.maximum(np.rint(tokens * pieces / TOKENS_PER_MEAN), 1.0).astype(np.int64)
        prompt, per_step, unit = np.ones(count, np.int64), 1.0 / pieces, output / pieces
        dense = np.array([0.0, per_step])
    else:
        output, prompt = np.ones(count, np.int64), tokens
        unit, dense = tokens / TOKENS_PER_MEAN, np.array([0.0, 1.0 / TOKENS_PER_MEAN])
    arrival = poisson_arrivals(count, servers * load / float(unit.mean()), seed)
    share = np.linspace(0.0, 1.0, num_classes + 1)[1:-1]
    priority = np.searchsorted(share, uniform_fine(seed, streams.KIND, np.arange(count), 0)).astype(np.int64)
    requests = RequestSpec(
        arrival_s=arrival, prompt_tokens=prompt, output_tokens=output, kind=np.zeros(count, np.int64), priority=priority
    )
    zero = np.zeros(2)
    cost = StepCost(
        name="one server", dense_s=dense, output_s=zero, host_s=0.0, row_s=0.0, kv_s_per_token=0.0, pair_s=0.0,
        dense_flop_per_token=0.0, output_flop_per_sample=0.0, attention_flop_per_pair=0.0, weight_bytes=0.0,
        kv_bytes_per_token=0.0,
    )  # fmt: skip
    process = EntropyProcess(vocab=2, laws=(KindLaw(name="any", shapes=np.zeros((1, 3))),))
    longest = int((prompt + output).max())
    config = EngineConfig(
        num_blocks=4096, block_size=longest, max_context_tokens=longest, max_running=1, token_budget=longest,
        max_chunk_tokens=longest, num_slots=256 if servers == 1 else 4, watermark_frac=0.0, preemption_quantum_tokens=0,
        **engine,
    )  # fmt: skip
    points = controllers or {}
    if servers > 1:
        executors = [SimExecutor(cost, process, ("any",)) for _ in range(servers)]
        plant = Fleet(requests, executors, config, dispatcher, controlled=frozenset(points), window_steps=0, seed=seed)
    else:
        plant = EnginePlant(requests, SimExecutor(cost, process, ("any",)), SimClock(), config, frozenset(points), 0)
        if can_leap(plant):
            plant.leap, plant.telemetry.keeps_steps = leap_through, False
    close_loop(plant, points, _NoRecord())
    return QueueRun(plant.ledger.finished_s - arrival, unit, priority, load, plant.ledger)


class _NoRecord:
    def decision(self, observation: object, action: object, applied: object) -> None:
        pass


# Closed forms: mean sojourn in units of the mean service, for service times as they were drawn.


def single_server_sojourn(run: QueueRun) -> float:
    """Pollaczek-Khinchine: E[T] = E[S] + lambda E[S^2] / (2 (1 - rho)); M/M/1 and M/D/1 are special cases."""
    mean, second = run.service.mean(), np.mean(run.service**2)
    rate = run.load / mean
    return float(mean + rate * second / (2.0 * (1.0 - run.load)))


def priority_sojourns(run: QueueRun) -> FloatArray:
    """Cobham: class k waits R / ((1 - sigma_{k-1}) (1 - sigma_k)), R = lambda E[S^2] / 2, nonpreemptive, 0 first."""
    rate = run.load / run.service.mean()
    rest = 0.5 * rate * np.mean(run.service**2)
    classes = np.arange(run.priority.max() + 1)
    loads = np.array([rate * np.sum(run.service[run.priority == k]) / run.service.size for k in classes])
    sigma = np.concatenate([[0.0], np.cumsum(loads)])
    means = np.array([run.service[run.priority == k].mean() for k in classes])
    return means + rest / ((1.0 - sigma[:-1]) * (1.0 - sigma[1:]))


def srpt_sojourn(run: QueueRun) -> float:
    """Schrage and Miller over the drawn (discrete) sizes: a request of size x waits
    lambda (m2(x) + x^2 P(S > x)) / (2 (1 - rho(x))^2) and then takes the integral of dt / (1 - rho(t)) from 0 to x,
    with m2 and rho the second moment and load of sizes up to x. Ties of size share x half and half."""
    rate = run.load / run.service.mean()
    sizes, counts = np.unique(run.service, return_counts=True)
    share = counts / run.service.size
    below_load = rate * np.concatenate([[0.0], np.cumsum(share * sizes)])
    below_second = np.concatenate([[0.0], np.cumsum(share * sizes**2)])
    above = 1.0 - np.cumsum(share)
    # The distribution jumps at its sizes: take the mean of the law before and after the jump.
    waits = []
    for load, second, tail in (
        (below_load[:-1], below_second[:-1], above + share),
        (below_load[1:], below_second[1:], above),
    ):
        waits.append(rate * (second + sizes**2 * tail) / (2.0 * (1.0 - load) ** 2))
    steps = np.diff(np.concatenate([[0.0], sizes]))
    residence = np.cumsum(steps / (1.0 - below_load[:-1]))
    return float(np.sum(share * (0.5 * (waits[0] + waits[1]) + residence)))


def erlang_sojourn(load: float, servers: int) -> float:
    """M/M/k, unit mean service, load per server: E[T] = 1 + C(k, k load) / (k (1 - load)) with Erlang's C."""
    offered = load * servers
    term, total = 1.0, 1.0
    for i in range(1, servers):
        term *= offered / i
        total += term
    last = term * offered / servers / (1.0 - load)
    return 1.0 + last / (total + last) / (servers * (1.0 - load))


def round_robin_sojourn(load: float, servers: int) -> float:
    """Poisson arrivals dealt in turn to k servers: each is E_k/M/1, unit mean service. E[T] = 1 / (1 - s), with s in (0, 1)
    the root of s = (k load / (k load + 1 - s))^k, the transform of k exponential gaps."""
    rate = servers * load
    root = brentq(lambda s: s - (rate / (rate + 1.0 - s)) ** servers, 0.0, 1.0 - 1e-9)
    return 1.0 / (1.0 - float(root))


def finite_queue_loss(load: float, places: int) -> float:
    """M/M/1/K: share of arrivals that find all K places (the server's included) taken."""
    return 1.0 / (places + 1) if load == 1.0 else (1.0 - load) * load**places / (1.0 - load ** (places + 1))


def impatient_loss(load: float, patience: float) -> float:
    """M/M/1 whose customers leave unserved after waiting `patience` mean services: share that does (Barrer)."""
    if load == 1.0:
        return 1.0 / (2.0 + patience)
    decay = np.exp(-(1.0 - load) * patience)
    return float((1.0 - load) * load * decay / (1.0 - load**2 * decay))


@dataclass(frozen=True)
class BatchMeans:
    """Mean of a correlated series with a confidence interval from `batches` batch means, the start left out."""

    mean: float
    half_width: float

    def covers(self, value: float) -> bool:
        return abs(value - self.mean) <= self.half_width


def batch_means(
    series: FloatArray | Sequence[FloatArray], *, confidence: float = 0.99, batches: int = 30, warm_up: float = 0.02
) -> BatchMeans:
    """Student's interval from batch means: `batches` a run, the first `warm_up` share of it left out.

    `series` [n]: one run, or several independent ones of one length, whose batches are put together. Source: Law, Simulation
    Modeling and Analysis (2015), 9.5.
    """
    means = []
    for one in [series] if isinstance(series, np.ndarray) else series:
        values = one[int(warm_up * one.size) :]
        size = values.size // batches
        means.append(values[: size * batches].reshape(batches, size).mean(axis=1))
    every = np.concatenate(means)
    spread = every.std(ddof=1) / np.sqrt(every.size)
    return BatchMeans(float(every.mean()), float(student.ppf(0.5 + confidence / 2.0, every.size - 1) * spread))
