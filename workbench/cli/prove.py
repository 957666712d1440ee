"""`workbench prove`: recompute every certificate, or judge one loop gain."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output


def prove(
    name: Annotated[
        str | None,
        typer.Argument(help='A certificate, a pattern such as "delay-*", or i-law with --gain. Default: all.'),
    ] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Also hand each checker false versions of its statement.")
    ] = False,
    gain: Annotated[
        list[str] | None, typer.Option(help="With i-law: loop gain k_i V to judge, as 1.9 or 19/10. Repeatable.")
    ] = None,
    delay: Annotated[int, typer.Option(help="With i-law: tokens of delay, plant and wrappers together.")] = 0,
    out_dir: Annotated[Path, typer.Option("--out", help="Run directory for witnesses and the page.")] = Path(
        "runs/prove"
    ),
    list_only: Annotated[bool, typer.Option("--list", help="Names and statements only.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Recompute every certificate: prove, write the witness, check it independently. 1 if one does not hold.

    With `i-law --gain G --delay D`, judge one loop gain: certified or not, frozen and switching, with a simulation.
    """
    from workbench.errors import InputError

    out = Output(as_json)
    if gain or name == "i-law":
        if name not in (None, "i-law"):
            raise InputError(f"--gain judges the I law, got it with certificate {name!r}; use: prove i-law --gain 1.9")
        if not gain:
            raise InputError("prove i-law needs --gain, the loop gain k_i V, for example: prove i-law --gain 1.9")
        _judge(out, gain, delay)
    from workbench.analysis.certificates.table import CERTIFICATES
    from workbench.analysis.proof_page import write_page
    from workbench.analysis.proving import run_all, select

    chosen = select(CERTIFICATES, name)
    if list_only:
        for certificate in chosen:
            out.say(f"{certificate.name:28s} {certificate.statement}")
        out.done(True, {"certificates": len(chosen)}, names=[c.name for c in chosen])
    with out.progress("prove") as tell:
        results = run_all(chosen, out_dir, self_test, tell)
    paths = write_page(results, out_dir, self_test)
    out.say(_table(results, self_test))
    for result in results:
        if not result.verdict.holds:
            out.say(f"{result.certificate.name} fails: {result.verdict.reason}")
        for r in result.rejections:
            if not r.rejected:
                out.say(f"{result.certificate.name} accepted a false statement ({r.change}): {r.reason}")
    rejections = [r for result in results for r in result.rejections]
    failed = sum(not result.ok for result in results)
    figures = {
        "certificates": len(results),
        "failed": failed,
        "elapsed_s": round(sum(r.prove_s + r.check_s for r in results), 3),
    }
    if self_test:
        figures |= {"falsehoods": len(rejections), "falsehoods_rejected": sum(r.rejected for r in rejections)}
    out.say(
        f"{len(results) - failed} of {len(results)} hold"
        + (f"; {figures['falsehoods_rejected']} of {len(rejections)} false statements rejected" if self_test else "")
        + f"; {figures['elapsed_s']:.1f} s; page: {paths['page']}"
    )
    out.done(failed == 0, figures, {"run": out_dir, **paths}, results=[result.as_dict() for result in results])


def _table(results: list, self_test: bool):
    from rich.table import Table

    table = Table(title="Certificates", expand=False)
    for column in ("name", "statement", "domain", "method"):
        table.add_column(column, overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    if self_test:
        table.add_column("false versions", no_wrap=True)
    for r in results:
        c = r.certificate
        row = [c.name, c.statement, c.domain, c.method, f"{r.prove_s + r.check_s:.2f} s"]
        row.append("holds" if r.verdict.holds else "FAILS")
        if self_test:
            row.append(f"{sum(x.rejected for x in r.rejections)} of {len(r.rejections)} rejected")
        table.add_row(*row)
    return table


def _judge(out: Output, gains: list[str], delay: int) -> None:
    """Ends the command."""
    from fractions import Fraction

    from rich.table import Table

    from workbench.analysis.gain_verdict import judge_gain
    from workbench.errors import InputError

    verdicts = []
    for text in gains:
        try:
            value = Fraction(text)
        except (ValueError, ZeroDivisionError):
            raise InputError(f"--gain must be a number such as 1.9 or 19/10, got {text!r}") from None
        verdicts.append(judge_gain(value, delay))
    table = Table(title=f"I law, delay {delay}")
    for column in ("k_i V", "certified", "static gain", "gain margin", "frozen error", "switching error"):
        table.add_column(column, overflow="fold")
    for v in verdicts:
        table.add_row(
            f"{v.gain:g}",
            "yes" if v.certified else "NO",
            f"{v.static_gain:g}",
            f"{v.gain_margin:.4g}",
            f"{v.frozen_error:.3g}",
            f"{v.switching_error:.3g}",
        )
    out.say(table)
    for v in verdicts:
        out.say(f"k_i V = {v.gain:g}: {'certified' if v.certified else 'not certified'}, {v.reason}")
    out.say("errors: |u - u*| 3,000 tokens after a start at 1; switching: V off for d tokens, then full, over and over")
    certified = sum(v.certified for v in verdicts)
    figures = {"certified": certified, "not_certified": len(verdicts) - certified}
    if len(verdicts) == 1:
        v = verdicts[0]
        figures |= {
            "static_gain": v.static_gain,
            "gain_margin": v.gain_margin,
            "frozen_error": v.frozen_error,
            "switching_error": v.switching_error,
        }
    out.done(certified == len(verdicts), figures, None, verdicts=[vars(v) for v in verdicts])
