"""``backup`` and ``restore``: copies of a whole store, and putting one back (issue 4, item 6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TaskProgressColumn, TimeRemainingColumn

from hermes_state.cli.output import note, print_json, progress_bars
from hermes_state.cli.target import target_of
from hermes_state.transfer.backups import Backup, Progress, backup_store, restore_store
from hermes_state.transfer.readable import size

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this module to ``app``."""
    app.command()(backup)
    app.command()(restore)


def backup(
    context: typer.Context,
    into: Annotated[
        Path,
        typer.Argument(metavar="PLACE", help="A folder, or the file to write (it is replaced when done)."),
    ],
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", metavar="N", min=1, help="Keep the newest N backups of this store in the folder."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the store as it is now; others go on working. The copy is checked before it gets its name."""
    target = target_of(context)
    with _progress("backup") as shown:
        done = backup_store(target.url, into, keep=keep, progress=shown)
    for path in done.removed:
        note(f"removed {path}")
    _print(done, as_json)


def restore(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="What `backup` wrote.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replace the whole store by a backup. Refused while a program has it open; what was there is copied first."""
    target = target_of(context)
    if not yes:
        typer.confirm(f"Replace everything in {target.shown} by {file}?", abort=True, err=True)
    with _progress("restore") as shown:
        saved = restore_store(target.url, file, progress=shown)
    note(f"{target.shown}: restored from {file}")
    if saved is not None:
        note("what was there before:")
        _print(saved, as_json)
    elif as_json:
        print_json(None)


def _print(done: Backup, as_json: bool) -> None:
    if as_json:
        found: dict[str, Any] = asdict(done)
        print_json(found | {"path": str(done.path), "removed": [str(path) for path in done.removed]})
        return
    typer.echo(str(done.path))
    note(size(done.size_bytes))


@contextmanager
def _progress(title: str) -> Iterator[Progress]:
    with progress_bars(BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) as bars:
        bar = bars.add_task(title, total=None)
        yield lambda remaining, total: bars.update(bar, total=total, completed=total - remaining)
