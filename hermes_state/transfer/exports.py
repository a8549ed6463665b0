"""Exports as files, in constant memory: JSON lines to import again, pages to read (issue 4, item 3).

One session a line, as ``export_session`` gives it. A session of more than about 1,000 messages or 4 MiB goes over several
lines: each after the first has the keys ``continues`` (the id) and ``messages``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO

from hermes_state.json_values import dump_json
from hermes_state.store import SessionDB
from hermes_state.transfer.pages import HtmlPage, MarkdownPage, is_shown


@dataclass(slots=True)
class ExportCount:
    """What an export wrote."""

    sessions: int = 0
    messages: int = 0


def write_json_lines(
    db: SessionDB,
    output: BinaryIO,
    session_ids: Iterable[str] | None = None,
    *,
    source: str | None = None,
    on_session: Callable[[ExportCount], None] = lambda _count: None,
) -> ExportCount:
    """Writes the sessions (default: all, by id) into ``output``; unknown ids are left out. Returns what was written.

    ``on_session`` is called whenever another session was begun. Equal stores give equal bytes.
    """
    count = ExportCount()
    for part in db.iter_export(session_ids, source=source, in_parts=True):
        output.write(dump_json(part).encode() + b"\n")
        count.messages += len(part["messages"])
        if "continues" not in part:
            count.sessions += 1
            on_session(count)
    return count


def write_page(
    db: SessionDB,
    output: BinaryIO,
    page: MarkdownPage | HtmlPage,
    session_ids: Iterable[str] | None = None,
    *,
    source: str | None = None,
    on_session: Callable[[ExportCount], None] = lambda _count: None,
) -> ExportCount:
    """Writes the sessions as one page to read; see ``hermes_state.transfer.pages`` for what it shows."""
    count = ExportCount()

    def write(text: str) -> None:
        output.write(text.encode(errors="replace"))

    write(page.begin("Conversations"))
    for part in db.iter_export(session_ids, source=source, in_parts=True):
        if "continues" not in part:
            write(page.end_session() if count.sessions else "")
            write(page.session(part))
            count.sessions += 1
            on_session(count)
        shown = [message for message in part["messages"] if is_shown(message)]
        count.messages += len(shown)
        for message in shown:
            write(page.message(message))
    write(page.end_session() if count.sessions else "")
    write(page.end())
    return count
