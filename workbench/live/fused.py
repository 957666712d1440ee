"""The forward pass as one call, where the backend has one (`Ops.fused_decoder`): bf16 on a CPU with the C++ extension.

Same inputs and outputs as `Decoder.forward`. The residual stream is float32, so logits differ from the op-by-op path by
bf16 rounding only. What it does not do (masses per head, keep-lists that differ by layer, fp32) goes op by op.
"""

from typing import Any

import torch

from workbench.live.decoder_layout import ForwardInput, ForwardOutput, read_tokens
from workbench.live.kv_cache import KVCache
from workbench.live.weights import Model


def fused_decoder(model: Model, ops: Any, cos: torch.Tensor, sin: torch.Tensor) -> Any | None:
    """The backend's one-call decoder for this model; None where it has none."""
    config, tensors = model.config, model.tensors
    plain = config.causal and not config.output_bias and not config.mlp_bias and config.head_dim % 16 == 0
    if getattr(ops, "fused_decoder", None) is None or model.dtype != "bf16" or not plain:
        return None
    from kernels.cpu.decoder import DecoderWeights, LayerWeights

    def joined(prefix: str, names: tuple[str, ...], part: str = "weight") -> torch.Tensor:
        return torch.cat([tensors[f"{prefix}.{name}.{part}"] for name in names])

    layers = []
    for index, window in enumerate(config.windows):
        p = f"model.layers.{index}"
        qkv = (f"{p}.self_attn", ("q_proj", "k_proj", "v_proj"))
        layers.append(
            LayerWeights(
                input_norm=tensors[f"{p}.input_layernorm.weight"],
                qkv=joined(*qkv),
                qkv_bias=joined(*qkv, part="bias") if config.qkv_bias else None,
                q_norm=tensors[f"{p}.self_attn.q_norm.weight"] if config.qk_norm else None,
                k_norm=tensors[f"{p}.self_attn.k_norm.weight"] if config.qk_norm else None,
                output=tensors[f"{p}.self_attn.o_proj.weight"],
                post_norm=tensors[f"{p}.post_attention_layernorm.weight"],
                gate_up=joined(f"{p}.mlp", ("gate_proj", "up_proj")),
                down=tensors[f"{p}.mlp.down_proj.weight"],
                window_tokens=window,
            )
        )
    embedding = tensors["model.embed_tokens.weight"]
    weights = DecoderWeights(
        embedding=embedding,
        layers=tuple(layers),
        final_norm=tensors["model.norm.weight"],
        head=embedding if config.tied_embeddings else tensors["lm_head.weight"],
        cos=cos,
        sin=sin,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        norm_eps=config.norm_eps,
        scale=config.head_dim**-0.5,
    )
    return ops.fused_decoder(weights)


def fused_forward(
    decoder: Any, batch: ForwardInput, cache: KVCache, keep: torch.Tensor | None, want_mass: bool, measure_dropped: bool
) -> ForwardOutput:
    """`decoder`: what `fused_decoder` gave. keep: bool [num_decode, kv_heads, max_blocks], the same at every layer."""
    num_decode, chunks, table = batch.num_decode, batch.chunks, batch.block_table
    row = torch.arange(num_decode, dtype=torch.int32)
    if chunks:
        width = max(table.shape[1] if num_decode else 1, *(chunk.block_table.shape[0] for chunk in chunks))
        tables = torch.zeros((num_decode + len(chunks), width), dtype=torch.int32)
        tables[:num_decode, : table.shape[1]] = table
        for i, chunk in enumerate(chunks):
            tables[num_decode + i, : chunk.block_table.shape[0]] = chunk.block_table
        lengths = torch.tensor([chunk.last - chunk.first for chunk in chunks])
        row = torch.cat([row, torch.arange(num_decode, num_decode + len(chunks)).repeat_interleave(lengths).int()])
        if keep is not None:
            every = torch.ones((num_decode + len(chunks), keep.shape[1], width), dtype=torch.bool)
            every[:num_decode, :, : keep.shape[2]] = keep
            full_keep = every
        else:
            full_keep = None
    else:
        tables, full_keep = table.contiguous(), keep
    measured = None
    if num_decode and (want_mass or keep is not None):
        measured = torch.zeros(batch.token_ids.shape[0], dtype=torch.bool)
        measured[:num_decode] = True
    logit_rows = batch.logit_rows
    if logit_rows is None:
        logit_rows = torch.arange(batch.token_ids.shape[0])
    done = decoder.step(
        batch.token_ids, batch.positions, row, tables, logit_rows, cache.keys, cache.values,
        keep=full_keep, measured=measured, measure_dropped=measure_dropped,
    )  # fmt: skip
    dropped = done.dropped_mass
    return ForwardOutput(
        logits=done.logits,
        mass=None if done.mass is None else done.mass[:num_decode, : table.shape[1]],
        mass_by_head=None,
        dropped_mass=None if dropped is None else dropped[:num_decode],
        read_tokens=None if keep is None else read_tokens(keep, batch.context_tokens, cache.block_size),
        measuring_s=0.0,
    )
