"""CPU tensors in huge pages, where the system grants them: what every step reads then needs few address translations.

Linux gives 2 MiB pages to memory that asks for them (`transparent_hugepage` in its `madvise` or `always` mode); elsewhere
the same tensors lie in ordinary pages.
"""

import contextlib
import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

CACHE_LINE_BYTES = 64


def zeros(shapes: Sequence[Sequence[int]], dtype: torch.dtype) -> list[Tensor]:
    """One tensor of zeros per shape, side by side in one mapping that lives as long as any of them."""
    sizes = [math.prod(shape) * dtype.itemsize for shape in shapes]
    room = [-(-size // CACHE_LINE_BYTES) * CACHE_LINE_BYTES for size in sizes]
    if sum(room) == 0:
        return [torch.zeros(tuple(shape), dtype=dtype) for shape in shapes]
    memory = mmap.mmap(-1, sum(room), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    parts = torch.frombuffer(memory, dtype=torch.uint8).split(room)
    return [part[:size].view(dtype).view(tuple(shape)) for part, size, shape in zip(parts, sizes, shapes, strict=True)]
