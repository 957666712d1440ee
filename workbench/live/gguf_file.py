"""A GGUF file, read with every count checked against the file before it is used.

The header is walked once. Nothing is allocated from a number in the file: a count, length, dimension or offset that
cannot fit in the file's own bytes is refused with the tensor and the sizes, so a damaged file fails in milliseconds.
Tensors stay memory-mapped until `dequantised` is asked for one.

Source: the GGUF specification, version 3 (and 2, which differs in nothing read here).
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from workbench.errors import InputError

MAX_DIMS = 4  # the specification's own limit
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class GGUFTensor:
    """Where one tensor lies. `shape` is in row-major order (GGUF stores it reversed)."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset_bytes: int
    num_bytes: int


class GGUFFile:
    """Metadata and tensor table of one file. Raises `InputError` naming file, field or tensor, and sizes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = np.memmap(path, mode="r", dtype=np.uint8) if path.stat().st_size else np.empty(0, np.uint8)
        self._at = 0
        if bytes(self._data[:4]) != b"GGUF":
            raise InputError(f"{path}: not a GGUF file (it does not begin with 'GGUF')")
        self._at = 4
        version = self._scalar("<I", "the version")
        if version not in (2, 3):
            raise InputError(f"{path}: GGUF version must be 2 or 3, got {version}")
        num_tensors = self._count("tensor count", smallest_bytes=24)
        num_fields = self._count("metadata count", smallest_bytes=12)
        self.metadata: dict[str, Any] = {}
        for index in range(num_fields):
            key = self._string(f"metadata key {index}")
            self.metadata[key] = self._value(self._scalar("<I", f"the type of {key!r}"), key, depth=0)
        self.tensors = self._tensor_table(num_tensors)

    def dequantised(self, name: str) -> np.ndarray:
        """The tensor as float32 [shape]."""
        tensor = self.tensors[name]
        raw = self._data[tensor.offset_bytes : tensor.offset_bytes + tensor.num_bytes]
        block, size = GGML_QUANT_SIZES[tensor.kind]
        if tensor.kind == GGMLQuantizationType.F32:
            return raw.view(np.float32).reshape(tensor.shape)
        if tensor.kind == GGMLQuantizationType.F16:
            return raw.view(np.float16).astype(np.float32).reshape(tensor.shape)
        rows = raw.reshape(-1, tensor.shape[-1] // block * size)
        try:
            return dequantize(rows, tensor.kind).reshape(tensor.shape)
        except NotImplementedError:
            raise InputError(f"{self.path}: tensor {name!r} is stored as {tensor.kind.name}, not offered") from None

    def _tensor_table(self, num_tensors: int) -> dict[str, GGUFTensor]:
        entries = []
        for index in range(num_tensors):
            name = self._string(f"the name of tensor {index}")
            num_dims = self._scalar("<I", f"the dimension count of {name!r}")
            if not 1 <= num_dims <= MAX_DIMS:
                raise InputError(f"{self.path}: tensor {name!r} has {num_dims} dimensions, allowed 1 to {MAX_DIMS}")
            dims = [self._scalar("<Q", f"the dimensions of {name!r}") for _ in range(num_dims)]
            kind = self._scalar("<I", f"the type of {name!r}")
            entries.append((name, tuple(reversed(dims)), kind, self._scalar("<Q", f"the offset of {name!r}")))
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise InputError(f"{self.path}: general.alignment must be a power of two, got {alignment!r}")
        start = -(-self._at // alignment) * alignment
        tensors: dict[str, GGUFTensor] = {}
        for name, shape, raw_kind, offset in entries:
            try:
                kind = GGMLQuantizationType(raw_kind)
            except ValueError:
                raise InputError(f"{self.path}: tensor {name!r} has unknown type {raw_kind}") from None
            block, size = GGML_QUANT_SIZES[kind]
            count = 1
            for dim in shape:  # Python integers: the product cannot wrap
                count *= dim
            if shape[-1] % block:
                raise InputError(f"{self.path}: tensor {name!r} has rows of {shape[-1]}, not a multiple of {block}")
            num_bytes = count // block * size
            if count == 0 or start + offset + num_bytes > self._data.size:
                raise InputError(
                    f"{self.path}: tensor {name!r} {list(shape)} needs {num_bytes} bytes from byte {start + offset}, "
                    f"the file has {self._data.size}; it is damaged or cut short"
                )
            if name in tensors:
                raise InputError(f"{self.path}: tensor {name!r} appears twice")
            tensors[name] = GGUFTensor(name, shape, kind, start + offset, num_bytes)
        return tensors

    def _take(self, num_bytes: int, what: str) -> np.ndarray:
        if num_bytes > self._data.size - self._at:
            raise InputError(
                f"{self.path}: {what} needs {num_bytes} bytes at byte {self._at}, the file has {self._data.size}; "
                "it is damaged or cut short"
            )
        taken = self._data[self._at : self._at + num_bytes]
        self._at += num_bytes
        return taken

    def _scalar(self, layout: str, what: str) -> Any:
        return struct.unpack(layout, self._take(struct.calcsize(layout), what))[0]

    def _count(self, what: str, smallest_bytes: int) -> int:
        count = self._scalar("<Q", what)
        if count * smallest_bytes > self._data.size - self._at:
            raise InputError(f"{self.path}: {what} of {count} cannot fit in a file of {self._data.size} bytes")
        return count

    def _string(self, what: str) -> str:
        length = self._count(f"length of {what}", smallest_bytes=1)
        try:
            return bytes(self._take(length, what)).decode()
        except UnicodeDecodeError:
            raise InputError(f"{self.path}: {what} is not UTF-8") from None

    def _value(self, kind: int, key: str, depth: int) -> Any:
        if kind in SCALARS:
            return self._scalar(SCALARS[kind], repr(key))
        if kind == STRING:
            return self._string(repr(key))
        if kind == ARRAY and depth == 0:
            item = self._scalar("<I", f"the item type of {key!r}")
            smallest = struct.calcsize(SCALARS[item]) if item in SCALARS else 8
            count = self._count(f"length of {key!r}", smallest)
            if item in SCALARS:
                return np.frombuffer(self._take(count * smallest, repr(key)), np.dtype(SCALARS[item])).tolist()
            if item == STRING:
                return [self._string(repr(key)) for _ in range(count)]
        raise InputError(f"{self.path}: metadata {key!r} has unknown type {kind}")
