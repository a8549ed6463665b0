"""Rules that the metadata itself must keep (CONTRACT.md section 6; DESIGN.md, decisions 3, 8 and 10)."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.schema import CreateTable

from hermes_state import models
from hermes_state.models import metadata
from hermes_state.types import ExactJson

TABLES = list(metadata.tables.values())
LITE, FULL = (make_url(text).get_dialect()() for text in ("sqlite://", "postgresql+psycopg://"))
COLUMNS = [column for table in TABLES for column in table.columns]


def named(column: sa.Column[object]) -> str:
    return f"{column.table.name}.{column.name}"


def test_the_tables_are_those_of_the_known_store_and_of_reactions() -> None:
    assert set(metadata.tables) == {
        "sessions",
        "messages",
        "message_reactions",
        "state_meta",
        "system_prompts",
        "compression_locks",
        "session_turn_leases",
        "session_model_usage",
        "session_daily_usage",
    }


def test_every_mandatory_column_has_a_server_default() -> None:
    """So other programs may write few columns; keys, the session of a message and a stored prompt are the sense of a row."""
    mandatory = {named(column) for column in COLUMNS if not column.nullable and column.server_default is None}
    assert mandatory == {
        "sessions.id",
        "messages.session_id",
        "message_reactions.session_id",
        "message_reactions.message_uid",
        "message_reactions.actor",
        "state_meta.key",
        "system_prompts.hash",
        "system_prompts.prompt",
        "compression_locks.session_id",
        "session_turn_leases.conversation_id",
        "session_model_usage.session_id",
        "session_daily_usage.session_id",
    }


def test_every_constraint_and_index_has_a_name() -> None:
    for table in TABLES:
        for constraint in table.constraints:
            assert constraint.name, f"{table.name}: {constraint!r}"
        for index in table.indexes:
            assert re.fullmatch(rf"(ix|uq)_{table.name}__\w+", str(index.name))


def test_no_check_joins_columns_that_other_programs_write_in_any_order() -> None:
    joining = set()
    for table in TABLES:
        for check in table.constraints:
            if isinstance(check, sa.CheckConstraint):
                words = set(re.findall(r"\w+", re.sub("'[^']*'", "", str(check.sqltext))))
                if len(words & set(table.columns.keys())) > 1:
                    joining.add(check.name)
    assert joining == {"ck_messages__active_or_compacted"}


def test_no_check_tests_the_json_of_messages() -> None:
    columns = {column.name for column in COLUMNS if isinstance(column.type, ExactJson)}
    assert columns == {
        "content_parts",
        "tool_calls",
        "reasoning_details",
        "codex_reasoning_items",
        "codex_message_items",
        "display_metadata",
        "extra",
    }
    for check in metadata.tables["messages"].constraints:
        if isinstance(check, sa.CheckConstraint):
            assert not columns & set(re.findall(r"\w+", str(check.sqltext)))


def unique_keys(table: sa.Table) -> list[tuple[str, ...]]:
    keys = [tuple(table.primary_key.columns.keys())]
    keys += [
        tuple(each.columns.keys()) for each in table.constraints if isinstance(each, sa.UniqueConstraint)
    ]
    return keys + [tuple(index.columns.keys()) for index in table.indexes if index.unique]


def test_no_unique_key_of_messages_spans_sessions() -> None:
    """The row id apart, which names a row and orders it within its session only."""
    keys = unique_keys(metadata.tables["messages"])
    assert sorted(keys) == [("id",), ("session_id", "message_uid")]


def test_no_foreign_key_spans_sessions_other_than_through_sessions() -> None:
    targets = {
        named(key.parent): (key.target_fullname, key.ondelete)
        for table in TABLES
        for key in table.foreign_keys
    }
    assert targets == {
        "messages.session_id": ("sessions.id", "CASCADE"),
        "message_reactions.session_id": ("sessions.id", "CASCADE"),
        "session_model_usage.session_id": ("sessions.id", "CASCADE"),
        "session_daily_usage.session_id": ("sessions.id", "CASCADE"),
        "sessions.parent_session_id": ("sessions.id", "SET NULL"),
    }


def test_no_unique_index_stands_on_carriers_or_continuations() -> None:
    unique = {index.name for table in TABLES for index in table.indexes if index.unique}
    assert unique == {"uq_sessions__title"}


def test_no_column_name_hides_a_method_of_sqlalchemy() -> None:
    assert not {column.name for column in COLUMNS} & {"items", "keys", "values"}


def test_texts_have_no_length_and_numbers_64_bits() -> None:
    for column in COLUMNS:
        if isinstance(column.type, sa.String):
            assert column.type.length is None, named(column)
        if isinstance(column.type, sa.Integer):
            assert isinstance(column.type, sa.BigInteger), named(column)
        if isinstance(column.type, sa.Float):
            assert isinstance(column.type, sa.Double), named(column)


def test_types_have_the_forms_that_keep_values_exact() -> None:
    messages = metadata.tables["messages"]
    lite = str(CreateTable(messages).compile(dialect=LITE))
    assert "id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT" in lite
    assert "extra TEXT" in lite
    assert "timestamp DOUBLE DEFAULT" in lite
    full = str(CreateTable(messages).compile(dialect=FULL))
    assert "id BIGINT GENERATED BY DEFAULT AS IDENTITY" in full
    assert "extra JSON" in full
    assert "timestamp DOUBLE PRECISION DEFAULT" in full
    assert "IN (0, 1)" not in full


@pytest.mark.parametrize("dialect", [LITE, FULL], ids=lambda each: each.name)
def test_json_passes_the_type_as_text(dialect: sa.Dialect) -> None:
    implementation = ExactJson().dialect_impl(dialect)
    assert implementation.bind_processor(dialect) is None
    assert implementation.result_processor(dialect, None) is None


def test_percents_are_doubled_for_driver_sql() -> None:
    doubled = models.doubled_percents(models.CARRIER_PREDICATE_POSTGRESQL)
    assert """LIKE '%%"compaction"%%'""" in doubled
    assert models.doubled_percents(models.CARRIER_PREDICATE_SQLITE) == models.CARRIER_PREDICATE_SQLITE
