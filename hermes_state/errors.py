"""The error tree of the package.

Every error says what to do, names what it is about in typed fields, keeps the original as ``__cause__``,
and says through ``transient`` whether trying the same call again can help (CONTRACT.md section 7).
Each class also derives from the builtin that callers of the known store catch. Driver errors become these in
``driver_errors.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar


class HermesStateError(Exception):
    """Root of the tree. ``transient`` is true when trying the same call again can help."""

    transient: ClassVar[bool] = False


class InvalidArgumentError(HermesStateError, ValueError):
    """An argument other than a message is refused before any SQL."""

    def __init__(self, argument: str, reason: str) -> None:
        self.argument = argument
        self.reason = reason
        super().__init__(f"argument {argument!r} is refused: {reason}")


class ParentNotFoundError(InvalidArgumentError, LookupError):
    """The parent given for a session does not exist; nothing was written."""

    def __init__(self, parent_session_id: str) -> None:
        self.parent_session_id = parent_session_id
        super().__init__("parent_session_id", f"there is no session {parent_session_id!r}; create it first")


class InvalidMessageError(HermesStateError, ValueError):
    """A message cannot be stored; raised before any SQL.

    ``index`` is the position in the batch (from 0), ``field`` the offending key or ``None`` for the whole message.
    """

    def __init__(self, index: int, field: str | None, reason: str) -> None:
        self.index = index
        self.field = field
        self.reason = reason
        where = f"message {index}" if field is None else f"message {index}, key {field!r}"
        super().__init__(f"{where} cannot be stored: {reason}")


class SessionNotFoundError(HermesStateError, LookupError):
    """A message is to be written to a session that does not exist; nothing was written."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"session {session_id!r} does not exist; call create_session or ensure_session first"
        )


class SessionExistsError(HermesStateError, ValueError):
    """A session of that id exists already."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r} exists already; choose another id")


class CompressionSessionClosedError(HermesStateError, RuntimeError):
    """The session was ended by compression; its conversation goes on in a continuation."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"session {session_id!r} was closed by compression; "
            "write to get_compression_tip(session_id) instead"
        )


class SessionEndedError(HermesStateError, RuntimeError):
    """Somebody ended the session for a reason of their own; compaction must not carry it on."""

    def __init__(self, session_id: str, end_reason: str | None) -> None:
        self.session_id = session_id
        self.end_reason = end_reason
        super().__init__(
            f"session {session_id!r} was ended ({end_reason}); call reopen_session first if it is to go on"
        )


class SessionCompressionInProgressError(HermesStateError, RuntimeError):
    """Another holder is compacting the session."""

    transient = True

    def __init__(self, session_id: str, holder: str | None = None) -> None:
        self.session_id = session_id
        self.holder = holder
        super().__init__(
            f"session {session_id!r} is being compacted by {holder!r}; try again when it has finished"
        )


class SessionTurnLeaseLostError(HermesStateError, RuntimeError):
    """The presented turn lease is not held; nothing was written."""

    def __init__(self, session_id: str, holder: str) -> None:
        self.session_id = session_id
        self.holder = holder
        super().__init__(
            f"{holder!r} does not hold the turn lease of session {session_id!r}; acquire it again before writing"
        )


class LeaseHeldError(HermesStateError, RuntimeError):
    """A lease is held by somebody else."""

    transient = True

    def __init__(self, session_id: str, holder: str) -> None:
        self.session_id = session_id
        self.holder = holder
        super().__init__(f"the lease of session {session_id!r} is held by {holder!r}; wait for its release")


class MessageConflictError(HermesStateError, ValueError):
    """A ``message_uid`` is used a second time for a different message; nothing was written.

    ``row_id`` is the stored row's id, or ``None`` when both messages stand in the same batch.
    """

    def __init__(self, session_id: str, message_uid: str, index: int, row_id: int | None) -> None:
        self.session_id = session_id
        self.message_uid = message_uid
        self.index = index
        self.row_id = row_id
        where = "in this batch" if row_id is None else f"in row {row_id}"
        super().__init__(
            f"message {index}: uid {message_uid!r} of session {session_id!r} is a different message {where}; "
            "give the changed message a uid of its own, or its _row_id to update it in place"
        )


class RewindConflictError(HermesStateError, RuntimeError):
    """The transcript changed since the caller read it; nothing was rewound."""

    def __init__(self, session_id: str, reason: str) -> None:
        self.session_id = session_id
        self.reason = reason
        super().__init__(f"session {session_id!r} cannot be rewound: {reason}; load it again")


class TitleConflictError(HermesStateError, ValueError):
    """The title belongs to another session."""

    def __init__(self, title: str, owner_session_id: str) -> None:
        self.title = title
        self.owner_session_id = owner_session_id
        super().__init__(f"title {title!r} is already in use by session {owner_session_id!r}; choose another")


class DeletionConflictError(HermesStateError, ValueError):
    """Other sessions than expected would be deleted too, ``session_ids``; no session was deleted."""

    def __init__(self, session_ids: Sequence[str]) -> None:
        self.session_ids = list(session_ids)
        super().__init__(
            f"{len(session_ids)} sessions more would be deleted, {self.session_ids[:10]}; look again what would go"
        )


class SessionTooLargeError(HermesStateError, ValueError):
    """A session holds more messages than the caller allows to load."""

    def __init__(self, session_id: str, message_count: int, limit: int) -> None:
        self.session_id = session_id
        self.message_count = message_count
        self.limit = limit
        super().__init__(
            f"session {session_id!r} holds {message_count} messages, more than {limit}; page through it instead"
        )


class QuerySyntaxError(HermesStateError, ValueError):
    """A strict search query does not parse. ``position`` counts characters from 0."""

    def __init__(self, query: str, position: int, reason: str) -> None:
        self.query = query
        self.position = position
        self.reason = reason
        super().__init__(f"search query does not parse at character {position}: {reason}")


class StoreError(HermesStateError):
    """The database refused; ``reason`` is what the driver said, without parameters or passwords."""

    advice: ClassVar[str] = "see the chained error"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}; {self.advice}")


class StoreBusyError(StoreError, RuntimeError):
    """Another writer held the database for longer than the time budget."""

    transient = True
    advice = "another writer is busy: try again"


class StoreUnavailableError(StoreError, RuntimeError):
    """The database cannot be reached or opened, or the connection was lost."""

    transient = True
    advice = "check that the database runs and that its address and credentials are right, then try again"


class StoreFullError(StoreError, RuntimeError):
    """The disk or tablespace is full; nothing was written."""

    transient = True
    advice = "free some space, then try again"


class StoreReadOnlyError(StoreError, RuntimeError):
    """The store was opened read-only, or its file or folder cannot be written."""

    advice = "open it without read_only, or make file and folder writable"


class StoreClosedError(StoreError, RuntimeError):
    """The store object was closed, or the unit of work has ended."""

    advice = "open a new one"


class UnitOfWorkOpenError(StoreError, RuntimeError):
    """A writing verb of the store was called while a unit of work of the same thread is open."""

    advice = "it would wait for itself: call the repositories of that unit of work"


class StoreCorruptError(StoreError, RuntimeError):
    """The database file is damaged."""

    advice = "stop writing and restore a backup"


class UndecodableTextError(StoreCorruptError):
    """Another program stored text that is not UTF-8; from now on such text is read with U+FFFD in it."""

    transient = True
    advice = "try again"


class NotADatabaseError(StoreError, ValueError):
    """The path names something that is not a SQLite database; it was left untouched."""

    advice = "give the path of a store, or of a file that does not exist yet"


class ConstraintViolationError(StoreError, ValueError):
    """The schema refused a value that the package let through."""

    advice = "nothing was written"


class SchemaError(HermesStateError, RuntimeError):
    """The tables are not the ones this release works with."""


class SchemaBehindError(SchemaError):
    """The schema is older than this release. ``have`` is ``None`` for a database without tables."""

    def __init__(self, have: str | None, want: str) -> None:
        self.have = have
        self.want = want
        super().__init__(
            f"the schema is at {have or 'nothing'}, this release needs {want}; "
            "run `hermes-state upgrade` (or `alembic upgrade head` in a checkout)"
        )


class SchemaAheadError(SchemaError):
    """The schema was made by a newer release; nothing was written."""

    def __init__(self, have: str, want: str) -> None:
        self.have = have
        self.want = want
        super().__init__(
            f"the schema is at {have}, newer than {want} which this release knows; install a newer hermes_state"
        )


class SchemaMismatchError(SchemaError):
    """The database holds tables that do not fit. ``details`` names each difference."""

    def __init__(self, details: str, advice: str = "restore a backup, or give a database of its own") -> None:
        self.details = details
        super().__init__(f"the database does not hold the expected tables: {details}; {advice}")


class StoreIncompleteError(SchemaError):
    """The store is the unfinished target of ``operation`` (``copy`` or ``adopt``) from ``source``."""

    def __init__(self, operation: str, source: str) -> None:
        self.operation = operation
        self.source = source
        super().__init__(
            f"this store is incomplete: `hermes-state {operation}` from {source} has not finished; "
            "run the same command again"
        )


class DowngradeRefusedError(SchemaError):
    """A downgrade would delete rows; nothing was changed. ``details`` says how many of which table."""

    def __init__(self, details: str) -> None:
        self.details = details
        super().__init__(
            f"the downgrade would delete {details}; export them first, "
            "or force it with `hermes-state downgrade REV --force` (`alembic -x force=true downgrade REV` in a checkout)"
        )


# Up to the last "@": a password may hold one.
_URL_PASSWORD = re.compile(r"(://[^:/@\s]*:)\S+(@)")
_QUERY_SECRET = re.compile(
    r"(?i)((?:password|passwd|secret|token|sslkey)\w*\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^&\s'\"]+)"
)


def redact(text: str) -> str:
    """``text`` with the passwords of URLs and connection strings replaced by ``***`` (field report S6)."""
    return _QUERY_SECRET.sub(r"\1***", _URL_PASSWORD.sub(r"\1***\2", text))
