"""`workbench bench step-cost`: fit the roofline to measured operators and judge it on token counts the fit never saw."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output

# (GPU, model, file, all-reduce file): Vidur's profiles.
CASES = (
    ("A100-80G", "Llama-3-8B", "a100_llama3-8b_mlp.csv", None),
    ("H100", "Llama-2-7B", "h100_llama2-7b_mlp.csv", "h100_dgx_all_reduce.csv"),
)
LIMIT = 0.05


def bench_step_cost(
    profiles: Annotated[Path, typer.Option(help="Folder with Vidur's operator profiles.")] = Path(
        "../shared/data/profiles/vidur"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Step cost against measured operators: error of a layer's dense operators on held-out token counts.

    Exit 1 where an error is above 5 %. The profiles hold no attention times: attention is checked on live records only.
    """
    import numpy as np
    from rich.table import Table

    from sims.gpus import GPUS
    from sims.models import MODELS
    from sims.operator_profiles import (
        DENSE_FIELDS,
        REDUCE_FIELDS,
        fit_dense,
        fit_reduce,
        held_out,
        layer_mape,
        operator_mape,
        predict_reduce,
        read_dense_profile,
        read_reduce_profile,
    )

    out = Output(as_json)
    figures: dict[str, float] = {}
    for gpu_name, model_name, file, reduce_file in CASES:
        gpu, model, short = GPUS[gpu_name], MODELS[model_name], gpu_name.split("-")[0].lower()
        profile = read_dense_profile(profiles / file, model)
        hidden = held_out(profile)
        numbers = fit_dense(gpu, model, profile.where(~hidden))
        seen = profile.where(hidden)
        figures[f"mape_{short}"] = layer_mape(gpu, numbers, model, seen)
        for size in np.unique(profile.tensor_parallel):
            rows = profile.where(hidden & (profile.tensor_parallel == size))
            figures[f"mape_{short}_tp{size}"] = layer_mape(gpu, numbers, model, rows)
        table = Table(title=f"{gpu_name}, {model_name}: mean absolute error on {int(hidden.sum())} held-out medians")
        table.add_column("operator")
        table.add_column("error", justify="right")
        for name, error in operator_mape(gpu, numbers, model, seen).items():
            figures[f"mape_{short}_{name}"] = error
            table.add_row(name, f"{error:.1%}")
        table.add_row("layer (sum of all)", f"{figures[f'mape_{short}']:.2%}")
        fitted = list(DENSE_FIELDS)
        if reduce_file:
            measured = read_reduce_profile(profiles / reduce_file)
            third = np.arange(measured.seconds.size) % 3 == 1
            numbers = fit_reduce(gpu, measured.where(~third), numbers)
            test = measured.where(third)
            error = float(np.mean(np.abs(predict_reduce(gpu, numbers, test) / test.seconds - 1.0)))
            figures[f"mape_{short}_all_reduce"] = error
            table.add_row("all-reduce", f"{error:.1%}")
            fitted += REDUCE_FIELDS
        figures[f"fitted_{short}"] = len(fitted)
        out.say(table)
        out.say(f"{len(fitted)} fitted numbers: " + ", ".join(f"{n} {getattr(numbers, n):.4g}" for n in fitted))
    out.say("No attention times are in these profiles: attention cost is checked on live records only.")
    out.done(all(figures[f"mape_{g}"] <= LIMIT for g in ("a100", "h100")), figures)
