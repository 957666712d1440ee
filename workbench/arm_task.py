"""Arms as tasks: what one needs to run, and many of them one after another or in processes, finished ones kept."""

import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from workbench.arm import run_arm
from workbench.errors import InputError
from workbench.record import read_manifest
from workbench.scenario import Scenario

Progress = Callable[[float], None]


@dataclass(frozen=True)
class ArmTask:
    """One arm to run: everything a worker process needs."""

    scenario: Scenario
    seed: int
    directory: Path
    arm: Mapping[str, bool] | None  # None: not one of the arms that reports compare
    extra: dict[str, Any]

    @property
    def finished(self) -> bool:
        """An earlier run left exactly this arm."""
        try:
            manifest = read_manifest(self.directory)
        except InputError:
            return False
        return manifest.get("scenario") == self.scenario.plain() and manifest["seed"] == self.seed

    def run(self, on_progress: Progress = lambda share: None) -> None:
        if not self.finished:
            run_arm(self.scenario, self.seed, self.directory, arm=self.arm, extra=self.extra, on_progress=on_progress)


def run_here(tasks: list[ArmTask], tell: Progress) -> None:
    """One after another in this process: live arms, which need every core."""
    for index, task in enumerate(tasks):
        task.run(lambda share, index=index: tell((index + share) / len(tasks)))
        tell((index + 1) / len(tasks))


class Task(Protocol):
    """What can be run in a process of its own, and knows whether an earlier run left it finished."""

    @property
    def finished(self) -> bool: ...

    def run(self) -> None: ...


def run_in_processes(tasks: Sequence[Task], jobs: int, tell: Progress) -> None:
    """Simulated arms side by side. An interrupt lets the arms at work finish, starts no other, and keeps them all.

    An arm with no other beside it is run in this process; an interrupt then ends it, and a rerun takes it again.
    """
    waiting = [task for task in tasks if not task.finished]
    if len(waiting) < 2:  # nothing to be beside
        for task in waiting:
            task.run()
        tell(1.0)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        jobs, context, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    ) as pool:
        futures = [pool.submit(type(task).run, task) for task in waiting]
        try:
            for count, future in enumerate(as_completed(futures)):
                future.result()
                tell((len(tasks) - len(waiting) + count + 1) / len(tasks))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
