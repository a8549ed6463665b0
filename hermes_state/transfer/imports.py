"""Imports of files of any size, in memory that one line needs (issue 4, item 3; field reports R1, R6).

A file is read twice. First everything is checked: one bad entry, and nothing is written. Then one session after the other is
written, parents before children, each in a transaction of its own: after a kill the sessions written so far are there, whole,
and the same import again skips them and goes on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from hermes_state.errors import HermesStateError, InvalidArgumentError, InvalidMessageError
from hermes_state.json_values import dump_json, load_json
from hermes_state.records import ImportReport
from hermes_state.repositories.import_entries import (
    ImportEntry,
    MessagePart,
    OnExisting,
    Successor,
    checked_entry,
    checked_messages,
    entry_error,
    in_order,
    require_new,
)
from hermes_state.repositories.importing import NewSession, followed, report
from hermes_state.store import SessionDB
from hermes_state.transfer.chats import chat_session
from hermes_state.transfer.files import LineTooLong, bounded_lines, bounded_rest, opened

MAX_LINE_BYTES = 256 * 1024 * 1024
MAX_LISTED_ERRORS = 1_000

Progress = Callable[[str, int, int | None], None]


class ImportRefusedError(HermesStateError, ValueError):
    """Entries of a file cannot be imported; nothing was written.

    ``errors`` lists the first 1,000 of them (``index``, ``line``, ``session_id``, ``error``), ``count`` says how many there are.
    """

    def __init__(self, path: Path, errors: list[dict[str, Any]], count: int) -> None:
        self.path = path
        self.errors = errors
        self.count = count
        first = errors[0]
        more = f"; {count - 1:,} more" if count > 1 else ""
        super().__init__(
            f"{path}: nothing was imported: entry {first['index']}, line {first['line']}: {first['error']}{more}"
        )


@dataclass(slots=True)
class _Place:
    """One session of the file: where its lines are in the checked copy, and what it hangs on."""

    session_id: str
    parent_id: str | None
    start: int
    end: int = 0


@dataclass(slots=True)
class _Line:
    """One JSON value of a file, or why there is none."""

    number: int
    text: bytes
    value: Any = None
    error: InvalidArgumentError | None = None


def import_file(
    db: SessionDB,
    path: Path,
    *,
    on_existing: OnExisting = "skip",
    max_line_bytes: int = MAX_LINE_BYTES,
    on_progress: Progress = lambda _phase, _done, _total: None,
) -> ImportReport:
    """Imports a file of sessions: JSON lines or one JSON list, gzip, zstd or plain; the rules of ``import_sessions`` hold.

    Chat files of OpenAI's and ShareGPT's kind are taken too, each conversation as a session named by its id, else
    by the file and its number. The checked lines wait in an unnamed temporary file. ``on_progress`` gets the phase
    (``"checking"`` or ``"importing"``), the sessions done, and their total where it is known. Raises ``TransferFileError``
    for a file that cannot be read, ``ImportRefusedError`` for bad entries, with nothing written in either case.
    """
    if on_existing not in ("skip", "rename"):
        raise InvalidArgumentError("on_existing", "it must be 'skip' or 'rename'")
    with tempfile.TemporaryFile() as copy:
        checking = _Checking(path, copy, db.max_text_bytes, on_progress)
        with opened(path) as stream:
            for line in _lines(stream, max_line_bytes):
                checking.take(line)
        checking.finish()
        return _Writing(db, copy, checking, on_existing, on_progress).run()


class _Checking:
    """The first reading: checks every line and copies it, decompressed, to where the second one finds it."""

    def __init__(self, path: Path, copy: BinaryIO, max_text_bytes: int, on_progress: Progress) -> None:
        self._path = path
        self._copy = copy
        self._max_text_bytes = max_text_bytes
        self._on_progress = on_progress
        self._current: _Place | None = None
        self._index = -1
        self._errors: list[dict[str, Any]] = []
        self._error_count = 0
        self.places: dict[str, _Place] = {}
        self.elsewhere: dict[str, list[Successor]] = {}
        """Messages that a row of another session carries on, by the id of that session."""

    def take(self, line: _Line) -> None:
        """Checks one line."""
        is_part = isinstance(line.value, dict) and "continues" in line.value
        if is_part and self._current is None and self._index >= 0:
            return  # of a session that was refused
        if not is_part or self._index < 0:
            self._current = None
            self._index += 1
            self._on_progress("checking", self._index, None)
        try:
            self._take_part(line.value) if is_part else self._take_session(line)
        except (InvalidArgumentError, InvalidMessageError) as error:
            self._current = None
            self._error_count += 1
            if len(self._errors) < MAX_LISTED_ERRORS:
                self._errors.append({"line": line.number, **entry_error(self._index, line.value, error)})
            return
        self._copy.write(line.text + b"\n")
        if self._current is not None:
            self._current.end = self._copy.tell()

    def finish(self) -> None:
        """Raises ``ImportRefusedError`` when an entry was bad."""
        if self._errors:
            raise ImportRefusedError(self._path, self._errors, self._error_count)

    def _take_session(self, line: _Line) -> None:
        if line.error is not None:
            raise line.error
        chat = chat_session(line.value, f"{self._path.name.partition('.')[0]}-{self._index + 1}")
        if chat is not None:
            line.text, line.value = dump_json(chat).encode(), chat
        elif isinstance(line.value, dict) and "role" in line.value and "id" not in line.value:
            raise InvalidArgumentError(
                "session", "it is a message; `hermes-state record` takes files of messages"
            )
        entry = checked_entry(line.value, self._max_text_bytes)
        require_new(entry.session_id, self.places)
        self._current = _Place(entry.session_id, entry.parent_id, self._copy.tell())
        self.places[entry.session_id] = self._current
        self._remember(entry.part)

    def _take_part(self, value: dict[str, Any]) -> None:
        if self._current is None or value["continues"] != self._current.session_id:
            raise InvalidArgumentError("continues", "the lines of a session must follow each other")
        self._remember(
            checked_messages(self._current.session_id, value.get("messages"), self._max_text_bytes)
        )

    def _remember(self, part: MessagePart) -> None:
        for successor in part.successors:
            place = successor.to_session_id
            if place is not None and place != successor.session_id:
                self.elsewhere.setdefault(place, []).append(successor)


class _Writing:
    """The second reading: one session after the other, each in a transaction of its own."""

    def __init__(
        self,
        db: SessionDB,
        copy: BinaryIO,
        checked: _Checking,
        on_existing: OnExisting,
        on_progress: Progress,
    ) -> None:
        self._db = db
        self._copy = copy
        self._checked = checked
        self._on_existing = on_existing
        self._on_progress = on_progress
        self._renamed: dict[str, str] = {}
        """The id that each session of the file got; parents and successors follow it."""
        self._new: dict[str, NewSession] = {}
        self._done: set[str] = set()

    def run(self) -> ImportReport:
        places = list(self._checked.places.values())
        for done, place in enumerate(in_order(places)):
            self._on_progress("importing", done, len(places))
            self._write(place)
        ids = [place.session_id for place in places]
        new = self._new
        return report(
            [new[id_].session_id for id_ in ids if id_ in new],
            {id_: new[id_].session_id for id_ in ids if id_ in new and new[id_].session_id != id_},
            [id_ for id_ in ids if id_ not in new],
            [id_ for id_ in ids if id_ in new and new[id_].is_detached],
            [],
        )

    def _write(self, place: _Place) -> None:
        parts = self._parts(place)
        entry = checked_entry(next(parts), self._db.max_text_bytes)
        entry.parent_id = place.parent_id
        waiting = self._checked.elsewhere.get(place.session_id, [])
        with self._db.unit_of_work() as uow:
            new = uow.portable.begin(entry, self._renamed, self._on_existing)
            if new is not None:
                self._new[place.session_id] = new
                self._renamed[place.session_id] = new.session_id
                own = uow.portable.write_messages(new, self._all_messages(entry, parts))
                uow.portable.set_successors(self._known(each) for each in own)
            uow.portable.set_successors(
                (followed(each, self._renamed) for each in waiting), only_pending=True
            )
        self._done.add(place.session_id)

    def _known(self, successor: Successor) -> Successor:
        """The successor, or none as yet when its session is still to come: that may get another id."""
        place = successor.to_session_id
        if place in self._checked.places and place != successor.session_id and place not in self._done:
            successor = replace(successor, to_session_id=None)
        return followed(successor, self._renamed)

    def _all_messages(self, entry: ImportEntry, parts: Iterator[dict[str, Any]]) -> Iterator[MessagePart]:
        yield entry.part
        for part in parts:
            yield checked_messages(entry.session_id, part.get("messages"), self._db.max_text_bytes)

    def _parts(self, place: _Place) -> Iterator[dict[str, Any]]:
        self._copy.seek(place.start)
        while self._copy.tell() < place.end:
            yield load_json(self._copy.readline().decode())


def _lines(stream: BinaryIO, max_bytes: int) -> Iterator[_Line]:
    """The values of the file; blank lines and a byte order mark are skipped. A list, or an object over many lines, is one JSON text."""
    is_first = True
    for number, raw in enumerate(bounded_lines(stream, max_bytes), start=1):
        text = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if not text.strip():
            continue
        if isinstance(raw, LineTooLong):
            yield _Line(number, b"", error=_no_line(f"it is longer than {max_bytes:,} bytes"))
        elif is_first and (text.lstrip().startswith(b"[") or text.strip() == b"{"):
            yield from _whole(number, text, bounded_rest(stream, max_bytes - len(text)), max_bytes)
            return
        else:
            yield _parsed(number, text)
        is_first = False


def _whole(number: int, start: bytes, rest: bytes | None, max_bytes: int) -> Iterator[_Line]:
    if rest is None:
        reason = f"a JSON list of more than {max_bytes:,} bytes is not taken; write one session a line"
        yield _Line(number, b"", error=_no_line(reason))
        return
    text = start + b"\n" + rest
    line = _parsed(number, text)
    if line.error is not None or not isinstance(line.value, list):
        yield replace(line, text=text.replace(b"\n", b" "))
        return
    for value in line.value:
        yield _Line(number, dump_json(value).encode(), value)


def _parsed(number: int, text: bytes) -> _Line:
    try:
        return _Line(number, text, load_json(text.decode()))
    except ValueError as error:
        return _Line(number, text, error=_no_line(f"it is not JSON: {error}"))


def _no_line(reason: str) -> InvalidArgumentError:
    return InvalidArgumentError("line", reason)
