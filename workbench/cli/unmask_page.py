"""A study of `workbench unmask` for people's eyes: its table and statements in the terminal, its page made again."""

from pathlib import Path
from typing import NoReturn

from workbench.cli.console import Output
from workbench.unmasking.study import Study

MOST_ROWS = 60  # of a table in the terminal


def show_study(out: Output, study: Study) -> None:
    """The table, what the study states with whether it holds, its notes."""
    from rich.table import Table

    from workbench.unmasking.page import cell_text

    if len(study.rows) > MOST_ROWS:
        out.say(f"{study.title}: {len(study.rows)} rows of {len(study.columns)} columns, on the page and in table.csv")
    else:
        table = Table(title=study.title, title_justify="left")
        for index, column in enumerate(study.columns):
            table.add_column(column, justify="left" if index == 0 else "right")
        for row in study.rows:
            table.add_row(*(cell_text(value) for value in row))
        out.say(table)
    for statement in study.statements:
        out.say(f"{'holds' if statement.holds else 'FAILS'}  {statement.text}")
    for note in study.notes:
        out.say(note)


def report_study(out: Output, directory: Path) -> NoReturn:
    """Write the page of a finished study again, from its study.json; exit code 1 where a statement does not hold."""
    from workbench.unmasking.page import write_page
    from workbench.unmasking.study_file import load_study

    study, pictures = load_study(directory)
    paths = write_page(study, directory, pictures)
    show_study(out, study)
    out.say(f"report: {paths['report']}")
    out.done(study.ok, study.figures, {"run": directory, **paths})
