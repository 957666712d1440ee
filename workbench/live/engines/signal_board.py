"""The signal path between the process that samples and the process that schedules: one small shared file of numbers.

A memory-mapped file that either side may create first. It holds no lock: every entry carries a checksum over its own words,
so an entry read while it is written is seen as torn and taken as missing. Per slot the last `depth` tokens are kept:

    entry (slot, token_index % depth) = request_id, token_index, step, H_raw, V_raw, checksum        six 64-bit words

The reader asks for a certain token of a certain request and gets it or nothing: a late signal is a missing measurement,
never another token's. The header counts what each side has done (`COUNTERS`), for whoever watches.
"""

import mmap
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray, IntArray

MAGIC = 0x454E54524F504943
LAYOUT = 1
HEADER_WORDS = 64
ENTRY_WORDS = 6
FIXED = ("magic", "layout", "num_slots", "depth", "sampler_pid", "scheduler_pid", "sampler_step", "sampler_time_ns")
COUNTERS = (
    # written by the process that samples
    "sampled_rows",  # rows of logits seen
    "drawn_rows",  # drawn by the law in force
    "engine_drawn_rows",  # tempered by the law, truncated and drawn by the engine (top-k, top-p or min-p asked for)
    "passed_rows",  # left to the engine: greedy, or opted out
    "processed_rows",  # logits already changed before they could be measured: not called H_raw
    "bad_rows",  # no distribution (NaN logits): left to the engine
    "requests_joined",
    "states_lost",  # a waiting request's controller state had to make room
    # written by the process that schedules
    "order_decisions",
    "steps_on_own_order",  # the engine's order, because the signal was lost
    "signal_losses",
    "signal_returns",
    "measurements_used",
    "measurements_missing",  # a token was drawn, its measurement was not there when the order was made
    "torn_entries",
    "preemptions",
    "requests_arrived",
    "requests_ended",
)


@dataclass(frozen=True)
class Signals:
    """What was found, one entry a row asked for; NaN and 0 where nothing was."""

    found: BoolArray
    step: IntArray
    entropy_raw_nats: FloatArray
    varentropy_raw_nats2: FloatArray


class SignalBoard:
    """One engine's board. Both sides open it with the same `num_slots` and `depth`. Raises `InputError`."""

    def __init__(self, path: Path, num_slots: int, depth: int, *, create: bool = True) -> None:
        self.path, self.num_slots, self.depth = path, num_slots, depth
        size = 8 * (HEADER_WORDS + num_slots * depth * ENTRY_WORDS)
        fixed = (MAGIC, LAYOUT, num_slots, depth)
        try:
            if create and not path.exists():
                _create(path, size, fixed)
            handle = os.open(path, os.O_RDWR)
            try:
                self._map = mmap.mmap(handle, max(size, os.fstat(handle).st_size))
            finally:
                os.close(handle)
        except OSError as error:
            raise InputError(f"signal file {path}: {error.strerror or error}; give a writable TMPDIR") from None
        except ValueError:  # a map longer than the file
            raise InputError(f"signal file {path} is of another layout; remove it") from None
        words = np.frombuffer(self._map, np.int64)
        self._header = words[:HEADER_WORDS]
        if tuple(self._header[: len(fixed)].tolist()) != fixed:
            raise InputError(f"signal file {path} is of another layout; remove it")
        self._entries = words[HEADER_WORDS:].reshape(num_slots, depth, ENTRY_WORDS)

    def close(self, remove: bool = False) -> None:
        if remove:
            self.path.unlink(missing_ok=True)

    def sign(self, side: str) -> None:
        """Leave this process's id: `sampler` or `scheduler`."""
        self._header[FIXED.index(f"{side}_pid")] = os.getpid()

    # The side that samples

    def publish(
        self, slot: IntArray, request_id: IntArray, token_index: IntArray, step: IntArray, h: FloatArray, v: FloatArray
    ) -> None:
        """Raw entropy and varentropy of tokens just drawn, one row each."""
        entry = np.empty((slot.size, ENTRY_WORDS), np.int64)
        entry[:, 0], entry[:, 1], entry[:, 2] = request_id, token_index, step
        entry[:, 3], entry[:, 4] = _bits(h), _bits(v)
        entry[:, 5] = _checksum(entry)
        self._entries[slot, token_index % self.depth] = entry

    def beat(self, step: int) -> None:
        """The sampler has finished this step: the watchdog's sign of life."""
        self._header[FIXED.index("sampler_step")] = step + 1
        self._header[FIXED.index("sampler_time_ns")] = time.monotonic_ns()

    # The side that schedules

    @property
    def sampler_step(self) -> int:
        return int(self._header[FIXED.index("sampler_step")])

    def read(self, slot: IntArray, request_id: IntArray, token_index: IntArray) -> Signals:
        """The measurement of that token of that request in each slot, where it has arrived whole."""
        entry = self._entries[slot, np.maximum(token_index, 0) % self.depth].copy()
        wanted = (token_index >= 0) & (entry[:, 0] == request_id) & (entry[:, 1] == token_index)
        whole = entry[:, 5] == _checksum(entry)
        self.count("torn_entries", int(np.count_nonzero(wanted & ~whole & (entry[:, 5] != 0))))
        found = wanted & whole
        return Signals(
            found=found,
            step=np.where(found, entry[:, 2], 0),
            entropy_raw_nats=np.where(found, entry[:, 3].copy().view(np.float64), np.nan),
            varentropy_raw_nats2=np.where(found, entry[:, 4].copy().view(np.float64), np.nan),
        )

    # Both

    def count(self, name: str, more: int = 1) -> None:
        if more:
            self._header[len(FIXED) + COUNTERS.index(name)] += more

    def counters(self) -> dict[str, int]:
        first = len(FIXED)
        return dict(zip(COUNTERS, self._header[first : first + len(COUNTERS)].tolist(), strict=True))

    def state(self) -> dict[str, int]:
        """Process ids and the sampler's steps."""
        return dict(zip(FIXED[2:], self._header[2 : len(FIXED)].tolist(), strict=True))


def _create(path: Path, size: int, fixed: tuple[int, ...]) -> None:
    """The file appears whole, or the other side's does: nobody sees one without its header."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    header = np.zeros(HEADER_WORDS, np.int64)
    header[: len(fixed)] = fixed
    try:
        draft.touch(0o600)
        draft.write_bytes(header.tobytes())
        os.truncate(draft, size)
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)


def _bits(values: FloatArray) -> IntArray:
    return np.ascontiguousarray(values, np.float64).view(np.int64)


def _checksum(entry: np.ndarray) -> IntArray:
    """A mix of the first five words, never equal to the sum of an entry half overwritten but by a chance of 2^-64."""
    words = entry[:, : ENTRY_WORDS - 1].astype(np.uint64)
    total = np.full(entry.shape[0], 0x9E3779B97F4A7C15, np.uint64)
    for column in range(ENTRY_WORDS - 1):
        total = (total ^ words[:, column]) * np.uint64(0xBF58476D1CE4E5B9)
        total ^= total >> np.uint64(31)
    return total.view(np.int64)


def board_folder() -> Path:
    """Shared memory where the system has it, else the folder for temporary files."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


def board_path(instance: str) -> Path:
    return board_folder() / f"entropic-{os.getuid()}-{instance}.board"


def open_boards() -> list[Path]:
    """Boards of this user's running engines; what an engine that was killed has left is removed."""
    running = []
    for path in sorted(board_folder().glob(f"entropic-{os.getuid()}-*.board")):
        try:
            state = read_board(path).state()
        except InputError:
            continue  # gone meanwhile, or of another version
        pids = [pid for name, pid in state.items() if name.endswith("_pid") and pid]
        if any(Path(f"/proc/{pid}").is_dir() for pid in pids) or not Path("/proc").is_dir():
            running.append(path)
        else:
            path.unlink(missing_ok=True)
    return running


def read_board(path: Path) -> SignalBoard:
    """A board found on disk, with the layout its header says. Raises `InputError`."""
    try:
        with path.open("rb") as file:
            head = np.frombuffer(file.read(8 * len(FIXED)), np.int64)
    except OSError as error:
        raise InputError(f"signal file {path}: {error.strerror or error}") from None
    if head.size < len(FIXED) or head[0] != MAGIC or head[1] != LAYOUT:
        raise InputError(f"{path} is no signal file of this version")
    return SignalBoard(path, int(head[2]), int(head[3]), create=False)
