"""The ops of the CPU backend: the C++ extension where it pays, the torch twin elsewhere.

Masks and sampling follow `kernels.laws` exactly; the default sampler here is `inverse_cdf`, one Philox draw a row instead
of one a vocabulary entry. Inputs the extension does not take (float16, head sizes that are no multiple of 16) go to torch.
"""

import math
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from kernels import laws, reference

# Own packed product up to this many rows of x, oneDNN above. Measured: `python -m kernels.bench --cpu`.
OWN_PRODUCT_ROWS = 64


@dataclass(frozen=True)
class PackedLinear:
    """A bf16 weight [out, in] packed for the own product, beside the dense weight for many rows."""

    weight: Tensor
    packed: Tensor


class CpuOps:
    """Bound to one loaded extension. Each method has the signature of its twin in `kernels.reference`."""

    def __init__(self, extension: ModuleType) -> None:
        self.extension = extension

    def logit_stats(
        self,
        logits: Tensor,
        temperature: Tensor,
        *,
        seed: int,
        request_id: Tensor,
        token_index: Tensor,
        stream: int = 0,
        target_entropy_nats: Tensor | None = None,
        temperature_min: float = 0.0,
        temperature_max: float = float("inf"),
        min_p: Tensor | None = None,
        top_h: Tensor | None = None,
        mirostat_mu_nats: Tensor | None = None,
        sampler: str = "inverse_cdf",
    ) -> reference.LogitStats:
        if logits.ndim != 2 or logits.shape[1] < 1 or not logits.is_floating_point():
            raise ValueError(
                f"logits must be floats of shape [rows, n], n >= 1, got {logits.dtype} {list(logits.shape)}"
            )
        rows, n = logits.shape

        def per_row(name: str, values, dtype=torch.float32):
            if values is None:
                return None
            values = torch.as_tensor(values).to(dtype)
            if values.shape not in ((), (rows,)):
                raise ValueError(f"{name} must have shape [rows] = [{rows}], got {list(values.shape)}")
            return values.expand(rows).contiguous()

        t, target = per_row("temperature", temperature), per_row("target_entropy_nats", target_entropy_nats)
        min_p, top_h = per_row("min_p", min_p), per_row("top_h", top_h)
        laws.check_sampling(t, target, temperature_min, temperature_max, min_p, top_h, sampler)
        fields = self.extension.logit_stats(
            logits.float().contiguous(),
            t,
            per_row("request_id", request_id, torch.int64),
            per_row("token_index", token_index, torch.int64),
            target,
            min_p,
            top_h,
            per_row("mirostat_mu_nats", mirostat_mu_nats),
            temperature_min,
            temperature_max,
            *laws.solve_bracket(temperature_min, temperature_max),
            laws.SOLVE_TOLERANCE_NATS,
            laws.SOLVE_ITERATIONS,
            laws.float32_at_most(math.log(n)),
            seed & 0xFFFFFFFFFFFFFFFF,
            stream,
            sampler == "gumbel",
        )
        return reference.LogitStats(*fields)

    def paged_attention(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        block_table: Tensor,
        context_tokens: Tensor,
        *,
        scale: float,
        keep: Tensor | None = None,
        window_tokens: int | None = None,
    ) -> reference.AttentionOutput:
        if q.dtype not in (torch.float32, torch.bfloat16) or q.shape[-1] % 16 or q.shape[-1] > 256:
            return reference.paged_attention(
                q, k_cache, v_cache, block_table, context_tokens, scale=scale, keep=keep, window_tokens=window_tokens
            )
        return reference.AttentionOutput(
            *self.extension.paged_attention(
                q.contiguous(), k_cache, v_cache, block_table, context_tokens, scale, keep, window_tokens or 0
            )
        )

    def kv_write(self, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_index: Tensor) -> None:
        self.extension.kv_write(k, v, k_cache, v_cache, slot_index)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if x.dtype not in (torch.float32, torch.bfloat16):
            return reference.rms_norm(x, weight, eps, residual)
        return self.extension.rms_norm(x.contiguous(), weight, eps, residual)

    def rotary(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        if q.dtype not in (torch.float32, torch.bfloat16):
            return reference.rotary(q, k, cos, sin)
        return self.extension.rotary(q, k, cos, sin)

    def swiglu(self, gate_up: Tensor) -> Tensor:
        if gate_up.dtype not in (torch.float32, torch.bfloat16):
            return reference.swiglu(gate_up)
        return self.extension.swiglu(gate_up.contiguous())

    def linear_prepack(self, weight: Tensor) -> Tensor | PackedLinear:
        """bf16 weights are packed; others stay as they are."""
        if weight.dtype != torch.bfloat16:
            return weight
        weight = weight.contiguous()
        return PackedLinear(weight, self.extension.pack(weight))

    def linear(self, x: Tensor, packed: Tensor | PackedLinear, bias: Tensor | None = None) -> Tensor:
        if not isinstance(packed, PackedLinear):
            return reference.linear(x, packed, bias)
        if x.dtype != torch.bfloat16 or x.numel() > OWN_PRODUCT_ROWS * x.shape[-1]:
            return reference.linear(x, packed.weight, bias)
        bias = None if bias is None else bias.float()
        return self.extension.linear(x.contiguous(), packed.packed, packed.weight.shape[0], bias)
