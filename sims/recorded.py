"""What of a recorded run the fits read: sampled tokens, attention masses, steps. Torch-free; a run is Parquet and JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from workbench.errors import InputError
from workbench.record import read_manifest
from workbench.signals import FloatArray, IntArray

# Temperatures of `entropy_at_temperature`, where a manifest does not say.
CALIBRATION_TEMPERATURES = (0.5, 0.7, 1.0, 1.4)


@dataclass(frozen=True, kw_only=True)
class RecordedTokens:
    """One row per sampled token, in order of (arm, request, token). Shapes [m] or [m, k]."""

    text: IntArray  # number of the (arm, request) the token belongs to
    prompt: IntArray  # number of what was asked: the same for texts that answer the same prompt
    token_index: IntArray
    kind: np.ndarray  # name of the request kind
    entropy_raw_nats: FloatArray
    temperature_applied: FloatArray
    dropped_mass: FloatArray
    entropy_at: FloatArray  # [m, k]
    varentropy_at: FloatArray  # [m, k]
    temperatures: FloatArray  # [k]
    ended: np.ndarray  # the request ended with this token by its own will

    def __len__(self) -> int:
        return self.text.shape[0]

    def where(self, rows: np.ndarray) -> "RecordedTokens":
        changed = {n: v[rows] for n, v in vars(self).items() if n != "temperatures"}
        return RecordedTokens(**changed, temperatures=self.temperatures)


@dataclass(frozen=True, kw_only=True)
class RecordedSteps:
    """One row per engine step."""

    elapsed_s: FloatArray
    tokens: FloatArray
    sampled: FloatArray
    running: FloatArray
    kv_read_tokens: FloatArray
    pairs: FloatArray  # query-key pairs
    chunks: FloatArray  # rows of prefill
    measures: FloatArray  # 1 where the masses of decoding rows were measured

    def where(self, rows: np.ndarray) -> "RecordedSteps":
        return RecordedSteps(**{name: values[rows] for name, values in vars(self).items()})


def find_recorded_arms(run: Path) -> list[Path]:
    """Folders with a manifest under `run`, itself included. Raises `InputError` where there is none."""
    arms = sorted(path.parent for path in Path(run).rglob("manifest.json"))
    arms = [arm for arm in arms if (arm / "steps.parquet").is_file()]
    if not arms:
        raise InputError(f"{run} holds no recorded arm (a folder with manifest.json and steps.parquet)")
    return arms


def manifest_of(arm: Path) -> dict[str, Any]:
    """Raises `InputError` where it is damaged."""
    return read_manifest(arm)


def table_of(arm: Path, name: str) -> pl.DataFrame:
    """A table of an arm. Raises `InputError` for one that is missing or cut off."""
    path = arm / f"{name}.parquet"
    try:
        return pl.read_parquet(path.read_bytes())
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: missing or damaged ({str(error).splitlines()[0]}); record the arm again") from None


def _sequences(arm: Path) -> pl.DataFrame | None:
    return table_of(arm, "sequences") if (arm / "sequences.parquet").is_file() else None


def recorded_tokens(arms: Sequence[Path]) -> RecordedTokens:
    """Sampled tokens that have entropies at the calibration temperatures. Raises `InputError` where none has."""
    parts, offset, temperatures = [], 0, np.array(CALIBRATION_TEMPERATURES)
    asked: dict[object, int] = {}
    for arm in arms:
        table = _sequences(arm)
        if table is None or "entropy_at_temperature" not in table.columns:
            continue
        notes = manifest_of(arm).get("notes") or {}
        temperatures = np.array(notes.get("calibration_temperatures", CALIBRATION_TEMPERATURES), float)
        requests = table_of(arm, "requests")
        tokens = table.filter(pl.col("point") == "measure").sort(["request_id", "token_index"])
        tokens = tokens.filter(pl.col("entropy_at_temperature").list.len() == len(temperatures))
        # Without the texts every request counts as a prompt of its own.
        prompts = (
            requests["prompt_text"] if "prompt_text" in requests.columns else range(offset, offset + len(requests))
        )
        reasons = requests["finish_reason"] if "finish_reason" in requests.columns else None
        tokens = tokens.join(
            requests.select(
                "request_id", pl.col("kind").cast(pl.String).alias("kind_name"), "output_tokens",
                pl.Series("asked", [asked.setdefault(text, len(asked)) for text in prompts]),
                (reasons == "stop").alias("stopped") if reasons is not None else pl.lit(False).alias("stopped"),
            ),
            on="request_id", how="left", maintain_order="left",
        )  # fmt: skip
        if not len(tokens):
            continue
        parts.append({
            "text": tokens["request_id"].to_numpy() + offset,
            "prompt": tokens["asked"].to_numpy(),
            "token_index": tokens["token_index"].to_numpy(),
            "kind": tokens["kind_name"].to_numpy(),
            "entropy_raw_nats": tokens["entropy_raw_nats"].to_numpy(),
            "temperature_applied": tokens["temperature_applied"].to_numpy(),
            "dropped_mass": tokens["dropped_mass"].to_numpy(),
            "entropy_at": np.array(tokens["entropy_at_temperature"].to_list(), float),
            "varentropy_at": np.array(tokens["varentropy_at_temperature"].to_list(), float),
            "ended": (tokens["stopped"] & (tokens["token_index"] == tokens["output_tokens"] - 1)).to_numpy(),
        })  # fmt: skip
        offset += len(requests)
    if not parts:
        raise InputError(
            "no arm holds entropies at several temperatures; record with the live plant at level window or full"
        )
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return RecordedTokens(**joined, temperatures=temperatures)


def recorded_masses(arms: Sequence[Path]) -> list[tuple[int, FloatArray]]:
    """(number of the text, [decisions, blocks] masses) of dense attention: rows whose every block was measured."""
    out, offset = [], 0
    for arm in arms:
        requests = table_of(arm, "requests")
        table = _sequences(arm)
        if table is not None and "obs_block_mass" in table.columns:
            keep = table.filter((pl.col("point") == "keep") & pl.col("obs_measured"))
            for (request,), rows in keep.group_by(["obs_request_id"], maintain_order=True):
                # `obs_num_blocks` counts the block being written too, which may not be measured yet.
                for masses in rows["obs_block_mass"].to_list():
                    values = np.array([np.nan if v is None else v for v in masses], float)
                    filled = np.flatnonzero(~np.isnan(values))
                    if filled.size >= 4 and filled.size == filled[-1] + 1:
                        out.append((offset + int(request), values[: filled.size]))
        offset += len(requests)
    return out


def recorded_steps(arms: Sequence[Path], kv_bytes_per_token: float, flops: tuple[float, float, float]) -> RecordedSteps:
    """Steps of all arms. `flops`: a token of the layers, a row of the output layer, a query-key pair, as recorded."""
    per_token, per_sample, per_pair = flops
    parts = []
    for arm in arms:
        steps = table_of(arm, "steps")
        tokens, sampled = (steps[name].to_numpy().astype(float) for name in ("num_tokens", "num_sampled"))
        decodes = steps["num_decode"].to_numpy().astype(float)
        rows = steps["num_running"].to_numpy().astype(float)
        has_masses = "keep" in manifest_of(arm)["scenario"]["controllers"]
        pairs = (steps["flops"].to_numpy() - tokens * per_token - sampled * per_sample) / per_pair
        parts.append([
            steps["elapsed_s"].to_numpy(), tokens, sampled, rows, steps["kv_bytes_read"].to_numpy() / kv_bytes_per_token,
            np.maximum(pairs, 0.0), rows - decodes, (decodes > 0.0) * float(has_masses),
        ])  # fmt: skip
    return RecordedSteps(
        **dict(zip(RecordedSteps.__dataclass_fields__, map(np.concatenate, zip(*parts, strict=True)), strict=True))
    )


COLUMNS = ("text", "prompt", "token_index", "kind", "entropy_raw_nats", "temperature_applied", "dropped_mass", "ended")


def write_tokens(path: Path, tokens: RecordedTokens) -> None:
    """Recorded tokens as one small Parquet table, single precision; `read_tokens` gives them back."""
    columns = {name: getattr(tokens, name) for name in COLUMNS}
    for name in ("entropy_at", "varentropy_at"):
        for i, t in enumerate(tokens.temperatures):
            columns[f"{name}_{t:g}"] = getattr(tokens, name)[:, i]
    frame = pl.DataFrame(columns)
    frame.with_columns(pl.col(pl.Float64).cast(pl.Float32)).write_parquet(path, compression="zstd")


def read_tokens(path: Path | str) -> RecordedTokens:
    frame = pl.read_parquet(path).with_columns(pl.col(pl.Float32).cast(pl.Float64))
    names = [name for name in frame.columns if name.startswith("entropy_at_")]
    temperatures = [name.removeprefix("entropy_at_") for name in names]
    return RecordedTokens(
        **{name: frame[name].to_numpy() for name in COLUMNS},
        entropy_at=np.column_stack([frame[f"entropy_at_{t}"].to_numpy() for t in temperatures]),
        varentropy_at=np.column_stack([frame[f"varentropy_at_{t}"].to_numpy() for t in temperatures]),
        temperatures=np.array([float(t) for t in temperatures]),
    )
