"""`workbench replay`: recorded observations through the controllers."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output


def replay(
    run: Annotated[Path, typer.Argument(help="A run directory, one arm of it, or a counterexample (.json).")],
    as_json: JsonFlag = False,
) -> None:
    """Run recorded observations through the controllers: exit 1 if one action differs by one bit.

    A counterexample file is run in a plant of logits instead: exit 1 if it no longer shows what it states.
    """
    from workbench.record import find_arms, read_manifest
    from workbench.replay import replay_arm

    out = Output(as_json)
    if run.suffix == ".json":
        from workbench.counterexample import Counterexample, run_counterexample

        shown = run_counterexample(Counterexample.load(run))
        out.say(f"{'shown again' if shown.ok else 'NOT shown'}: {shown.statement}")
        out.done(shown.ok, {"counterexamples": 1, "shown": int(shown.ok)}, {"run": run})
    arms = [arm for arm in find_arms(run) if "sequences" in read_manifest(arm)["tables"]]
    decisions, different = 0, 0
    with out.progress("replay") as tell:
        for index, arm in enumerate(arms):
            result = replay_arm(arm)
            decisions += result.num_decisions
            different += not result.ok
            name = arm.relative_to(run) if arm != run else arm.name
            if not result.ok:
                out.say(f"{name}: {result.first_difference}")
            tell((index + 1) / len(arms))
    if not arms:
        out.note(f"{run}: no arm was recorded with sequences (level window or full), so nothing was replayed")
    elif not different:
        out.say(f"{len(arms)} arms, {decisions:,} decisions: every action reproduced bit for bit")
    out.done(
        bool(arms) and not different,
        {"arms": len(arms), "decisions": decisions, "arms_different": different},
        {"run": run},
    )
