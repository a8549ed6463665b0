"""``sessions archive`` and ``sessions archive-stale``: hiding conversations from lists (issue 6, item 6)."""

from __future__ import annotations

from typing import Annotated

import typer

from hermes_state.cli.output import note, print_json
from hermes_state.cli.retention_filters import (
    Cwd,
    Days,
    EndReason,
    MaxCost,
    MaxMessages,
    MinCost,
    MinMessages,
    Model,
    Provider,
    Source,
    StartedAfter,
    StartedBefore,
    Title,
    given,
)
from hermes_state.cli.sessions import resolved
from hermes_state.cli.target import target_of
from hermes_state.transfer.readable import printable

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
    older_than_days: Days = None,
    source: Source = None,
    model: Model = None,
    provider: Provider = None,
    cwd: Cwd = None,
    title: Title = None,
    end_reason: EndReason = None,
    min_messages: MinMessages = None,
    max_messages: MaxMessages = None,
    min_cost: MinCost = None,
    max_cost: MaxCost = None,
    started_after: StartedAfter = None,
    started_before: StartedBefore = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be hidden.")] = False,
    as_json: AsJson = False,
) -> None:
    """Hide old conversations from lists, open ones too. Nothing is deleted."""
    filters = given(
        model=model,
        billing_provider=provider,
        cwd_prefix=cwd,
        title_query=title,
        end_reason=end_reason,
        min_messages=min_messages,
        max_messages=max_messages,
        min_cost_usd=min_cost,
        max_cost_usd=max_cost,
        started_after=started_after,
        started_before=started_before,
    )
    with target_of(context).store(read_only=dry_run) as db:
        named = db.list_archive_candidates(older_than_days, source, **filters)
        count = len(named) if dry_run else db.archive_stale_sessions(older_than_days, source, **filters)
    if as_json:
        print_json({"dry_run": dry_run, "archived": count, "sessions": named})
        return
    for session_id in named if dry_run else ():
        typer.echo(printable(session_id))
    note(f"{count:,} sessions {'would be hidden' if dry_run else 'hidden'}")
