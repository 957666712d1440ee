"""The simulated factorial on an H100 with Llama-3-8B under the Mooncake conversation trace: prompts of 12,035 tokens on average.

The shape is that of Llama-3-8B with a context of 131,072 tokens (Llama 3.1 has that shape and that context); prompts
that begin alike share their KV blocks, as the trace's hashes say. All KV memory: prompts of this length fill it.
"""

from collections.abc import Mapping
from pathlib import Path

from workbench.claims.claim import Measured
from workbench.claims.not_at_hand import NotAtHand
from workbench.claims.setting import Setting
from workbench.claims.simulated import Case, measure_case
from workbench.main_job import find_data

TRACE = Path("data/traces/mooncake/conversation_trace.jsonl")
CONTEXT_TOKENS = 131_072


def case() -> Case:
    trace = find_data(TRACE)
    if trace is None:
        raise NotAtHand(f"the Mooncake conversation trace, as {TRACE} in the folder that $ENTROPIC_DATA names")
    return Case(
        name="H100, Llama-3-8B, Mooncake conversation",
        trace=trace,
        num_rows=12_031,  # up to 28 share a time: a slice must be longer, or it has no rate
        requests=(32, 40),
        seeds=(4, 6),
        cells=((("ample", 1.2),), (("ample", 0.6), ("ample", 0.95), ("ample", 1.2))),
        engine={"max_context_tokens": CONTEXT_TOKENS, "prefix_caching": True},
    )


def measure(setting: Setting) -> Mapping[str, Measured]:
    return measure_case(case(), setting)
