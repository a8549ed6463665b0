"""One transaction with the repositories that work in it.

It commits when its block ends and rolls back when the block raises, as SQLAlchemy's ``Session.begin()`` does; the
repositories never commit. Driver errors arrive typed: the engine translates them where they occur.
"""

from __future__ import annotations

import threading
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa

from hermes_state.dialects import DialectOperations
from hermes_state.errors import StoreBusyError, UnitOfWorkOpenError
from hermes_state.repositories.base import Transaction
from hermes_state.repositories.deleting import DeletingRepository
from hermes_state.repositories.deliveries import DeliveryRepository
from hermes_state.repositories.leases import LeaseRepository
from hermes_state.repositories.lineages import LineageRepository
from hermes_state.repositories.messages import MessageRepository
from hermes_state.repositories.meta import MetaRepository
from hermes_state.repositories.portable import PortableRepository
from hermes_state.repositories.pruning import PruningRepository
from hermes_state.repositories.reactions import ReactionRepository
from hermes_state.repositories.search_index import SearchIndexRepository
from hermes_state.repositories.searching import SearchRepository
from hermes_state.repositories.session_flags import SessionFlagRepository
from hermes_state.repositories.session_lists import SessionListRepository
from hermes_state.repositories.sessions import SessionRepository
from hermes_state.repositories.space import SpaceRepository
from hermes_state.repositories.statistics import StatisticsRepository
from hermes_state.repositories.titles import TitleRepository
from hermes_state.repositories.usage import UsageRepository
from hermes_state.repositories.usage_verifying import UsageVerifyingRepository
from hermes_state.repositories.verifying import VerifyingRepository


class OpenUnits(threading.local):
    """Whether the current thread has a write transaction of one store open; a second one would wait for the first."""

    writing = False


class UnitOfWork:
    """A transaction, entered with ``with``; made by ``SessionDB.unit_of_work()``.

    On SQLite it is a write transaction from its first moment (BEGIN IMMEDIATE). The dicts handed to its verbs are
    stamped only after the commit. Errors: ``StoreBusyError``, ``StoreUnavailableError`` and the other store errors;
    ``StoreClosedError`` for a verb, or the end of the block, after a verb has failed and rolled the unit back.
    """

    def __init__(
        self,
        engine: sa.Engine,
        operations: DialectOperations,
        max_text_bytes: int,
        open_here: OpenUnits | None,
    ) -> None:
        """``open_here`` knows the write transactions of the thread; without it the unit reads and never commits."""
        self._engine = engine
        self._operations = operations
        self._max_text_bytes = max_text_bytes
        self._open_here = open_here

    def __enter__(self) -> Self:
        if self._open_here is not None:
            if self._open_here.writing:
                raise UnitOfWorkOpenError("a unit of work of this thread is open")
            self._open_here.writing = True
        try:
            self._begin()
        except BaseException:
            self._forget()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._finish(failed=error is not None)
        finally:
            self._forget()
            self._transaction.ended = True
            self._conn.close()
        if error is None:
            for step in self._transaction.after_commit:
                step()

    @property
    def connection(self) -> sa.Connection:
        """The open connection, for statements of the caller's own in the same transaction."""
        self._transaction.check_open()
        return self._conn

    @cached_property
    def sessions(self) -> SessionRepository:
        """Sessions inside this transaction."""
        return SessionRepository(self._transaction)

    @cached_property
    def messages(self) -> MessageRepository:
        """Messages inside this transaction."""
        return MessageRepository(self._transaction)

    @cached_property
    def lineages(self) -> LineageRepository:
        """Chains of sessions inside this transaction."""
        return LineageRepository(self._transaction)

    @cached_property
    def leases(self) -> LeaseRepository:
        """Leases, cool-downs and counters of the compactor inside this transaction."""
        return LeaseRepository(self._transaction)

    @cached_property
    def deliveries(self) -> DeliveryRepository:
        """Results of delegates inside this transaction."""
        return DeliveryRepository(self._transaction)

    @cached_property
    def reactions(self) -> ReactionRepository:
        """Reactions to messages inside this transaction."""
        return ReactionRepository(self._transaction)

    @cached_property
    def meta(self) -> MetaRepository:
        """Key and value notes inside this transaction."""
        return MetaRepository(self._transaction)

    @cached_property
    def lists(self) -> SessionListRepository:
        """Pages and counts of sessions."""
        return SessionListRepository(self._transaction)

    @cached_property
    def flags(self) -> SessionFlagRepository:
        """What the owner notes on sessions."""
        return SessionFlagRepository(self._transaction)

    @cached_property
    def searching(self) -> SearchRepository:
        """Finding messages by what was said in them."""
        return SearchRepository(self._transaction)

    @cached_property
    def search_index(self) -> SearchIndexRepository:
        """The index of the search as a whole."""
        return SearchIndexRepository(self._transaction)

    @cached_property
    def verifying(self) -> VerifyingRepository:
        """Comparisons of derived values with the rows."""
        return VerifyingRepository(self._transaction)

    @cached_property
    def usage_verifying(self) -> UsageVerifyingRepository:
        """Comparisons of what sessions used with the ledgers."""
        return UsageVerifyingRepository(self._transaction)

    @cached_property
    def titles(self) -> TitleRepository:
        """Names of sessions inside this transaction."""
        return TitleRepository(self._transaction)

    @cached_property
    def usage(self) -> UsageRepository:
        """Tokens and money inside this transaction."""
        return UsageRepository(self._transaction)

    @cached_property
    def deleting(self) -> DeletingRepository:
        """Deleting sessions inside this transaction."""
        return DeletingRepository(self._transaction)

    @cached_property
    def pruning(self) -> PruningRepository:
        """Old conversations inside this transaction."""
        return PruningRepository(self._transaction)

    @cached_property
    def statistics(self) -> StatisticsRepository:
        """Sums over the whole store."""
        return StatisticsRepository(self._transaction)

    @cached_property
    def space(self) -> SpaceRepository:
        """Checkpoints that nobody will read again, and what the tables take."""
        return SpaceRepository(self._transaction)

    @cached_property
    def portable(self) -> PortableRepository:
        """Export and import inside this transaction."""
        return PortableRepository(self._transaction)

    def _begin(self) -> None:
        try:
            self._conn = self._engine.connect()
        except sa.exc.TimeoutError as error:
            raise StoreBusyError("no connection of the pool became free") from error
        try:
            self._conn.begin()
        except BaseException:
            self._conn.close()
            raise
        self._transaction = Transaction(self._conn, self._operations, self._max_text_bytes)

    def _forget(self) -> None:
        if self._open_here is not None:
            self._open_here.writing = False

    def _finish(self, *, failed: bool) -> None:
        transaction = self._conn.get_transaction()
        if failed or self._open_here is None:
            if transaction is not None:
                transaction.rollback()
            return
        self._transaction.check_open()
        if transaction is not None:
            self._commit(transaction)

    def _commit(self, transaction: sa.RootTransaction) -> None:
        try:
            transaction.commit()
        except BaseException:
            for step in self._transaction.outcome_unknown:
                step()
            self._undo()
            raise

    def _undo(self) -> None:
        """Ends a transaction whose COMMIT failed: SQLAlchemy counts it as ended and would pool the connection."""
        if self._conn.invalidated:
            return
        driver: Any = self._conn.connection.dbapi_connection
        try:
            driver.rollback()
        except self._engine.dialect.loaded_dbapi.Error:
            self._conn.invalidate()
