"""``sessions delete`` and ``sessions prune``: keeping a store small (issue 6, item 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import SpinnerColumn, TimeElapsedColumn

from hermes_state.cli.output import local_time, note, one_line, print_json, print_table, progress_bars, shown
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
from hermes_state.store import SessionDB

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON; needs --yes or --dry-run.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--sessions-dir", metavar="DIR", help="Remove the files of deleted sessions from this folder too."
    ),
]
_SHOWN = 50


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this module to those of sessions."""
    app.command("delete")(delete)
    app.command("prune")(prune)


def delete(
    context: typer.Context,
    session_ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Session ids, or beginnings of exactly one each.")
    ],
    sessions_dir: Folder = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete sessions and their delegates for good. What continues them stays, as a conversation of its own."""
    with target_of(context).store(read_only=dry_run) as db:
        wanted = [resolved(db, each) for each in session_ids]
        targets = list(dict.fromkeys(each for one in wanted for each in db.get_session_delete_targets(one)))

        def remove() -> None:
            db.delete_sessions(wanted, sessions_dir, expected_delete_ids=targets)

        _carry_out(db, targets, remove, dry_run=dry_run, yes=yes, as_json=as_json)


def prune(
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
    sessions_dir: Folder = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete old ended conversations for good; pinned and open ones, and those in use, stay."""
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
        targets = db.list_prune_candidates(older_than_days, source, **filters)
        idle = db.count_idle_open_sessions(older_than_days, source, **filters)
        if idle:
            note(f"{idle:,} sessions as old were never ended and stay; `sessions archive-stale` hides them")

        def remove() -> None:
            with progress_bars(SpinnerColumn(), TimeElapsedColumn()) as bars:
                bar = bars.add_task("", total=None)
                db.prune_sessions(
                    older_than_days,
                    source,
                    sessions_dir,
                    expected_delete_ids=targets,
                    on_part=lambda count: bars.update(bar, description=f"{count:,} sessions"),
                    **filters,
                )

        _carry_out(db, targets, remove, dry_run=dry_run, yes=yes, as_json=as_json)


def _carry_out(
    db: SessionDB,
    targets: Sequence[str],
    remove: Callable[[], None],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    if as_json and not (dry_run or yes):
        raise typer.BadParameter("--json cannot ask: give --yes or --dry-run too")
    if not as_json:
        _print(db, targets)
    if targets and not dry_run:
        if not yes:
            typer.confirm(f"Delete {len(targets):,} sessions for good?", abort=True, err=True)
        remove()
        targets = _gone(db, targets)
    if as_json:
        print_json({"dry_run": dry_run, "sessions": list(targets)})
    else:
        typer.echo(f"{len(targets):,} sessions {'would go' if dry_run else 'deleted'}")


def _gone(db: SessionDB, targets: Sequence[str]) -> list[str]:
    """What is not there any more: a conversation that somebody took up after the look was kept."""
    with db.unit_of_work() as uow:
        left = set(uow.sessions.present(targets))
    return [each for each in targets if each not in left]


def _print(db: SessionDB, targets: Sequence[str]) -> None:
    rows: list[list[str]] = []
    for session_id in targets[:_SHOWN]:
        session: Any = db.get_session(session_id)
        if session is not None:
            active_at = session["last_active_at"]
            rows.append(
                [
                    shown(session["id"]),
                    shown(session["source"]),
                    shown(session["message_count"]),
                    local_time(session["started_at"] if active_at is None else active_at),
                    one_line(shown(session["title"]), 60),
                ]
            )
    if rows:
        print_table(("session", "source", "messages", "last active", "title"), rows, numbers=("messages",))
    if len(targets) > _SHOWN:
        note(f"… and {len(targets) - _SHOWN:,} more; --json names them all")
