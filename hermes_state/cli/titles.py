"""``sessions title``: naming a session (issue 6, item 6)."""

from __future__ import annotations

from typing import Annotated

import typer

from hermes_state.cli.output import note, print_json
from hermes_state.cli.sessions import resolved
from hermes_state.cli.target import target_of
from hermes_state.transfer.readable import printable


def add_to(app: typer.Typer) -> None:
    """Adds ``title`` to the commands of sessions."""
    app.command("title")(title)


def title(
    context: typer.Context,
    session_id: Annotated[
        str, typer.Argument(metavar="ID", help="Session id, or the beginning of exactly one.")
    ],
    new_title: Annotated[str | None, typer.Argument(metavar="[TITLE]", help="The new title.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take the title away.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Print the title of a session, or give it one. A title belongs to one session only."""
    if clear and new_title is not None:
        raise typer.BadParameter("give a title or --clear, not both")
    with target_of(context).store(read_only=not clear and new_title is None) as db:
        found = resolved(db, session_id)
        if clear or new_title is not None:
            db.set_session_title(found, new_title)
        shown = db.get_session_title(found)
    if as_json:
        print_json({"session_id": found, "title": shown})
    elif shown is None:
        note(f"{printable(found)} has no title")
    else:
        typer.echo(printable(shown))
