"""A `StepCost` computed from a GPU and a model shape: per-operator roofline with counted tiles.

Each of a layer's operators costs an overhead and the larger of two times, memory and compute:

    element-wise (norms, residual add)      overhead + bytes / (B e_b)
    gather-like (rotary, gated activation)  overhead + bytes / (B e_g)
    product [N, k] x [k, m]                 overhead + (t_mem^a + t_tile^a)^(1/a)
        t_mem = bytes / (B e_m);  t_tile = min over tile shapes of waves x tile work / (F e_f / multiprocessors),
        waves = ceil(ceil(N / rows) ceil(m / cols) / multiprocessors): the staircase that measured products show
    all-reduce of b bytes on g GPUs         latency + 2 (g - 1) / g b / (link e_l)

Six of these numbers are fitted per GPU to measured dense operators, two to measured all-reduces
(`sims.operator_profiles`, `workbench bench step-cost`). Attention, host time and sampling are *not* in those profiles:
their numbers are assumptions stated here, checked on live records only.
Source: ours; tile shapes are the common ones of CUTLASS.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from sims.gpus import Gpu
from sims.models import ModelShape
from sims.step_cost import StepCost
from workbench.errors import InputError
from workbench.signals import FloatArray

TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))
BLEND = 2.2  # a above: how sharply memory time gives way to tile time
GRAPH_SIZES = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))  # tokens graphs are captured for (vLLM)


@dataclass(frozen=True, kw_only=True)
class RooflineNumbers:
    """How much of a data sheet is reached. The first eight are fitted, the rest assumed. Fractions are of the peak."""

    element_overhead_s: float
    element_bandwidth_frac: float
    gather_bandwidth_frac: float
    product_overhead_s: float
    product_bandwidth_frac: float
    product_flop_frac: float
    reduce_latency_s: float = 30e-6
    reduce_bandwidth_frac: float = 0.8
    attention_bandwidth_frac: float = 0.75  # assumed: paged decode kernels reach 70 to 90 % of bandwidth
    attention_flop_frac: float = 0.5  # assumed: prefill kernels reach 40 to 75 % of the dense peak
    attention_overhead_s: float = 5e-6  # assumed, per layer
    host_s: float = 1.0e-3  # assumed: scheduler and launch of a captured step
    row_s: float = 4e-6  # assumed: sampling bookkeeping and detokenisation, per row
    source: str = ""


# `workbench bench step-cost` fits these anew from the profiles; a test holds that they are what the fit gives.
FITTED: dict[str, RooflineNumbers] = {
    "A100-80G": RooflineNumbers(
        element_overhead_s=1.567e-6,
        element_bandwidth_frac=0.8142,
        gather_bandwidth_frac=0.4552,
        product_overhead_s=1.678e-6,
        product_bandwidth_frac=0.8278,
        product_flop_frac=0.7215,
        source="dense operators fitted to Vidur's A100 profile of Llama-3-8B; all-reduce, attention, host: assumed",
    ),
    "H100": RooflineNumbers(
        element_overhead_s=1.405e-6,
        element_bandwidth_frac=0.9041,
        gather_bandwidth_frac=0.5334,
        product_overhead_s=5.881e-6,
        product_bandwidth_frac=0.8788,
        product_flop_frac=0.7278,
        reduce_latency_s=27.77e-6,
        reduce_bandwidth_frac=0.7738,
        source="dense operators fitted to Vidur's H100 profile of Llama-2-7B, all-reduce to its DGX profile; attention, "
        "host: assumed",
    ),
}


def numbers_for(gpu: Gpu) -> RooflineNumbers:
    """Fitted numbers for the GPU, or those of its nearest relative, saying so."""
    if gpu.name in FITTED:
        return FITTED[gpu.name]
    relative = "A100-80G" if gpu.name == "L4" else "H100"
    return replace(
        FITTED[relative], source=f"not measured on {gpu.name}: the fractions reached on {relative} are assumed"
    )


@dataclass(frozen=True, kw_only=True)
class LayerShapes:
    """One layer on one of `tensor_parallel` GPUs: products as (in, out) sizes, the rest as values moved per token."""

    products: dict[str, tuple[int, int]]
    element_values: dict[str, float]
    gather_values: dict[str, float] = field(default_factory=dict)


def layer_shapes(model: ModelShape, tensor_parallel: int) -> LayerShapes:
    """Shards split heads and the intermediate size; where heads do not divide, the larger shard counts."""
    h, d, g = model.hidden, model.head_size, tensor_parallel
    heads, kv_heads = -(-model.num_heads // g), -(-model.num_kv_heads // g)
    mid = -(-model.intermediate // g)
    return LayerShapes(
        products={
            "attn_pre_proj": (h, (heads + 2 * kv_heads) * d),
            "attn_post_proj": (heads * d, h),
            "mlp_up_proj": (h, 2 * mid),
            "mlp_down_proj": (mid, h),
        },
        # A fused norm reads input and residual and writes both; an add reads two and writes one.
        element_values={"input_layernorm": 4.0 * h, "post_attention_layernorm": 4.0 * h, "add": 3.0 * h},
        gather_values={"attn_rope": 2.0 * (heads + kv_heads) * d, "mlp_act": 3.0 * mid},
    )


def product_s(
    gpu: Gpu, numbers: RooflineNumbers, rows: FloatArray, inner: int, cols: int, width: int = 2
) -> FloatArray:
    """Seconds of [rows, inner] x [inner, cols] at `width` bytes a value; zero rows take no time."""
    memory = (
        (inner * cols + rows * (inner + cols)) * width / (gpu.bandwidth_bytes_per_s * numbers.product_bandwidth_frac)
    )
    waves_work = [
        np.ceil(np.ceil(rows / m) * np.ceil(cols / n) / gpu.num_multiprocessors) * (m * n * inner * 2.0)
        for m, n in TILES
    ]
    rate = gpu.peak_flop_per_s * numbers.product_flop_frac / gpu.num_multiprocessors
    tiles = np.minimum.reduce(waves_work) / rate
    return np.where(rows > 0, numbers.product_overhead_s + (memory**BLEND + tiles**BLEND) ** (1.0 / BLEND), 0.0)


def operator_s(gpu: Gpu, numbers: RooflineNumbers, model: ModelShape, tensor_parallel: int, tokens: FloatArray):
    """Seconds of each dense operator of one layer for `tokens` [N]: name -> [N]."""
    shapes = layer_shapes(model, tensor_parallel)
    width, bandwidth = model.bytes_per_weight, gpu.bandwidth_bytes_per_s
    times = {name: product_s(gpu, numbers, tokens, *size, width) for name, size in shapes.products.items()}
    for values, frac in (
        (shapes.element_values, numbers.element_bandwidth_frac),
        (shapes.gather_values, numbers.gather_bandwidth_frac),
    ):
        for name, count in values.items():
            moved = count * width * tokens / (bandwidth * frac)
            times[name] = np.where(tokens > 0, numbers.element_overhead_s + moved, 0.0)
    return times


def all_reduce_s(gpu: Gpu, numbers: RooflineNumbers, num_gpus: int, size_bytes: FloatArray) -> FloatArray:
    if num_gpus == 1:
        return np.zeros_like(size_bytes)
    wire = 2.0 * (num_gpus - 1) / num_gpus * size_bytes / (gpu.link_bytes_per_s * numbers.reduce_bandwidth_frac)
    return np.where(size_bytes > 0, numbers.reduce_latency_s + wire, 0.0)


def roofline_step_cost(
    gpu: Gpu,
    model: ModelShape,
    *,
    max_tokens: int = 8192,
    max_rows: int = 512,
    num_gpus: int | None = None,
    numbers: RooflineNumbers | None = None,
    graphs: bool = True,
) -> StepCost:
    """The step cost of `model` on `num_gpus` (default: the model's own) GPUs, tables up to `max_tokens`, `max_rows`.

    graphs: steps of up to 512 tokens are padded to the captured graph sizes. Raises `InputError` where the model does not fit.
    """
    group = num_gpus or model.num_gpus
    if max_tokens < 1 or max_rows < 1 or group < 1:
        raise InputError(f"roofline: tokens, rows, GPUs must be at least 1, got {max_tokens}, {max_rows}, {group}")
    replace(model, num_gpus=group).kv_capacity_tokens(gpu)
    numbers = numbers or numbers_for(gpu)
    tokens = np.arange(max_tokens + 1, dtype=float)
    width = model.bytes_per_weight
    layer = np.sum(list(operator_s(gpu, numbers, model, group, tokens).values()), axis=0)
    reduce = 2.0 * all_reduce_s(gpu, numbers, group, tokens * model.hidden * width)
    dense = model.num_layers * (layer + reduce + np.where(tokens > 0, numbers.attention_overhead_s, 0.0))
    padded = np.arange(max_tokens + 1)
    if graphs:
        sizes = np.array(GRAPH_SIZES)
        inside = padded[(padded > 0) & (padded <= sizes[-1])]
        padded[inside] = np.minimum(sizes[np.searchsorted(sizes, inside)], max_tokens)
    rows = np.arange(max_rows + 1, dtype=float)
    # Sampling reads the logits about four times in fp32: convert, temperature, softmax, draw.
    shard = -(-model.vocab // group)
    logits = rows * model.vocab * 4.0 * 4.0 / (gpu.bandwidth_bytes_per_s * numbers.element_bandwidth_frac)
    output = product_s(gpu, numbers, rows, model.hidden, shard, width) + logits
    attention_rate = gpu.bandwidth_bytes_per_s * numbers.attention_bandwidth_frac * group
    return StepCost(
        name=f"{model.name} on {group} x {gpu.name}" if group > 1 else f"{model.name} on {gpu.name}",
        dense_s=np.maximum.accumulate(dense[padded]),
        output_s=output,
        host_s=numbers.host_s,
        row_s=numbers.row_s,
        kv_s_per_token=model.kv_bytes_per_token / attention_rate,
        pair_s=model.attention_flop_per_pair / (gpu.peak_flop_per_s * numbers.attention_flop_frac * group),
        dense_flop_per_token=model.dense_flop_per_token,
        output_flop_per_sample=model.output_flop_per_sample,
        attention_flop_per_pair=model.attention_flop_per_pair,
        weight_bytes=model.weight_bytes,
        kv_bytes_per_token=model.kv_bytes_per_token,
        power_idle_w=group * gpu.power_idle_w,
        power_peak_w=group * gpu.power_peak_w,
        flop_per_s=group * gpu.peak_flop_per_s * numbers.product_flop_frac,
        bytes_per_s=group * gpu.bandwidth_bytes_per_s * numbers.product_bandwidth_frac,
        window_tokens=model.window_tokens or 0,
        source=numbers.source,
    )
