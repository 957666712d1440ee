"""`workbench temper`: the temperature laws compared on the model, each beside the constant of equal mean entropy."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output
from workbench.errors import InputError


def temper(
    target: Annotated[float, typer.Option(help="H* in nats, tempered.")] = 1.5,
    step: Annotated[tuple[float, float], typer.Option(help="H* before and after the step at half length.")] = (
        1.0,
        2.0,
    ),
    law: Annotated[list[str] | None, typer.Option(help="Only these laws (repeat the option); default all.")] = None,
    prompts: Annotated[int, typer.Option(help="Number of built-in prompts.")] = 16,
    tokens: Annotated[int, typer.Option(help="Tokens a text.")] = 256,
    seed: Annotated[int, typer.Option(help="Random numbers of the sampler and of the dither.")] = 0,
    model: Annotated[str, typer.Option(help="smollm2, a Hugging Face directory or a GGUF file.")] = "smollm2",
    quick: Annotated[bool, typer.Option("--quick", help="6 prompts, 64 tokens, four laws.")] = False,
    out: Annotated[Path, typer.Option(help="Directory for the page, the table and the pictures.")] = Path(
        "runs/temper"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Compare temperature laws on the live model: tracking, settling, drift, quality, and what a constant would do."""
    output = Output(as_json)
    from workbench.temper.command import Options, run

    names = list(law or [])
    if quick:
        prompts, tokens = min(prompts, 6), min(tokens, 64)
        names = names or ["pi", "gain-scheduled", "exact"]
    if prompts < 2 or tokens < 32:
        raise InputError(f"temper needs at least 2 prompts and 32 tokens, got {prompts} and {tokens}")
    options = Options(target, step, tuple(names), prompts, tokens, seed, model, not quick, out)
    with output.progress("temperature laws") as progress:
        result = run(options, progress)
    output.say(result.table)
    for line in result.lines:
        output.say(line)
    output.say(f"report: {result.paths['report']}")
    output.done(ok=result.ok, figures=result.figures, paths=result.paths)
