"""Safetensors files, one or a sharded set, their headers checked against their sizes before any tensor is read.

Only this format is ever opened: a pickle, whatever its name, fails the header check and is never unpickled.
"""

import json
import struct
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from workbench.errors import InputError

DTYPES = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8}
MAX_HEADER_BYTES = 100_000_000  # the format's own limit


def tensor_files(directory: Path) -> list[Path]:
    """The weight files of a Hugging Face directory: `model.safetensors`, or the shards its index names."""
    single, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if not index.is_file():
        others = sorted(p.name for p in directory.glob("*") if p.suffix in {".bin", ".pt", ".pth", ".ckpt"})
        why = f"; {others[0]} is a pickle and is never opened, save as safetensors" if others else ""
        raise InputError(f"{directory}: no model.safetensors and no model.safetensors.index.json{why}")
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{index}: no weight_map")
    shards = []
    for name in sorted(set(weight_map.values())):
        shard = directory / name
        if Path(name).name != name or not shard.is_file():
            wanted = [tensor for tensor, file in weight_map.items() if file == name]
            raise InputError(f"{index}: shard {name!r} is missing; it holds {len(wanted)} tensors, {wanted[0]!r} first")
        shards.append(shard)
    for shard in shards:
        held, promised = set(read_header(shard)), {t for t, file in weight_map.items() if file == shard.name}
        if lacking := sorted(promised - held):
            raise InputError(f"{shard}: tensor {lacking[0]!r} is missing, the index promises it ({len(lacking)} such)")
    return shards


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Name to {dtype, shape, data_offsets}. Raises `InputError` naming file, tensor and sizes."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else -1
        if not 2 <= length <= min(size_bytes - 8, MAX_HEADER_BYTES):
            raise InputError(f"{path}: not a safetensors file (header length {length}, file {size_bytes} bytes)")
        text = file.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        entries = [(name, e["dtype"], list(e["shape"]), *e["data_offsets"]) for name, e in header.items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: not a safetensors file (its header is not the expected JSON)") from None
    data_bytes = size_bytes - 8 - length
    for name, dtype, shape, begin, end in entries:
        if dtype not in DTYPES:
            raise InputError(f"{path}: tensor {name!r} has dtype {dtype}, allowed {', '.join(DTYPES)}")
        if not all(isinstance(n, int) and n >= 0 for n in (*shape, begin, end)):
            raise InputError(f"{path}: tensor {name!r} has shape {shape} and offsets {begin}, {end}")
        needed = DTYPES[dtype]
        for dim in shape:
            needed *= dim
        if end - begin != needed or end > data_bytes:
            raise InputError(
                f"{path}: tensor {name!r} {shape} {dtype} needs {needed} bytes, the file gives it bytes {begin} to "
                f"{end} of {data_bytes}; it is damaged or cut short"
            )
    return header


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of one file, memory-mapped. Raises `InputError` where the header does not hold."""
    read_header(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # the library raises its own untyped error
        raise InputError(f"{path}: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises `InputError`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: not a JSON file ({error})") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: must hold a JSON object, holds {type(value).__name__}")
    return value
