"""What every verb shares: tables and bars for people, one strict JSON object for programs, exit codes.

Exit code 0 when all that the verb states holds, 1 when something does not, 2 for bad input. With `--json` standard output
is exactly one object: `ok` (true exactly when the exit code is 0), `figures` (name to number or null), `paths` (what was
written). Everything for people's eyes goes to standard output without `--json`, and progress to standard error, as a bar
on a terminal and as a line a minute elsewhere.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from workbench.strict_json import strict_json

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object (ok, figures, paths) and nothing else.")]


class Output:
    """One verb's output. `say` for people, `progress` for waiting, `done` once at the end."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        self._people = Console(file=sys.stderr if as_json else sys.stdout, highlight=False, quiet=as_json)
        self._errors = Console(file=sys.stderr, highlight=False)

    def say(self, what: RenderableType = "", *, markup: bool = False) -> None:
        """A line or a Rich table for people; silent with `--json`."""
        self._people.print(what, markup=markup)

    def note(self, text: str) -> None:
        """A line on standard error, `--json` or not: a warning, where a report is."""
        self._errors.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[float], None]]:
        """Gives a function to call with the share done, in [0, 1]."""
        if self._errors.is_terminal and not self._errors.is_dumb_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            with Progress(*columns, console=self._errors, transient=True) as bar:
                task = bar.add_task(what, total=1.0)
                yield lambda share: bar.update(task, completed=share)
        else:
            yield _quiet_progress(self, what)

    def done(
        self, ok: bool, figures: Mapping[str, Any], paths: Mapping[str, Path | str] | None = None, **more: Any
    ) -> NoReturn:
        """Print the object if asked for (`more`: further keys beside ok, figures, paths), and leave with 0 or 1."""
        if self.as_json:
            body = {"ok": bool(ok), "figures": dict(figures), "paths": {k: str(v) for k, v in (paths or {}).items()}}
            body |= more
            sys.stdout.write(strict_json(body))
        raise typer.Exit(0 if ok else 1)


def _quiet_progress(output: Output, what: str) -> Callable[[float], None]:
    last = time.monotonic()

    def update(share: float) -> None:
        nonlocal last
        if time.monotonic() - last >= 60.0:
            last = time.monotonic()
            output.note(f"{what}: {share:.0%}")

    return update
