"""The search on PostgreSQL: tsvectors whose words our own function cuts, in scripts without blanks letter by letter."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from hermes_state.dialects.search import MESSAGES, TEXT_COLUMNS, Route, SearchOperations, texts_view
from hermes_state.search_query import Alternative, Phrase, SearchQuery

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
_MOST_LETTERS = 16
"""Letters of a phrase that the index is asked for; the text decides about the others."""
_LONGEST_WORD = 249
"""Characters of a word that the index surely holds whole: it keeps 500, and a letter may become two in lower case."""


class PostgresqlSearch(SearchOperations):
    """PostgreSQL's forms; see the base class for what each does."""

    indexed_texts = plain_texts = texts_view("message_texts")

    def _verbatim(self, statement: str) -> str:
        return statement.replace("%", "%%")

    def _indexed(self, query: SearchQuery, state: Mapping[str, str], *, best_first: bool) -> Route:
        """The index knows words; what must follow each other, or is written in letters, is looked at in the text.

        Best first, the hits of the index are put in order before anything else is read of them.
        """
        del state
        texts = self.indexed_texts.alias("searched")
        rank = _rank(query)
        found: sa.FromClause = _INDEX
        conditions = [sa.or_(*map(_may_match, query))]
        looked_at = any(map(_must_be_looked_at, _phrases(query)))
        if best_first:
            stmt = sa.select(_INDEX, rank.label("rank")).where(*conditions)
            found = stmt.order_by(sa.literal_column("rank"), _INDEX.c.message_id).subquery("found")
            rank, conditions = found.c.rank, []
        source = found.join(MESSAGES, MESSAGES.c.id == found.c.message_id)
        if looked_at:
            source = source.join(texts, texts.c.id == found.c.message_id)
            conditions.append(self._any(query, lambda phrase: self._holds(phrase, found, texts)))
        return Route(source, conditions, rank)

    def _holds(self, phrase: Phrase, found: sa.FromClause, texts: sa.FromClause) -> sa.ColumnElement[bool]:
        known = _matches(found, phrase)
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
    words = phrase.words
    return phrase.is_literal or len(words) != 1 or len(words[0]) > _LONGEST_WORD


def _phrases(query: SearchQuery) -> list[Phrase]:
    return [phrase for each in query for phrase in (*each.wanted, *each.unwanted)]


def _may_match(given: Alternative) -> sa.ColumnElement[bool]:
    unwanted = [phrase for phrase in given.unwanted if not _must_be_looked_at(phrase)]
    wanted = [_matches(_INDEX, phrase) for phrase in given.wanted]
    return sa.and_(*wanted, *[sa.not_(_matches(_INDEX, phrase)) for phrase in unwanted])


def _matches(found: sa.FromClause, phrase: Phrase) -> sa.ColumnElement[bool]:
    """Whether all words of the phrase are in the vector; of letters only those that are words for themselves."""
    text = " ".join(phrase.letters[:_MOST_LETTERS]) if phrase.is_literal else phrase.text
    is_prefix = phrase.is_prefix and not phrase.is_literal
    return found.c.words.op("@@", is_comparison=True)(_words(text, " & ", ":*" if is_prefix else ""))


def _words(text: str, joint: str, ending: str) -> sa.ColumnElement[Any]:
    given = [sa.literal(each, sa.Text) for each in (text, joint, ending)]
    return sa.func.hermes_search_query(*given, type_=postgresql.TSQUERY)


def _rank(query: SearchQuery) -> sa.ColumnElement[Any]:
    """Least first. A text of fewer words says more about each; ts_rank itself would count the repeated ones against it."""
    wanted = [phrase for each in query for phrase in each.wanted][:_MOST_RANKED]
    ranked = functools.reduce(
        lambda one, other: one.op("||")(other),
        [_words(phrase.text, " | ", ":*" if phrase.is_prefix else "") for phrase in wanted],
    )
    length = sa.func.ln(math.e + sa.func.length(_INDEX.c.words))
    return -sa.func.ts_rank(_INDEX.c.words, ranked, type_=sa.Float) / length


def _squeezed(text: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    words = sa.func.hermes_search_words(text, type_=sa.Text)
    padded = sa.literal(" ", sa.Text).concat(words).concat(sa.literal(" ", sa.Text))
    return sa.func.regexp_replace(padded, r"\s+", " ", "g", type_=sa.Text)
