"""``sessions list``: what a store holds, by filters and page by page (issue 6, item 6)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from hermes_state.cli.output import local_time, note, one_line, print_json, print_table, shown
from hermes_state.cli.target import target_of
from hermes_state.records import SessionPage

COLUMNS = ("session", "source", "messages", "tool calls", "last active", "title", "begins with")
_NUMBERS = ("messages", "tool calls")


Limit = Annotated[int, typer.Option(min=1, help="Sessions to print.")]
Offset = Annotated[int, typer.Option(min=0, help="Sessions to leave out first.")]
Cursor = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Go on behind an earlier page, with the same options as for that."),
]
Sources = Annotated[list[str] | None, typer.Option("--source", help="Only this source; may be repeated.")]
OtherSources = Annotated[
    list[str] | None, typer.Option("--exclude-source", help="Not this source; may be repeated.")
]
Folder = Annotated[
    str | None, typer.Option("--cwd", metavar="DIR", help="Only sessions of this folder and those in it.")
]
IdPart = Annotated[str | None, typer.Option("--id", metavar="TEXT", help="Only ids that hold this.")]
Words = Annotated[
    str | None,
    typer.Option("--search", metavar="WORDS", help="Only where title and id hold all these words."),
]
Pinned = Annotated[
    bool | None, typer.Option("--pinned/--not-pinned", help="Only pinned ones, or only others.")
]
Children = Annotated[
    bool, typer.Option("--children", help="Each session for itself: continuations, delegates, tool runs too.")
]


class By(StrEnum):
    """What comes first."""

    ACTIVITY = "activity"
    START = "start"


def add_to(app: typer.Typer) -> None:
    """Adds ``list`` to the commands of sessions."""
    app.command("list")(list_sessions)


def list_sessions(
    context: typer.Context,
    limit: Limit = 20,
    offset: Offset = 0,
    cursor: Cursor = None,
    by: Annotated[
        By, typer.Option("--by", help="What comes first: the latest activity or start.")
    ] = By.ACTIVITY,
    source: Sources = None,
    exclude_source: OtherSources = None,
    cwd: Folder = None,
    min_messages: Annotated[int, typer.Option(min=0, help="At least so many live messages.")] = 0,
    id_part: IdPart = None,
    search: Words = None,
    pinned: Pinned = None,
    archived: Annotated[bool, typer.Option("--archived", help="Only archived ones.")] = False,
    hidden: Annotated[bool, typer.Option("--hidden", help="Only hidden ones.")] = False,
    children: Children = False,
    everything: Annotated[bool, typer.Option("--all", help="Archived and hidden ones too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """List conversations as they stand now, most recently active first. Texts are literal, nothing is a wildcard."""
    filters: dict[str, Any] = {
        "sources": source or None,
        "exclude_sources": exclude_source or None,
        "cwd_prefix": cwd,
        "min_message_count": min_messages,
        "id_query": id_part,
        "search_query": search,
        "pinned": pinned,
        "archived_only": archived,
        "hidden": True if hidden else None,
        "include_children": children,
        "include_archived": everything,
        "include_hidden": everything,
    }
    with target_of(context).store(read_only=True) as db:
        page = db.list_sessions_page(
            limit=limit, offset=offset, cursor=cursor, order_by_last_active=by is By.ACTIVITY, **filters
        )
    if as_json:
        print_json(page)
    else:
        _print(page)


def _print(page: SessionPage) -> None:
    found = page["sessions"]
    if not found:
        note("no sessions")
        return
    is_shown = [name != "title" or any(session["title"] for session in found) for name in COLUMNS]
    rows = [_kept(_row(session), is_shown) for session in found]
    print_table(_kept(COLUMNS, is_shown), rows, numbers=_NUMBERS)
    if page["next_cursor"] is not None:
        note(f"there are more: --cursor {page['next_cursor']}")


def _kept(cells: Any, is_shown: list[bool]) -> list[str]:
    return [cell for cell, wanted in zip(cells, is_shown, strict=True) if wanted]


def _row(session: Any) -> list[str]:
    return [
        shown(session["id"]),
        shown(session["source"]),
        shown(session["message_count"]),
        shown(session["tool_call_count"]),
        local_time(session["last_active"]),
        one_line(shown(session["title"]), 60),
        session["preview"],
    ]
