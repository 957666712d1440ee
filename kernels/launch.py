"""What every launcher shares: checks with clear errors, and the configurations that `kernels.aot` compiles.

Values inside tensors (block indices, temperatures) are checked where that costs no device synchronisation, which is on
the CPU and so in the interpreter. On a GPU the kernels themselves mask what is out of range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
POINTER = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16"}


@dataclass(frozen=True)
class Shipped:
    """One configuration of a kernel as it is launched: argument types, constants, warps."""

    kernel: Any
    name: str
    signature: Mapping[str, str]  # argument name to type, "*bf16", "i32", "fp32", ...
    constants: Mapping[str, Any]
    num_warps: int = 4
    options: Mapping[str, Any] = field(default_factory=dict)


def check(
    name: str, tensor: Tensor, dtypes: torch.dtype | Sequence[torch.dtype], shape: Sequence[int | None], like: Tensor
) -> Tensor:
    """Refuse a wrong dtype (TypeError), shape, layout or device (ValueError). None in `shape` fits any size."""
    allowed = (dtypes,) if isinstance(dtypes, torch.dtype) else tuple(dtypes)
    if tensor.dtype not in allowed:
        raise TypeError(f"{name} must be {' or '.join(str(d) for d in allowed)}, got {tensor.dtype}")
    if len(shape) != tensor.ndim or any(s is not None and s != t for s, t in zip(shape, tensor.shape, strict=True)):
        wanted = ", ".join("any" if s is None else str(s) for s in shape)
        raise ValueError(f"{name} must have shape [{wanted}], got {list(tensor.shape)}")
    if tensor.device != like.device:
        raise ValueError(f"{name} must be on {like.device}, got {tensor.device}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous, got strides {list(tensor.stride())}; call .contiguous()")
    return tensor


def check_range(name: str, tensor: Tensor, low: int, high: int) -> None:
    """Refuse integers outside [low, high), on the CPU only."""
    if tensor.device.type == "cpu" and tensor.numel():
        least, most = int(tensor.min()), int(tensor.max())
        if least < low or most >= high:
            raise ValueError(f"{name} must be in [{low}, {high}), got {least if least < low else most}")


def next_power_of_2(value: int) -> int:
    return 1 << max(value - 1, 0).bit_length()


def num_splits(programs: int, work: int, device: torch.device, per_split: int) -> int:
    """Into how many parts each program's work is split so that a few rows still fill the device."""
    target = 2 * torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4
    return max(1, min(target // max(programs, 1), -(-work // per_split)))
