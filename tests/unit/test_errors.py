"""The error tree and the translation of driver errors (CONTRACT.md section 7; field reports S6, S8)."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

import hermes_state as hs
from hermes_state import errors
from hermes_state.driver_errors import translate
from hermes_state.errors import redact

OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"
PUBLIC_ERRORS = [
    value
    for value in (getattr(hs, name) for name in hs.__all__)
    if isinstance(value, type) and issubclass(value, Exception)
]
MISLEADING = "database is locked, disk full, no such table: messages"

EXAMPLES: list[tuple[hs.HermesStateError, type[Exception], bool, dict[str, Any]]] = [
    (hs.InvalidArgumentError("limit", "too small"), ValueError, False, {"argument": "limit"}),
    (hs.ParentNotFoundError("p"), LookupError, False, {"parent_session_id": "p"}),
    (hs.InvalidMessageError(3, "content", "NaN"), ValueError, False, {"index": 3, "field": "content"}),
    (hs.SessionNotFoundError("s"), LookupError, False, {"session_id": "s"}),
    (hs.SessionExistsError("s"), ValueError, False, {"session_id": "s"}),
    (hs.CompressionSessionClosedError("s"), RuntimeError, False, {"session_id": "s"}),
    (hs.SessionEndedError("s", "done"), RuntimeError, False, {"session_id": "s", "end_reason": "done"}),
    (hs.SessionCompressionInProgressError("s", "h"), RuntimeError, True, {"session_id": "s", "holder": "h"}),
    (hs.SessionTurnLeaseLostError("s", "h"), RuntimeError, False, {"session_id": "s", "holder": "h"}),
    (hs.LeaseHeldError("s", "h"), RuntimeError, True, {"session_id": "s", "holder": "h"}),
    (
        hs.MessageConflictError("s", "u", 1, 7),
        ValueError,
        False,
        {"message_uid": "u", "index": 1, "row_id": 7},
    ),
    (hs.RewindConflictError("s", "changed"), RuntimeError, False, {"session_id": "s", "reason": "changed"}),
    (hs.DeletionConflictError(["a", "b"]), ValueError, False, {"session_ids": ["a", "b"]}),
    (hs.TitleConflictError("t", "s"), ValueError, False, {"title": "t", "owner_session_id": "s"}),
    (hs.SessionTooLargeError("s", 9, 5), ValueError, False, {"message_count": 9, "limit": 5}),
    (hs.QuerySyntaxError("a(", 1, "open"), ValueError, False, {"position": 1, "reason": "open"}),
    (hs.StoreError("r"), hs.HermesStateError, False, {"reason": "r"}),
    (hs.StoreBusyError("r"), RuntimeError, True, {"reason": "r"}),
    (hs.StoreUnavailableError("r"), RuntimeError, True, {"reason": "r"}),
    (hs.StoreFullError("r"), RuntimeError, True, {"reason": "r"}),
    (hs.StoreReadOnlyError("r"), RuntimeError, False, {"reason": "r"}),
    (hs.StoreClosedError("r"), RuntimeError, False, {"reason": "r"}),
    (hs.UnitOfWorkOpenError("r"), RuntimeError, False, {"reason": "r"}),
    (hs.StoreCorruptError("r"), RuntimeError, False, {"reason": "r"}),
    (hs.UndecodableTextError("r"), RuntimeError, True, {"reason": "r"}),
    (hs.NotADatabaseError("r"), ValueError, False, {"reason": "r"}),
    (hs.ConstraintViolationError("r"), ValueError, False, {"reason": "r"}),
    (hs.SchemaError("r"), RuntimeError, False, {}),
    (hs.SchemaBehindError("0001", "0002"), RuntimeError, False, {"have": "0001", "want": "0002"}),
    (hs.SchemaAheadError("0003", "0002"), RuntimeError, False, {"have": "0003", "want": "0002"}),
    (hs.SchemaMismatchError("column x"), RuntimeError, False, {"details": "column x"}),
    (hs.StoreIncompleteError("copy", "x"), RuntimeError, False, {"operation": "copy", "source": "x"}),
    (hs.DowngradeRefusedError("2 rows"), RuntimeError, False, {"details": "2 rows"}),
]

SQLITE_CODES = [
    (sqlite3.SQLITE_BUSY, hs.StoreBusyError),
    (sqlite3.SQLITE_BUSY_SNAPSHOT, hs.StoreBusyError),
    (sqlite3.SQLITE_BUSY_RECOVERY, hs.StoreBusyError),
    (sqlite3.SQLITE_LOCKED, hs.StoreBusyError),
    (sqlite3.SQLITE_LOCKED_SHAREDCACHE, hs.StoreBusyError),
    (sqlite3.SQLITE_PROTOCOL, hs.StoreBusyError),
    (sqlite3.SQLITE_READONLY, hs.StoreReadOnlyError),
    (sqlite3.SQLITE_READONLY_DBMOVED, hs.StoreReadOnlyError),
    (sqlite3.SQLITE_IOERR, hs.StoreUnavailableError),
    (sqlite3.SQLITE_IOERR_FSYNC, hs.StoreUnavailableError),
    (sqlite3.SQLITE_CANTOPEN, hs.StoreUnavailableError),
    (sqlite3.SQLITE_CANTOPEN_ISDIR, hs.StoreUnavailableError),
    (sqlite3.SQLITE_CORRUPT, hs.StoreCorruptError),
    (sqlite3.SQLITE_CORRUPT_INDEX, hs.StoreCorruptError),
    (sqlite3.SQLITE_FULL, hs.StoreFullError),
    (sqlite3.SQLITE_CONSTRAINT_CHECK, hs.ConstraintViolationError),
    (sqlite3.SQLITE_CONSTRAINT_UNIQUE, hs.ConstraintViolationError),
    (sqlite3.SQLITE_NOTADB, hs.NotADatabaseError),
    (sqlite3.SQLITE_ERROR, hs.StoreError),
    (sqlite3.SQLITE_SCHEMA, hs.StoreError),
]

SQLSTATES = [
    ("08001", hs.StoreUnavailableError),
    ("08006", hs.StoreUnavailableError),
    ("23505", hs.ConstraintViolationError),
    ("23514", hs.ConstraintViolationError),
    ("25006", hs.StoreReadOnlyError),
    ("25P02", hs.StoreError),
    ("28000", hs.StoreUnavailableError),
    ("28P01", hs.StoreUnavailableError),
    ("3D000", hs.StoreUnavailableError),
    ("40001", hs.StoreBusyError),
    ("40P01", hs.StoreBusyError),
    ("42601", hs.StoreError),
    ("42703", hs.SchemaMismatchError),
    ("42P01", hs.SchemaMismatchError),
    ("53100", hs.StoreFullError),
    ("53200", hs.StoreUnavailableError),
    ("53300", hs.StoreUnavailableError),
    ("54000", hs.ConstraintViolationError),
    ("55P03", hs.StoreBusyError),
    ("57014", hs.StoreBusyError),
    ("57P01", hs.StoreUnavailableError),
    ("57P03", hs.StoreUnavailableError),
    ("58030", hs.StoreUnavailableError),
    ("XX000", hs.StoreError),
    ("XX001", hs.StoreCorruptError),
    ("XX002", hs.StoreCorruptError),
]


def sqlite_error(code: int, text: str = MISLEADING) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


def postgresql_error(state: str | None, text: str = MISLEADING) -> psycopg.Error:
    error = psycopg.OperationalError(text)
    error.sqlstate = state
    return error


def wrapped(error: Exception, kind: type[sa.exc.DBAPIError] = sa.exc.OperationalError) -> sa.exc.DBAPIError:
    return kind("SELECT 1", {}, error)


@pytest.mark.parametrize(
    ("error", "builtin", "transient", "fields"), EXAMPLES, ids=lambda value: type(value).__name__
)
def test_an_error_has_its_fields_its_builtin_base_and_says_whether_to_try_again(
    error: hs.HermesStateError, builtin: type[Exception], transient: bool, fields: dict[str, Any]
) -> None:
    assert isinstance(error, builtin)
    assert error.transient is transient
    assert {name: getattr(error, name) for name in fields} == fields
    for value in fields.values():
        assert str(value) in str(error)


def test_the_table_above_holds_every_public_error() -> None:
    assert {type(example[0]) for example in EXAMPLES} | {hs.HermesStateError} == set(PUBLIC_ERRORS)


@pytest.mark.parametrize("kind", PUBLIC_ERRORS, ids=lambda kind: kind.__name__)
def test_every_public_error_is_documented(kind: type[Exception]) -> None:
    assert kind.__doc__
    assert f"`{kind.__name__}`" in OPERATING.read_text()


@pytest.mark.parametrize(("code", "kind"), SQLITE_CODES)
def test_sqlite_errors_are_told_apart_by_their_code(code: int, kind: type[Exception]) -> None:
    assert type(translate(sqlite_error(code))) is kind
    assert type(translate(wrapped(sqlite_error(code)))) is kind


@pytest.mark.parametrize(("state", "kind"), SQLSTATES)
def test_postgresql_errors_are_told_apart_by_their_sqlstate(state: str, kind: type[Exception]) -> None:
    assert type(translate(postgresql_error(state))) is kind
    assert type(translate(wrapped(postgresql_error(state)))) is kind


def test_a_failure_to_connect_has_no_code_and_is_unavailable() -> None:
    assert type(translate(wrapped(postgresql_error(None)))) is hs.StoreUnavailableError
    assert type(translate(wrapped(psycopg.InterfaceError("x"), sa.exc.InterfaceError))) is (
        hs.StoreUnavailableError
    )


def test_an_error_of_the_driver_itself_is_no_lost_connection() -> None:
    assert type(translate(wrapped(psycopg.ProgrammingError("x"), sa.exc.ProgrammingError))) is hs.StoreError


def test_text_that_cannot_be_decoded_asks_for_another_reading() -> None:
    found = translate(wrapped(sqlite3.OperationalError("Could not decode to UTF-8 column")))
    assert type(found) is hs.UndecodableTextError
    assert isinstance(found, hs.StoreCorruptError)


@pytest.mark.parametrize("error", [TypeError("x"), KeyError("x"), OSError(28, "No space left")])
def test_what_is_no_database_failure_is_left_alone(error: Exception) -> None:
    assert translate(error) is None


def test_the_reason_is_one_line_and_never_empty() -> None:
    several = translate(sqlite_error(sqlite3.SQLITE_FULL, "first line\nDETAIL: a row of somebody's"))
    assert isinstance(several, hs.StoreFullError)
    assert several.reason == "first line"
    empty = translate(sqlite_error(sqlite3.SQLITE_FULL, ""))
    assert isinstance(empty, hs.StoreFullError)
    assert empty.reason == "OperationalError"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:geheim@h/d",
        "postgresql+psycopg://u:geheim@h:5432/d?sslmode=require",
        "postgresql://:geheim@h/d",
        "postgresql://u:geheim/geheim@h/d",
        "postgresql://u:geheim:geheim@h/d",
        "postgresql://u:geheim@geheim@h/d",
        "postgresql://u@h/d?password=geheim&sslmode=require",
        "postgresql://u@h/d?PASSWORD=geheim",
        "postgresql://u@h/d?sslpassword=geheim&sslkey=geheim",
        "host=h password=geheim user=u",
        "host=h password='geheim geheim' user=u",
        "host=h password = geheim user=u",
    ],
)
def test_no_password_survives_redaction(text: str) -> None:
    for whole in (text, f'could not connect to "{text}"'):
        assert "geheim" not in redact(whole)
        assert "h" in redact(whole)
        assert "***" in redact(whole)
    found = translate(wrapped(postgresql_error(None, f"no route: {text}")))
    assert "geheim" not in str(found)


@pytest.mark.parametrize(
    "text", ["plain words", "sqlite:////srv/state.db", "postgresql://u@h/d", "at 10:30 a@b wrote", "a: b@c"]
)
def test_redaction_leaves_what_holds_no_password(text: str) -> None:
    assert redact(text) == text


def test_every_class_of_the_module_is_in_the_tree() -> None:
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    ours = [value for value in found if value.__module__ == errors.__name__]
    assert len(ours) == len(PUBLIC_ERRORS)
    assert all(issubclass(value, hs.HermesStateError) for value in ours)
