"""The command line: `workbench VERB`. This file holds the table of verbs; each verb is one module beside it.

A verb is a function with Typer annotations that ends in `Output.done(ok, figures, paths)`:

    def prove(name: Annotated[str | None, typer.Argument(help="...")] = None, as_json: JsonFlag = False) -> None:
        \"\"\"Recompute every certificate.\"\"\"            # the help text
        out = Output(as_json)
        ...                                             # heavy imports go in here, so that --help stays fast
        out.done(ok=failed == 0, figures={"certificates": n, "failed": failed}, paths={"page": page})

Bad input raises `InputError`: one line on standard error and exit code 2. Ctrl-C ends with 130; what is finished is kept.
"""

import os
import sys
from importlib import import_module

import typer
from typer.exceptions import TyperException

from workbench.errors import InputError
from workbench.strict_json import strict_json

VERBS = {
    "run": "workbench.cli.run:run",
    "simulate": "workbench.cli.simulate:simulate",
    "record": "workbench.cli.record:record",
    "calibrate": "workbench.cli.calibrate:calibrate",
    "replay": "workbench.cli.replay:replay",
    "validate": "workbench.cli.validate:validate",
    "sweep": "workbench.cli.sweep:sweep",
    "prove": "workbench.cli.prove:prove",
    "temper": "workbench.cli.temper:temper",
    "unmask": "workbench.cli.unmask:unmask",
    "prune": "workbench.cli.prune:prune",
    "route": "workbench.cli.route:route",
    "deploy": "workbench.cli.deploy:deploy",
    "claims": "workbench.cli.claims:claims",
    "report": "workbench.cli.report:report",
    "doctor": "workbench.cli.doctor:doctor",
}
INTERRUPTED = 130
BENCHES = {
    "sim": "workbench.cli.bench_sim:bench_sim",
    "live": "workbench.cli.bench_live:bench_live",
    "step-cost": "workbench.cli.bench_step_cost:bench_step_cost",
}


def build_app(words: list[str]) -> typer.Typer:
    """The Typer application with the verbs that `words` may need: one of them, or all for the help page."""
    app = typer.Typer(
        help="Simulate, prove, sweep and validate entropy-steered inference.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    wanted = [words[0]] if words and words[0] in VERBS else list(VERBS)
    for verb in wanted:
        _mount(app, verb, VERBS[verb])
    if not words or words[0] not in VERBS:
        bench = typer.Typer(help="Measure speed and step cost beside peers.", no_args_is_help=True)
        for name, target in BENCHES.items():
            _mount(bench, name, target)
        app.add_typer(bench, name="bench")
    app.callback()(lambda: None)
    return app


def _mount(app: typer.Typer, name: str, target: str) -> None:
    module, function = target.split(":")
    app.command(name)(getattr(import_module(module), function))


def main() -> None:
    """Entry point of the `workbench` command."""
    words = sys.argv[1:]
    as_json = "--json" in words
    # OpenMP threads that wait spin for at most some 50 us: on a shared machine a longer spin starves the thread waited
    # for (a decode step took 500 ms instead of 20). Read once, when torch loads.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    try:
        code = build_app(words)(standalone_mode=False)
    except InputError as error:
        code = _refuse(str(error), as_json)
    except TyperException as error:
        printed_help = type(error).__name__ == "NoArgsIsHelpError"
        code = 2 if printed_help else _refuse(error.format_message(), as_json)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    if code == INTERRUPTED:  # Typer turns Ctrl-C into this code itself
        print("interrupted; finished work is kept, the same command resumes it", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str, as_json: bool) -> int:
    line = " ".join(message.split())
    if as_json:
        sys.stdout.write(strict_json({"ok": False, "figures": {}, "paths": {}, "error": line}))
    encoding = sys.stderr.encoding or "ascii"
    print(f"error: {line}".encode(encoding, errors="replace").decode(encoding), file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
