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
from typing import Any

import torch

from workbench.live.kv_cache import KVCache
from workbench.live.rope import rotary_table
from workbench.live.weights import DTYPES, Model

Linear = Callable[[torch.Tensor], torch.Tensor]
# Chooses the KV blocks of each decode row at one layer: (layer, q [rows, heads, d]) -> bool [rows, kv_heads, max_blocks]
KeepChooser = Callable[[int, torch.Tensor], torch.Tensor | None]


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A chunk of one sequence's prefill: tokens [first, last) of the batch, at positions `start` onwards."""

    first: int
    last: int
    start: int
    block_table: torch.Tensor  # [max_blocks] int32


@dataclass(frozen=True, kw_only=True)
class ForwardInput:
    """T tokens; the first `num_decode` are one-token rows, the rest belong to `chunks`."""

    token_ids: torch.Tensor  # [T] int64
    positions: torch.Tensor  # [T] int64
    slot_index: torch.Tensor  # [T] int64, physical block * block_size + offset
    num_decode: int
    block_table: torch.Tensor  # [num_decode, max_blocks] int32, no -1 in it (dropped blocks are masked by keep)
    context_tokens: torch.Tensor  # [num_decode] int32, the new token included
    chunks: tuple[Chunk, ...]
    logit_rows: torch.Tensor | None  # [R] int64 tokens whose logits are wanted; None: every one, in order


@dataclass(frozen=True, kw_only=True)
class ForwardOutput:
    logits: torch.Tensor  # [R, vocab] float32
    mass: torch.Tensor | None  # [num_decode, max_blocks] float32, mean over layers and query heads
    mass_by_head: torch.Tensor | None  # [layers, num_decode, kv_heads, max_blocks], mean over the group's query heads
    dropped_mass: torch.Tensor | None  # [num_decode], mean over layers and query heads; None where nothing was masked
    measuring_s: float  # time spent only to measure what pruning dropped
    read_tokens: torch.Tensor | None  # [num_decode], KV tokens read, mean over layers and KV heads; None: all of them


@dataclass(frozen=True)
class Layer:
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
    """Weights fused and packed once; `forward` is the whole model. Reusable for any cache of the same shape."""

    def __init__(self, model: Model, ops: Any, device: torch.device | str = "cpu", max_positions: int = 0) -> None:
        self.config, self.ops, self.device = model.config, ops, torch.device(device)
        self.dtype = DTYPES[model.dtype]
        config, tensors = model.config, model.tensors
        self.scale = config.head_dim**-0.5
        self.group_size = config.group_size
        self._sizes = [n * config.head_dim for n in (config.num_heads, config.num_kv_heads, config.num_kv_heads)]
        positions = max_positions or config.max_context_tokens
        self.cos, self.sin = (t.to(self.device) for t in rotary_table(config, positions))

        def tensor(name: str) -> torch.Tensor:
            return tensors[name].to(self.device)

        def fused(prefix: str, names: tuple[str, ...]) -> Linear:
            weight = torch.cat([tensor(f"{prefix}.{name}.weight") for name in names])
            biases = [tensor(f"{prefix}.{name}.bias") for name in names if f"{prefix}.{name}.bias" in tensors]
            return packed_linear(ops, weight, torch.cat(biases) if biases else None)

        self.embedding = tensor("model.embed_tokens.weight")
        self.layers: list[Layer] = []
        for index in range(config.num_layers):
            p = f"model.layers.{index}"
            self.layers.append(
                Layer(
                    input_norm=tensor(f"{p}.input_layernorm.weight"),
                    qkv=fused(f"{p}.self_attn", ("q_proj", "k_proj", "v_proj")),
                    q_norm=tensor(f"{p}.self_attn.q_norm.weight") if config.qk_norm else None,
                    k_norm=tensor(f"{p}.self_attn.k_norm.weight") if config.qk_norm else None,
                    output=fused(f"{p}.self_attn", ("o_proj",)),
                    post_norm=tensor(f"{p}.post_attention_layernorm.weight"),
                    gate_up=fused(f"{p}.mlp", ("gate_proj", "up_proj")),
                    down=fused(f"{p}.mlp", ("down_proj",)),
                )
            )
        self.final_norm = tensor("model.norm.weight")
        head = self.embedding if config.tied_embeddings else tensor("lm_head.weight")
        self.head = packed_linear(ops, head, None)

    @torch.inference_mode()
    def forward(
        self,
        batch: ForwardInput,
        cache: KVCache,
        keep: KeepChooser | None = None,
        *,
        want_mass: bool = True,
        want_mass_by_head: bool = False,
        measure_dropped: bool = True,
    ) -> ForwardOutput:
        """`keep` is asked at every layer; where it drops blocks, the dropped mass is measured by a dense pass beside."""
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
            window = config.windows[index]
            attended = torch.empty_like(q)
            if num_decode:
                mask = keep(index, q[:num_decode]) if keep is not None else None
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
        width = batch.block_table.shape[1]
        first = torch.arange(width, device=batch.block_table.device) * block_size
        self.block_tokens = (batch.context_tokens[:, None] - first).clamp(0, block_size).float()
        self.mass = torch.zeros_like(self.block_tokens)
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
            read = (mask * self.block_tokens[:, None, :]).sum(dim=2).mean(dim=1)
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
