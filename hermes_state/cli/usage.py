"""``usage``: what model calls used and cost (issue 6, item 6)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.bar import Bar
from rich.table import Table
from rich.text import Text

from hermes_state.cli.output import console, note, one_line, print_json
from hermes_state.cli.sessions import resolved
from hermes_state.cli.target import target_of
from hermes_state.records import UsageRecord
from hermes_state.transfer.readable import drawable, printable

_BAR_WIDTH = 30


class By(StrEnum):
    """What usage is grouped by."""

    MODEL = "model"
    PROVIDER = "provider"
    TASK = "task"
    DAY = "day"
    SESSION = "session"


def add_to(app: typer.Typer) -> None:
    """Adds ``usage`` to ``app``."""
    app.command()(usage)


def usage(
    context: typer.Context,
    by: Annotated[By, typer.Option("--by", help="One line for each of these.")] = By.MODEL,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Only this session (default: the store).")
    ] = None,
    lineage: Annotated[
        bool, typer.Option("--lineage", help="With --session: its whole conversation.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Say what model calls used and cost, side tasks included. Days are those of UTC."""
    with target_of(context).store(read_only=True) as db:
        session_id = None if session is None else resolved(db, session)
        groups = db.usage_totals(session_id, by=by.value, lineage=lineage)
        total = db.usage_totals(session_id, lineage=lineage)
    if as_json:
        print_json({"total": total, "by": by.value, "groups": groups})
    elif groups:
        _print(by.value, groups, total)
    else:
        note("no usage was counted")


def _print(by: str, groups: list[UsageRecord], total: UsageRecord) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(by)
    for name in ("calls", "input", "output", "cache read", "cache write", "cost $"):
        table.add_column(name, justify="right")
    in_money = any(_dollars(each) for each in groups)
    table.add_column("cost" if in_money else "tokens", no_wrap=True)
    values = [drawable(_dollars(each) if in_money else each["total_tokens"]) for each in groups]
    most = max([*values, 1e-9])
    for each, value in zip(groups, values, strict=True):
        name = str({**each}[by]) or ("conversation" if by == "task" else "unknown")
        table.add_row(
            Text(one_line(printable(name), 40)), *_figures(each), Bar(most, 0, value, width=_BAR_WIDTH)
        )
    table.add_row("total", *_figures(total), "")
    console().print(table)


def _figures(record: UsageRecord) -> list[str]:
    counts = (
        record["api_call_count"], record["input_tokens"], record["output_tokens"], record["cache_read_tokens"],
        record["cache_write_tokens"],
    )  # fmt: skip
    return [*(f"{count:,}" for count in counts), f"{_dollars(record):,.4f}"]


def _dollars(record: UsageRecord) -> float:
    """What was billed, else what was estimated."""
    actual = record["actual_cost_usd"]
    return actual if actual is not None else record["estimated_cost_usd"] or 0.0
