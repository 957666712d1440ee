"""`workbench calibrate`: fit the simulator to a recorded live run."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output


def calibrate(
    run: Annotated[Path, typer.Argument(help="A run directory with live arms (workbench record, workbench run).")],
    out_path: Annotated[Path | None, typer.Option("--out", help="Default RUN/calibration.json.")] = None,
    held_out: Annotated[
        float, typer.Option(help="Share of the prompts kept out of the fit that is judged.", min=0.05, max=0.95)
    ] = 0.3,
    as_json: JsonFlag = False,
) -> None:
    """Fit entropy process, mass process and step cost to a recorded live run; `hardware.calibration` takes the file.

    A page beside it compares the entropy process with texts of prompts that a second fit did not see: quantiles,
    autocorrelation, dwell times, and a test that swaps whole prompts.
    """
    from dataclasses import replace

    from sims.calibrate import calibrate as fit
    from sims.calibrate import held_out_fit
    from sims.calibration import write_calibration
    from workbench.calibration_page import verdict, write_page
    from workbench.errors import InputError

    out = Output(as_json)
    path = out_path or run / "calibration.json"
    with out.progress(f"calibrate {run}") as tell:
        calibration = fit(run)
        tell(0.4)
        judged, reason = None, ""
        try:
            judged = held_out_fit(run, share=held_out)
            calibration = replace(calibration, figures={**calibration.figures, **judged.figures()})
        except InputError as error:
            reason = f"no goodness of fit: {error}"
        write_calibration(path, calibration)
        write_page(path.with_suffix(".html"), calibration, judged, reason)
        tell(1.0)
    out.say(verdict(judged) if judged else reason)
    for name, value in calibration.figures.items():
        out.say(f"{name:36} {value:.4g}")
    out.say(f"calibration: {path}")
    out.done(True, calibration.figures, {"calibration": path, "report": path.with_suffix(".html")})
