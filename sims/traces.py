"""Request traces from files: Azure 2023, Mooncake, Vidur-style and plain CSV, JSONL or Parquet, into one `Trace`.

A trace keeps what its file says and nothing else; what had to be done to it (sorted, dropped, questioned) is in
`notes`, for reports to print. Rates, slices and kinds are the business of `sims.arrivals`.

What happens to odd rows, always with the line number:
    no number, missing field, negative time or length, not finite      refused (`InputError`)
    zero prompt or output tokens, hash ids that do not fit the length   dropped and counted
    out of order                                                       sorted stably by time and counted
    equal times                                                        kept in file order and counted
"""

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from workbench.errors import InputError, unknown_name
from workbench.signals import FloatArray, IntArray

PREFIX_BLOCK_TOKENS = 512  # of a Mooncake hash id


@dataclass(frozen=True, kw_only=True)
class TraceFormat:
    """Column names of a format and the unit of its times: "datetime", "s" or "ms"."""

    arrival: str
    prompt: str
    output: str
    time_unit: str
    hashes: str | None = None
    license: str = ""


FORMATS: dict[str, TraceFormat] = {
    "azure": TraceFormat(
        arrival="TIMESTAMP", prompt="ContextTokens", output="GeneratedTokens", time_unit="datetime",
        license="Azure LLM inference trace 2023, CC-BY 4.0 (Patel et al., Splitwise, ISCA 2024)",
    ),
    "mooncake": TraceFormat(
        arrival="timestamp", prompt="input_length", output="output_length", time_unit="ms", hashes="hash_ids",
        license="Mooncake FAST'25 traces, Apache 2.0",
    ),
    "vidur": TraceFormat(
        arrival="arrived_at", prompt="num_prefill_tokens", output="num_decode_tokens", time_unit="s"
    ),
    "plain": TraceFormat(arrival="arrival_s", prompt="prompt_tokens", output="output_tokens", time_unit="s"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Requests sorted by arrival, the first at 0. Arrays of shape [n].

    hash_offset [n + 1], hash_id [all]   prefix block i of request r is hash_id[hash_offset[r] + i]; ids are opaque,
                                         renumbered densely; None where the trace has none
    """

    name: str
    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    hash_offset: IntArray | None = None
    hash_id: IntArray | None = None
    prefix_block_tokens: int = PREFIX_BLOCK_TOKENS
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return self.arrival_s.shape[0]

    @property
    def span_s(self) -> float:
        return float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) else 0.0

    @property
    def rate_per_s(self) -> float:
        """Requests a second; NaN where all arrive at once."""
        return (len(self) - 1) / self.span_s if self.span_s > 0.0 else math.nan

    def summary(self) -> str:
        """One line for the report."""
        return (
            f"{self.name}: {len(self):,} requests over {self.span_s:,.0f} s, {self.rate_per_s:.2f} requests/s, prompt "
            f"mean {self.prompt_tokens.mean():,.0f}, output mean {self.output_tokens.mean():,.1f} tokens"
        )


def read_trace(path: Path | str, *, format: str | None = None, time_unit: str | None = None) -> Trace:
    """Read a trace file. `format` one of `FORMATS` (None: recognised by its columns); `time_unit` "s" or "ms" overrides.

    Raises `InputError`, one line naming file, line and remedy.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no trace file at {path}")
    if format is not None and format not in FORMATS:
        raise unknown_name("trace format", format, FORMATS)
    if time_unit not in (None, "s", "ms"):
        raise InputError(f"time_unit must be s or ms, got {time_unit!r}")
    rows = iter(_rows(path))
    first = next(rows, None)
    if first is None:
        raise InputError(f"{path} holds no requests")
    known = FORMATS[format] if format else _recognised(path, first[1])
    unit = time_unit or known.time_unit
    return _collect(path, known, unit, _chain(first, rows))


def _chain(first: tuple[int, dict[str, Any]], rest: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[Any]:
    yield first
    yield from rest


def _recognised(path: Path, row: dict[str, Any]) -> TraceFormat:
    for candidate in FORMATS.values():
        if {candidate.arrival, candidate.prompt, candidate.output} <= set(row):
            return candidate
    # Near misses name the column; a first line of numbers means that the header is missing.
    present = list(row)
    best = max(FORMATS.values(), key=lambda f: len({f.arrival, f.prompt, f.output} & set(present)))
    missing = [c for c in (best.arrival, best.prompt, best.output) if c not in present]
    if len(missing) == 3:
        wanted = "; ".join(f"{n}: {f.arrival},{f.prompt},{f.output}" for n, f in FORMATS.items())
        raise InputError(f"{path}: no known header, found columns {present[:6]}; expected one of {wanted}")
    raise InputError(f"{path}: column {missing[0]!r} is missing, found {present}")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, fields) of every row, whatever the container."""
    if path.suffix == ".parquet":
        try:
            table = pl.read_parquet(path)
        except Exception as error:
            raise InputError(f"{path} is not a readable Parquet file: {error}") from None
        yield from ((i + 1, row) for i, row in enumerate(table.iter_rows(named=True)))
        return
    text = _text(path)
    if path.suffix in (".jsonl", ".json", ".ndjson"):
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{path} line {number}: not JSON ({error.msg})") from None
            if not isinstance(row, dict):
                raise InputError(f"{path} line {number}: expected one JSON object a line")
            yield number, row
        return
    yield from _csv_rows(path, text)


def _text(path: Path) -> str:
    raw = path.read_bytes()
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in raw[:200]:
        raise InputError(f"{path} is UTF-16 or binary; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (byte {error.start}); convert it to UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(text))
    header = [name.strip() for name in next(reader, [])]
    if len(header) == 1 and any(mark in header[0] for mark in (";", "\t", "|")):
        mark = next(m for m in (";", "\t", "|") if m in header[0])
        raise InputError(f"{path}: fields are separated by {mark!r}; a comma is expected")
    if len(set(header)) != len(header):
        raise InputError(f"{path}: a column name occurs twice in {header}")
    for cells in reader:
        if not cells or (len(cells) == 1 and not cells[0].strip()):
            continue
        if len(cells) != len(header):
            raise InputError(f"{path} line {reader.line_num}: {len(cells)} fields, the header has {len(header)}")
        yield reader.line_num, dict(zip(header, cells, strict=True))


def _number(path: Path, line: int, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{path} line {line}: {name} must be a number, got {value!r}") from None
    if not math.isfinite(number) or number < 0.0:
        raise InputError(f"{path} line {line}: {name} must be finite and at least 0, got {value!r}")
    return number


def _tokens(path: Path, line: int, name: str, value: Any) -> int:
    number = _number(path, line, name, value)
    if number != int(number) or number >= 2**31:
        raise InputError(f"{path} line {line}: {name} must be a whole number below 2^31, got {value!r}")
    return int(number)


def _seconds(path: Path, line: int, name: str, value: Any, unit: str) -> float:
    if unit != "datetime":
        return _number(path, line, name, value) * (1e-3 if unit == "ms" else 1.0)
    if isinstance(value, datetime):
        moment, fraction = value, value.microsecond * 1e-6
    else:
        whole, _, digits = str(value).strip().partition(".")
        try:
            moment = datetime.fromisoformat(whole)
            fraction = float(f"0.{digits.rstrip('Z')}") if digits else 0.0
        except ValueError:
            raise InputError(f"{path} line {line}: {name} must be a date and time, got {value!r}") from None
    moment = moment.replace(microsecond=0, tzinfo=moment.tzinfo or UTC)
    return moment.timestamp() - EPOCH_S + fraction


EPOCH_S = datetime(2020, 1, 1, tzinfo=UTC).timestamp()  # keeps 0.1 us of a double


class _Dropped:
    """Counts rows left out, by reason, with the first line of each."""

    def __init__(self) -> None:
        self._count: dict[str, tuple[int, int]] = {}

    def add(self, reason: str, line: int) -> None:
        count, first = self._count.get(reason, (0, line))
        self._count[reason] = (count + 1, first)

    def notes(self) -> list[str]:
        return [f"dropped {n} rows: {why} (first at line {line})" for why, (n, line) in self._count.items()]


def _collect(path: Path, known: TraceFormat, unit: str, rows: Iterator[tuple[int, dict[str, Any]]]) -> Trace:
    arrival: list[float] = []
    prompt: list[int] = []
    output: list[int] = []
    hashes: list[list[int]] = []
    dense: dict[Any, int] = {}
    dropped = _Dropped()
    without_ids = 0
    for line, row in rows:
        for name in (known.arrival, known.prompt, known.output):
            if row.get(name) is None or row[name] == "":
                raise InputError(f"{path} line {line}: {name} is missing")
        time_s = _seconds(path, line, known.arrival, row[known.arrival], unit)
        prompt_tokens = _tokens(path, line, known.prompt, row[known.prompt])
        output_tokens = _tokens(path, line, known.output, row[known.output])
        if prompt_tokens == 0 or output_tokens == 0:
            dropped.add("zero prompt or output tokens", line)
            continue
        if known.hashes is not None:
            ids = row.get(known.hashes)
            if not ids:
                without_ids += 1
                ids = []
            elif len(ids) != -(-prompt_tokens // PREFIX_BLOCK_TOKENS):
                dropped.add(f"not ceil(input / {PREFIX_BLOCK_TOKENS}) hash ids", line)
                continue
            hashes.append([dense.setdefault(i, len(dense)) for i in ids])
        arrival.append(time_s)
        prompt.append(prompt_tokens)
        output.append(output_tokens)
    notes = dropped.notes()
    if not arrival:
        raise InputError(f"{path} holds no usable requests; {'; '.join(notes) or 'it is empty'}")
    if known.hashes is not None and without_ids:
        notes.append(f"{without_ids} rows without hash ids share no prefix")
    times = np.array(arrival)
    backwards = int(np.count_nonzero(np.diff(times) < 0.0))
    order = np.argsort(times, kind="stable")
    if backwards:
        notes.append(f"sorted by time: {backwards} rows came before their predecessor")
    times = times[order] - times[order[0]]
    ties = int(np.count_nonzero(np.diff(times) == 0.0))
    if ties:
        notes.append(f"{ties} requests share the time of the one before; they are served in file order")
    notes.extend(_questions(times))
    offset = ids = None
    if known.hashes is not None:
        ordered = [hashes[i] for i in order]
        offset = np.concatenate([[0], np.cumsum([len(h) for h in ordered])]).astype(np.int64)
        ids = np.array([i for h in ordered for i in h], dtype=np.int64)
    if known.license:
        notes.append(known.license)
    return Trace(
        name=path.name,
        arrival_s=times,
        prompt_tokens=np.array(prompt, dtype=np.int64)[order],
        output_tokens=np.array(output, dtype=np.int64)[order],
        hash_offset=offset,
        hash_id=ids,
        notes=tuple(notes),
    )


def _questions(times: FloatArray) -> list[str]:
    """Rates nobody serves from one engine are questioned, not corrected."""
    span = float(times[-1])
    if times.size < 10:
        return []
    rate = (times.size - 1) / span if span > 0.0 else math.inf
    if rate > 500.0:
        return [
            f"{rate:,.0f} requests/s over {span:.3g} s is implausible; are the times in another unit? (--time-unit)"
        ]
    if rate < 1e-3:
        return [
            f"{rate:.2g} requests/s over {span:,.0f} s is implausible; are the times in another unit? (--time-unit)"
        ]
    return []
