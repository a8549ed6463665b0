"""``upgrade``, ``downgrade``, ``current``, ``check``, ``sql``: the schema of a store (CONTRACT.md section 6)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from hermes_state import upgrades
from hermes_state.cli.output import note
from hermes_state.cli.target import target_of


class Dialect(StrEnum):
    """The databases there are migrations for."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this module to ``app``."""
    for command in (upgrade, downgrade, current, check, sql):
        app.command()(command)


def upgrade(
    context: typer.Context,
    revision: Annotated[str, typer.Argument(metavar="[REV]", help="Target revision.")] = "head",
) -> None:
    """Bring the schema up to a revision. Default: the newest. Prints the revision reached."""
    target = target_of(context)
    with target.engine(creates=True) as engine:
        upgrades.upgrade(engine, revision)
        _print_revision(upgrades.current(engine), target.shown)


def downgrade(
    context: typer.Context,
    revision: Annotated[str, typer.Argument(metavar="REV", help="Target revision, or 'base' for no tables.")],
    force: Annotated[bool, typer.Option("--force", help="Go on even where rows are lost.")] = False,
) -> None:
    """Take the schema back to a revision. Refused where rows would be lost, unless forced. Prints the revision."""
    target = target_of(context)
    with target.engine() as engine:
        upgrades.downgrade(engine, revision, force=force)
        _print_revision(upgrades.current(engine), target.shown)


def current(context: typer.Context) -> None:
    """Print the revision of the schema. Without tables it is 'none'. Changes nothing, makes no file."""
    target = target_of(context)
    with target.engine(read_only=True) as engine:
        _print_revision(upgrades.current(engine), target.shown)


def check(context: typer.Context) -> None:
    """Compare the tables with this release. Prints each difference; exit code 1 if there is one."""
    target = target_of(context)
    with target.engine(read_only=True) as engine:
        differences = upgrades.check(engine)
    for difference in differences:
        typer.echo(difference)
    if differences:
        note(f"{target.shown}: {len(differences)} differences")
        raise typer.Exit(1)
    note(f"{target.shown}: the schema is at {upgrades.HEAD} and as expected")


def sql(
    dialect: Annotated[Dialect, typer.Option(help="The database to write for.")] = Dialect.SQLITE,
) -> None:
    """Print the SQL of an upgrade. From nothing to the newest revision; no database is touched."""
    typer.echo(upgrades.upgrade_sql(f"{dialect}://"), nl=False)


def _print_revision(revision: str | None, where: str) -> None:
    typer.echo(revision or "none")
    note(f"{where}: the schema is at {revision or 'nothing'}; this release works with {upgrades.HEAD}")
