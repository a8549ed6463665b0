"""What the tables share: names of constraints, column types, checks, and the predicates of the carrier index."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, mapped_column

from hermes_state.types import ExactJson, code_point_text, epoch

# The double underscore keeps (table a_b, column c) and (table a, column b_c) apart.
NAMING_CONVENTION = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s__%(column_0_N_name)s__%(referred_table_name)s",
    "uq": "uq_%(table_name)s__%(column_0_N_name)s",
    "ix": "ix_%(table_name)s__%(column_0_N_name)s",
    "ck": "ck_%(table_name)s__%(constraint_name)s",
}

# Which rows are carriers, derived by the database from the row itself, so that rows of other programs count too
# (CONTRACT.md section 4, rule 7). A statement that repeats these terms is planned through the index. Write them
# inside ``sa.text``, which doubles the % for psycopg; by hand, use ``doubled_percents``.
CARRIER_PREDICATE_SQLITE = (
    """active AND role = 'assistant' AND instr(codex_reasoning_items, '"compaction"') > 0"""
)
CARRIER_PREDICATE_POSTGRESQL = (
    """active AND role = 'assistant' AND codex_reasoning_items::text LIKE '%"compaction"%'"""
)

KINDS = ("root", "continuation", "branch", "delegate", "tool")

Counter = Annotated[int, mapped_column(sa.BigInteger, server_default=sa.text("0"))]
Id = Annotated[str, mapped_column(code_point_text())]
Json = Annotated[str, mapped_column(ExactJson())]
Off = Annotated[bool, mapped_column(sa.Boolean, server_default=sa.false())]
OrderedText = Annotated[str, mapped_column(code_point_text())]


def doubled_percents(predicate: str) -> str:
    """``predicate`` for driver SQL that psycopg runs with parameters, where % opens a placeholder."""
    return predicate.replace("%", "%%")


def length_check(column: str) -> sa.CheckConstraint:
    """Ids and keys have 1 to 512 characters (CONTRACT.md section 2, rule 6)."""
    return sa.CheckConstraint(f"length({column}) BETWEEN 1 AND 512", name=f"{column}_length")


def counter_check(column: str) -> sa.CheckConstraint:
    """Counters are not negative."""
    return sa.CheckConstraint(f"{column} >= 0", name=f"{column}_not_negative")


def boolean_check(column: str) -> sa.CheckConstraint:
    """Booleans are 0 or 1 on SQLite."""
    # SQLite has no booleans and would store a 2 (field report C3). ``info`` tells the drift check.
    check = sa.CheckConstraint(f"{column} IN (0, 1)", name=f"{column}_is_boolean", info={"only_on": "sqlite"})
    return check.ddl_if(dialect="sqlite")


class Base(DeclarativeBase):
    """The declarative base. Text has no length limit on either database (field report C4)."""

    metadata = sa.MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: sa.Text(),
        int: sa.BigInteger(),
        float: epoch(),
    }
