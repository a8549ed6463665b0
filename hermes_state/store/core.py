"""Opening and closing a store, its units of work, and how verbs run in them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import tenacity
from sqlalchemy.engine import URL

from hermes_state import upgrades
from hermes_state.codec import EncodedMessage, encode_batch
from hermes_state.dialects import operations_for
from hermes_state.engine import build_engine, reading, redacted, require_sqlite_file, resolve_url
from hermes_state.errors import (
    InvalidArgumentError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreReadOnlyError,
    UndecodableTextError,
)
from hermes_state.settings import Settings
from hermes_state.unit_of_work import OpenUnits, UnitOfWork

Result = TypeVar("Result")


class StoreCore:
    """One target, one engine. The verbs stand in the classes that derive from it; see ``SessionDB``."""

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
        if migrate is False:
            require_sqlite_file(target)
        self.engine = build_engine(target, self._settings, read_only=read_only)
        self.max_text_bytes = self._settings.max_text_bytes
        self._reader = reading(self.engine)
        self._operations = operations_for(self.engine)
        self._open_here = OpenUnits()
        self._closed = False
        try:
            self._open_schema(migrate)
            if search_index == "off" and not read_only:
                self._switch_search_off()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

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

    def _open_schema(self, migrate: Literal["auto"] | bool) -> None:
        if not self.read_only and (migrate is True or (migrate == "auto" and self._operations.is_embedded)):
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

    def _encode(self, session_id: str, messages: Sequence[Any]) -> list[EncodedMessage]:
        """The checked rows of ``messages``; raises ``InvalidMessageError`` before any SQL."""
        return encode_batch(
            messages, session_id=session_id, max_text_bytes=self.max_text_bytes, clock=time.time
        )

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

        try:
            return _patiently(attempt)
        except StoreError as error:
            cause = error.__cause__
            if not (self._operations.search.may_be_broken(cause) and self._detach_broken_index(cause)):
                raise
        return _patiently(attempt)

    def _detach_broken_index(self, cause: BaseException | None) -> bool:
        """Whether a statement failed at the search index; it then stops blocking writes and says that it is degraded (K10)."""
        with self.unit_of_work() as uow:
            return uow.search_index.detach_broken(cause)

    def _switch_search_off(self) -> None:
        if self._read(lambda uow: uow.searching.state())["index"] != "off":
            self._write(lambda uow: uow.search_index.switch_off())


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
