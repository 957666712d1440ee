"""The page: figures to one self-contained HTML file. Everything is escaped; nothing outside it is loaded.

`render` fills page.html.jinja; it computes nothing: every number comes from `workbench.metrics`.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from workbench.metrics import BASELINE, RunFigures, arm_label
from workbench.report.charts import SERIES, effect_charts, load_charts, shown_arms, time_charts
from workbench.report.heat_map import heat_maps
from workbench.report.numbers import THIN
from workbench.report.tables import cell_title, counts_text, full_table, headline_cell, replica_tables, side_by_side
from workbench.report.verdict import verdict_of

WORDS = {"helps": "helps", "trade": "a trade", "hurts": "hurts", "nothing": "no change", "unknown": "unknown"}
LONGEST_TITLE = 200


def render(found: RunFigures, manifest: Mapping[str, Any], links: Mapping[str, str]) -> str:
    """The page as text. `links` are files of the run directory: label to relative path."""
    package = files("workbench.report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((package / "page.html.jinja").read_text(encoding="utf-8"))
    shown = [cell for plant in ("sim", "live") if (cell := headline_cell(found, plant))]
    if not shown:
        shown = list(found.cells[:1])
    titles = [cell_title(cell).capitalize() for cell in shown]
    name = run_name(found, manifest)
    return template.render(
        css=(package / "page.css").read_text(encoding="utf-8"),
        name=name,
        short_name=name if len(name) <= LONGEST_TITLE else name[: LONGEST_TITLE - 1] + "…",
        facts=_facts(found),
        served=_served(found),
        verdict=verdict_of(found),
        words=WORDS,
        plants=[p for p in ("sim", "live") if found.of_plant(p)],
        maps=heat_maps(found),
        series=[(arm_label(code), css) for code, css in SERIES.items() if any(code in c.arms for c in found.cells)],
        time_series=[
            (arm_label(code), SERIES.get(code, "all"))
            for code in dict.fromkeys(c for x in shown for c in shown_arms(x))
        ],
        load_rows=load_charts(found),
        tables=side_by_side(shown),
        replicas=[table for cell in shown for table in replica_tables(cell)],
        shown=[(cell_title(cell), counts_text(cell)) for cell in shown],
        time_rows=time_charts(shown, titles),
        effect_rows=effect_charts(shown, titles),
        full_tables=[full_table(cell) for cell in found.cells] if len(found.cells) > len(shown) else [],
        slo=found.cells[0].slo,
        target=next((c.target_entropy_nats for c in found.cells if c.target_entropy_nats is not None), None),
        has_baseline=any(BASELINE in cell.arms for cell in found.cells),
        skipped=found.skipped,
        links=links,
        provenance=_provenance(found, manifest),
        manifest_text=json.dumps(manifest or found.cells[0].manifest, indent=2, ensure_ascii=False, default=str),
    )


def run_name(found: RunFigures, manifest: Mapping[str, Any]) -> str:
    """The run's own name, or its one scenario's, or what the run is."""
    given = manifest.get("name") or _scenario_name(manifest.get("scenario"))
    if given:
        return str(given)
    names = {str(cell.manifest.get("name") or _scenario_name(cell.manifest.get("scenario"))) for cell in found.cells}
    if len(names) == 1 and "None" not in names:
        return names.pop()
    plants = [{"sim": "simulated", "live": "live"}.get(p, p) for p in dict.fromkeys(c.cell.plant for c in found.cells)]
    return f"Entropy control, {' and '.join(plants)}"


def _scenario_name(scenario: Any) -> Any:
    return scenario.get("name") if isinstance(scenario, dict) else scenario


def _facts(found: RunFigures) -> list[str]:
    arms = sum(len(cell.arms) for cell in found.cells)
    requests = sum(arm.counts["arrived"] for cell in found.cells for arm in cell.arms.values())
    seeds = sorted({seed for cell in found.cells for arm in cell.arms.values() for seed in arm.seeds})
    facts = [
        f"{arms} arm{'s' if arms != 1 else ''} in {len(found.cells)} cell{'s' if len(found.cells) != 1 else ''}",
        f"{requests:,} requests".replace(",", THIN),
        f"seed{'s' if len(seeds) != 1 else ''} {', '.join(map(str, seeds[:8]))}{' …' if len(seeds) > 8 else ''}",
    ]
    machine = found.cells[0].manifest.get("machine")
    if isinstance(machine, dict) and machine.get("processor"):
        facts.append(f"{machine['processor']}, {machine.get('num_cores', '?')} cores")
    return facts


def _served(found: RunFigures) -> list[tuple[str, str]]:
    """What each plant served: model, hardware, and where the requests came from, out of the recorded scenarios."""
    rows: dict[str, str] = {}
    for cell in found.cells:
        scenario = cell.manifest.get("scenario")
        if cell.cell.plant in rows or not isinstance(scenario, dict):
            continue
        hardware, workload, live = (scenario.get(k) or {} for k in ("hardware", "workload", "live"))
        if not all(isinstance(part, dict) for part in (hardware, workload, live)):
            continue
        if cell.cell.plant == "live":
            what = f"{live.get('model', 'a model')} ({live.get('dtype', '?')}, {live.get('backend', '?')} operations)"
            source = (
                f"prompts of {Path(str(workload['prompts'])).name}"
                if workload.get("prompts")
                else "the built-in prompts"
            )
        else:
            what = f"{hardware.get('model', 'a model')} on {hardware.get('num_gpus', 1)} {hardware.get('gpu', 'GPU')}"
            if hardware.get("num_replicas", 1) != 1:
                what = f"{hardware['num_replicas']} replicas, each {what}"
            source = (
                f"of {Path(str(workload['trace'])).name}"
                if workload.get("trace")
                else f"generated ({workload.get('generator', '?')}): no trace was at hand"
            )
        rows[cell.cell.plant] = f"{what}; {workload.get('num_requests', '?')} requests a run, {source}"
    return [({"sim": "Simulated"}.get(plant, plant.capitalize()), text) for plant, text in rows.items()]


def _provenance(found: RunFigures, manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("run directory", found.run.name)]
    arm = found.cells[0].manifest
    revision = manifest.get("git_revision") or arm.get("git_revision")
    if revision:
        rows.append(
            ("source revision", f"{revision} (with uncommitted changes)" if str(revision).endswith("+") else revision)
        )
    for key in ("command", "started", "duration_s", "quick"):
        if manifest.get(key) is not None:
            rows.append((key.replace("_", " "), str(manifest[key])))
    versions = manifest.get("versions") or arm.get("versions")
    if isinstance(versions, dict):
        rows.append(("versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    return rows
