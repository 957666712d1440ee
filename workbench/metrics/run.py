"""A run directory to figures: every arm in every cell, its changes against the baseline, the factorial, timelines.

    leaves on disk -> records -> samples (a value per seed and batch) -> figures with intervals

The result holds no array and no NaN: it is what the report shows and what `figures.json` stores.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import InputError
from workbench.metrics.arm import ARM_CODES, BASELINE, ArmSample, sample_arm
from workbench.metrics.factorial import Change, changes, effects
from workbench.metrics.figure import Figure
from workbench.metrics.leaf import Cell, Leaf, find_leaves
from workbench.metrics.records import Records, Slo
from workbench.metrics.replicas import ReplicaShare, replica_shares
from workbench.metrics.table import METRICS, NAMES
from workbench.metrics.timeline import Series, timeline


@dataclass(frozen=True)
class ArmFigures:
    figures: Mapping[str, Figure]
    counts: Mapping[str, int]
    seeds: tuple[int, ...]
    timeline: Mapping[str, Series]  # of the first seed
    paths: tuple[Path, ...]  # a directory a seed
    replicas: tuple[ReplicaShare, ...] = ()  # of the first seed; empty where there is one


@dataclass(frozen=True)
class CellFigures:
    cell: Cell
    arms: Mapping[str, ArmFigures]  # by code, in the order of ARM_CODES
    changes: Mapping[str, Mapping[str, Change]]  # arm code -> metric -> against the baseline arm
    effects: Mapping[str, Mapping[str, Change]]  # controllers -> metric; empty unless all eight arms ran
    slo: Slo
    target_entropy_nats: float | None
    manifest: Mapping[str, Any]  # of the first arm: scenario, machine, versions
    flags: tuple[str, ...] = ()  # what a reader must know about the controllers (`law_flags`), over all arms

    def change(self, code: str, metric: str) -> Change | None:
        return self.changes.get(code, {}).get(metric)

    def value(self, code: str, metric: str) -> float | None:
        arm = self.arms.get(code)
        return arm.figures[metric].value if arm else None


@dataclass(frozen=True)
class RunFigures:
    run: Path
    cells: tuple[CellFigures, ...]
    skipped: tuple[str, ...]

    def of_plant(self, plant: str) -> list[CellFigures]:
        return [cell for cell in self.cells if cell.cell.plant == plant]


def run_figures(run: Path, on_leaf: Callable[[int, int], None] = lambda done, total: None) -> RunFigures:
    """Figures of every arm under `run`. `on_leaf(done, total)` moves a progress bar.

    A leaf that cannot be read is left out and named in `skipped`; raises `InputError` when none is left.
    """
    leaves, skipped = find_leaves(run)
    read: dict[Cell, dict[str, dict[int, tuple[Leaf, Records]]]] = {}
    for k, leaf in enumerate(leaves):
        try:
            records = leaf.records(with_token_times=leaf.cell.plant == "live")
        except InputError as error:
            skipped.append(str(error))
        else:
            read.setdefault(leaf.cell, {}).setdefault(leaf.code, {})[leaf.seed] = (leaf, records)
        on_leaf(k + 1, len(leaves))
    if not read:
        detail = f" ({skipped[0]})" if skipped else ""
        raise InputError(f"{run} holds no finished arm{detail}; `workbench run` or `workbench simulate` writes them")
    cells = tuple(_cell_figures(cell, arms) for cell, arms in sorted(read.items(), key=lambda item: item[0].order))
    return RunFigures(run, cells, tuple(skipped))


def _cell_figures(cell: Cell, arms: Mapping[str, Mapping[int, tuple[Leaf, Records]]]) -> CellFigures:
    codes = [code for code in ARM_CODES if code in arms]
    samples: dict[str, ArmSample] = {}
    figures: dict[str, ArmFigures] = {}
    for code in codes:
        runs = {seed: records for seed, (_, records) in arms[code].items()}
        samples[code] = sample_arm(runs)
        first = min(runs)
        figures[code] = ArmFigures(
            {name: samples[code].figure(k) for k, name in enumerate(NAMES)},
            samples[code].counts,
            samples[code].seeds,
            timeline(runs[first]),
            tuple(arms[code][seed][0].path for seed in sorted(runs)),
            replica_shares(runs[first]),
        )
    against = {
        code: dict(zip(NAMES, changes(samples, code), strict=True))
        for code in codes
        if code != BASELINE and BASELINE in samples and set(samples[code].seeds) & set(samples[BASELINE].seeds)
    }
    factorial = {code: dict(zip(NAMES, found, strict=True)) for code, found in effects(samples).items()}
    leaf = next(leaf for seeds in arms.values() for leaf, _ in seeds.values())
    every = (leaf.manifest.get("controller_flags", []) for seeds in arms.values() for leaf, _ in seeds.values())
    flags = tuple(dict.fromkeys(str(flag) for given in every if isinstance(given, list) for flag in given))
    return CellFigures(cell, figures, against, factorial, leaf.slo, leaf.target_entropy_nats, leaf.manifest, flags)


def summarise(manifests: Sequence[Mapping[str, Any]], arms: Sequence[Path]) -> dict[str, float | int | None]:
    """Name to number for `--json`: every metric of one arm over its seeds, and its counts. Undefined is None."""
    runs = {
        k: Leaf(path, Cell("sim", None, None), BASELINE, k, manifest).records(with_token_times=False)
        for k, (manifest, path) in enumerate(zip(manifests, arms, strict=True))
    }
    sample = sample_arm(runs)
    busy: dict[str, list[float]] = {}
    for records in runs.values():
        for share in replica_shares(records):
            busy.setdefault(f"busy_frac_replica{share.replica}", []).append(share.busy_frac or 0.0)
    return {
        **sample.counts,
        **{name: sample.figure(k).value for k, name in enumerate(NAMES)},
        **{name: sum(values) / len(values) for name, values in busy.items()},
    }


def figures_object(found: RunFigures) -> dict[str, Any]:
    """Everything as one object for `figures.json`; pass it through `strict_json`."""
    return {
        "metrics": {m.name: {"label": m.label, "unit": m.unit, "better": m.better} for m in METRICS},
        "cells": [
            {
                "key": cell.cell.key,
                "cell": cell.cell,
                "slo": cell.slo,
                "target_entropy_nats": cell.target_entropy_nats,
                "arms": {
                    code: {"figures": arm.figures, "counts": arm.counts, "seeds": arm.seeds}
                    for code, arm in cell.arms.items()
                },
                "changes_against_baseline": cell.changes,
                "factorial_effects": cell.effects,
            }
            for cell in found.cells
        ],
        "skipped": found.skipped,
    }
