"""``stats`` and ``report``: a whole store at a glance, in the terminal and as a page (issue 4, item 5)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hermes_state.cli.output import note, one_line, print_json, print_table
from hermes_state.cli.target import Target, target_of
from hermes_state.reports import StoreStatistics
from hermes_state.transfer.files import written
from hermes_state.transfer.readable import size
from hermes_state.transfer.report import bytes_by_table, report_page

Days = Annotated[int, typer.Option("--days", min=0, help="Days of growth to show.")]
Biggest = Annotated[int, typer.Option("--biggest", min=0, metavar="N", help="Biggest sessions to show.")]
Retention = Annotated[float, typer.Option("--retention-days", min=0, help="Which sessions count as old.")]


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this module to ``app``."""
    app.command()(stats)
    app.command()(report)


def stats(
    context: typer.Context,
    days: Days = 30,
    biggest: Biggest = 10,
    retention_days: Retention = 90.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Say how big the store is, where it grows, what it cost, and what is old. Reads every text once."""
    found = _look(target_of(context), days, biggest, retention_days)
    if as_json:
        print_json({**found, "sizes": [each._asdict() for each in found["sizes"]]})
        return
    _print_sizes(found)
    _print_growth(found)
    _print_sessions(found)
    _print_cost(found)


def report(
    context: typer.Context,
    html: Annotated[Path, typer.Option("--html", metavar="FILE", dir_okay=False, help="The page to write.")],
    days: Days = 30,
    biggest: Biggest = 20,
    retention_days: Retention = 90.0,
) -> None:
    """Write what `stats` says as one HTML page with plots. It loads nothing, and suits light, dark and phones."""
    target = target_of(context)
    page = report_page(_look(target, days, biggest, retention_days), target.shown)
    with written(html) as stream:
        stream.write(page.encode())
    typer.echo(str(html))
    note(size(len(page.encode())))


def _look(target: Target, days: int, biggest: int, retention_days: float) -> StoreStatistics:
    shown = Console(stderr=True, highlight=False)
    with target.store(read_only=True) as db, shown.status("reading the store"):
        return db.statistics(days=days, biggest=biggest, retention_days=retention_days)


def _print_sizes(found: StoreStatistics) -> None:
    tables = bytes_by_table(found["sizes"])
    if tables:
        rows = [[name, size(taken)] for name, taken in tables.items()]
        print_table(("table", "size"), [*rows, ["total", size(sum(tables.values()))]], numbers=("size",))
    checkpoints = found["checkpoints"]
    typer.echo(
        f"checkpoints: {size(checkpoints['live_bytes'])} live, {size(checkpoints['shadowed_bytes'])} shadowed "
        f"in {checkpoints['shadowed_rows']:,} rows"
    )
    retention = found["retention"]
    typer.echo(
        f"not used for {retention['days']:g} days, so that `sessions prune` would delete them: "
        f"{retention['sessions']:,} sessions, {retention['messages']:,} messages"
    )


def _print_growth(found: StoreStatistics) -> None:
    rows = [[day["day"], f"{day['messages']:,}", size(day["text_bytes"])] for day in found["days"]]
    if rows:
        print_table(("day", "messages", "text"), rows, numbers=("messages", "text"))


def _print_sessions(found: StoreStatistics) -> None:
    sources = ", ".join(
        f"{one_line(name, 40)} {count:,}" for name, count in found["sessions_by_source"].items()
    )
    states = ", ".join(f"{name} {count:,}" for name, count in found["messages"].items())
    typer.echo(f"sessions: {sources or 'none'}")
    typer.echo(f"messages: {states}")
    rows = [
        [
            each["session_id"],
            one_line(each["title"] or "", 40),
            f"{each['messages']:,}",
            size(each["text_bytes"]),
        ]
        for each in found["biggest_sessions"]
    ]
    if rows:
        print_table(("session", "title", "messages", "text"), rows, numbers=("messages", "text"))


def _print_cost(found: StoreStatistics) -> None:
    rows: list[list[Any]] = [
        [
            one_line(each["model"] or "unknown", 40),
            f"{each['api_call_count']:,}",
            f"{each['input_tokens']:,}",
            f"{each['output_tokens']:,}",
            *(
                "" if cost is None else f"{cost:,.4f}"
                for cost in (each["estimated_cost_usd"], each["actual_cost_usd"])
            ),
        ]
        for each in found["usage_by_model"]
    ]
    if rows:
        columns = ("model", "calls", "input", "output", "estimated $", "actual $")
        print_table(columns, rows, numbers=columns[1:])
