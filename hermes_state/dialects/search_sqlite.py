"""The search on SQLite: FTS5, and scripts without blanks by their letters."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from hermes_state.dialects.search import MESSAGES, STATE, TEXT_COLUMNS, Route, SearchOperations, texts_view
from hermes_state.errors import StoreError
from hermes_state.search_query import Alternative, Phrase, SearchQuery

_TRIGGERS = tuple(f"messages_search_{name}" for name in ("added", "leaving", "changed", "removed"))
_INDICES = ("messages_fts", "messages_trigram")
_SHADOWS = ("data", "idx", "content", "docsize", "config")
_UNSPACED_ROWS = sa.table("message_unspaced", sa.column("message_id", sa.BigInteger))
_SHORTEST_TRIGRAM = 3
# Missing leaves are met as SQLITE_CORRUPT. A plain SQLITE_CONSTRAINT, without the extended code that one of our own has, comes of a block full of zeros.
_CODES = (
    sqlite3.SQLITE_CORRUPT_VTAB,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_ERROR,
)
_COUNTS = "SELECT (SELECT count(*) FROM messages_fts_docsize), (SELECT count(*) FROM messages)"
_FOUND_BROKEN = "SELECT 1 FROM sqlite_master WHERE name = 'messages_search_added'"
_MISSING = "SELECT 1 FROM sqlite_master WHERE name = 'messages_fts'"


_HOLDS_UNSPACED = MESSAGES.c.id.in_(sa.select(_UNSPACED_ROWS.c.message_id))


def _index(name: str) -> sa.TableClause:
    return sa.table(name, sa.column("rowid", sa.BigInteger), sa.column("rank", sa.Float))


def _matches(name: str, expression: str) -> sa.ColumnElement[bool]:
    return sa.literal_column(name, sa.Text).op("MATCH", is_comparison=True)(sa.literal(expression, sa.Text))


class SqliteSearch(SearchOperations):
    """SQLite's forms; see the base class for what each does."""

    indexed_texts = texts_view("message_texts")
    plain_texts = texts_view("message_plain_texts")

    def _verbatim(self, statement: str) -> str:
        return statement

    def state(self, conn: sa.Connection) -> dict[str, str]:
        """Also ``unspaced``, when any row holds letters of a script without blanks."""
        stmt = sa.select(STATE.c.name, STATE.c.value)
        unspaced = sa.select(sa.literal("unspaced"), sa.literal("yes")).where(
            sa.exists(sa.select(_UNSPACED_ROWS.c.message_id))
        )
        return {row.name: row.value for row in conn.execute(stmt.union_all(unspaced))}

    def _indexed(self, query: SearchQuery, state: Mapping[str, str], *, best_first: bool) -> Route:
        """By rank where words alone decide; else row by row, those of other scripts by their letters."""
        del best_first
        if not any(phrase.is_literal for phrase in _phrases(query)):
            return self._by_words(query, has_unspaced="unspaced" in state)

        def holds(phrase: Phrase) -> sa.ColumnElement[bool]:
            if not phrase.is_literal:
                known = MESSAGES.c.id.in_(_rows_of("messages_fts", _expression(phrase)))
                if len(phrase.words) == 1:
                    return known
                return sa.and_(known, sa.or_(~_HOLDS_UNSPACED, self._in_texts(phrase)))
            if state["trigram"] == "on" and len(phrase.text) >= _SHORTEST_TRIGRAM:
                return MESSAGES.c.id.in_(_rows_of("messages_trigram", _quoted(phrase.text)))
            return MESSAGES.c.id.in_(self._unspaced_rows(phrase))

        return Route(MESSAGES, [self._any(query, holds)], None)

    def _by_words(self, query: SearchQuery, *, has_unspaced: bool) -> Route:
        """FTS5 hands rows out in order of their rank.

        To FTS5 letters of scripts without blanks are signs, so words on both sides of them follow each other: in rows that hold such
        letters the text decides about phrases of several words.
        """
        expression = candidates = _either(query)
        conditions = []
        if has_unspaced and any(len(phrase.words) > 1 for phrase in _phrases(query)):
            candidates = _either(tuple(map(_without_unwanted_sequences, query)))
            exact = (
                sa.true()
                if candidates == expression
                else MESSAGES.c.id.in_(_rows_of("messages_fts", expression))
            )
            conditions.append(sa.case((_HOLDS_UNSPACED, self._any(query, self._in_texts)), else_=exact))
        index = _index("messages_fts")
        source = index.join(MESSAGES, MESSAGES.c.id == index.c.rowid)
        matches = _matches("messages_fts", candidates)
        return Route(source, [matches, *conditions], index.c.rank, hands_out_in_order=True)

    def _unspaced_rows(self, phrase: Phrase) -> sa.Select[Any]:
        """The rows with letters of such scripts whose texts hold ``phrase``."""
        texts = self.indexed_texts.alias("unspaced_texts")
        rows = sa.select(_UNSPACED_ROWS.c.message_id).join(texts, texts.c.id == _UNSPACED_ROWS.c.message_id)
        return rows.where(self._in_any(texts, phrase))

    def _in_texts(self, phrase: Phrase) -> sa.ColumnElement[bool]:
        """Whether a text of the message at hand holds ``phrase``."""
        texts = self.indexed_texts.alias("texts_of_row")
        return sa.exists().where(texts.c.id == MESSAGES.c.id, self._in_any(texts, phrase))

    def _in_any(self, texts: sa.FromClause, phrase: Phrase) -> sa.ColumnElement[bool]:
        return sa.or_(
            *[self.text_holds(sa.func.coalesce(texts.c[name], ""), phrase) for name in TEXT_COLUMNS]
        )

    def text_holds(self, column: sa.ColumnElement[Any], phrase: Phrase) -> sa.ColumnElement[bool]:
        """Letters as they are written but for the case of A to Z; words by the function that each connection has."""
        if phrase.is_literal:
            return sa.func.instr(sa.func.lower(column), sa.func.lower(sa.literal(phrase.text, sa.Text))) > 0
        text, is_prefix = sa.literal(phrase.text, sa.Text), sa.literal(int(phrase.is_prefix), sa.Integer)
        holds = sa.func.hermes_state_holds(column, text, is_prefix, type_=sa.Boolean)
        # Far cheaper than the function, which is then asked of few rows only.
        hints = [word for word in phrase.words if word.isascii()]
        lower = sa.func.lower(column)
        return sa.and_(*[sa.func.instr(lower, word.lower()) > 0 for word in hints], holds)

    def take_away(self, conn: sa.Connection) -> None:
        """Also what a damaged index left."""
        for name in _TRIGGERS:
            conn.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
        for name in _INDICES:
            try:
                conn.exec_driver_sql(f"DROP TABLE IF EXISTS {name}")
            except StoreError:
                _drop_by_force(conn, name)
        for name in ("message_call_texts", "message_unspaced"):
            conn.exec_driver_sql(f"DELETE FROM {name}")

    def build(self, conn: sa.Connection, *, trigram: bool) -> None:
        """The tables of FTS5, then the triggers."""
        self.run(conn, "index")
        if trigram:
            self.run(conn, "trigram index")
        self.run(conn, "trigram triggers" if trigram else "triggers")

    def detach(self, conn: sa.Connection) -> None:
        """Takes the triggers away, so that no write meets the index any more."""
        for name in _TRIGGERS:
            conn.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")

    def may_be_broken(self, error: BaseException | None) -> bool:
        """FTS5's own result codes, or that of a missing table."""
        return getattr(error, "sqlite_errorcode", None) in _CODES

    def is_broken(self, conn: sa.Connection, error: BaseException | None) -> bool:
        """By FTS5's result code; a table that is gone has none of its own."""
        if not isinstance(error, sqlite3.Error) or conn.exec_driver_sql(_FOUND_BROKEN).first() is None:
            return False
        if error.sqlite_errorcode == sqlite3.SQLITE_CORRUPT:
            return self.difference(conn) is not None
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            return self.may_be_broken(error)
        return conn.exec_driver_sql(_MISSING).first() is None

    def difference(self, conn: sa.Connection) -> str | None:
        """By reading every word of the index once, and by the number of its rows."""
        try:
            conn.exec_driver_sql("DROP TABLE IF EXISTS temp.words_of_index")
            conn.exec_driver_sql(
                "CREATE VIRTUAL TABLE temp.words_of_index USING fts5vocab('main', 'messages_fts', 'row')"
            )
            conn.exec_driver_sql("SELECT sum(cnt) FROM temp.words_of_index").all()
            conn.exec_driver_sql("DROP TABLE temp.words_of_index")
            ((held, there),) = conn.exec_driver_sql(_COUNTS).all()
        except StoreError as error:
            return error.reason
        return None if held == there else f"{held} of {there} messages are in it"


def _drop_by_force(conn: sa.Connection, name: str) -> None:
    """FTS5 must open an index to drop it, which a damaged one does not allow; so its entry goes, then its tables."""
    conn.exec_driver_sql("PRAGMA writable_schema = ON")
    conn.exec_driver_sql("DELETE FROM sqlite_master WHERE type = 'table' AND name = ?", (name,))
    conn.exec_driver_sql("PRAGMA writable_schema = RESET")
    for part in _SHADOWS:
        conn.exec_driver_sql(f"DROP TABLE IF EXISTS {name}_{part}")


def _phrases(query: SearchQuery) -> list[Phrase]:
    return [phrase for each in query for phrase in (*each.wanted, *each.unwanted)]


def _without_unwanted_sequences(given: Alternative) -> Alternative:
    return Alternative(given.wanted, tuple(phrase for phrase in given.unwanted if len(phrase.words) == 1))


def _rows_of(name: str, expression: str) -> sa.Select[Any]:
    return sa.select(_index(name).c.rowid).where(_matches(name, expression))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', " ") + '"'


def _expression(phrase: Phrase) -> str:
    return _quoted(phrase.text) + ("*" if phrase.is_prefix else "")


def _either(query: SearchQuery) -> str:
    return " OR ".join(map(_alternative, query))


def _conjunction(phrases: tuple[Phrase, ...], joint: str) -> str:
    return joint.join(_expression(phrase) for phrase in phrases)


def _alternative(given: Alternative) -> str:
    wanted = _conjunction(given.wanted, " AND ")
    return f"({wanted} NOT ({_conjunction(given.unwanted, ' OR ')}))" if given.unwanted else f"({wanted})"
