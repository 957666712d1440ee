"""A compact Llama-family decoder over a paged KV cache, calling every op through `kernels.dispatch`.

One forward pass takes a mixed batch: rows that decode one token, first, then chunks of prefill. With x the residual
stream, each layer is

    y = rmsnorm(x);  q, k, v = W_qkv y (+ b);  q, k normed (Qwen3) and rotated;  k, v written to the cache
    x += W_o attention(q, cache)
    x += W_down (silu(g) * u),   g, u = W_gate_up rmsnorm(x)

and the logits, in float32, are W_head rmsnorm(x) at the positions asked for. Families differ only in what
`ModelConfig` says: biases on q, k, v (Qwen2), norms on q and k (Qwen3), head size, tied embeddings, rope scaling.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from workbench.live.decoder_layout import Chunk as Chunk
from workbench.live.decoder_layout import ForwardInput as ForwardInput
from workbench.live.decoder_layout import ForwardOutput as ForwardOutput
from workbench.live.decoder_layout import read_tokens
from workbench.live.fused import fused_decoder, fused_forward
from workbench.live.kv_cache import KVCache
from workbench.live.rope import rotary_table
from workbench.live.weights import DTYPES, Model

Linear = Callable[[torch.Tensor], torch.Tensor]
# Chooses the KV blocks of each decode row at one layer: (layer, q [rows, heads, d]) -> bool [rows, kv_heads, max_blocks]
KeepChooser = Callable[[int, torch.Tensor], torch.Tensor | None]
# Is shown the rotated queries of every token of the pass at each layer, once its keys are written: (layer, q [T, heads, d])
QueryViewer = Callable[[int, torch.Tensor], None]


@dataclass(frozen=True)
class Layer:
    """One layer's weights, linears packed as the backend wants them."""

    input_norm: torch.Tensor
    qkv: Linear
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: Linear
    post_norm: torch.Tensor
    gate_up: Linear
    down: Linear


def packed_linear(ops: Any, weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """x -> x W^T + b, with W laid out once as the backend wants it."""
    packed, apply = ops.linear_prepack(weight), ops.linear
    return lambda x: apply(x, packed, bias)


class Decoder:
    """Weights fused and packed once; `forward` is the whole model. Reusable for any cache of the same shape.

    `implementation` says what runs, for the record. Where the backend offers the whole step as one call it is used;
    otherwise, and for what that call cannot do, the layers run op by op, packed when first needed.
    """

    def __init__(self, model: Model, ops: Any, device: torch.device | str = "cpu", max_positions: int = 0) -> None:
        self.model, self.config, self.ops, self.device = model, model.config, ops, torch.device(device)
        self.dtype = DTYPES[model.dtype]
        config = model.config
        self.scale = config.head_dim**-0.5
        self.group_size = config.group_size
        self._sizes = [n * config.head_dim for n in (config.num_heads, config.num_kv_heads, config.num_kv_heads)]
        positions = max_positions or config.max_context_tokens
        self.cos, self.sin = (t.to(self.device) for t in rotary_table(config, positions))
        self.embedding = self._tensor("model.embed_tokens.weight")
        self.final_norm = self._tensor("model.norm.weight")
        self._fused = fused_decoder(model, ops, self.cos, self.sin) if self.device.type == "cpu" else None
        self.implementation = ops.implementation + (", one call a step" if self._fused is not None else "")
        if self._fused is None:
            _ = self.layers, self.head  # packed now, not in the first step

    def _tensor(self, name: str) -> torch.Tensor:
        return self.model.tensors[name].to(self.device)

    def _packed(self, prefix: str, names: tuple[str, ...]) -> Linear:
        """The rows of several linears as one."""
        tensors = self.model.tensors
        weight = torch.cat([self._tensor(f"{prefix}.{name}.weight") for name in names])
        biases = [self._tensor(f"{prefix}.{name}.bias") for name in names if f"{prefix}.{name}.bias" in tensors]
        return packed_linear(self.ops, weight, torch.cat(biases) if biases else None)

    @cached_property
    def layers(self) -> list[Layer]:
        layers = []
        for index in range(self.config.num_layers):
            p = f"model.layers.{index}"
            layers.append(
                Layer(
                    input_norm=self._tensor(f"{p}.input_layernorm.weight"),
                    qkv=self._packed(f"{p}.self_attn", ("q_proj", "k_proj", "v_proj")),
                    q_norm=self._tensor(f"{p}.self_attn.q_norm.weight") if self.config.qk_norm else None,
                    k_norm=self._tensor(f"{p}.self_attn.k_norm.weight") if self.config.qk_norm else None,
                    output=self._packed(f"{p}.self_attn", ("o_proj",)),
                    post_norm=self._tensor(f"{p}.post_attention_layernorm.weight"),
                    gate_up=self._packed(f"{p}.mlp", ("gate_proj", "up_proj")),
                    down=self._packed(f"{p}.mlp", ("down_proj",)),
                )
            )
        return layers

    @cached_property
    def head(self) -> Linear:
        tied = self.config.tied_embeddings
        return packed_linear(self.ops, self.embedding if tied else self._tensor("lm_head.weight"), None)

    @torch.inference_mode()
    def forward(
        self,
        batch: ForwardInput,
        cache: KVCache,
        keep: torch.Tensor | KeepChooser | None = None,
        *,
        want_mass: bool = True,
        want_mass_by_head: bool = False,
        measure_dropped: bool = True,
        on_queries: QueryViewer | None = None,
    ) -> ForwardOutput:
        """keep: bool [num_decode, kv_heads, max_blocks] for every layer, or a function asked at each.

        Where it drops blocks, the dropped mass is measured by reading them beside the step, if `measure_dropped`.
        """
        if self._fused is not None and not want_mass_by_head and not callable(keep) and on_queries is None:
            return fused_forward(self._fused, batch, cache, keep, want_mass, measure_dropped)
        config, ops = self.config, self.ops
        heads, kv_heads, d = config.num_heads, config.num_kv_heads, config.head_dim
        num_tokens, num_decode = batch.token_ids.shape[0], batch.num_decode
        cos, sin = self.cos[batch.positions], self.sin[batch.positions]
        account = None
        if num_decode and (want_mass or keep is not None):
            account = _MassAccount(config.num_kv_heads, batch, cache.block_size)
        x, residual = self.embedding[batch.token_ids], None
        for index, layer in enumerate(self.layers):
            keys, values = cache.keys[index], cache.values[index]
            y, residual = ops.rms_norm(x, layer.input_norm, config.norm_eps, residual)
            q, k, v = layer.qkv(y).split(self._sizes, dim=-1)
            q = q.reshape(num_tokens, heads, d)
            k = k.reshape(num_tokens, kv_heads, d)
            v = v.reshape(num_tokens, kv_heads, d)
            if layer.q_norm is not None:
                q = ops.rms_norm(q, layer.q_norm, config.norm_eps)[0]
                k = ops.rms_norm(k, layer.k_norm, config.norm_eps)[0]
            q, k = ops.rotary(q, k, cos, sin)
            ops.kv_write(k, v, keys, values, batch.slot_index)
            if on_queries is not None:
                on_queries(index, q)
            window = config.windows[index]
            attended = torch.empty_like(q)
            if num_decode:
                mask = keep(index, q[:num_decode]) if callable(keep) else keep
                out, log_sum_exp, mass = ops.paged_attention(
                    q[:num_decode], keys, values, batch.block_table, batch.context_tokens,
                    scale=self.scale, keep=mask, window_tokens=window,
                )  # fmt: skip
                attended[:num_decode] = out
                if account is not None:
                    dense = None
                    if mask is not None and measure_dropped:
                        began_s = time.perf_counter()
                        dense = ops.paged_attention(
                            q[:num_decode], keys, values, batch.block_table, batch.context_tokens,
                            scale=self.scale, window_tokens=window,
                        ).log_sum_exp  # fmt: skip
                        account.measuring_s += time.perf_counter() - began_s
                    account.add(mass, log_sum_exp, dense, mask, want_mass_by_head)
            for chunk in batch.chunks:
                attended[chunk.first : chunk.last] = ops.chunk_attention(
                    q[chunk.first : chunk.last], keys, values, chunk.block_table, chunk.start,
                    scale=self.scale, causal=config.causal, window_tokens=window,
                )  # fmt: skip
            x = layer.output(attended.view(num_tokens, heads * d))
            y, residual = ops.rms_norm(x, layer.post_norm, config.norm_eps, residual)
            x = layer.down(ops.swiglu(layer.gate_up(y)))
        rows = batch.logit_rows
        if rows is not None:
            x, residual = x[rows], residual[rows]
        y, _ = ops.rms_norm(x, self.final_norm, config.norm_eps, residual)
        logits = self.head(y).float()
        if account is None:
            return ForwardOutput(
                logits=logits, mass=None, mass_by_head=None, dropped_mass=None, read_tokens=None, measuring_s=0.0
            )
        return account.output(logits)


class _MassAccount:
    """Sums attention mass, dropped mass and tokens read over layers."""

    def __init__(self, num_kv_heads: int, batch: ForwardInput, block_size: int) -> None:
        self.kv_heads, self.num_layers = num_kv_heads, 0
        self.context_tokens, self.block_size = batch.context_tokens, block_size
        self.mass = torch.zeros(batch.block_table.shape, dtype=torch.float32, device=batch.block_table.device)
        self.by_head: list[torch.Tensor] = []
        self.dropped: torch.Tensor | None = None
        self.read: torch.Tensor | None = None
        self.measuring_s = 0.0

    def add(
        self,
        mass: torch.Tensor,
        log_sum_exp: torch.Tensor,
        dense: torch.Tensor | None,
        mask: torch.Tensor | None,
        by_head: bool,
    ) -> None:
        """`dense`: log-sum-exp over every block; the kept share of the mass is exp(log_sum_exp - dense)."""
        self.num_layers += 1
        self.mass += mass.mean(dim=1)
        if by_head:
            self.by_head.append(mass.unflatten(1, (self.kv_heads, -1)).mean(dim=2))
        if mask is not None:
            read = read_tokens(mask, self.context_tokens, self.block_size)
            self.read = read if self.read is None else self.read + read
        if dense is not None:
            dropped = (-torch.expm1(log_sum_exp - dense)).clamp_min(0.0).mean(dim=1)
            self.dropped = dropped if self.dropped is None else self.dropped + dropped

    def output(self, logits: torch.Tensor) -> ForwardOutput:
        n = self.num_layers
        return ForwardOutput(
            logits=logits,
            mass=self.mass / n,
            mass_by_head=torch.stack(self.by_head) if self.by_head else None,
            dropped_mass=None if self.dropped is None else self.dropped / n,
            read_tokens=None if self.read is None else self.read / n,
            measuring_s=self.measuring_s,
        )
