"""A scenario file run as it is: one folder per seed, then a report. What `workbench simulate` and `run SCENARIO` do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.arm import run_arm
from workbench.factorial import switches_of
from workbench.metrics import summarise
from workbench.record import read_manifest
from workbench.report import write_report
from workbench.scenario import Scenario


def run_scenario(
    scenario: Scenario, seeds: tuple[int, ...], run: Path, tell: Callable[[float], None]
) -> tuple[dict[str, Any], dict[str, Path]]:
    """(figures by name, paths by name)."""
    paths = {}
    for index, seed in enumerate(seeds):
        paths[f"seed{seed}"] = run_arm(
            scenario,
            seed,
            run / f"seed{seed}",
            arm=switches_of(scenario),
            on_progress=lambda share, index=index: tell((index + share) / len(seeds)),
        )
    arms = list(paths.values())
    figures = summarise([read_manifest(arm) for arm in arms], arms)
    return figures, paths | {"run": run, "report": write_report(run)}
