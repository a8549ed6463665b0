"""What every repository works on: the transaction of its unit of work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, cast

import sqlalchemy as sa

from hermes_state.dialects import DialectOperations
from hermes_state.errors import (
    CompressionSessionClosedError,
    DeletionConflictError,
    InvalidArgumentError,
    InvalidMessageError,
    LeaseHeldError,
    RewindConflictError,
    SessionCompressionInProgressError,
    SessionEndedError,
    SessionExistsError,
    SessionNotFoundError,
    SessionTooLargeError,
    SessionTurnLeaseLostError,
    StoreClosedError,
    TitleConflictError,
)
from hermes_state.models import Base
from hermes_state.text import MAX_ID_CHARACTERS, is_usable_id

# Raised where the arguments or the guards refuse. As long as the verb has written nothing, the unit of work goes on.
_REFUSALS = (
    InvalidArgumentError,
    InvalidMessageError,
    SessionNotFoundError,
    CompressionSessionClosedError,
    SessionEndedError,
    SessionExistsError,
    SessionTooLargeError,
    SessionTurnLeaseLostError,
    LeaseHeldError,
    SessionCompressionInProgressError,
    RewindConflictError,
    TitleConflictError,
    DeletionConflictError,
)


class Transaction:
    """One open database transaction and what is to be done at its end.

    A verb runs inside ``with transaction.verb():``. When it fails after it may have written, the whole transaction is
    rolled back at once: nobody can commit half a verb, nor meet an aborted transaction (field report E6).
    """

    def __init__(self, conn: sa.Connection, operations: DialectOperations, max_text_bytes: int) -> None:
        self.conn = conn
        self.operations = operations
        self.max_text_bytes = max_text_bytes
        self.after_commit: list[Callable[[], None]] = []
        self.outcome_unknown: list[Callable[[], None]] = []
        self.failure: BaseException | None = None
        self.ended = False
        self.has_written = False
        self.depth = 0

    def verb(self) -> _Verb:
        """The guard around one repository verb. Raises ``StoreClosedError`` once the unit has ended or failed."""
        return _Verb(self)

    def fail(self, error: BaseException) -> None:
        """Rolls back and remembers why."""
        self.failure = error
        transaction = self.conn.get_transaction()
        if transaction is not None:
            transaction.rollback()

    def wrote(self) -> None:
        """Says that the running verb has written: whatever it raises from here on rolls the unit back."""
        self.has_written = True

    def check_open(self) -> None:
        """Raises ``StoreClosedError`` when no further statement may run."""
        if self.failure is not None:
            raise StoreClosedError(
                f"the unit of work was rolled back after: {self.failure}"
            ) from self.failure
        if self.ended:
            raise StoreClosedError("the unit of work has ended")


class _Verb:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def __enter__(self) -> sa.Connection:
        transaction = self._transaction
        transaction.check_open()
        if transaction.depth == 0:
            transaction.has_written = False
        transaction.depth += 1
        return transaction.conn

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transaction.depth -= 1
        if error is None or self._transaction.failure is not None:
            return
        if self._transaction.has_written or not isinstance(error, _REFUSALS):
            self._transaction.fail(error)


class Repository:
    """Base of the repositories. They never commit (CONTRACT.md; DESIGN.md, decision 1)."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._operations = transaction.operations


def table_of(row: type[Base]) -> sa.Table:
    """The table of a model: statements here are Core statements."""
    return cast(sa.Table, row.__table__)


def starts_with(column: sa.ColumnElement[Any], prefix: str) -> sa.ColumnElement[bool]:
    """Whether an id or key starts with ``prefix``: a range of the index, no character a wildcard (field report L8)."""
    exactly = sa.func.substr(column, 1, len(prefix)) == prefix
    for place in range(len(prefix) - 1, -1, -1):
        following = _next_character(prefix[place])
        if following is not None:
            return sa.and_(column >= prefix, column < prefix[:place] + following, exactly)
    return sa.and_(column >= prefix, exactly)


def _next_character(character: str) -> str | None:
    code = ord(character) + 1
    if code == 0xD800:  # surrogates are no characters
        code = 0xE000
    return chr(code) if code <= sys.maxunicode else None


def require_id(argument: str, value: Any) -> str:
    """``value`` itself, or ``InvalidArgumentError`` when it cannot be an id (CONTRACT.md section 2, rule 6)."""
    if not is_usable_id(value):
        raise InvalidArgumentError(
            argument, f"it must be text of 1 to {MAX_ID_CHARACTERS} characters without NUL and surrogates"
        )
    return str(value)


def require_count(argument: str, value: Any, *, least: int = 0) -> int:
    """``value`` itself, or ``InvalidArgumentError`` unless it is a whole number from ``least`` to 2**63 - 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise InvalidArgumentError(argument, f"it must be a whole number of at least {least}")
    return value
