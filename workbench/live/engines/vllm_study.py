"""The arms of a validation study that serve requests, run in vLLM instead of our own engine.

Entropies at several temperatures are recorded in our own engine all the same (role "record"): the model is the same, and
only our engine measures one step at many temperatures.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from workbench.arm_task import ArmTask, Progress
from workbench.errors import InputError
from workbench.live.engines.vllm_arm import serve_arm
from workbench.record import read_manifest
from workbench.scenario import parse_scenario
from workbench.validation_study import RECORD


@dataclass(frozen=True)
class VllmArmTask(ArmTask):
    """An `ArmTask` served by the vLLM of another environment."""

    python: Path = Path()

    @property
    def finished(self) -> bool:
        """An earlier run left this arm. Its record holds the engine settings vLLM had, so controllers and load decide."""
        try:
            manifest = read_manifest(self.directory)
        except InputError:
            return False
        same = all(manifest.get(name) == value for name, value in self.extra.items())
        had = parse_scenario(manifest["scenario"])
        return same and manifest["seed"] == self.seed and had.controllers == self.scenario.controllers

    def run(self, on_progress: Progress = lambda share: None) -> None:
        if not self.finished:
            serve_arm(self.scenario, self.seed, self.directory, self.python, arm=self.arm, extra=self.extra)


def served_in_vllm(tasks: Sequence[ArmTask], python: Path) -> list[ArmTask]:
    """All but the recordings."""
    return [
        task
        if task.extra.get("role") == RECORD
        else VllmArmTask(**{f.name: getattr(task, f.name) for f in fields(ArmTask)}, python=python)
        for task in tasks
    ]
