"""JSON without NaN or Infinity, as every figure, manifest and witness is written."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """`value` in the types strict JSON knows: dataclasses and mappings become objects, NaN and infinity become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)


def strict_json(value: Any) -> str:
    """Keys sorted, ASCII only, so that equal values give equal bytes and any terminal can print them."""
    return json.dumps(plain(value), allow_nan=False, indent=2, sort_keys=True) + "\n"
