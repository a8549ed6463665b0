"""``SessionDB``: the facade, one verb for each intention of a user; each opens one unit of work."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import tenacity
from sqlalchemy.engine import URL

from hermes_state import upgrades
from hermes_state.dialects import operations_for
from hermes_state.engine import READ_ONLY_OPTION, build_engine, redacted, resolve_url
from hermes_state.errors import (
    InvalidArgumentError,
    StoreBusyError,
    StoreClosedError,
    StoreReadOnlyError,
    UndecodableTextError,
)
from hermes_state.records import ConversationMessage, ImportReport, MessageRecord, SessionRecord
from hermes_state.repositories.base import require_count
from hermes_state.settings import Settings
from hermes_state.unit_of_work import OpenUnits, UnitOfWork

Result = TypeVar("Result")


class SessionDB:
    """The store of one database, fixed when the object is made; safe to share between threads.

    ``db_path`` names a SQLite file, ``url`` any supported database; without both the default of
    ``hermes_state.settings.default_url`` is opened. ``migrate``: ``"auto"`` creates and upgrades a SQLite file and only
    checks a server database, ``True`` upgrades either, ``False`` only checks. ``read_only`` never writes, not even the
    schema. ``search_index``: ``"on"`` or ``"off"``. Errors: the schema errors, ``NotADatabaseError``,
    ``StoreUnavailableError`` and ``InvalidArgumentError``; there is never a fall-back to another database.
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str] | None = None,
        *,
        url: str | URL | None = None,
        read_only: bool = False,
        migrate: Literal["auto"] | bool = "auto",
        search_index: Literal["on", "off"] = "on",
    ) -> None:
        if migrate not in ("auto", True, False):
            raise InvalidArgumentError("migrate", "it must be 'auto', True or False")
        if search_index not in ("on", "off"):
            raise InvalidArgumentError("search_index", "it must be 'on' or 'off'")
        self._settings = Settings()
        target = resolve_url(db_path, url, self._settings)
        self.url = redacted(target)
        self.read_only = read_only
        self.search_index = search_index
        self.engine = build_engine(target, self._settings, read_only=read_only)
        self.max_text_bytes = self._settings.max_text_bytes
        self._reader = self.engine.execution_options(**{READ_ONLY_OPTION: True})
        self._operations = operations_for(self.engine)
        self._open_here = OpenUnits()
        self._closed = False
        try:
            self._open_schema(migrate)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"SessionDB({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection; may be called again. Verbs raise ``StoreClosedError`` from then on."""
        self._closed = True
        self.engine.dispose()

    def unit_of_work(self) -> UnitOfWork:
        """One write transaction for several verbs: commits when its block ends, rolls back when that raises.

        Writing verbs of the store itself raise ``UnitOfWorkOpenError`` meanwhile in the same thread.
        """
        if self.read_only and not self._closed:
            raise StoreReadOnlyError("the store was opened read-only")
        return self._unit(commits=True)

    # Sessions

    def create_session(
        self,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        model_config: dict[str, Any] | str | None = None,
        system_prompt: str | None = None,
        user_id: str | None = None,
        session_key: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
        parent_session_id: str | None = None,
        cwd: str | None = None,
    ) -> str:
        """Creates the session, or fills what an existing one lacks; see ``SessionRepository.create``."""
        given = {
            "model": model,
            "model_config": model_config,
            "system_prompt": system_prompt,
            "user_id": user_id,
            "session_key": session_key,
            "chat_id": chat_id,
            "chat_type": chat_type,
            "thread_id": thread_id,
            "parent_session_id": parent_session_id,
            "cwd": cwd,
        }
        return self._write(lambda uow: uow.sessions.create(session_id, source, **given))

    def ensure_session(
        self, session_id: str, source: str = "unknown", model: str | None = None, **given: Any
    ) -> str:
        """``create_session`` with a placeholder source, for callers that may come first."""
        return self._write(lambda uow: uow.sessions.ensure(session_id, source, model=model, **given))

    def get_session(self, session_id: str) -> SessionRecord | None:
        """All columns of the session, or ``None``."""
        return self._read(lambda uow: uow.sessions.get(session_id))

    def end_session(self, session_id: str, end_reason: str) -> None:
        """Closes an open session; the first reason wins. Does nothing for an unknown id."""
        self._write(lambda uow: uow.sessions.end(session_id, end_reason))

    def reopen_session(self, session_id: str) -> None:
        """Opens an ended session again. Does nothing for an unknown id."""
        self._write(lambda uow: uow.sessions.reopen(session_id))

    def resolve_session_id(self, id_or_prefix: str) -> str | None:
        """The session of exactly this id, else the only one whose id starts with it, else ``None``."""
        return self._read(lambda uow: uow.sessions.resolve_id(id_or_prefix))

    def list_sessions(
        self,
        limit: int = 20,
        offset: int = 0,
        source: str | None = None,
        *,
        include_children: bool = False,
        include_archived: bool = False,
    ) -> list[SessionRecord]:
        """A page of sessions, most recently active first; see ``SessionRepository.list``."""
        kept = {"include_children": include_children, "include_archived": include_archived}
        return self._read(lambda uow: uow.sessions.list(limit, offset, source, **kept))

    def get_compression_tip(self, session_id: str) -> str:
        """The live end of the compression chain that starts at the session; the id itself when there is none."""
        return self._read(lambda uow: uow.sessions.compression_tip(session_id))

    # Messages

    def append_message(self, session_id: str, role: str, content: Any = None, **keys: Any) -> int:
        """Appends one message, a batch of one; returns its row id (CONTRACT.md section 3)."""
        return self._write(lambda uow: uow.messages.append(session_id, role, content, **keys))

    def append_messages_batch(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        compression_lock_holder: str | None = None,  # noqa: ARG002 - appends do not check that lock
        turn_lease_holder: str | None = None,
        turn_lease_ttl_seconds: float = 300.0,  # noqa: ARG002 - renews a held lease once leases exist
        chunk_rows: int | None = None,
    ) -> int:
        """Appends the messages in one transaction, all or none; returns the number of rows inserted.

        After the commit each dict carries ``_row_id`` and its ``timestamp`` (epoch seconds). ``chunk_rows`` splits a large
        copy into several transactions, each atomic on its own. The compression lock is not checked by appends; a turn
        lease is: until leases exist, presenting one raises ``SessionTurnLeaseLostError`` (CONTRACT.md section 3).
        """
        if chunk_rows is None or len(messages) <= require_count("chunk_rows", chunk_rows, least=1):
            return self._write(
                lambda uow: uow.messages.append_batch(
                    session_id, messages, turn_lease_holder=turn_lease_holder
                )
            )
        encoded = self._read(lambda uow: uow.messages.encode(session_id, messages))
        inserted = 0
        for start in range(0, len(messages), chunk_rows):
            part = slice(start, start + chunk_rows)
            inserted += self._append_part(session_id, messages[part], encoded[part], turn_lease_holder)
        return inserted

    def get_messages(
        self,
        session_id: str,
        include_inactive: bool = False,
        after_id: int | None = None,
        limit: int | None = None,
    ) -> list[MessageRecord]:
        """Whole rows in insertion order; the active ones unless ``include_inactive``."""
        return self._read(lambda uow: uow.messages.get(session_id, include_inactive, after_id, limit))

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False, include_inactive: bool = False
    ) -> list[ConversationMessage]:
        """The messages as they are sent to a model; with those of the sessions it continues, if asked."""

        def read(uow: UnitOfWork) -> list[ConversationMessage]:
            chain = uow.sessions.ancestors(session_id) if include_ancestors else [session_id]
            return uow.messages.conversation(chain, include_inactive=include_inactive)

        return self._read(read)

    def replace_messages(self, session_id: str, messages: Sequence[Any], active_only: bool = False) -> int:
        """Deletes the session's rows (or only the active ones) and inserts ``messages``; returns their number."""
        return self._write(lambda uow: uow.messages.replace(session_id, messages, active_only))

    def archive_and_compact(self, session_id: str, compacted: Sequence[Any]) -> int:
        """Archives the active rows and inserts ``compacted`` as the live ones; returns the number of live rows."""
        return self._write(lambda uow: uow.messages.archive_and_compact(session_id, compacted))

    def message_count(self, session_id: str | None = None) -> int:
        """The number of active messages of the session, or of the whole store (field report H2)."""
        return self._read(lambda uow: uow.messages.count(session_id))

    def clear_messages(self, session_id: str) -> int:
        """Deletes every row of the session and zeroes its counters; returns the number of rows deleted."""
        return self._write(lambda uow: uow.messages.clear(session_id))

    # Notes, export, import

    def get_meta(self, key: str) -> str | None:
        """The note kept under ``key``, or ``None``."""
        return self._read(lambda uow: uow.meta.get(key))

    def set_meta(self, key: str, value: str | None) -> None:
        """Keeps a note."""
        self._write(lambda uow: uow.meta.set(key, value))

    def export_session(self, session_id: str) -> dict[str, Any] | None:
        """The session with all its messages, whatever their state, as ``import_sessions`` takes it; or ``None``."""
        return self._read(lambda uow: uow.portable.export_session(session_id))

    def import_sessions(self, sessions: Sequence[Any]) -> ImportReport:
        """Imports what ``export_session`` gave; see ``PortableRepository.import_sessions``."""
        return self._write(lambda uow: uow.portable.import_sessions(sessions))

    def _open_schema(self, migrate: Literal["auto"] | bool) -> None:
        embedded = self.engine.dialect.name == "sqlite"
        if not self.read_only and (migrate is True or (migrate == "auto" and embedded)):
            upgrades.upgrade(self.engine)
            return
        with self._unit(commits=False) as uow:
            upgrades.check_schema(uow.connection)

    def _unit(self, *, commits: bool) -> UnitOfWork:
        if self._closed:
            raise StoreClosedError("the store is closed")
        engine = self.engine if commits else self._reader
        open_here = self._open_here if commits else None
        return UnitOfWork(engine, self._operations, self.max_text_bytes, open_here)

    def _read(self, work: Callable[[UnitOfWork], Result]) -> Result:
        def attempt() -> Result:
            with self._unit(commits=False) as uow:
                return work(uow)

        return _patiently(attempt)

    def _write(self, work: Callable[[UnitOfWork], Result]) -> Result:
        """Runs ``work`` in a transaction; one that the database gave up on (deadlock, serialization) is run again."""

        def attempt() -> Result:
            with self.unit_of_work() as uow:
                return work(uow)

        return _patiently(attempt)

    def _append_part(
        self, session_id: str, messages: Sequence[Any], encoded: Sequence[Any], turn_lease_holder: str | None
    ) -> int:
        return self._write(
            lambda uow: uow.messages.append_encoded(session_id, messages, encoded, turn_lease_holder)
        )


def _patiently(attempt: Callable[[], Result]) -> Result:
    try:
        return attempt()
    except (StoreBusyError, UndecodableTextError) as error:
        if not _can_run_again(error):
            raise
        return _again(attempt)


def _can_run_again(error: BaseException) -> bool:
    """Deadlocks and serialization failures, of which nothing is left; text that only the next reading tolerates."""
    if isinstance(error, UndecodableTextError):
        return True
    return getattr(error.__cause__, "sqlstate", None) in ("40001", "40P01")


_again = tenacity.Retrying(
    retry=tenacity.retry_if_exception(_can_run_again),
    stop=tenacity.stop_after_attempt(5),
    wait=tenacity.wait_random_exponential(0.01, max=0.5),
    reraise=True,
)
