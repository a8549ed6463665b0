"""The search on PostgreSQL: tsvectors whose words our own function cuts, in scripts without blanks letter by letter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from hermes_state.dialects.search import MESSAGES, TEXT_COLUMNS, Route, SearchOperations, texts_view
from hermes_state.search_query import Phrase, SearchQuery

_INDEX = sa.table(
    "message_search", sa.column("message_id", sa.BigInteger), sa.column("words", postgresql.TSVECTOR)
)
_TRIGGERS = ("added", "changed", "removed")
_MISSING = ("42P01", "42703")  # undefined table, undefined column
_IS_THERE = sa.text(
    "SELECT 1 FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass('message_search') "
    "AND attname = 'words' AND NOT attisdropped"
)
_LACKING = sa.text("""
    SELECT (SELECT count(*) FROM messages LEFT JOIN message_search ON message_search.message_id = messages.id
        WHERE message_search.message_id IS NULL),
    (SELECT count(*) FROM message_search LEFT JOIN messages ON messages.id = message_search.message_id WHERE messages.id IS NULL)
""")
_MOST_RANKED = 32
"""Phrases of a query that the rank looks at."""


class PostgresqlSearch(SearchOperations):
    """PostgreSQL's forms; see the base class for what each does."""

    indexed_texts = plain_texts = texts_view("message_texts")

    def _verbatim(self, statement: str) -> str:
        return statement.replace("%", "%%")

    def _indexed(self, query: SearchQuery, state: Mapping[str, str]) -> Route:
        """The index knows words; what must follow each other, or is written in letters, is looked at in the text."""
        del state
        texts = self.indexed_texts.alias("searched")
        source = _INDEX.join(MESSAGES, MESSAGES.c.id == _INDEX.c.message_id)
        if any(_must_be_looked_at(phrase) for each in query for phrase in (*each.wanted, *each.unwanted)):
            source = source.join(texts, texts.c.id == _INDEX.c.message_id)
        wanted = [phrase for each in query for phrase in each.wanted][:_MOST_RANKED]
        ranked = _words(wanted[0])
        for phrase in wanted[1:]:
            ranked = ranked.op("||")(_words(phrase))
        # A text of fewer words says more about each; ts_rank itself would count the repeated ones against it.
        length = sa.func.ln(math.e + sa.func.length(_INDEX.c.words))
        rank = sa.func.ts_rank(_INDEX.c.words, ranked, type_=sa.Float) / length
        conditions = [self._any(query, lambda phrase: self._holds(phrase, texts))]
        return Route(source, conditions, -rank)

    def _holds(self, phrase: Phrase, texts: sa.FromClause) -> sa.ColumnElement[bool]:
        known = _INDEX.c.words.op("@@", is_comparison=True)(_words(phrase))
        if not _must_be_looked_at(phrase):
            return known
        in_texts = [self.text_holds(sa.func.coalesce(texts.c[name], ""), phrase) for name in TEXT_COLUMNS]
        return sa.and_(known, sa.or_(*in_texts))

    def text_holds(self, column: sa.ColumnElement[Any], phrase: Phrase) -> sa.ColumnElement[bool]:
        """Words by the function of the index; letters as they are written but for their case."""
        if phrase.is_literal:
            return sa.func.strpos(sa.func.lower(column), sa.func.lower(sa.literal(phrase.text, sa.Text))) > 0
        text = _squeezed(column)
        wanted = _squeezed(sa.literal(phrase.text, sa.Text))
        if phrase.is_prefix:
            wanted = sa.func.rtrim(wanted)
        return sa.func.strpos(text, sa.literal(" ", sa.Text).concat(sa.func.ltrim(wanted))) > 0

    def take_away(self, conn: sa.Connection) -> None:
        """The functions and the view of texts stay."""
        for name in _TRIGGERS:
            conn.exec_driver_sql(f"DROP TRIGGER IF EXISTS messages_search_{name} ON messages")
        conn.exec_driver_sql("DROP TABLE IF EXISTS message_search")
        conn.exec_driver_sql("DROP INDEX IF EXISTS ix_message_search__words")

    def detach(self, conn: sa.Connection) -> None:
        """Nothing: the triggers catch what a broken index does to them, and dropping them takes its owner."""

    def build(self, conn: sa.Connection, *, trigram: bool) -> None:
        """The table, then the triggers; substrings need no trigrams here."""
        del trigram
        self.run(conn, "index")
        self.run(conn, "triggers")

    def difference(self, conn: sa.Connection) -> str | None:
        """By the rows that are not in it, and those that are gone."""
        if conn.scalar(_IS_THERE) is None:
            return "it is not there"
        lacking, left = conn.execute(_LACKING).one()
        return f"{lacking} messages are not in it, {left} are in it and gone" if lacking or left else None

    def may_be_broken(self, error: BaseException | None) -> bool:
        """A table or a column that is not there."""
        return getattr(error, "sqlstate", None) in _MISSING

    def is_broken(self, conn: sa.Connection, error: BaseException | None) -> bool:
        """By what is there: the table with its column. Writes never meet it, the triggers catch and note it."""
        return self.may_be_broken(error) and conn.scalar(_IS_THERE) is None


def _must_be_looked_at(phrase: Phrase) -> bool:
    return phrase.is_literal or len(phrase.pieces) != 1


def _words(phrase: Phrase) -> sa.ColumnElement[Any]:
    simple: sa.ColumnElement[Any] = sa.literal_column("'simple'::regconfig")
    words = sa.func.hermes_search_words(sa.literal(phrase.text, sa.Text), type_=sa.Text)
    query = sa.func.plainto_tsquery(simple, words, type_=postgresql.TSQUERY)
    if not phrase.is_prefix:
        return query
    text = sa.cast(query, sa.Text)
    return sa.cast(sa.case((text != "", text + ":*"), else_=text), postgresql.TSQUERY)


def _squeezed(text: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    words = sa.func.hermes_search_words(text, type_=sa.Text)
    padded = sa.literal(" ", sa.Text).concat(words).concat(sa.literal(" ", sa.Text))
    return sa.func.regexp_replace(padded, r"\s+", " ", "g", type_=sa.Text)
