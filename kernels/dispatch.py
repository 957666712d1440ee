"""The one place where a backend is chosen: `backend(name)` gives its ops as one explicit object.

    torch    plain tensor code, any device, no compiler: the reference
    cpu      own C++ extension where it pays, torch for the rest; without a compiler it is `torch`, and says so once
    triton   Triton kernels, for a GPU (or the interpreter)

The object names what it really runs, so that a record can say which code made its numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kernels import reference
from kernels.cpu.build import extension
from kernels.cpu.decoder import DecoderWeights, FusedDecoder
from kernels.cpu.ops import CpuOps

BACKENDS = ("torch", "cpu", "triton")


@dataclass(frozen=True)
class Ops:
    """The ops of one backend; signatures are those of `kernels.reference`."""

    name: str  # what was asked for
    implementation: str  # what really runs, for the record: "torch", "cpu-avx512bf16", "triton", ...
    sampler: str  # the default of logit_stats here
    logit_stats: Callable[..., reference.LogitStats]
    topk_entropy: Callable[..., reference.TopkEntropy]
    paged_attention: Callable[..., reference.AttentionOutput]
    chunk_attention: Callable[..., Any]
    kv_write: Callable[..., None]
    rms_norm: Callable[..., Any]
    layer_norm: Callable[..., Any]
    rotary: Callable[..., Any]
    swiglu: Callable[..., Any]
    gelu: Callable[..., Any]
    keep_blocks: Callable[..., Any]
    reveal_prefix: Callable[..., Any]
    linear_prepack: Callable[..., Any]  # weight [out, in] -> what `linear` of the same backend takes
    linear: Callable[..., Any]  # (x, packed, bias=None) -> x W^T + b
    update_key_bounds: Callable[..., None]
    score_upper_bound: Callable[..., Any]
    sketch_sums: Callable[..., Any]
    # DecoderWeights -> an object whose `step` is a whole forward pass in one call; None where there is none.
    fused_decoder: Callable[[DecoderWeights], FusedDecoder] | None = None


def _torch_ops() -> Ops:
    return Ops(
        name="torch",
        implementation="torch",
        sampler="gumbel",
        logit_stats=reference.logit_stats,
        topk_entropy=reference.topk_entropy,
        paged_attention=reference.paged_attention,
        chunk_attention=reference.chunk_attention,
        kv_write=reference.kv_write,
        rms_norm=reference.rms_norm,
        layer_norm=reference.layer_norm,
        rotary=reference.rotary,
        swiglu=reference.swiglu,
        gelu=reference.gelu,
        keep_blocks=reference.keep_blocks,
        reveal_prefix=reference.reveal_prefix,
        linear_prepack=reference.linear_prepack,
        linear=reference.linear,
        update_key_bounds=reference.update_key_bounds,
        score_upper_bound=reference.score_upper_bound,
        sketch_sums=reference.sketch_sums,
    )


def _cpu_ops() -> Ops:
    module = extension()
    if module is None:
        return replace(_torch_ops(), name="cpu", implementation="torch, no compiler")
    ops = CpuOps(module)
    return replace(
        _torch_ops(),
        name="cpu",
        implementation=f"cpu-{module.instruction_set()}",
        sampler="inverse_cdf",
        logit_stats=ops.logit_stats,
        paged_attention=ops.paged_attention,
        kv_write=ops.kv_write,
        rms_norm=ops.rms_norm,
        rotary=ops.rotary,
        swiglu=ops.swiglu,
        linear_prepack=ops.linear_prepack,
        linear=ops.linear,
        fused_decoder=partial(FusedDecoder, module),
    )


def _triton_ops() -> Ops:
    # Imported here: Triton decides at import whether kernels are compiled or interpreted.
    try:
        from kernels import triton_ops
    except ImportError as problem:
        raise ValueError(f"the triton backend needs the triton package ({problem}); use backend 'torch'") from None
    return replace(_torch_ops(), name="triton", **triton_ops.OPS, implementation=triton_ops.implementation())


def backend(name: str) -> Ops:
    """The ops of `name`, one of `BACKENDS`. Raises ValueError for an unknown name."""
    if name == "torch":
        return _torch_ops()
    if name == "cpu":
        return _cpu_ops()
    if name == "triton":
        return _triton_ops()
    raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {name!r}")
