"""``reclaim``: shadowed checkpoints out of the whole store, and their space back (issue 4, item 4)."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import SpinnerColumn, TimeElapsedColumn

from hermes_state.cli.output import note, print_json, print_table, progress_bars
from hermes_state.cli.target import target_of
from hermes_state.reports import ReclaimReport
from hermes_state.transfer.readable import size
from hermes_state.transfer.report import bytes_by_table

_HOW = {
    "rewritten": "the file was rewritten",
    "incremental": "free pages were given back; others had the file open, so it was not rewritten",
    "kept": "others had the file open: the space stays in it, free for new rows; run it again when nobody has",
    "vacuumed": "VACUUM ran: the space is free for new rows, the end of each table was given back",
}


def add_to(app: typer.Typer) -> None:
    """Adds ``reclaim`` to ``app``."""
    app.command()(reclaim)


def reclaim(
    context: typer.Context,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Only this session (default: all).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Take out checkpoints that a newer one has replaced, then give the space back. Others may go on writing."""
    target = target_of(context)
    with target.store(read_only=dry_run) as db, progress_bars(SpinnerColumn(), TimeElapsedColumn()) as bars:
        bar = bars.add_task("")

        def show(report: ReclaimReport) -> None:
            bars.update(bar, description=f"{report['rows']:,} rows, {size(report['checkpoint_bytes'])}")

        report = db.reclaim(session, dry_run=dry_run, on_part=show)
    if as_json:
        sizes = {key: [each._asdict() for each in report[key]] for key in ("sizes_before", "sizes_after")}
        print_json({**report, **sizes, "dry_run": dry_run})
        return
    _print(report, dry_run=dry_run)


def _print(report: ReclaimReport, *, dry_run: bool) -> None:
    what = "would go" if dry_run else "gone"
    typer.echo(
        f"checkpoints {what}: {size(report['checkpoint_bytes'])} in {report['rows']:,} rows "
        f"of {report['sessions']:,} sessions"
    )
    before, after = bytes_by_table(report["sizes_before"]), bytes_by_table(report["sizes_after"])
    rows = [[name, size(taken), size(after.get(name, 0))] for name, taken in before.items()]
    total = [size(sum(sizes.values())) for sizes in (before, after)]
    if rows:
        print_table(("table", "before", "after"), [*rows, ["total", *total]], numbers=("before", "after"))
    if report["vacuum"] is not None:
        note(_HOW[report["vacuum"]])
