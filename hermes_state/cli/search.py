"""``search``, and ``index`` for what it searches in (issue 5, items 3 and 6)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
from rich.text import Text

from hermes_state import SessionDB
from hermes_state.cli.output import console, local_time, note, print_json, progress_bars
from hermes_state.cli.target import target_of
from hermes_state.records import SearchHit
from hermes_state.search_snippets import END, START
from hermes_state.transfer.readable import printable

index = typer.Typer(help="The index that searches use.", invoke_without_command=True)


class Switch(StrEnum):
    """On or off."""

    on = "on"
    off = "off"


class Order(StrEnum):
    """An order by time."""

    newest = "newest"
    oldest = "oldest"


def add_to(app: typer.Typer) -> None:
    """Adds ``search`` and ``index`` to ``app``."""
    app.command()(search)
    app.add_typer(index, name="index")


def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help='Words, "phrases", OR, NOT, begin*; anything else is text.')],
    source: Annotated[
        list[str] | None, typer.Option("--source", help="Only sessions of this source.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude-source", help="No sessions of this source.")
    ] = None,
    role: Annotated[list[str] | None, typer.Option("--role", help="Only messages of this role.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Only this session.")] = None,
    sort: Annotated[Order | None, typer.Option("--sort", help="By time instead of best first.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Hits to show.")] = 20,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Hits to leave out first.")] = 0,
    by_session: Annotated[bool, typer.Option("--by-session", help="The best hit of each session.")] = False,
    reasoning: Annotated[bool, typer.Option("--reasoning", help="Also what models thought (slow).")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a query that does not parse.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Find messages by what was said in them."""
    with target_of(context).store(read_only=True) as db:
        hits = db.search_messages(
            query,
            source_filter=source or None,
            exclude_sources=exclude or None,
            role_filter=role or None,
            session_id=session,
            sort=None if sort is None else sort.value,
            limit=limit,
            offset=offset,
            group_by_session=by_session,
            include_reasoning=reasoning,
            strict=strict,
        )
        state = db.search_index_state()["state"]
    if as_json:
        print_json(hits)
    else:
        _print(hits)
    if state in ("degraded", "building"):
        note(
            f"the search index is {state}: the rows themselves were read; `hermes-state index rebuild` mends it"
        )


def _print(hits: list[SearchHit]) -> None:
    for hit in hits:
        line = f"{local_time(hit['timestamp'])}  {hit['session_id']}  {hit['role']} {hit['id']}"
        console().print(Text(printable(line), style="dim"))
        console().print(_coloured(hit["snippet"]))
    if not hits:
        note("no hits")


def _coloured(snippet: str) -> Text:
    shown = Text()
    for place, part in enumerate(snippet.split(START)):
        marked, found, behind = part.partition(END)
        if place and found:
            shown.append(printable(marked), style="bold yellow")
            shown.append(printable(behind))
        else:
            shown.append(printable((START if place else "") + part))
    return shown


@index.callback()
def switch(
    context: typer.Context,
    trigram: Annotated[
        Switch | None,
        typer.Option("--trigram", help="Index three letters each, for scripts without blanks (SQLite)."),
    ] = None,
) -> None:
    """Say what the index is, or switch its trigrams."""
    if context.invoked_subcommand is not None:
        return
    with target_of(context).store(read_only=trigram is None) as db:
        if trigram is not None:
            _build(db, trigram=trigram.value == "on")
        state = db.search_index_state()
    typer.echo(f"search index: {state['state']}, trigrams: {'on' if state['trigram'] else 'off'}")


@index.command()
def rebuild(context: typer.Context) -> None:
    """Build the index anew; goes on where a killed rebuild was. Others may go on writing."""
    with target_of(context).store() as db:
        _build(db, trigram=None)
        note("the search index is " + db.search_index_state()["state"])


def _build(db: SessionDB, *, trigram: bool | None) -> None:
    with progress_bars(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bars:
        bar = bars.add_task("indexing", total=None)
        most = 0

        def show(left: int) -> None:
            nonlocal most
            most = max(most, left)
            bars.update(bar, total=most, completed=most - left)

        if trigram is None:
            db.rebuild_search_index(progress=show)
        else:
            db.set_trigram_index(trigram, progress=show)
