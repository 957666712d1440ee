"""Measured operator times, and the fit of `RooflineNumbers` to them.

The profiles (Vidur, MIT) give minimum, maximum, mean, median and deviation in milliseconds of each dense operator of one
layer by token count and tensor-parallel size, and of all-reduces by size. They hold no attention times. The fit takes
medians at two of three token counts; every third is held out and judged by

    mape = mean |predicted / measured - 1| of a layer's summed dense operators, over sizes and held-out token counts
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from scipy.optimize import least_squares

from sims.gpus import Gpu
from sims.models import ModelShape
from sims.roofline import RooflineNumbers, all_reduce_s, operator_s
from workbench.errors import InputError
from workbench.signals import FloatArray

OPERATORS = (
    "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj", "post_attention_layernorm", "mlp_up_proj",
    "mlp_act", "mlp_down_proj", "add",
)  # fmt: skip
DENSE_FIELDS = (
    "element_overhead_s", "element_bandwidth_frac", "gather_bandwidth_frac", "product_overhead_s",
    "product_bandwidth_frac", "product_flop_frac",
)  # fmt: skip
REDUCE_FIELDS = ("reduce_latency_s", "reduce_bandwidth_frac")
START = RooflineNumbers(
    element_overhead_s=2e-6, element_bandwidth_frac=0.7, gather_bandwidth_frac=0.5, product_overhead_s=3e-6,
    product_bandwidth_frac=0.8, product_flop_frac=0.7,
)  # fmt: skip
OPERATOR_WEIGHT = 0.12  # of one operator's relative error beside the layer sum's, so that small operators stay honest


@dataclass(frozen=True)
class DenseProfile:
    """Medians in seconds: `seconds[operator][i]` at `tokens[i]` on `tensor_parallel[i]` GPUs."""

    tokens: FloatArray
    tensor_parallel: np.ndarray
    seconds: dict[str, FloatArray]

    @property
    def layer_s(self) -> FloatArray:
        return np.sum(list(self.seconds.values()), axis=0)

    def where(self, rows: np.ndarray) -> "DenseProfile":
        return DenseProfile(
            self.tokens[rows], self.tensor_parallel[rows], {k: v[rows] for k, v in self.seconds.items()}
        )


def _read(path: Path, columns: list[str]) -> pl.DataFrame:
    if not path.is_file():
        raise InputError(f"no operator profile at {path}")
    table = pl.read_csv(path)
    if missing := [name for name in columns if name not in table.columns]:
        raise InputError(f"{path}: column {missing[0]!r} is missing; expected a profile in Vidur's format")
    return table


def read_dense_profile(path: Path, model: ModelShape) -> DenseProfile:
    """Raises `InputError` for a missing file or column, or a profile of another model shape."""
    names = {f"time_stats.{name}.median": name for name in OPERATORS}
    keys = ["num_tensor_parallel_workers", "num_tokens"]
    table = _read(path, [*names, *keys, "n_embd", "n_head", "n_kv_head", "n_expanded_embd"])
    shape = tuple(int(table[name][0]) for name in ("n_embd", "n_head", "n_kv_head", "n_expanded_embd"))
    if shape != (model.hidden, model.num_heads, model.num_kv_heads, model.intermediate):
        raise InputError(f"{path} measures another shape than {model.name}: {shape}")
    # A token count measured more than once counts once, with the median of its medians.
    table = table.rename(names).select([*keys, *OPERATORS]).group_by(keys).median().sort(keys)
    return DenseProfile(
        tokens=table["num_tokens"].to_numpy().astype(float),
        tensor_parallel=table["num_tensor_parallel_workers"].to_numpy(),
        seconds={name: table[name].to_numpy() * 1e-3 for name in OPERATORS},
    )


def held_out(profile: DenseProfile) -> np.ndarray:
    """True for the third of the token counts that the fit must not see, the same counts at every size."""
    counts = np.unique(profile.tokens)
    return np.isin(profile.tokens, counts[1::3])


def predict(gpu: Gpu, numbers: RooflineNumbers, model: ModelShape, profile: DenseProfile) -> dict[str, FloatArray]:
    out = {name: np.empty_like(profile.tokens) for name in OPERATORS}
    for size in np.unique(profile.tensor_parallel):
        rows = profile.tensor_parallel == size
        for name, seconds in operator_s(gpu, numbers, model, int(size), profile.tokens[rows]).items():
            out[name][rows] = seconds
    return out


def fit_dense(gpu: Gpu, model: ModelShape, profile: DenseProfile, start: RooflineNumbers = START) -> RooflineNumbers:
    """Six numbers by robust least squares on relative errors (logarithms of the numbers, so that they stay positive)."""

    def numbers(x: FloatArray) -> RooflineNumbers:
        return replace(start, **dict(zip(DENSE_FIELDS, np.exp(x).tolist(), strict=True)))

    def residuals(x: FloatArray) -> FloatArray:
        predicted = predict(gpu, numbers(x), model, profile)
        total = np.sum(list(predicted.values()), axis=0) / profile.layer_s - 1.0
        each = [OPERATOR_WEIGHT * (predicted[name] / profile.seconds[name] - 1.0) for name in OPERATORS]
        return np.concatenate([total, *each])

    begin = np.log([getattr(start, name) for name in DENSE_FIELDS])
    return numbers(least_squares(residuals, begin, loss="soft_l1", f_scale=0.03).x)


def layer_mape(gpu: Gpu, numbers: RooflineNumbers, model: ModelShape, profile: DenseProfile) -> float:
    predicted = np.sum(list(predict(gpu, numbers, model, profile).values()), axis=0)
    return float(np.mean(np.abs(predicted / profile.layer_s - 1.0)))


def operator_mape(gpu: Gpu, numbers: RooflineNumbers, model: ModelShape, profile: DenseProfile) -> dict[str, float]:
    predicted = predict(gpu, numbers, model, profile)
    return {name: float(np.mean(np.abs(predicted[name] / profile.seconds[name] - 1.0))) for name in OPERATORS}


@dataclass(frozen=True)
class ReduceProfile:
    size_bytes: FloatArray
    num_gpus: np.ndarray
    seconds: FloatArray

    def where(self, rows: np.ndarray) -> "ReduceProfile":
        return ReduceProfile(self.size_bytes[rows], self.num_gpus[rows], self.seconds[rows])


def read_reduce_profile(path: Path) -> ReduceProfile:
    column, keys = "time_stats.all_reduce.median", ["num_workers", "size"]
    table = _read(path, [column, *keys]).group_by(keys).agg(pl.col(column).median()).sort(keys)
    return ReduceProfile(
        table["size"].to_numpy().astype(float), table["num_workers"].to_numpy(), table[column].to_numpy() * 1e-3
    )


def predict_reduce(gpu: Gpu, numbers: RooflineNumbers, profile: ReduceProfile) -> FloatArray:
    out = np.empty_like(profile.seconds)
    for size in np.unique(profile.num_gpus):
        rows = profile.num_gpus == size
        out[rows] = all_reduce_s(gpu, numbers, int(size), profile.size_bytes[rows])
    return out


def fit_reduce(gpu: Gpu, profile: ReduceProfile, start: RooflineNumbers) -> RooflineNumbers:
    """Two numbers: latency and share of the link rate."""

    def numbers(x: FloatArray) -> RooflineNumbers:
        return replace(start, **dict(zip(REDUCE_FIELDS, np.exp(x).tolist(), strict=True)))

    def residuals(x: FloatArray) -> FloatArray:
        return predict_reduce(gpu, numbers(x), profile) / profile.seconds - 1.0

    begin = np.log([getattr(start, name) for name in REDUCE_FIELDS])
    return numbers(least_squares(residuals, begin, loss="soft_l1", f_scale=0.1).x)
