"""The Triton ops as one table for `kernels.dispatch`; what is not here (keep rules, linears, certificates) stays torch."""

from collections.abc import Callable
from typing import Any

import triton

from kernels import axis_sketch, block_bounds, chunk_attention, logit_stats, paged_attention
from kernels.gelu import gelu
from kernels.kv_write import kv_write
from kernels.layer_norm import layer_norm
from kernels.reveal_prefix import reveal_prefix
from kernels.rms_norm import rms_norm
from kernels.rotary import rotary
from kernels.swiglu import swiglu
from kernels.topk_entropy import topk_entropy

OPS: dict[str, Callable[..., Any]] = {
    "logit_stats": logit_stats.logit_stats,
    "topk_entropy": topk_entropy,
    "paged_attention": paged_attention.paged_attention,
    "chunk_attention": chunk_attention.chunk_attention,
    "kv_write": kv_write,
    "rms_norm": rms_norm,
    "layer_norm": layer_norm,
    "rotary": rotary,
    "swiglu": swiglu,
    "gelu": gelu,
    "reveal_prefix": reveal_prefix,
    "update_key_bounds": block_bounds.update_key_bounds,
    "score_upper_bound": block_bounds.score_upper_bound,
    "sketch_sums": axis_sketch.sketch_sums,
}


def implementation() -> str:
    """What runs: "triton" or, where TRITON_INTERPRET was set at import, "triton interpreter"."""
    return "triton" if isinstance(logit_stats.scan_kernel, triton.JITFunction) else "triton interpreter"
