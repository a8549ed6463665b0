"""``adopt``: takes an older ``state.db`` over (issue 4, item 1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.text import Text

from hermes_state.cli.output import note, print_json, print_table
from hermes_state.cli.target import Target, target_of
from hermes_state.transfer.adoption import AdoptReport, Conversion, Progress, adopt_store
from hermes_state.transfer.files import written
from hermes_state.transfer.readable import printable, size


def add_to(app: typer.Typer) -> None:
    """Adds the command to ``app``."""
    app.command()(adopt)


def adopt(
    context: typer.Context,
    old: Annotated[
        Path,
        typer.Argument(
            metavar="OLD.db", exists=True, dir_okay=False, help="The older state.db; it is only read."
        ),
    ],
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="TARGET",
            help="New file or database URL (default: the store of --db, --url or the environment).",
            show_default=False,
        ),
    ] = None,
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="Copy checkpoints too that no request reads again.")
    ] = False,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Throw away what an unfinished copy left in the target."),
    ] = False,
    conversions: Annotated[
        Path | None,
        typer.Option(
            "--conversions",
            metavar="FILE",
            dir_okay=False,
            help="Write every converted value to this file, one JSON object a line.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Copy an older state.db (schema versions 17 to 31) into an empty store.

    Until it has ended, the target cannot be opened. After a kill, the same command goes on.
    """
    target = target_of(context)
    if into is not None:
        is_url = "://" in into
        target = Target(None if is_url else Path(into), into if is_url else None, target.settings)
    with _listing(conversions) as on_conversion, _progress() as progress:
        report = adopt_store(
            old,
            target.url,
            keep_checkpoints=keep_checkpoints,
            restart=restart,
            progress=progress,
            on_conversion=on_conversion,
        )
    if as_json:
        print_json(_as_json(report, target.shown))
    else:
        _print(report, target.shown)


@contextmanager
def _listing(file: Path | None) -> Iterator[Callable[[Conversion], None] | None]:
    if file is None:
        yield None
        return
    with written(file) as stream:

        def write(found: Conversion) -> None:
            stream.write(json.dumps(found._asdict(), ensure_ascii=False).encode() + b"\n")

        yield write


def _as_json(report: AdoptReport, into: str) -> dict[str, Any]:
    counts = [
        {"table": table, "column": column, "rule": rule, "count": count}
        for (table, column, rule), count in report.conversion_counts.items()
    ]
    listed = [found._asdict() for found in report.conversions]
    return asdict(report) | {"into": into, "conversion_counts": counts, "conversions": listed}


def _print(report: AdoptReport, into: str) -> None:
    version = "of no stated version" if report.version is None else f"version {report.version}"
    typer.echo(
        f"{printable(into)}: {report.sessions:,} sessions, {report.messages:,} messages and {report.notes:,} notes "
        f"of {printable(report.source)}, {version}"
    )
    if report.stripped_messages:
        typer.echo(
            f"left out {size(report.stripped_bytes)} of checkpoints in {report.stripped_messages:,} messages "
            "that no request reads again"
        )
    for table, count in report.left_tables.items():
        typer.echo(f"not copied: {count:,} rows of {printable(table)}, which this package does not have")
    if report.resumed_after:
        note(f"went on after {report.resumed_after:,} messages of an earlier run")
    note(f"{report.seconds:.1f} s, {report.finishing_seconds:.1f} s of them for the end")
    if report.conversion_counts:
        rows = [
            (table, column, rule, f"{count:,}")
            for (table, column, rule), count in report.conversion_counts.items()
        ]
        print_table(("table", "column", "converted", "rows"), rows, numbers=("rows",))
        note("--json lists the first 1,000 of them with their ids, --conversions FILE all")


@contextmanager
def _progress() -> Iterator[Progress]:
    shown = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=shown, disable=not shown.is_terminal, transient=True) as bars:
        bar = bars.add_task("sessions", total=None)

        def show(phase: str, done: int, total: int) -> None:
            if bars.tasks[0].description != phase:
                bars.reset(bar, description=phase, total=total)
            bars.update(bar, completed=done)

        yield show


class _Rate(ProgressColumn):
    """How many are done in a second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")
