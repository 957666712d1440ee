"""The requests of a scenario: from a trace, from ServeGen's client statistics, or from a generator; and what it asks of them.

    source -> arrival times (recorded, Poisson, gamma, Markov-modulated) -> caps, cancellations, common beginnings

All draws are Philox of (seed, stream, request), so that every arm sees the same requests.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from kernels.philox import uniform, uniform_fine
from sims import streams
from sims.arrivals import (
    KindMix,
    azure_like,
    gamma_arrivals,
    modulated_arrivals,
    poisson_arrivals,
    requests_at,
    requests_from_trace,
)
from sims.calibration import Calibration
from sims.servegen import read_servegen
from sims.traces import Trace, read_trace
from workbench.engine.config import EngineConfig
from workbench.engine.prompt_blocks import PromptBlocks, blocks_of_groups, blocks_of_hashes
from workbench.engine.requests import RequestSpec
from workbench.errors import InputError
from workbench.scenario import Workload
from workbench.signals import FloatArray


def build_requests(
    workload: Workload, calibration: Calibration, seed: int, caching: EngineConfig | None = None
) -> tuple[RequestSpec, dict[str, Any]]:
    """The requests, and notes on where they come from. `caching`: the engine, where it shares prefixes."""
    kinds = calibration.kinds
    if workload.length_coupling is not None:
        kinds = replace(kinds, length_coupling=workload.length_coupling)
    notes: dict[str, Any] = {}
    trace = None
    if workload.trace is not None:
        if workload.trace.is_dir():
            trace = read_servegen(workload.trace, workload.first_request + workload.num_requests, seed)
        else:
            trace = read_trace(workload.trace, format=workload.trace_format)
        spec = requests_from_trace(
            trace, first=workload.first_request, count=workload.num_requests, rate_multiplier=workload.rate_multiplier,
            rate_per_s=workload.rate_per_s, kinds=kinds, seed=seed,
        )  # fmt: skip
        notes["workload"] = (
            f"{trace.summary()}; requests {workload.first_request} to {workload.first_request + len(spec)}"
        )
        notes["workload_notes"] = list(trace.notes)
    else:
        spec = azure_like(
            workload.generator, workload.num_requests, rate_multiplier=workload.rate_multiplier,
            rate_per_s=workload.rate_per_s, kinds=kinds, seed=seed,
        )  # fmt: skip
        notes["workload"] = (
            f"no trace given: {len(spec)} requests drawn from the published statistics of {workload.generator}"
        )
    if workload.arrivals != "trace":
        spec, notes["arrivals"] = _made_arrivals(spec, workload, kinds, seed)
    if workload.max_tokens is not None:
        spec = replace(spec, output_tokens=np.minimum(spec.output_tokens, workload.max_tokens))
    if workload.cancel_frac > 0.0:
        spec = replace(spec, cancel_s=cancellations(spec.arrival_s, workload, seed))
        notes["cancellations"] = (
            f"{workload.cancel_frac:.0%} of clients go away, {workload.cancel_mean_s:g} s after their request on average"
        )
    if caching is not None:
        spec = replace(spec, prompt_blocks=_prompt_blocks(spec, trace, workload, caching.block_size, seed))
    return spec, notes


def _made_arrivals(spec: RequestSpec, workload: Workload, kinds: KindMix, seed: int) -> tuple[RequestSpec, str]:
    count = len(spec)
    rate = workload.rate_per_s or (count - 1) / max(float(spec.arrival_s[-1]), 1e-9) / workload.rate_multiplier
    rate *= workload.rate_multiplier
    if workload.arrivals == "poisson":
        times, how = poisson_arrivals(count, rate, seed), "poisson"
    elif workload.arrivals == "gamma":
        times, how = gamma_arrivals(count, rate, workload.gap_cv, seed), f"gamma (cv {workload.gap_cv:g})"
    else:
        low = 2.0 * rate / (1.0 + workload.rate_spread)
        rates = (low, low * workload.rate_spread)
        times = modulated_arrivals(count, rates, workload.dwell_s, seed)
        how = f"modulated ({rates[0]:.3g} and {rates[1]:.3g}/s, {workload.dwell_s:g} s each on average)"
    made = requests_at(times, spec.prompt_tokens, spec.output_tokens, kinds=kinds, seed=seed)
    return made, f"{how} at {rate:.4g} requests/s instead of the recorded times"


def cancellations(arrival_s: FloatArray, workload: Workload, seed: int) -> FloatArray:
    """[num_requests] when each client goes away, inf for never."""
    index = np.arange(arrival_s.size)
    goes = uniform(seed, streams.CANCEL, index, 0) < workload.cancel_frac
    after_s = -workload.cancel_mean_s * np.log1p(-uniform_fine(seed, streams.CANCEL, index, 1))
    return np.where(goes, arrival_s + after_s, np.inf)


def _prompt_blocks(
    spec: RequestSpec, trace: Trace | None, workload: Workload, block_size: int, seed: int
) -> PromptBlocks | None:
    if trace is not None and trace.hash_offset is not None and trace.hash_id is not None:
        first, last = workload.first_request, workload.first_request + len(spec)
        offset = trace.hash_offset[first : last + 1]
        ids = trace.hash_id[offset[0] : offset[-1]]
        return blocks_of_hashes(offset - offset[0], ids, spec.prompt_tokens, trace.prefix_block_tokens, block_size)
    if workload.prefix_tokens == 0:
        return None
    if workload.prefix_tokens < block_size:
        raise InputError(
            f"workload.prefix_tokens must be at least a KV block ({block_size} tokens) to be shared, got "
            f"{workload.prefix_tokens}"
        )
    group = (uniform(seed, streams.PREFIX, np.arange(len(spec)), 0) * workload.num_prefixes).astype(np.int64)
    return blocks_of_groups(group, workload.prefix_tokens, spec.prompt_tokens, workload.num_prefixes, block_size)
