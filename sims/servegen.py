"""ServeGen client statistics as a request trace: per client and time window a rate, a gap distribution, token counts.

A folder holds, per client k,

    chunk-k-trace.csv      no header: window start (s), requests a second, cv of gaps, Gamma | Weibull | empty, shape, scale
    chunk-k-dataset.json   window start -> {"input_tokens": "{tokens: probability, ..}", "output_tokens": ..}

Each client is a renewal process with the window's gap distribution (shape kept, scale set by the rate); lengths are drawn from
the latest window that has any; a client without a data set is left out, and the notes say how many. Input and output are
drawn apart: their joint distribution is not published.
Source: Xiang et al., ServeGen (2025), Apache 2.0. Deviates: a gap that crosses into the next window is drawn anew there.
"""

import ast
import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import gamma as gamma_function
from scipy.special import gammaincinv

from kernels.philox import uniform_fine
from sims import streams
from sims.traces import Trace
from workbench.errors import InputError
from workbench.signals import FloatArray, IntArray

COLUMNS = 6
LANES = 1 << 20  # draws of one client and window lie below this


@dataclass(frozen=True)
class Window:
    start_s: float
    rate_per_s: float
    family: str
    shape: float


@dataclass(frozen=True)
class Lengths:
    """A distribution of whole numbers: values and cumulative probabilities."""

    values: IntArray
    cumulative: FloatArray

    def draw(self, u: FloatArray) -> IntArray:
        return self.values[np.minimum(np.searchsorted(self.cumulative, u), self.values.size - 1)]


def read_servegen(folder: Path | str, count: int, seed: int) -> Trace:
    """The first `count` requests of all clients together, from the first window with any. Raises `InputError`."""
    folder = Path(folder)
    files = sorted(folder.glob("chunk-*-trace.csv"), key=lambda p: (len(p.name), p.name))
    if not files:
        raise InputError(f"{folder}: no ServeGen client in it (chunk-K-trace.csv); give a folder such as deepseek-r1")
    lengths_of = {path: path.with_name(path.name.replace("trace.csv", "dataset.json")) for path in files}
    with_lengths = [path for path in files if lengths_of[path].is_file()]
    if not with_lengths:
        raise InputError(f"{lengths_of[files[0]]} is missing beside its trace; no client here has token counts")
    clients = [(_windows(path), *_datasets(lengths_of[path])) for path in with_lengths]
    starts = sorted({w.start_s for windows, _, _ in clients for w in windows if w.rate_per_s > 0.0})
    if not starts:
        raise InputError(f"{folder}: every rate is 0; there is no request to draw")
    edges = sorted({w.start_s for windows, _, _ in clients for w in windows})
    width = float(np.min(np.diff(edges))) if len(edges) > 1 else 600.0
    rows: list[tuple[FloatArray, IntArray, IntArray]] = []
    have = 0
    skipped = 0
    for start in starts:
        for k, (windows, inputs, outputs) in enumerate(clients):
            window = next((w for w in windows if w.start_s == start and w.rate_per_s > 0.0), None)
            if window is None:
                continue
            lengths = _latest(inputs, start), _latest(outputs, start)
            if lengths[0] is None or lengths[1] is None:
                skipped += 1
                continue
            index = int(start // width)
            times = _renewals(window, width, seed, k * 4096 + index)
            u = uniform_fine(seed, streams.LENGTH, k * 4096 + index, np.arange(2 * times.size)).reshape(2, -1)
            rows.append((times, lengths[0].draw(u[0]), lengths[1].draw(u[1])))
            have += times.size
        if have >= count:
            break
    if have == 0:
        raise InputError(f"{folder}: no window has both a rate and token counts; there is no request to draw")
    arrival, prompt, output = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    order = np.argsort(arrival, kind="stable")[:count]
    notes = [
        "drawn from ServeGen client statistics (Apache 2.0), not recorded requests: equal seeds give equal requests",
        f"{len(clients)} clients, from {arrival[order[0]]:.0f} s of their day",
    ]
    if len(with_lengths) < len(files):
        notes.append(
            f"{len(files) - len(with_lengths)} clients left out: no data set of token counts beside their trace"
        )
    if skipped:
        notes.append(f"{skipped} client windows left out: a rate but no token counts")
    if have < count:
        notes.append(f"the clients' day holds {have} requests, not the {count} asked for")
    return Trace(
        name=folder.name,
        arrival_s=arrival[order] - arrival[order[0]],
        prompt_tokens=np.maximum(prompt[order], 1),
        output_tokens=np.maximum(output[order], 1),
        notes=tuple(notes),
    )


def _windows(path: Path) -> list[Window]:
    windows = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        for line, cells in enumerate(csv.reader(file), start=1):
            if not cells:
                continue
            if len(cells) != COLUMNS:
                raise InputError(f"{path} line {line}: {len(cells)} fields, a ServeGen trace has {COLUMNS}")
            numbers = []
            for name, cell in zip(("start", "rate", "cv", "shape", "scale"), (*cells[:3], *cells[4:]), strict=True):
                try:
                    numbers.append(float(cell))
                except ValueError:
                    raise InputError(f"{path} line {line}: {name} must be a number, got {cell!r}") from None
                if not 0.0 <= numbers[-1] < math.inf:
                    raise InputError(f"{path} line {line}: {name} must be finite and at least 0, got {cell}")
            family = cells[3].strip()
            if numbers[1] > 0.0 and family not in ("Gamma", "Weibull"):
                raise InputError(f"{path} line {line}: gaps must be Gamma or Weibull, got {family!r}")
            if numbers[1] > 0.0 and numbers[3] <= 0.0:
                raise InputError(f"{path} line {line}: shape must be above 0, got {cells[4]}")
            windows.append(Window(numbers[0], numbers[1], family, numbers[3]))
    return windows


def _datasets(path: Path) -> tuple[dict[float, Lengths], dict[float, Lengths]]:
    """By window start: input and output token counts."""
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
        inputs, outputs = {}, {}
        for start, window in data.items():
            for name, into in (("input_tokens", inputs), ("output_tokens", outputs)):
                found = ast.literal_eval(window[name])
                if found:
                    values = np.array(sorted(found), np.int64)
                    weights = np.array([float(found[v]) for v in sorted(found)])
                    if values.min() < 0 or not np.all(weights >= 0.0) or not 0.0 < weights.sum() < math.inf:
                        raise ValueError(f"{name} of window {start} is no distribution of token counts")
                    into[float(start)] = Lengths(values, np.cumsum(weights) / weights.sum())
    except (OSError, ValueError, SyntaxError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a ServeGen data set ({error})") from None
    return inputs, outputs


def _latest(tables: dict[float, Lengths], start: float) -> Lengths | None:
    """Of the latest window that began by then; the first one where none has."""
    if not tables:
        return None
    begun = [s for s in tables if s <= start]
    return tables[max(begun) if begun else min(tables)]


def _renewals(window: Window, width_s: float, seed: int, key: int) -> FloatArray:
    """Arrival times of one client in one window. The first gap is drawn like the others, scaled by an even share."""
    count = int(2.0 * window.rate_per_s * width_s) + 64
    while True:
        u = uniform_fine(seed, streams.ARRIVAL, key, np.arange(count))
        if window.family == "Gamma":
            gaps = gammaincinv(window.shape, u) / window.shape
        else:
            gaps = (-np.log1p(-u)) ** (1.0 / window.shape) / gamma_function(1.0 + 1.0 / window.shape)
        gaps /= window.rate_per_s
        gaps[0] *= float(uniform_fine(seed, streams.ARRIVAL, key, LANES))
        times = np.cumsum(gaps)
        if times[-1] >= width_s or count > LANES // 2:
            return window.start_s + times[times < width_s]
        count *= 2
