"""What an engine's processes write while it serves: streams of rows on disk, whole up to the last step before a crash.

Each process writes its own streams (Arrow IPC, one batch of rows a step); `collect.py` joins them into a run's record.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from workbench.errors import InputError
from workbench.record import write_atomically
from workbench.strict_json import strict_json

SUFFIX = ".arrows"


class Spool:
    """One process's streams in a folder. A stream's columns are those of its first rows. Raises `InputError`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._streams: dict[str, tuple[pa.ipc.RecordBatchStreamWriter, pa.Schema]] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot record into {folder}: {error.strerror or error}") from None

    def write(self, stream: str, columns: Mapping[str, Any]) -> None:
        """Append rows: arrays or lists of one length."""
        arrays = {name: pa.array(values) for name, values in columns.items()}
        if stream not in self._streams:
            schema = pa.schema([(name, array.type) for name, array in arrays.items()])
            writer = pa.ipc.new_stream(pa.OSFile(str(self.folder / f"{stream}{SUFFIX}"), "wb"), schema)
            self._streams[stream] = writer, schema
        writer, schema = self._streams[stream]
        batch = pa.record_batch([arrays[name].cast(schema.field(name).type) for name in schema.names], schema=schema)
        writer.write_batch(batch)

    def about(self, name: str, facts: Mapping[str, Any]) -> None:
        """A JSON file beside the streams."""
        write_atomically(self.folder / f"{name}.json", strict_json(facts).encode())


def read_stream(folder: Path, stream: str) -> dict[str, np.ndarray]:
    """The whole batches of a stream as columns; empty where there is none."""
    path = folder / f"{stream}{SUFFIX}"
    if not path.is_file() or path.stat().st_size == 0:
        return {}
    batches = []
    with pa.OSFile(str(path)) as file:
        try:
            reader = pa.ipc.open_stream(file)
            while True:
                batches.append(reader.read_next_batch())
        except (StopIteration, pa.ArrowInvalid, OSError):
            pass  # the end, or a batch cut short by a crash
    if not batches:
        return {}
    table = pa.Table.from_batches(batches)
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
