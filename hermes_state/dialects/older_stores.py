"""Reading the SQLite file of an older store, schema versions 17 to 31, without changing a byte of it.

The file is opened through SQLite with ``mode=ro``: never ``immutable``, which ignores the -wal and loses rows, and never
by a file descriptor, whose closing drops the locks of this process. Everything is read in one transaction, so that a
program that goes on writing does not show (known store, section 1).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy.engine import URL

from hermes_state.driver_errors import translate
from hermes_state.engine import build_engine
from hermes_state.errors import SchemaAheadError, SchemaMismatchError
from hermes_state.settings import Settings
from hermes_state.text import has_surrogate

OLDEST, NEWEST = 17, 31
_ANY_FUTURE = 2.0**53

# What every one of these versions has; what came later is looked for by name.
_SESSION_COLUMNS = [
    "id",
    "source",
    "user_id",
    "session_key",
    "chat_id",
    "chat_type",
    "thread_id",
    "model",
    "model_config",
    "system_prompt",
    "parent_session_id",
    "started_at",
    "ended_at",
    "end_reason",
    "message_count",
    "tool_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cwd",
    "git_branch",
    "git_repo_root",
    "billing_provider",
    "billing_base_url",
    "billing_mode",
    "estimated_cost_usd",
    "actual_cost_usd",
    "cost_status",
    "cost_source",
    "pricing_version",
    "title",
    "api_call_count",
    "compression_failure_cooldown_until",
    "compression_failure_error",
    "rewind_count",
    "archived",
]
_MESSAGE_COLUMNS = [
    "id",
    "session_id",
    "role",
    "content",
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "timestamp",
    "token_count",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
    "platform_message_id",
    "observed",
    "active",
    "compacted",
]
_REQUIRED: Mapping[str, Sequence[str]] = {
    "sessions": _SESSION_COLUMNS,
    "messages": _MESSAGE_COLUMNS,
    "state_meta": ["key", "value"],
}
_KEYS = {"sessions": "id", "messages": "id"}
_OURS = "alembic_version"
# SQLite keeps a number in whatever form it was given; a text that spells none claims nothing.
_CLAIMED = """
    SELECT CAST(version AS REAL) FROM schema_version
    WHERE typeof(version) IN ('integer', 'real') OR CAST(version AS REAL) <> 0
"""
# The older stores' own search indices; the new store makes its own.
_IS_INDEX = re.compile(r"messages_fts|sqlite_|schema_version$")
_ADVICE = "it was left untouched; give the state.db of an older store, version 17 to 31"


@dataclass(frozen=True, slots=True)
class OlderSession:
    """What decides where a session stands; ``rowid`` finds the rest. Values as they are stored, of any type."""

    rowid: int
    id: Any
    source: Any
    parent_id: Any
    model_config: Any
    end_reason: Any


@dataclass(frozen=True, slots=True)
class OlderTranscript:
    """How many message rows name a session, and the first of them."""

    session_id: Any
    count: int
    first_id: int


class OlderStore:
    """An older store inside one reading transaction; made by ``reading_older_store``.

    Driver errors come out typed: ``StoreCorruptError`` where a damaged page is met, and so on.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.columns = self._columns()
        self.version = self._version()

    @cached_property
    def message_columns(self) -> tuple[str, ...]:
        """The columns that ``messages`` yields, ``id`` first."""
        return tuple(dict.fromkeys(("id", *self.columns["messages"])))

    @cached_property
    def _session_statement(self) -> str:
        return f"SELECT {_listed(self.columns['sessions'])} FROM sessions WHERE rowid = ?"

    def sessions(self) -> Iterator[OlderSession]:
        """Every session, in the order in which they were made."""
        columns = "rowid, id, source, parent_session_id, model_config, end_reason"
        for row in self._rows(f"SELECT {columns} FROM sessions ORDER BY rowid"):
            yield OlderSession(*row)

    def session(self, rowid: int) -> dict[str, Any]:
        """All columns of one session."""
        row = self._one(self._session_statement, rowid)
        return dict(zip(self.columns["sessions"], row, strict=True))

    def transcripts(self) -> list[OlderTranscript]:
        """One entry for each session id that message rows name."""
        found = self._all("SELECT session_id, count(*), min(id) FROM messages GROUP BY session_id")
        return [OlderTranscript(*row) for row in found]

    def id_range(self) -> tuple[int, int]:
        """The lowest and the highest message id; zeros without messages."""
        low, high = self._one("SELECT min(id), max(id) FROM messages")
        return low or 0, high or 0

    def last_message_id(self) -> Any:
        """The highest message id that was ever given out, by SQLite's own table of sequences."""
        if not self._all("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'"):
            return None
        return self._one("SELECT max(seq) FROM sqlite_sequence WHERE lower(name) = 'messages'")[0]

    def messages(self) -> Iterator[tuple[Any, ...]]:
        """Every message row, ``message_columns`` of it, by id."""
        names = _listed(self.message_columns)
        return self._rows(f"SELECT {names} FROM messages ORDER BY id")

    def message(self, row_id: int) -> tuple[Any, ...]:
        """One message row."""
        return self._one(f"SELECT {_listed(self.message_columns)} FROM messages WHERE id = ?", row_id)

    def ledger(self, table: str) -> Iterator[dict[str, Any]]:
        """The rows of a table of usage; none in a store that does not have it."""
        names = self.columns.get(table)
        if names:
            for row in self._rows(f"SELECT {_listed(names)} FROM {_quoted(table)}"):
                yield dict(zip(names, row, strict=True))

    def notes(self) -> list[tuple[Any, Any]]:
        """The keys and values of ``state_meta``."""
        return self._all("SELECT key, value FROM state_meta ORDER BY rowid")

    def prompt(self, digest: Any) -> Any:
        """The text that sessions name by a hash (from version 25 on); ``None`` for an unknown one."""
        if not {"hash", "prompt"} <= set(self.columns.get("system_prompts", ())):
            return None
        if isinstance(digest, str) and has_surrogate(digest):
            return None  # the driver cannot ask for what is no UTF-8, and no hash looks like that
        found = self._all("SELECT prompt FROM system_prompts WHERE hash = ?", digest)
        return found[0][0] if found else None

    def other_tables(self, known: Sequence[str]) -> dict[str, int]:
        """The number of rows of every table beside ``known`` that holds any, search indices left out."""
        names = [name for name in self.columns if name not in known]
        counts = {name: self._one(f"SELECT count(*) FROM {_quoted(name)}")[0] for name in names}
        return {name: count for name, count in counts.items() if count}

    def _columns(self) -> dict[str, tuple[str, ...]]:
        found = self._all(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        )
        tables = [name for (name,) in found]
        if _OURS in tables:
            raise SchemaMismatchError("it is a store of this package", "`hermes-state copy` copies it")
        # Tables of an index hold no columns of interest, and asking about some needs a loadable library.
        columns = {name.lower(): self._columns_of(name) for name in tables if not _IS_INDEX.match(name)}
        missing = [f"table {name}" for name in _REQUIRED if name not in columns]
        if missing:
            raise SchemaMismatchError(f"missing {', '.join(missing)}", _ADVICE)
        return columns

    def _columns_of(self, table: str) -> tuple[str, ...]:
        found = self._all("SELECT lower(name), type, pk FROM pragma_table_xinfo(?)", table)
        names = [name for name, _, _ in found]
        missing = [f"{table}.{name}" for name in _REQUIRED.get(table.lower(), ()) if name not in names]
        if missing:
            raise SchemaMismatchError(f"missing column {', '.join(missing)}", _ADVICE)
        key = _KEYS.get(table.lower())
        if key is not None and [name for name, _, place in found if place] != [key]:
            raise SchemaMismatchError(f"{table}.{key} is not the primary key", _ADVICE)
        return tuple(names)

    def _version(self) -> int | None:
        """The number that the store claims; ``None`` where it claims none, and its columns alone decide.

        A table that is there and cannot be read is damage, not silence: the number might be one of the future.
        """
        if not self._all("SELECT 1 FROM sqlite_master WHERE lower(name) = 'schema_version'"):
            return None
        if not self._all("SELECT 1 FROM pragma_table_xinfo('schema_version') WHERE lower(name) = 'version'"):
            raise SchemaMismatchError("missing column schema_version.version", _ADVICE)
        claimed = self._all(_CLAIMED)
        version = max((int(max(-1.0, min(number, _ANY_FUTURE))) for (number,) in claimed), default=None)
        if version is not None and version > NEWEST:
            raise SchemaAheadError(str(version), str(NEWEST))
        if version is not None and version < OLDEST:
            raise SchemaMismatchError(
                f"it is at version {version}",
                f"open it once with its own program, which brings it to version {OLDEST} or later",
            )
        return version

    def _rows(self, statement: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(statement, parameters)
        except sqlite3.Error as error:
            raise translate(error) or error from error

    def _all(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return list(self._rows(statement, *parameters))

    def _one(self, statement: str, *parameters: Any) -> tuple[Any, ...]:
        return self._all(statement, *parameters)[0]


@contextmanager
def reading_older_store(url: URL) -> Iterator[OlderStore]:
    """The older store in the file of ``url``.

    Raises ``StoreUnavailableError`` for a missing file, ``NotADatabaseError``, ``StoreCorruptError``, ``SchemaAheadError``
    for a version above 31 and ``SchemaMismatchError`` for anything else that is no older store.
    """
    engine = build_engine(url, Settings(), read_only=True, pool=False)
    try:
        proxy = engine.raw_connection()
        connection = proxy.driver_connection
        assert isinstance(connection, sqlite3.Connection)
        try:
            # Some programs store text that is not UTF-8; such bytes come out as lone surrogates, which are then replaced.
            connection.text_factory = _tolerant
            connection.execute("BEGIN")
            yield OlderStore(connection)
        finally:
            proxy.close()
    finally:
        engine.dispose()


def _tolerant(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(_quoted(name) for name in names)


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
