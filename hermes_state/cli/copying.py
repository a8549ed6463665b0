"""``copy``: a whole store into another database (issue 4, item 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from hermes_state.cli.output import note, print_json, print_table, progress_bars
from hermes_state.cli.target import target_of
from hermes_state.transfer.conversions import Note
from hermes_state.transfer.copying import CopyReport, copy_store
from hermes_state.transfer.readable import printable

COLUMNS = ("table", "rows", "changed", "left out", "digest")
_LISTED = 20


def add_to(app: typer.Typer) -> None:
    """Adds ``copy`` to ``app``."""
    app.command("copy")(copy)


def copy(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="URL, or path of a SQLite file.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="URL or path; new or empty.")],
    restart: Annotated[
        bool, typer.Option("--restart", help="Throw away what an unfinished copy left in the target.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Copy a whole store into another database, and prove it equal. The source is only read.

    Until every table agrees, the target cannot be opened. After an interruption run the same command again.
    """
    given = target_of(context)
    if given.db is not None or given.url_text is not None:
        raise typer.BadParameter("copy takes both stores as arguments, not --db or --url")
    with progress_bars(
        BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn()
    ) as progress:
        report = copy_store(source, target, restart=restart, on_progress=_shown_on(progress))
    if as_json:
        print_json(asdict(report))
    else:
        _print(report)


def _shown_on(progress: Progress) -> Callable[[str, str, int, int], None]:
    tasks: dict[str, TaskID] = {}

    def show(what: str, table: str, done: int, total: int) -> None:
        name = f"{what} {table}"
        if name not in tasks:
            tasks[name] = progress.add_task(name, total=total, rate="")
        task = progress.tasks[tasks[name]]
        rate = "" if task.speed is None else f"{task.speed:,.0f} rows/s"
        progress.update(tasks[name], completed=done, total=max(done, total), rate=rate)

    return show


def _print(report: CopyReport) -> None:
    rows = [
        [each.table, f"{each.rows:,}", f"{each.changed:,}", f"{each.left_out:,}", each.digest[:16]]
        for each in report.tables
    ]
    print_table(COLUMNS, rows, numbers=COLUMNS[1:4])
    count = sum(each.rows for each in report.tables)
    typer.echo(f"{report.target}: complete, {count:,} rows in {report.seconds:.1f} s, every digest agrees")
    for each in report.notes[:_LISTED]:
        note(printable(_words(each)))
    if len(report.notes) > _LISTED:
        note(f"{len(report.notes) - _LISTED:,} more; --json lists them")


def _words(each: Note) -> str:
    key = ", ".join(str(part) for part in each.key)
    return f"{each.table} {key}, {each.column}: {each.done} (was {each.value})"
