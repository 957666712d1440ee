"""The page of `workbench prove`: every certificate with its domain, method, argument, pictures. Self-contained HTML."""

import base64
from collections.abc import Sequence
from importlib.resources import files
from io import BytesIO
from pathlib import Path

import jinja2

from workbench.analysis.figures import close_all, figures_of
from workbench.analysis.proving import Result
from workbench.record import git_revision, write_atomically


def write_page(results: Sequence[Result], directory: Path, self_test: bool) -> dict[str, Path]:
    """page.html and one PNG per picture in `directory`; name -> path."""
    figures = figures_of({r.certificate.name for r in results})
    paths, pictures = {}, []
    for name, figure in figures.items():
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
        paths[name] = directory / f"{name}.png"
        write_atomically(paths[name], buffer.getvalue())
        pictures.append((name, base64.b64encode(buffer.getvalue()).decode()))
    close_all(figures)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(
        (files("workbench.analysis") / "proof_page.html.jinja").read_text(encoding="utf-8")
    )
    rows = [
        {
            **r.as_dict(),
            "argument": r.certificate.argument,
            "witness": r.witness.name if r.witness else None,
        }
        for r in results
    ]
    rejections = [x for r in results for x in r.rejections]
    page = template.render(
        results=rows,
        holding=sum(r.verdict.holds for r in results),
        total_s=sum(r.prove_s + r.check_s for r in results),
        self_test=self_test,
        rejected=sum(x.rejected for x in rejections),
        falsehoods=len(rejections),
        revision=git_revision(),
        pictures=pictures,
    )
    paths["page"] = directory / "page.html"
    write_atomically(paths["page"], page.encode())
    return paths
