"""The one translation from driver errors to those of this package, by result codes, never by the text of a message."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from sqlalchemy import exc as sa_exc

from hermes_state.errors import (
    ConstraintViolationError,
    HermesStateError,
    NotADatabaseError,
    SchemaMismatchError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    UndecodableTextError,
    redact,
)

_SQLITE_ERRORS: dict[int, type[StoreError]] = {
    5: StoreBusyError,  # SQLITE_BUSY
    6: StoreBusyError,  # SQLITE_LOCKED
    8: StoreReadOnlyError,  # SQLITE_READONLY
    10: StoreUnavailableError,  # SQLITE_IOERR
    11: StoreCorruptError,  # SQLITE_CORRUPT
    13: StoreFullError,  # SQLITE_FULL
    14: StoreUnavailableError,  # SQLITE_CANTOPEN
    15: StoreBusyError,  # SQLITE_PROTOCOL: the WAL lock race did not settle
    19: ConstraintViolationError,  # SQLITE_CONSTRAINT
    26: NotADatabaseError,  # SQLITE_NOTADB
}

# The longest prefix decides: whole SQLSTATE first, then its class of two characters.
_SQLSTATE_ERRORS: dict[str, type[StoreError]] = {
    "08": StoreUnavailableError,
    "23": ConstraintViolationError,
    "25006": StoreReadOnlyError,
    "28": StoreUnavailableError,
    "3D": StoreUnavailableError,
    "40": StoreBusyError,
    "53": StoreUnavailableError,
    "53100": StoreFullError,
    "54": ConstraintViolationError,
    "55P03": StoreBusyError,
    "57014": StoreBusyError,
    "57P": StoreUnavailableError,
    "58": StoreUnavailableError,
    "XX001": StoreCorruptError,
    "XX002": StoreCorruptError,
}


def translate(error: BaseException) -> HermesStateError | None:
    """The typed error for a SQLAlchemy or driver error, or ``None`` for one that is no database failure.

    The caller raises the result ``from error``. Programming errors (``TypeError``, ...) give ``None``.
    """
    if isinstance(error, sa_exc.DBAPIError):
        if type(error.orig) is sqlite3.OperationalError and not hasattr(error.orig, "sqlite_errorcode"):
            # Not from SQLite but from Python's driver, which could not decode what it was to return.
            return UndecodableTextError("text of another program is not UTF-8")
        lost = error.connection_invalidated or isinstance(
            error, (sa_exc.OperationalError, sa_exc.InterfaceError)
        )
        return _typed(error.orig, without_code=StoreUnavailableError if lost else StoreError)
    return _typed(error, without_code=None)


def _typed(
    original: BaseException | None, *, without_code: Callable[[str], HermesStateError] | None
) -> HermesStateError | None:
    # libpq reports a failed or broken connection without any SQLSTATE, hence ``without_code``.
    code = getattr(original, "sqlite_errorcode", None)
    state = getattr(original, "sqlstate", None)
    kind = without_code
    if isinstance(code, int):
        kind = _SQLITE_ERRORS.get(code & 0xFF, StoreError)
    elif isinstance(state, str):
        kind = _kind_of_state(state)
    return None if kind is None else kind(_reason(original))


def _kind_of_state(state: str) -> Callable[[str], HermesStateError]:
    if state in ("42P01", "42703"):
        return SchemaMismatchError
    for length in (5, 3, 2):
        if state[:length] in _SQLSTATE_ERRORS:
            return _SQLSTATE_ERRORS[state[:length]]
    return StoreError


def _reason(original: BaseException | None) -> str:
    lines = str(original).strip().splitlines()
    return redact(lines[0]) if lines else type(original).__name__
