"""A Llama-family decoder whose whole forward pass is one C++ call: `FusedDecoder`.

Every token of a batch is a row, decode or prefill alike. The residual stream is float32 and products are bf16, so its
logits differ from the op-by-op path by bf16 rounding only. Weights are packed once; the caches stay the caller's.
"""

from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from kernels import huge_pages

INTERLEAVE = 24  # rows of gate, then rows of up, in each panel of 48: see kernels/cpu/step.h


@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """bf16 weights of one layer; linear weights are [out, in]."""

    input_norm: Tensor  # [hidden]
    qkv: Tensor  # [(heads + 2 kv_heads) * d, hidden]
    qkv_bias: Tensor | None  # [(heads + 2 kv_heads) * d]
    q_norm: Tensor | None  # [d]
    k_norm: Tensor | None
    output: Tensor  # [hidden, heads * d]
    post_norm: Tensor  # [hidden]
    gate_up: Tensor  # [2 * intermediate, hidden], gate first
    down: Tensor  # [hidden, intermediate]
    window_tokens: int | None = None  # sliding window of this layer


@dataclass(frozen=True, kw_only=True)
class DecoderWeights:
    embedding: Tensor  # [vocab, hidden] bf16
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor  # [hidden]
    head: Tensor  # [vocab, hidden]
    cos: Tensor  # [positions, d / 2] float32
    sin: Tensor
    num_heads: int
    num_kv_heads: int
    norm_eps: float
    scale: float


@dataclass(frozen=True, kw_only=True)
class StepOutput:
    logits: Tensor  # [len(logit_rows), vocab] float32
    mass: Tensor | None  # [tokens, max_blocks] attention mass per block, mean over layers and query heads
    dropped_mass: Tensor | None  # [tokens] mass the keep-list left unread, mean over layers and query heads


def interleave(gate_up: Tensor) -> Tensor:
    """[2 i, hidden] to panels of 24 gate rows and 24 up rows, the last one padded with zeros."""
    gate, up = gate_up.chunk(2)
    size = gate.shape[0]
    padded = -(-size // INTERLEAVE) * INTERLEAVE
    halves = [torch.nn.functional.pad(part, (0, 0, 0, padded - size)) for part in (gate, up)]
    panels = torch.stack([half.view(-1, INTERLEAVE, half.shape[1]) for half in halves], dim=1)
    return panels.reshape(2 * padded, -1).contiguous()


def _packed_shapes(weights: DecoderWeights) -> list[tuple[int, ...]]:
    """Of every packed weight, in the order in which they are packed (the layout of kernels/cpu/linear.h)."""

    def packed(out: int, size_in: int) -> tuple[int, ...]:
        return (-(-out // 48), -(-size_in // 32), 3, 16, 16, 2)

    shapes = [packed(*weights.head.shape)]
    for layer in weights.layers:
        hidden, intermediate = layer.down.shape
        gate_up = (2 * INTERLEAVE * -(-intermediate // INTERLEAVE), hidden)
        shapes += [packed(*layer.qkv.shape), packed(*layer.output.shape), packed(*gate_up), packed(*layer.down.shape)]
    return shapes


class FusedDecoder:
    """`step` runs a batch of tokens through the model. Raises ValueError or TypeError before any work on bad input."""

    def __init__(self, extension: ModuleType, weights: DecoderWeights) -> None:
        if weights.embedding.dtype != torch.bfloat16:
            raise TypeError(f"the fused decoder takes bf16 weights, got {weights.embedding.dtype}")
        homes = iter(huge_pages.zeros(_packed_shapes(weights), torch.bfloat16))

        def pack(weight: Tensor) -> Tensor:
            return next(homes).copy_(extension.pack(weight.contiguous()))

        self.num_heads, self.num_kv_heads = weights.num_heads, weights.num_kv_heads
        self.num_layers = len(weights.layers)
        self._step = extension.DecoderStep(
            weights.embedding.contiguous(),
            weights.final_norm.contiguous(),
            pack(weights.head),
            weights.cos.float().contiguous(),
            weights.sin.float().contiguous(),
            weights.num_heads,
            weights.layers[0].down.shape[1],
            weights.norm_eps,
            weights.scale,
        )
        for layer in weights.layers:
            self._step.add_layer(
                layer.input_norm,
                pack(layer.qkv),
                None if layer.qkv_bias is None else layer.qkv_bias.float().contiguous(),
                layer.q_norm,
                layer.k_norm,
                pack(layer.output),
                layer.post_norm,
                pack(interleave(layer.gate_up)),
                pack(layer.down),
                weights.num_kv_heads,
                layer.window_tokens or 0,
            )

    def step(
        self,
        token_ids: Tensor,
        positions: Tensor,
        row: Tensor,
        block_table: Tensor,
        logit_rows: Tensor,
        keys: list[Tensor],
        values: list[Tensor],
        *,
        keep: Tensor | None = None,
        measured: Tensor | None = None,
        measure_dropped: bool = False,
    ) -> StepOutput:
        """token_ids, positions: [tokens] int64; row: [tokens] int32, the row of block_table [rows, max_blocks] int32 a
        token belongs to; logit_rows: [m] int64 tokens whose logits are wanted; keys, values: one cache per layer,
        [num_blocks, block_size, kv_heads, d] bf16, written in place. keep: bool [rows, kv_heads, max_blocks].
        measured: bool [tokens], whose attention mass is wanted (rows of the others are 0); with `measure_dropped` and a
        keep-list, the keys of dropped blocks are read as well to measure what was lost.
        """
        logits, mass, dropped = self._step.step(
            token_ids, positions, row, block_table, logit_rows, keys, values, keep, measured, measure_dropped
        )
        share = 1.0 / (self.num_layers * self.num_heads)
        return StepOutput(
            logits=logits,
            mass=None if mass is None else mass.sum(dim=1).mul_(share),
            dropped_mass=None if dropped is None else dropped.sum(dim=1).mul_(share),
        )
