"""The application: global options, the commands, and the one place where errors become exit codes.

Exit codes: 0 done; 1 the store refused (one line on stderr that names the error) or ``check`` found differences;
2 wrong usage (unknown option, missing file, unusable setting).
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hermes_state.cli import (
    adopt,
    archiving,
    backups,
    copying,
    deleting,
    doctor,
    listing,
    portable,
    record,
    schema,
    search,
    sessions,
    space,
    statistics,
    titles,
    usage,
)
from hermes_state.cli.output import note, tolerate_any_text
from hermes_state.cli.target import find_target
from hermes_state.errors import HermesStateError, redact
from hermes_state.transfer.readable import printable


class _StoreCommands(TyperGroup):
    """Runs a command; an error of the store ends it with one line and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HermesStateError as error:
            text = " ".join(printable(redact(str(error))).split())
            note(f"{type(error).__name__}: {text}")
            raise typer.Exit(1) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # whoever read has read enough, which the framework knows
            _refuse_output()
            note(f"{type(error).__name__}: {': '.join(_said_by(error))}")
            raise typer.Exit(1) from error


def _said_by(error: OSError) -> list[str]:
    return [str(each) for each in (error.filename, error.strerror or str(error)) if each]


def _refuse_output() -> None:
    """What stands in the buffer of a full stdout would fail once more when the program ends."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the program


app = typer.Typer(
    cls=_StoreCommands,
    name="hermes-state",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help=(
        "Keeps the conversations of agents.\n\n"
        "The store is that of --db or --url, else of HERMES_STATE_URL, else state.db in HERMES_HOME, "
        "else state.db in the user's data folder. "
        "Data goes to stdout, everything else to stderr. "
        "Exit codes: 0 done, 1 the store refused or differs, 2 wrong usage."
    ),
)


@app.callback()
def choose_store(
    context: typer.Context,
    db: Annotated[
        Path | None,
        typer.Option("--db", metavar="PATH", help="SQLite file of the store.", show_default=False),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="Database URL; one with a password is safer in HERMES_STATE_URL.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Finds out which store is meant."""
    tolerate_any_text()
    context.obj = find_target(db, url)


schema.add_to(app)
record.add_to(app)
backups.add_to(app)
portable.add_to(app)
space.add_to(app)
statistics.add_to(app)
usage.add_to(app)
doctor.add_to(app)
search.add_to(app)
listing.add_to(sessions.app)
titles.add_to(sessions.app)
archiving.add_to(sessions.app)
deleting.add_to(sessions.app)
sessions.app.command("stats")(statistics.stats)
copying.add_to(app)
adopt.add_to(app)
app.add_typer(sessions.app, name="sessions")


if __name__ == "__main__":
    app(prog_name="hermes-state")
