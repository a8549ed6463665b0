"""``doctor``: the store compared with its own rows, and mended (issue 6, item 5)."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from hermes_state.cli.output import note, one_line, print_json, print_table
from hermes_state.cli.target import target_of
from hermes_state.transfer.readable import printable


def add_to(app: typer.Typer) -> None:
    """Adds ``doctor`` to ``app``."""
    app.command()(doctor)


def doctor(
    context: typer.Context,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what other rows tell.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Compare counters, activity, chains, checkpoints and keys with the rows. Exit code 1 while differences remain."""
    target = target_of(context)
    shown = Console(stderr=True, highlight=False)
    with target.store(read_only=not repair) as db, shown.status("comparing"):
        found = db.verify(repair=repair)
    left = [each for each in found if not each["repaired"]]
    if as_json:
        print_json(found)
    elif found:
        rows = [
            [
                each["table"],
                one_line(printable(str(each["id"] or "")), 40),
                each["column"] or "",
                one_line(printable(str(each["found"])), 60),
                one_line(printable(str(each["expected"])), 40),
                "repaired" if each["repaired"] else "repairable" if each["repairable"] else "look at it",
            ]
            for each in found
        ]
        print_table(("table", "id", "column", "found", "expected", ""), rows)
    note(f"{target.shown}: {len(found)} differences, {len(left)} left")
    if left:
        raise typer.Exit(1)
