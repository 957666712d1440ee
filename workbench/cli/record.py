"""`workbench record`: the real model on prompts, everything measured, nothing steered."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output


def record(
    model: Annotated[str, typer.Option(help="smollm2, a Hugging Face directory, or a .gguf file.")] = "smollm2",
    prompts: Annotated[Path | None, typer.Option(help="JSONL of prompts; default: the built-in set.")] = None,
    num_requests: Annotated[int | None, typer.Option(help="Default: every prompt once.", min=1)] = None,
    max_tokens: Annotated[int, typer.Option(help="Cap on the tokens of an answer.", min=1)] = 128,
    temperature: Annotated[float, typer.Option(help="Constant sampling temperature; 0 is greedy.", min=0.0)] = 0.7,
    seed: Annotated[int, typer.Option(help="Seed of the draws.", min=0)] = 0,
    max_running: Annotated[int, typer.Option(help="Sequences in one batch.", min=1)] = 16,
    dtype: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
    backend: Annotated[str, typer.Option(help="cpu, torch or triton.")] = "cpu",
    out_dir: Annotated[Path, typer.Option("--out", help="Run directory.")] = Path("runs/record"),
    as_json: JsonFlag = False,
) -> None:
    """Record entropies, attention masses and step times of the real model: what `calibrate` fits."""
    import numpy as np
    import polars as pl

    from workbench.arm import run_arm
    from workbench.live.prompts import builtin_prompts, load_prompts
    from workbench.scenario import parse_scenario

    out = Output(as_json)
    count = num_requests or len(builtin_prompts() if prompts is None else load_prompts(prompts))
    scenario = parse_scenario(
        {
            "name": f"record at T = {temperature:g}",
            "plant": "live",
            "level": "full",
            "seeds": [seed],
            "workload": {"num_requests": count, "max_tokens": max_tokens, "prompts": prompts},
            "engine": {"temperature": temperature, "max_running": max_running},
            "live": {"model": model, "dtype": dtype, "backend": backend},
            "controllers": {"keep": {"kind": "keep-all"}},  # measures block masses, drops nothing
        }
    )
    with out.progress("record") as tell:
        arm = run_arm(scenario, seed, out_dir / f"seed{seed}", extra={"role": "record"}, on_progress=tell)
    steps = pl.read_parquet((arm / "steps.parquet").read_bytes())
    tokens = pl.read_parquet((arm / "sequences.parquet").read_bytes()).filter(pl.col("point") == "measure")
    requests = pl.read_parquet((arm / "requests.parquet").read_bytes())
    seconds = float(steps["elapsed_s"].sum())
    figures = {
        "requests": len(requests),
        "completed": int((requests["status"].cast(pl.String) == "completed").sum()),
        "tokens": len(tokens),
        "tokens_per_s": len(tokens) / seconds if seconds > 0.0 else None,
        "entropy_raw_mean_nats": tokens["entropy_raw_nats"].mean(),
        "varentropy_raw_mean_nats2": tokens["varentropy_raw_nats2"].mean(),
        "nll_mean_nats": float(np.nansum(requests["nll_raw_nats"]) / max(len(tokens), 1)),
    }
    out.say(f"{figures['tokens']} tokens of {figures['requests']} requests in {seconds:.1f} s of steps: {arm}")
    for kind, rows in sorted(requests.group_by("kind"), key=lambda pair: str(pair[0])):
        mine = tokens.filter(pl.col("request_id").is_in(rows["request_id"].implode()))
        if len(mine):
            out.say(f"  {kind[0]}: mean raw entropy {mine['entropy_raw_nats'].mean():.2f} nats, {len(mine)} tokens")
    out.done(True, figures, {"run": out_dir, "arm": arm})
