"""`workbench deploy`: a scenario checked for another engine, run in it and recorded, or a running engine watched."""

from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.cli.console import JsonFlag, Output


def deploy(
    scenario: Annotated[Path | None, typer.Argument(help="The scenario file to carry over.")] = None,
    engine: Annotated[str, typer.Option(help="vllm, transformers or transformers-masked.")] = "vllm",
    vocab_size: Annotated[
        int | None, typer.Option(help="Vocabulary of the served model; else --model's.", min=2)
    ] = None,
    model: Annotated[str, typer.Option(help="smollm2, a Hugging Face directory, or a .gguf file.")] = "smollm2",
    run: Annotated[
        Path | None, typer.Option(help="Python of an environment with vLLM: run the scenario there.")
    ] = None,
    eager: Annotated[bool, typer.Option("--eager", help="With --run: vLLM does not compile the model first.")] = False,
    collect: Annotated[Path | None, typer.Option(help="What a server recorded (its ENTROPIC_RECORD folder).")] = None,
    watch: Annotated[bool, typer.Option(help="Counters of the engines that run on this machine.")] = False,
    role: Annotated[str | None, typer.Option(help="Mark the recorded arm, e.g. calibrate.")] = None,
    out_dir: Annotated[Path, typer.Option("--out", help="Run directory of what is recorded.")] = Path("runs/deploy"),
    as_json: JsonFlag = False,
) -> None:
    """Check a scenario for an engine (gains against its vocabulary and delay), run it there, collect a record, or watch.

    Exit 1 where a law runs outside what is certified, or a watched engine has lost its signal.
    """
    out = Output(as_json)
    if watch:
        _watch(out)
    if collect is not None:
        _collect(out, collect, out_dir, role)
    if scenario is None:
        raise typer.BadParameter("give a scenario file, --collect FOLDER or --watch")
    _check(out, scenario, engine, vocab_size, model)
    if run is None:
        _how_to(out, scenario, engine)
    else:
        _run(out, scenario, run, out_dir, role, eager)


def _check(out: Output, path: Path, engine: str, vocab_size: int | None, model: str) -> None:
    """Says what runs; leaves with 1 where something is not certified."""
    from rich.table import Table

    from workbench.live.engines.deployment import deploy as build

    if vocab_size is None:
        from workbench.live.weights import model_directory, read_config

        vocab_size = read_config(model_directory(model, "bf16")).vocab_size
    made = build(path, engine, vocab_size)
    table = Table(
        "decision", "controller", title=f"{path.name} on {engine}, vocabulary {vocab_size:,}, delay {made.delay_steps}"
    )
    for point, law in made.controllers.items():
        table.add_row(point.value, str(law))
    out.say(table)
    for flag in made.flags:
        out.say(f"not certified: {flag}")
    if made.flags:
        out.done(False, {"flags": len(made.flags), "vocab_size": vocab_size, "delay_steps": made.delay_steps})


def _how_to(out: Output, path: Path, engine: str) -> None:
    scheduler = "workbench.live.engines.vllm_scheduler.entropy_scheduler"
    if engine == "vllm":
        out.say(f"ENTROPIC_SCENARIO={path.resolve()} vllm serve MODEL --scheduler-cls {scheduler}")
        out.say("the logits processor is found by its entry point; then: workbench deploy --watch")
    out.done(True, {"flags": 0}, {"scenario": path})


def _run(out: Output, path: Path, python: Path, out_dir: Path, role: str | None, eager: bool) -> None:
    """The scenario's own workload through vLLM, one arm a seed."""
    from workbench.live.engines.vllm_arm import serve_arm
    from workbench.scenario import load_scenario

    scenario = load_scenario(path)
    extra = {} if role is None else {"role": role}
    paths: dict[str, Any] = {"run": out_dir}
    totals: dict[str, int] = {}
    with out.progress("serve in vllm") as tell:
        for done, seed in enumerate(scenario.seeds):
            served = serve_arm(
                scenario,
                seed,
                out_dir / f"seed{seed}",
                python,
                extra=extra,
                options={"enforce_eager": eager},
                compared=role is None,
            )
            paths |= {arm.name: arm for arm in served.directories}
            for name, count in {**served.counters, **served.losses}.items():
                totals[name] = totals.get(name, 0) + count
            tell((done + 1) / len(scenario.seeds))
    for name in ("engine_losses", "signal_losses"):
        if totals[name]:
            out.say(f"{name}: {totals[name]}; every request has ended all the same")
    out.say(f"recorded: {out_dir}; workbench replay, report and validate --engine vllm read it")
    out.done(True, {"arms": len(paths) - 1, **totals}, paths)


def _collect(out: Output, spool: Path, out_dir: Path, role: str | None) -> None:
    arm = _arm(spool, out_dir / "arm", role)
    out.say(f"collected: {arm}")
    out.done(True, {"arms": 1}, {"run": out_dir, "arm": arm})


def _arm(spool: Path, directory: Path, role: str | None) -> Path:
    from workbench.live.engines.collect import collect_arm

    return collect_arm(spool, directory, extra={} if role is None else {"role": role}, compared=role is None)


def _watch(out: Output) -> None:
    from rich.table import Table

    from workbench.live.engines.signal_board import open_boards, read_board

    totals: dict[str, int] = {"engines": 0}
    lost = False
    for path in open_boards():
        board = read_board(path)
        counters = board.counters()
        totals["engines"] += 1
        table = Table("counter", "count", title=f"{path.name}, sampler step {board.sampler_step}")
        for name, count in counters.items():
            table.add_row(name, f"{count:,}")
            totals[name] = totals.get(name, 0) + count
        out.say(table)
        lost |= counters["signal_losses"] > counters["signal_returns"]
    out.say("no engine with the plug-in runs here" if not totals["engines"] else "")
    out.done(not lost, totals)
