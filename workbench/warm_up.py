"""Compile everything the main job compiles, once, when the environment is built: `python -m workbench.warm_up`

The main job at its smallest size, into a folder that is thrown away. What numba compiles stays beside the source files.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from workbench.arm_task import Progress
from workbench.main_job import QUICK, main_job

SMALLEST = replace(
    QUICK, record_prompts=10, record_tokens=20, sim_requests=24, loads=(0.95,), live_requests=2, live_tokens=4
)


@contextmanager
def _quietly(_: str) -> Iterator[Progress]:
    yield lambda share: None


def warm_up() -> None:
    with tempfile.TemporaryDirectory(prefix="warm-up-") as run:
        for _ in main_job(Path(run), SMALLEST, model="smollm2", backend="cpu", trace=None, jobs=1, stage=_quietly):
            pass


if __name__ == "__main__":
    warm_up()
