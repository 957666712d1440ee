"""`workbench route`: answer directly, standardly or with a chain of thought, by the entropies of a short probe."""

from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.cli.console import JsonFlag, Output


def route(
    model: Annotated[str, typer.Option(help="Model directory, GGUF file, or smollm2.")] = "smollm2",
    question: Annotated[
        str | None, typer.Option(help="One question: shows the probe, the numbers, the decision.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="An answer to choose from; repeat it.")] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="Task name or JSONL file; repeat it or separate by commas.")
    ] = None,
    tasks_dir: Annotated[Path | None, typer.Option(help="Folder of the public task sets.")] = None,
    evaluate: Annotated[bool, typer.Option("--evaluate", help="Every router against the baselines.")] = False,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Fit the data-set and MLP routers.")] = False,
    calibration: Annotated[Path | None, typer.Option(help="A calibration.json to use.")] = None,
    router: Annotated[str, typer.Option(help="Which router decides (and which one the figures are of).")] = "heuristic",
    scoring: Annotated[
        str, typer.Option(help="extraction or likelihood: what the figures of --evaluate are.")
    ] = "extraction",
    num_questions: Annotated[int, typer.Option(help="Questions a task, after the calibration questions.", min=1)] = 200,
    num_calibration: Annotated[int, typer.Option(help="Calibration questions a task.", min=0)] = 50,
    probe_tokens: Annotated[int, typer.Option(min=1)] = 64,
    max_standard_tokens: Annotated[int, typer.Option(min=1)] = 192,
    max_direct_tokens: Annotated[int, typer.Option(min=1)] = 16,
    max_cot_tokens: Annotated[int, typer.Option(min=1)] = 256,
    check_every: Annotated[
        int, typer.Option(help="Early stop: ask a thought for its answer this often; 0 never.")
    ] = 32,
    chunk: Annotated[int, typer.Option(help="Questions recorded at a time; a larger chunk is faster.", min=1)] = 128,
    temperature: Annotated[float, typer.Option(help="0 is greedy.", min=0.0)] = 0.0,
    k: Annotated[float, typer.Option(help="Trend threshold of the heuristic.")] = 0.07,
    overload: Annotated[float, typer.Option(help="S_max in nats: 32 base, 10 reasoning models, inf off.")] = 32.0,
    false_route_rate: Annotated[float, typer.Option(help="Error rate of the surrogate and data-set routers.")] = 0.05,
    prompts: Annotated[Path | None, typer.Option(help="Prompt templates (TOML) instead of ours.")] = None,
    dtype: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
    backend: Annotated[str, typer.Option(help="torch, cpu or triton.")] = "cpu",
    check_dtype: Annotated[str | None, typer.Option(help="Reread the probes in this dtype and count flips.")] = None,
    load_rates: Annotated[
        str | None,
        typer.Option("--load", help="Requests a second, by commas: the recorded questions on a simulated server."),
    ] = None,
    gpu: Annotated[str, typer.Option(help="Of the simulated server.")] = "H100",
    served_model: Annotated[str, typer.Option(help="Of the simulated server.")] = "Llama-3-8B",
    stop_after: Annotated[
        float | None, typer.Option(help="Stop generating after so many seconds; rerun resumes.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Run directory.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Route questions by probe entropy (EDRM): one question, a task, or an evaluation of every router."""
    from workbench.errors import InputError
    from workbench.routing.calibrate import Calibration
    from workbench.routing.generation_record import Settings
    from workbench.routing.prompts import load_prompts
    from workbench.routing.study import RuleNumbers, default_tasks_dir
    from workbench.routing.task_files import load_task

    out = Output(as_json)
    names = [name.strip() for entry in task or [] for name in entry.split(",") if name.strip()]
    if (question is None) == (not names):
        raise InputError("give either --question TEXT or --task NAME (a public set or a JSONL file)")
    only_calibrate = calibrate and not evaluate
    if only_calibrate and num_calibration < 1:
        raise InputError("--calibrate needs --num-calibration of at least 1; use about 50")
    settings = Settings(
        num_questions=num_calibration if only_calibrate else num_questions,
        num_calibration=num_calibration if evaluate else 0,
        seed=seed,
        probe_tokens=probe_tokens,
        max_standard_tokens=max_standard_tokens,
        max_direct_tokens=max_direct_tokens,
        max_cot_tokens=max_cot_tokens,
        chunk_questions=chunk,
        temperature=temperature,
        check_every_tokens=check_every,
    )
    rule = RuleNumbers(k=k, overload_nats=overload, false_route_rate=false_route_rate)
    templates = load_prompts(prompts)
    known = Calibration.load(calibration) if calibration else None
    if question is not None:
        from workbench.cli.route_question import one_question

        chosen = _router(router, None, known, rule)
        load = _loader(model, dtype, backend, out)
        one_question(out, load, question, option or [], chosen, router, templates, settings, out_dir)
    folder = tasks_dir or default_tasks_dir()
    tasks = {questions[0].task: questions for name in names for questions in [load_task(name, folder)]}
    chosen_by_task = {} if evaluate or calibrate else {name: _router(router, name, known, rule) for name in tasks}
    for name, questions in tasks.items():
        if settings.total_questions > len(questions):
            raise InputError(
                f"task {name} has {len(questions)} questions, {settings.total_questions} were asked for "
                "(calibration included); ask for fewer"
            )
    load = _loader(model, dtype, backend, out)
    if evaluate or calibrate:
        from workbench.cli.route_study import run_study

        run_study(
            out, load, tasks, templates, settings, rule, known, router, scoring, out_dir or Path("runs/route"),
            only_calibrate=only_calibrate, check_dtype=check_dtype, stop_after_s=stop_after,
            under_load=_load(load_rates, gpu, served_model),
            second=lambda: _loader(model, check_dtype or dtype, backend, out)(),
        )  # fmt: skip
    from workbench.cli.route_task import run_task

    run_task(out, load, tasks, chosen_by_task, router, templates, settings, out_dir)


def _router(name: str, task: str | None, calibration: Any, rule: Any) -> Any:
    """The router called `name`; a learned one needs a calibration, and says so."""
    from workbench.errors import InputError, unknown_name
    from workbench.routing.calibrate import routers

    made = routers(
        task, calibration, k=rule.k, overload_nats=rule.overload_nats, false_route_rate=rule.false_route_rate
    )
    if name in made:
        return made[name]
    if name in ("mlp", "dataset-level"):
        where = f" for task {task}" if task else ""
        raise InputError(f"router {name} needs --calibration FILE that holds it{where}; make one with --calibrate")
    raise unknown_name("router", name, [*made, "mlp", "dataset-level"])


def _load(rates: str | None, gpu: str, model: str) -> Any:
    from workbench.errors import InputError
    from workbench.routing.study import Load

    if rates is None:
        return None
    try:
        return Load(rates_per_s=tuple(float(rate) for rate in rates.split(",")), gpu=gpu, model=model)
    except ValueError:
        raise InputError(f"--load takes numbers separated by commas, got {rates!r}; for example 2,8,32") from None


def _loader(model: str, dtype: str, backend: str, out: Output) -> Any:
    def load() -> Any:
        from workbench.routing.live_text_model import LiveTextModel

        with out.progress(f"load {model}"):
            return LiveTextModel(model, dtype=dtype, backend=backend)

    return load
