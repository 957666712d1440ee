"""A run of rows of a trace file as a file of its own, so that an arm reads what it serves and not the whole trace."""

from pathlib import Path

from workbench.errors import InputError
from workbench.record import write_atomically


def trace_rows(trace: Path, first: int, count: int, folder: Path) -> Path:
    """Rows `first` .. `first + count` - 1 as they stand, below the header of a CSV. Raises `InputError` past the end."""
    path = folder / f"{trace.stem}.rows-{first}-{first + count - 1}{trace.suffix}"
    if not path.is_file():
        lines = trace.read_text(encoding="utf-8-sig").splitlines()
        header, rows = (lines[:1], lines[1:]) if trace.suffix == ".csv" else ([], lines)
        chosen = rows[first : first + count]
        if len(chosen) < count:
            raise InputError(f"{trace} has {len(rows):,} rows, asked for {first} to {first + count - 1}")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, ("\n".join([*header, *chosen]) + "\n").encode())
    return path.resolve()
