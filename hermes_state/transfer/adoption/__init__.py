"""Adopting the SQLite file of an older store, schema versions 17 to 31 (issue 4, item 1; known store, section 1).

The rules by which values are converted stand in docs/moving.md; ``AdoptReport`` says where one was applied.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL

from hermes_state.codec import PLACE, EncodedMessage
from hermes_state.dialects.bulk import Row
from hermes_state.dialects.older_stores import OlderStore, reading_older_store
from hermes_state.engine import build_engine, resolve_url, sqlite_path
from hermes_state.errors import InvalidArgumentError
from hermes_state.models import MetaRow, SystemPromptRow
from hermes_state.repositories.base import table_of
from hermes_state.settings import Settings
from hermes_state.transfer.adoption import values
from hermes_state.transfer.adoption.messages import MessageConverter, Tally, count_into, loaded
from hermes_state.transfer.adoption.notebook import AdoptReport, Conversion, Notebook
from hermes_state.transfer.adoption.resuming import MESSAGES, WrittenMessages
from hermes_state.transfer.adoption.sessions import (
    SESSIONS,
    NewSession,
    SessionConverter,
    SessionPlan,
    left_note,
    prompts_of,
)
from hermes_state.transfer.adoption.usage import LEDGERS, UsageConverter, made_of_totals, totals
from hermes_state.transfer.completeness import LostTargetError
from hermes_state.transfer.filling import Filling

__all__ = ["AdoptReport", "Conversion", "Progress", "adopt_store"]

Progress = Callable[[str, int, int], None]
"""Called with the phase (``"sessions"``, ``"messages"`` or ``"finishing"``), what is done of it and what there is in all."""

_META, _PROMPTS = table_of(MetaRow), table_of(SystemPromptRow)
_ROWS_A_PART = 2_000
_CHARACTERS_A_PART = 8 * 2**20
_SESSIONS_A_PART = 500
_HIGHEST_ID = 2**62
"""Above this, new messages would soon find no free id."""
_ITEMS, _TIMESTAMP, _ACTIVE = PLACE["codex_reasoning_items"], PLACE["timestamp"], PLACE["active"]
_LONG = [
    PLACE[name]
    for name in (
        "content", "content_parts", "tool_calls", "reasoning", "reasoning_content", "reasoning_details",
        "codex_reasoning_items", "codex_message_items", "api_content", "extra",
    )
]  # fmt: skip
# The marks of the older stores' own indices, which are not taken over.
_INDEX_NOTES = "fts_"
_KNOWN_TABLES = (
    "sessions",
    "messages",
    "state_meta",
    "system_prompts",
    "compression_locks",
    "session_turn_leases",
    "session_model_usage",
    "session_daily_usage",
)


def adopt_store(
    source: str | os.PathLike[str],
    into: str | os.PathLike[str] | URL,
    *,
    keep_checkpoints: bool = False,
    restart: bool = False,
    progress: Progress | None = None,
    on_conversion: Callable[[Conversion], None] | None = None,
) -> AdoptReport:
    """Copies the older store in the file ``source`` into the empty store ``into``, a file or a URL; its tables are made.

    Sessions, messages with their ids and states, system prompts and the notes of ``state_meta`` are copied; leases are
    not. Values that the schema refuses are converted by the rules of docs/moving.md; ``on_conversion`` gets each one. Unless
    ``keep_checkpoints``, shadowed checkpoints are left out, as every write of this package does (CONTRACT.md section 4).
    ``source`` and its -wal are not changed, and what others write to it meanwhile does not show.

    Until the end ``into`` is marked: opening it raises ``StoreIncompleteError``. After a failure or a kill, the same call
    goes on: it reads ``source`` anew and writes what is missing. ``restart`` throws away what an unfinished adoption or
    copy left. Raises ``TargetNotEmptyError``, ``OperationRunningError`` while another process fills ``into``, ``OtherOperationError``,
    ``SourceChangedError`` when messages that were written already are others now, ``SchemaMismatchError`` and
    ``SchemaAheadError`` for a source or target that does not fit, ``NotADatabaseError``, ``StoreCorruptError`` and the other store errors.
    """
    settings = Settings().model_copy(update={"statement_timeout_seconds": 0.0})
    old_url, new_url = _urls(source, into, settings)
    notebook = Notebook(on_conversion)
    shown = str(sqlite_path(old_url))
    started = time.monotonic()
    # The source first: an unfit one must not leave an empty target behind.
    with reading_older_store(old_url) as store:
        report = AdoptReport(shown, store.version, left_tables=store.other_tables(_KNOWN_TABLES))
        engine = build_engine(new_url, settings, pool=False)
        try:
            with (
                engine.connect() as conn,
                Filling(conn, "adopt", shown).claimed(restart=restart, resumes=True) as filling,
            ):
                adoption = _Adoption(store, filling, notebook, report, settings.max_text_bytes)
                adoption.run(keep_checkpoints=keep_checkpoints, progress=progress or _silent)
        finally:
            engine.dispose()
    report.seconds = time.monotonic() - started
    report.conversion_counts, report.conversions = dict(notebook.counts), notebook.listed
    return report


def _urls(source: Any, into: Any, settings: Settings) -> tuple[URL, URL]:
    old = resolve_url(source, None, settings)
    new = resolve_url(None, into, settings) if isinstance(into, URL) else resolve_url(into, None, settings)
    path = sqlite_path(old) if old.get_backend_name() == "sqlite" else None
    if path is None:
        raise InvalidArgumentError("source", "an older store is a SQLite file")
    if new.get_backend_name() == "sqlite":
        target = sqlite_path(new)
        if target is None:
            raise InvalidArgumentError("into", "a store in memory would be gone at once")
        if path.exists() and target.exists() and path.samefile(target):
            raise InvalidArgumentError("into", "it is the older store itself; give a new file")
    return old, new


def _silent(_phase: str, _done: int, _total: int) -> None:
    return


def _batched(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while part := list(islice(rows, _ROWS_A_PART)):
        yield part


class _Adoption:
    """One run."""

    def __init__(
        self,
        store: OlderStore,
        filling: Filling,
        notebook: Notebook,
        report: AdoptReport,
        max_text_bytes: int,
    ) -> None:
        self._store = store
        self._filling = filling
        self._notebook = notebook
        self._report = report
        self._written = WrittenMessages(filling)
        self._limit = max_text_bytes
        self._keeps_checkpoints = False
        self._progress: Progress = _silent
        self._plan = SessionPlan(store, notebook)
        self._tallies: dict[str, Tally] = {}
        self._left_keys: set[str] = set()
        low, high = store.id_range()
        self._renumbers = self._plan.message_count > 0 and (low < 1 or high > _HIGHEST_ID)
        last_id = values.as_count(store.last_message_id()).value or 0
        # An id that was given out once is not given to another message.
        self._last_id = (
            self._plan.message_count
            if self._renumbers
            else max(high, last_id if last_id < _HIGHEST_ID else 0)
        )

    def run(self, *, keep_checkpoints: bool, progress: Progress) -> None:
        """Everything, in this order: what messages hang on, messages, what is counted from them."""
        self._keeps_checkpoints, self._progress = keep_checkpoints, progress
        converter = MessageConverter(self._store.message_columns, self._notebook, self._limit)
        if self._filling.resumed:
            self._written.prepare()
        self._report.resumed_after = self._written.earlier
        try:
            self._copy_sessions()
            self._copy_messages(converter)
            self._finish()
        finally:
            converter.close()

    def _copy_sessions(self) -> None:
        converter = SessionConverter(self._store, self._notebook, self._limit)
        places, hashes = self._plan.places, set[str]()
        for start in range(0, len(places), _SESSIONS_A_PART):
            self._progress("sessions", start, len(places))
            part = places[start : start + _SESSIONS_A_PART]
            converted = [converter.convert(place) for place in part]
            for session in converted:
                self._tallies[session.columns["id"]] = Tally(session.columns["started_at"])
            prompts = {digest: text for digest, text in prompts_of(converted) if digest not in hashes}
            hashes.update(prompts)
            self._write_sessions(converted, prompts)
        self._report.sessions = len(places)

    def _write_sessions(self, sessions: list[NewSession], prompts: dict[str, str]) -> None:
        names = list(sessions[0].columns)
        rows = [tuple(session.columns[name] for name in names) for session in sessions]
        notes = [left_note(session.columns["id"], session.left) for session in sessions if session.left]
        self._left_keys.update(key for key, _ in notes)
        with self._filling.transaction():
            self._filling.load(_PROMPTS, ("hash", "prompt"), list(prompts.items()))
            self._filling.load(SESSIONS, names, rows)
            self._filling.load(_META, ("key", "value"), notes)

    def _copy_messages(self, converter: MessageConverter) -> None:
        total = self._plan.message_count
        for part in self._parts(converter):
            self._written.write(part)
            self._report.messages += len(part)
            self._progress("messages", self._report.messages, total)
        self._written.end()

    def _parts(self, converter: MessageConverter) -> Iterator[list[Row]]:
        part: list[Row] = []
        room = _CHARACTERS_A_PART
        for number, row in enumerate(self._store.messages(), start=1):
            session_id = self._plan.new_id(converter.old_session_id(row))
            tally = self._tallies[session_id]
            encoded = converter.convert(row, session_id, tally.last_time)
            new_id = number if self._renumbers else row[0]
            if new_id != row[0]:
                self._notebook.add("messages", row[0], "id", "ids were numbered anew, in their order", row[0])
            count_into(tally, (row[0], new_id), encoded)
            if encoded.is_carrier and encoded.values[_ACTIVE] and not self._keeps_checkpoints:
                encoded = self._stripped(encoded)
            part.append(loaded(new_id, encoded))
            room -= sum([len(encoded.values[place] or "") for place in _LONG])
            if room < 0 or len(part) == _ROWS_A_PART or self._written.ends_a_part(len(part)):
                yield part
                part, room = [], _CHARACTERS_A_PART
        if part:
            yield part

    def _stripped(self, encoded: EncodedMessage) -> EncodedMessage:
        """The message without its checkpoints. The newest carrier of a session gets them back at the end."""
        stripped = encoded.without_checkpoints()
        self._report.stripped_messages += 1
        self._report.stripped_bytes += len(encoded.values[_ITEMS]) - len(stripped.values[_ITEMS] or "")
        return stripped

    def _finish(self) -> None:
        steps = (
            self._restore_newest_checkpoints,
            self._count,
            self._copy_usage,
            self._copy_notes,
            self._open,
        )
        started = time.monotonic()
        for done, step in enumerate(steps):
            self._progress("finishing", done, len(steps))
            step()
        self._report.finishing_seconds = time.monotonic() - started
        self._progress("finishing", len(steps), len(steps))

    def _restore_newest_checkpoints(self) -> None:
        """Only at the end it is known which carrier of a session is its newest."""
        newest = (
            []
            if self._keeps_checkpoints
            else [t.newest_carrier for t in self._tallies.values() if t.newest_carrier]
        )
        converter = MessageConverter(self._store.message_columns, Notebook(None), self._limit)
        stmt = sa.update(MESSAGES).where(
            MESSAGES.c.session_id == sa.bindparam("session"), MESSAGES.c.id == sa.bindparam("row_id")
        )
        for old_id, new_id in newest:
            row = self._store.message(old_id)
            session_id = self._plan.new_id(converter.old_session_id(row))
            encoded = converter.convert(row, session_id, 0.0)
            items = encoded.values[_ITEMS]
            self._report.stripped_messages -= 1
            self._report.stripped_bytes -= len(items) - len(
                encoded.without_checkpoints().values[_ITEMS] or ""
            )
            with self._filling.transaction() as conn:
                self._written.restoring()
                conn.execute(
                    stmt.values(codex_reasoning_items=items), {"session": session_id, "row_id": new_id}
                )
        converter.close()

    def _count(self) -> None:
        stmt = (
            sa.update(SESSIONS)
            .where(SESSIONS.c.id == sa.bindparam("session"))
            .values(
                message_count=sa.bindparam("active"),
                tool_call_count=sa.bindparam("calls"),
                last_active_at=sa.bindparam("last_time"),
            )
        )
        counted = [
            {"session": id_, "active": tally.active, "calls": tally.calls, "last_time": tally.last_time}
            for id_, tally in self._tallies.items()
            if tally.has_messages
        ]
        for start in range(0, len(counted), _SESSIONS_A_PART):
            with self._filling.transaction() as conn:
                conn.execute(stmt, counted[start : start + _SESSIONS_A_PART])

    def _copy_usage(self) -> None:
        for table in LEDGERS:
            converter = UsageConverter(self._store, self._plan, self._notebook, table)
            for part in _batched(converter.rows()):
                self._load_usage(table, part)
            with self._filling.transaction() as conn:
                lacking = (each for each in totals(conn) if each["id"] not in converter.with_rows)
                for part in _batched(made_of_totals(table, each) for each in lacking):
                    self._filling.load(table, [column.name for column in table.c], part)

    def _load_usage(self, table: sa.Table, rows: list[Row]) -> None:
        with self._filling.transaction():
            self._filling.load(table, [column.name for column in table.c], rows)

    def _copy_notes(self) -> None:
        taken = set(self._left_keys)
        rows = []
        for key, value in self._store.notes():
            if isinstance(key, str) and key.startswith(_INDEX_NOTES):
                self._notebook.add(
                    "state_meta", key, "value", "it describes the older search index: left out", value
                )
                continue
            rows.append((self._free_key(key, taken), self._note_value(key, value)))
        with self._filling.transaction():
            self._filling.load(_META, ("key", "value"), rows)
        self._report.notes = len(rows)

    def _free_key(self, key: Any, taken: set[str]) -> str:
        wanted, rule = values.as_id(key)
        free = wanted = wanted or "unnamed"
        number = 1
        while free in taken:
            number += 1
            free = f"{wanted[:500]}-{number}"
        if free != key:
            self._notebook.add("state_meta", key, "key", f"{rule or 'the key was taken'}: now {free!r}", key)
        taken.add(free)
        return free

    def _note_value(self, key: Any, value: Any) -> str | None:
        text, rule = values.as_text(value, self._limit)
        if rule is not None:
            self._notebook.add("state_meta", key, "value", rule, value)
        return None if text is None else str(text)

    def _open(self) -> None:
        """Opens the store to everybody, if it holds what was copied."""
        with self._filling.completing() as conn:
            found = [
                conn.scalar(sa.select(sa.func.count()).select_from(table)) for table in (SESSIONS, MESSAGES)
            ]
            if found != [self._report.sessions, self._report.messages]:
                raise LostTargetError
            self._filling.bulk.set_last_id(conn, MESSAGES, self._last_id)
