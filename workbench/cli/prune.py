"""`workbench prune`: pruning policies compared on the model at equal bytes, with the certificate checked at every step."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output
from workbench.errors import InputError, unknown_name


def prune(
    context: Annotated[
        list[int] | None, typer.Option(help="Tokens of each text (repeat); default 4096 and 8192.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="gsm8k, code, keyvalue, needles (repeat); default all.")
    ] = None,
    texts: Annotated[int, typer.Option(help="Texts of each kind and context.")] = 2,
    budget: Annotated[
        list[float] | None, typer.Option(help="Share of KV bytes in (0, 1] (repeat); default 0.5, 0.25.")
    ] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Only these policies (repeat); default all.")] = None,
    tail: Annotated[int, typer.Option(help="Tokens decoded under every policy.")] = 32,
    sinks: Annotated[int | None, typer.Option(help="Check that so many sink blocks fit the context.")] = None,
    window: Annotated[int | None, typer.Option(help="Check that a window of so many tokens fits the context.")] = None,
    seed: Annotated[int, typer.Option(help="Which texts, and which queries are looked at.")] = 0,
    model: Annotated[str, typer.Option(help="smollm2, a Hugging Face directory or a GGUF file.")] = "smollm2",
    tasks_dir: Annotated[Path | None, typer.Option(help="Folder of the public task sets.")] = None,
    kvpress: Annotated[
        Path | None, typer.Option(help="A Python with kvpress: the same prompts and budgets there.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One text of code, 1,024 tokens, 8 decoded.")] = False,
    stop_after: Annotated[float | None, typer.Option(help="Seconds after which no further text is begun.")] = None,
    out: Annotated[Path, typer.Option(help="Directory for tables, page and pictures; a rerun resumes there.")] = Path(
        "runs/prune"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Compare pruning policies on the live model: bytes, KL, NLL, retrieval, entropy, and the certificate."""
    output = Output(as_json)
    from workbench.live.session import LiveModel
    from workbench.pruning.arms import BASELINES, MIN_SHARE, OURS
    from workbench.pruning.prefix import BLOCK_SIZE
    from workbench.pruning.report import report
    from workbench.pruning.study import Settings, run_study
    from workbench.pruning.texts import KINDS, tasks_folder

    known = (*BASELINES, *OURS, "entropy-share", "entropy-share-guarded")
    for name in policy or ():
        if name not in known:
            raise unknown_name("policy", name, known)
    for name in text or ():
        if name not in KINDS:
            raise unknown_name("text kind", name, KINDS)
    contexts = tuple(dict.fromkeys(context or ((1024,) if quick else (4096, 8192))))
    for share in budget or ():
        if not MIN_SHARE < share <= 1.0:
            raise InputError(
                f"--budget must be in ({MIN_SHARE:g}, 1] of the KV bytes (boxes and sketches come out of it), got {share:g}"
            )
    blocks = min(contexts) // BLOCK_SIZE
    if sinks is not None and not 0 <= sinks <= blocks:
        raise InputError(
            f"--sinks must be in [0, {blocks}] blocks for a context of {min(contexts)} tokens, got {sinks}"
        )
    if window is not None and not 1 <= window <= min(contexts):
        raise InputError(f"--window must be in [1, {min(contexts)}] tokens for this context, got {window}")
    settings = Settings(
        contexts=contexts,
        kinds=tuple(text or (("code",) if quick else KINDS)),
        texts_per_kind=1 if quick else texts,
        targets=tuple(dict.fromkeys(budget or (0.5, 0.25))),
        tail_tokens=min(tail, 8) if quick else tail,
        seed=seed,
        model=model,
        only=tuple(policy or ()),
    )
    settings.check(10**9)
    with output.progress("pruning policies") as progress:
        tables = run_study(
            settings,
            out,
            tasks_folder(tasks_dir),
            progress,
            lambda dtype: LiveModel.load(model, dtype, seed=seed),
            stop_after,
        )
    peer_rows, peer_path = None, None
    if kvpress is not None:
        from workbench.pruning.kvpress_peer import compare

        with output.progress("kvpress") as progress:
            peer_rows, peer_path = compare(kvpress, settings, out, tasks_folder(tasks_dir), progress)
    from workbench.live.weights import load_model

    longest = load_model(model).config.max_context_tokens
    made = report(tables, settings, out, _command(settings), longest, peer_rows)
    if peer_path is not None:
        made.paths["kvpress"] = peer_path
    output.say(_table(made.arms))
    for line in made.lines:
        output.say(line)
    output.say(f"report: {made.paths['report']}")
    output.done(ok=made.ok, figures=made.figures, paths=made.paths)


def _command(settings) -> str:
    words = [
        "workbench prune",
        *(f"--context {c}" for c in settings.contexts),
        *(f"--text {k}" for k in settings.kinds),
    ]
    words += [f"--texts {settings.texts_per_kind}", *(f"--budget {t:g}" for t in settings.targets)]
    words += [
        *(f"--policy {name}" for name in settings.only),
        f"--tail {settings.tail_tokens}",
        f"--seed {settings.seed}",
    ]
    return " ".join([*words, f"--model {settings.model}"])


def _table(arms):
    from rich.table import Table

    from workbench.pruning.page import HEADER, figure_rows

    table = Table(title="Pruning policies; brackets are 95 % intervals over texts")
    for name in HEADER[:7]:
        table.add_column(name, justify="left" if name == "policy" else "right")
    for row in figure_rows(arms):
        table.add_row(*row[:7])
    return table
