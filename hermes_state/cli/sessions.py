"""``sessions show``: one conversation, and how commands find the session that is meant."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from hermes_state.cli.output import console, local_time, one_line, print_json, shown
from hermes_state.cli.target import target_of
from hermes_state.errors import HermesStateError
from hermes_state.store import SessionDB
from hermes_state.transfer.readable import call_texts, checkpoint_note, printable, readable

app = typer.Typer(no_args_is_help=True, help="List sessions and show conversations.")

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
_SHOWN_CHARACTERS = 2_000
_ROLE_STYLES = {"user": "bold cyan", "assistant": "bold green", "tool": "bold yellow"}


class UnknownSessionError(HermesStateError, LookupError):
    """No session, or more than one, is meant by what the user typed."""

    def __init__(self, id_or_prefix: str) -> None:
        self.id_or_prefix = id_or_prefix
        super().__init__(
            f"{id_or_prefix!r} is neither the id of a session nor the beginning of exactly one; see `sessions list`"
        )


def resolved(db: SessionDB, id_or_prefix: str) -> str:
    """The id that is meant; ``UnknownSessionError`` when there is none, or more than one."""
    found = db.resolve_session_id(id_or_prefix)
    if found is None:
        raise UnknownSessionError(id_or_prefix)
    return found


@app.command("show")
def show_session(
    context: typer.Context,
    session_id: Annotated[
        str, typer.Argument(metavar="ID", help="Session id, or the beginning of exactly one.")
    ],
    every_row: Annotated[bool, typer.Option("--all", help="Archived and rewound messages too.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Cut no text.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the conversation of one session, in order."""
    with target_of(context).store(read_only=True) as db:
        session, messages = _load(db, session_id, every_row)
    if as_json:
        print_json({"session": session, "messages": messages})
        return
    screen = console()
    screen.print(_heading(session), soft_wrap=True)
    for message in messages:
        screen.print(_shown(message, None if full else _SHOWN_CHARACTERS), soft_wrap=True)


def _load(db: SessionDB, id_or_prefix: str, every_row: bool) -> tuple[Any, list[Any]]:
    session = db.get_session(resolved(db, id_or_prefix))
    if session is None:
        raise UnknownSessionError(id_or_prefix)
    return session, list(db.get_messages(session["id"], include_inactive=every_row))


def _heading(session: Any) -> Text:
    words = [
        f"source {session['source']}",
        f"{shown(session['message_count'])} messages",
        f"{shown(session['tool_call_count'])} tool calls",
        f"started {local_time(session['started_at'])}",
    ]
    if session["ended_at"] is not None:
        words.append(f"ended {local_time(session['ended_at'])} ({session['end_reason']})")
    return Text.assemble((printable(session["id"]), "bold"), printable(f"  {', '.join(words)}"), "\n")


def _shown(message: Any, limit: int | None) -> Text:
    state = "" if message["active"] else " compacted" if message["compacted"] else " rewound"
    name = f" {message['tool_name']}" if message["tool_name"] else ""
    head = f"[{message['id']}] {message['role']}{name}{state}"
    text = Text(printable(head), style=_ROLE_STYLES.get(message["role"], "bold"))
    text.append(f"  {local_time(message['timestamp'])}\n", style="dim")
    calls = [f"-> {call}" for call in call_texts(message)]
    for line in (readable(message["content"]), *calls, *_side_notes(message)):
        if line:
            text.append(f"{printable(_cut(line, limit))}\n", style="")
    return text


def _side_notes(message: Any) -> list[str]:
    notes = []
    thinking = message["reasoning_content"] or message["reasoning"]
    if thinking:
        notes.append(f"(reasoning: {one_line(thinking, 200)})")
    if (found := checkpoint_note(message)) is not None:
        notes.append(f"({found})")
    return notes


def _cut(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return text
    return f"{text[:limit]}\n… ({len(text) - limit:,} more characters; --full shows them)"
