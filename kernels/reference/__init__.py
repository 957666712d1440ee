"""Torch twins: one of each op, in the plainest tensor code that is still reasonably fast. What every kernel is held to.

They run on any device, need no compiler, and are the `torch` backend of `kernels.dispatch`.
"""

from kernels.laws import LogitStats, TopkEntropy
from kernels.reference.attention import AttentionOutput, chunk_attention, kv_write, paged_attention
from kernels.reference.axis_sketch import sketch_sums
from kernels.reference.bounds import (
    KeyBounds,
    KeySketch,
    block_log_sums,
    empty_key_bounds,
    empty_key_sketch,
    score_upper_bound,
    update_key_bounds,
)
from kernels.reference.layers import gelu, layer_norm, linear, linear_prepack, rms_norm, rotary, swiglu
from kernels.reference.logit_stats import logit_stats, philox_uniform
from kernels.reference.selection import keep_blocks, reveal_prefix, topk_entropy

__all__ = [
    "AttentionOutput",
    "KeyBounds",
    "KeySketch",
    "LogitStats",
    "TopkEntropy",
    "block_log_sums",
    "chunk_attention",
    "empty_key_bounds",
    "empty_key_sketch",
    "gelu",
    "keep_blocks",
    "kv_write",
    "layer_norm",
    "linear",
    "linear_prepack",
    "logit_stats",
    "paged_attention",
    "philox_uniform",
    "reveal_prefix",
    "rms_norm",
    "rotary",
    "score_upper_bound",
    "sketch_sums",
    "swiglu",
    "topk_entropy",
    "update_key_bounds",
]
