"""``sessions archive`` and ``sessions archive-stale``: hiding conversations from lists (issue 6, item 6)."""

from __future__ import annotations

from typing import Annotated

import typer

from hermes_state.cli.output import print_json
from hermes_state.cli.sessions import resolved
from hermes_state.cli.target import target_of

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this module to those of sessions."""
    app.command("archive")(archive)
    app.command("archive-stale")(archive_stale)


def archive(
    context: typer.Context,
    session_ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Session ids, or beginnings of exactly one each.")
    ],
    undo: Annotated[bool, typer.Option("--undo", help="Show them in lists again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Hide conversations from lists: all their continuations, no branches. Nothing is deleted."""
    with target_of(context).store() as db:
        wanted = list(dict.fromkeys(resolved(db, each) for each in session_ids))
        with db.unit_of_work() as uow:
            for session_id in wanted:
                uow.lineages.set_flag(session_id, "archived", not undo)
    if as_json:
        print_json({"archived": not undo, "sessions": wanted})
    else:
        typer.echo(f"{len(wanted):,} conversations {'shown again' if undo else 'hidden'}")


def archive_stale(
    context: typer.Context,
    older_than_days: Annotated[
        float | None,
        typer.Option(
            "--older-than-days", min=0, help="Last active so long ago (default: 90; any with --source)."
        ),
    ] = None,
    source: Annotated[str | None, typer.Option("--source", help="Only conversations of this source.")] = None,
    as_json: AsJson = False,
) -> None:
    """Hide old conversations from lists, open ones too. Nothing is deleted."""
    with target_of(context).store() as db:
        count = db.archive_stale_sessions(older_than_days, source)
    if as_json:
        print_json({"archived": count})
    else:
        typer.echo(f"{count:,} sessions hidden")
