"""`workbench calibrate`: fit the simulator to a recorded live run."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output


def calibrate(
    run: Annotated[Path, typer.Argument(help="A run directory with live arms (workbench record, workbench run).")],
    out_path: Annotated[Path | None, typer.Option("--out", help="Default RUN/calibration.json.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Fit entropy process, mass process and step cost to a recorded live run; `hardware.calibration` takes the file."""
    from sims.calibrate import calibrate as fit
    from sims.calibration import write_calibration

    out = Output(as_json)
    with out.progress(f"calibrate {run}") as tell:
        calibration = fit(run)
        tell(1.0)
    path = out_path or run / "calibration.json"
    write_calibration(path, calibration)
    for name, value in calibration.figures.items():
        out.say(f"{name:36} {value:.4g}")
    out.say(f"calibration: {path}")
    out.done(True, calibration.figures, {"calibration": path})
