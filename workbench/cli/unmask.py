"""`workbench unmask`: masked-diffusion decoding of an exact oracle or a real model, and the studies made of it."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output
from workbench.cli.unmask_page import show_study
from workbench.errors import InputError


def unmask(
    oracle: Annotated[
        str | None, typer.Option(help="Exact joint to decode, e.g. pairs, markov; wrong names list all.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Real model: sapiens-heavy, sapiens-light, antiberty:heavy, antiberty:light, or a directory (BERT, "
            "RoBERTa, Dream, LLaDA)."
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Text before the masked positions (model directories); may hold mask tokens.")
    ] = None,
    policy: Annotated[
        str, typer.Option(help="NAME or NAME:VALUE, e.g. entropy-sum, confidence-threshold:0.9, uniform:16.")
    ] = "entropy-sum",
    eta: Annotated[
        float, typer.Option(help="Budget in nats of policies that have one; 0 one by one, inf all at once.")
    ] = 0.1,
    length: Annotated[int, typer.Option(help="Positions of the oracle, or masked ones behind the prompt.")] = 128,
    repeats: Annotated[
        int | None, typer.Option(help="Independent runs; default 64, or the study's own number.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of orders, samples and draws.", min=0)] = 0,
    entropy: Annotated[float | None, typer.Option(help="Wanted H(X0) in nats, for oracles that can be told.")] = None,
    symbols: Annotated[int | None, typer.Option(help="Alphabet size, for oracles that can be told.")] = None,
    knobs: Annotated[
        list[str] | None, typer.Option("--set", help="Field of the policy, key=value; repeatable.")
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(help="One order in place of random ones (oracles): every position once, as in 2,0,1."),
    ] = None,
    block_length: Annotated[int | None, typer.Option(help="Semi-autoregressive blocks of this many positions.")] = None,
    remask: Annotated[
        float | None, typer.Option(help="Mask again what was revealed below this confidence (models).")
    ] = None,
    masked: Annotated[float, typer.Option(help="Share of each sequence that is masked (models).")] = 1.0,
    temperature: Annotated[
        float, typer.Option(help="Temperature of revealed tokens (models); 0 is the likeliest.")
    ] = 0.0,
    study: Annotated[
        str | None,
        typer.Option(
            help="pairs, bounds, growth, algorithms, frontier, speed, queue or proteins; each states and checks."
        ),
    ] = None,
    frontier: Annotated[bool, typer.Option("--frontier", help="Same as --study frontier.")] = False,
    pictures: Annotated[
        bool, typer.Option(help="Sweeps around the setting, the order, an animation of one run.")
    ] = True,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Directory to write into; default runs/unmask/NAME.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Decode an oracle or a masked model with an unmasking policy: divergence, iterations, bounds, pictures."""
    from workbench.unmasking.page import write_study
    from workbench.unmasking.policies import named_policy, parse_knobs
    from workbench.unmasking.studies import run_study

    out = Output(as_json)
    chosen = [
        name
        for name, given in (("--oracle", oracle), ("--model", model), ("--study", study), ("--frontier", frontier))
        if given
    ]
    if len(chosen) != 1:
        given = ", ".join(chosen) or "none"
        raise InputError(f"give one of --oracle NAME, --model NAME, --study NAME, --frontier; got {given}")
    if repeats is not None and repeats < 1:
        raise InputError(f"--repeats must be at least 1, got {repeats}")
    if order is not None and not oracle:
        raise InputError(f"--order is for --oracle, got it with {chosen[0]}")
    extra: dict[str, tuple[str, bytes]] = {}
    if study or frontier:
        name = study or "frontier"
        with out.progress(f"study {name}") as tell:
            found = run_study(
                name, repeats=repeats, seed=seed, tell=tell, directory=out_dir or Path("runs/unmask") / name
            )
    else:
        rule = named_policy(policy, eta, knobs=parse_knobs(knobs or []), block_length=block_length, remask_below=remask)
        if not rule.uses_eta and eta != 0.1:
            out.note(f"note: policy {rule.name} has no eta (or its number is given), --eta {eta:g} is not used")
        if rule.uses_eta and eta == 0.0:
            out.note("note: eta = 0 reveals one uncertain position an iteration; the bounds on iterations are infinite")
        words = [f"--policy {policy}", *([f"--eta {eta:g}"] if rule.uses_eta else [])]
        words += [f"--set {pair}" for pair in knobs or []]
        words += [f"--block-length {block_length}"] if block_length is not None else []
        if model:
            place = Path(model).expanduser()
            own = Path(shlex.quote(model)) if place.is_dir() else model
            words = [f"workbench unmask --model {own}", *words, f"--temperature {temperature:g}"]
            words += [f"--remask {remask:g}"] if remask is not None else []
            target = out_dir or Path("runs") / "unmask" / _folder(f"{place.name}-{rule.label}")
            if place.is_dir():
                from workbench.unmasking.text import TextSetting, text_study

                words += [f"--prompt {shlex.quote(prompt or '')} --length {length}"]
                words += [f"--repeats {repeats or 4} --seed {seed}"]
                text = TextSetting(place, prompt or "", length, rule, temperature, repeats or 4, seed)
                with out.progress(f"decode {place.name}") as tell:
                    found, extra = text_study(text, " ".join(words), tell, target)
            else:
                from workbench.unmasking.proteins import ProteinSetting, protein_study

                words += [f"--masked {masked:g} --repeats {repeats or 16} --seed {seed}"]
                protein = ProteinSetting(model, rule, masked, temperature, repeats or 16, seed)
                with out.progress(f"decode {model}") as tell:
                    found, extra = protein_study(protein, " ".join(words), tell, target)
        else:
            from sims.oracles.names import OracleRequest
            from workbench.unmasking.orders import parse_order, rank_of_order
            from workbench.unmasking.single import Setting, single_pictures, single_study

            assert oracle is not None
            request = OracleRequest(length=length, entropy_nats=entropy, num_symbols=symbols, seed=seed)
            rank = None if order is None else rank_of_order(parse_order(order), length)
            setting = Setting(oracle, request, rule, repeats or 64, seed, rank)
            words = [f"workbench unmask --oracle {oracle}", *words, f"--length {length}"]
            words += [f"--entropy {entropy:g}"] if entropy is not None else []
            words += [f"--symbols {symbols}"] if symbols is not None else []
            words += [f"--order {order.replace(' ', '')}"] if order is not None else []
            words += [f"--repeats {repeats or 64} --seed {seed}"]
            with out.progress(f"decode {oracle}") as tell:
                found, _ = single_study(
                    setting, " ".join(words), lambda share: tell(0.6 * share if pictures else share)
                )
                if pictures:
                    extra = single_pictures(setting, found, lambda share: tell(0.6 + 0.4 * share))
    directory = out_dir or Path("runs") / "unmask" / _folder(found.name)
    paths = write_study(found, directory, extra)
    show_study(out, found)
    out.say(f"report: {paths['report']}")
    out.done(found.ok, found.figures, {**paths, "run": directory})


def _folder(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-")
