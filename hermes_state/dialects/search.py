"""What a search needs from a database beyond portable SQL; each class holds its database's own forms (DESIGN.md, decision 7)."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from hermes_state.models import metadata
from hermes_state.search_query import Alternative, Phrase, SearchQuery

EVERYTHING = 2**63 - 1
MESSAGES = metadata.tables["messages"]
STATE = sa.table("message_search_state", sa.column("name", sa.Text), sa.column("value", sa.Text))
DDL = sa.table(
    "message_search_ddl",
    sa.column("place", sa.Integer),
    sa.column("part", sa.Text),
    sa.column("statement", sa.Text),
)
TEXT_COLUMNS = ("content", "tool_name", "calls")
Holds = Callable[[Phrase], sa.ColumnElement[bool]]
_REASONING = ("reasoning", "reasoning_content")


class Route:
    """How the rows of one search are found: ``source`` to select from, ``conditions``, and ``rank`` (least first) where there is one."""

    def __init__(
        self,
        source: sa.FromClause,
        conditions: Sequence[sa.ColumnElement[bool]],
        rank: sa.ColumnElement[Any] | None,
        *,
        hands_out_in_order: bool = False,
    ) -> None:
        self.source = source
        self.conditions = conditions
        self.rank = rank
        self.hands_out_in_order = hands_out_in_order
        """Whether rows come by rank and id without a sort, if nothing else is asked for."""


def texts_view(name: str) -> sa.TableClause:
    """A view of the readable texts of messages by their id."""
    return sa.table(
        name, sa.column("id", sa.BigInteger), *[sa.column(each, sa.Text) for each in TEXT_COLUMNS]
    )


class SearchOperations(abc.ABC):
    """The index as its triggers keep it, and what a query becomes."""

    indexed_texts: sa.TableClause
    """The texts as the index has them."""
    plain_texts: sa.TableClause
    """The same where no index keeps anything."""

    def state(self, conn: sa.Connection) -> dict[str, str]:
        """``index``: ``on``, ``off``, ``degraded`` or ``building``; ``trigram``: ``on`` or ``off``; ``through``: the last id of a part."""
        return {row.name: row.value for row in conn.execute(sa.select(STATE.c.name, STATE.c.value))}

    def note(self, conn: sa.Connection, **values: str) -> None:
        """Writes some of the state."""
        for name, value in values.items():
            conn.execute(sa.update(STATE).where(STATE.c.name == name).values(value=value))

    def run(self, conn: sa.Connection, part: str, **values: int) -> None:
        """Executes the statements of one part of the index, as the revision of the schema left them."""
        stmt = sa.select(DDL.c.statement).where(DDL.c.part == part).order_by(DDL.c.place)
        for found in conn.scalars(stmt).all():
            statement = found
            if statement.startswith("SELECT"):  # one that is too long to be kept is put together
                statement = str(conn.exec_driver_sql(self._verbatim(statement)).scalar_one())
            if values:
                conn.execute(sa.text(statement), values)
            else:
                conn.exec_driver_sql(self._verbatim(statement))

    def texts(self, state: Mapping[str, str]) -> sa.TableClause:
        """The readable texts of messages by their id."""
        return self.indexed_texts if state["index"] == "on" else self.plain_texts

    def route(
        self, query: SearchQuery, state: Mapping[str, str], *, reasoning: bool, best_first: bool
    ) -> Route:
        """The rows that ``query`` finds in a store of that ``state``.

        ``reasoning``: in what a model thought, too; ``best_first``: a page of the best of the whole store is wanted.
        """
        if state["index"] == "on" and not reasoning:
            return self._indexed(query, state, best_first=best_first)
        texts = self.texts(state).alias("searched")
        source = MESSAGES.join(texts, texts.c.id == MESSAGES.c.id)

        def holds(phrase: Phrase) -> sa.ColumnElement[bool]:
            return sa.or_(
                *[self.text_holds(column, phrase) for column in _columns(texts, reasoning=reasoning)]
            )

        return Route(source, [self._any(query, holds)], None)

    def _any(self, query: SearchQuery, holds: Holds) -> sa.ColumnElement[bool]:
        return sa.or_(*[self._all(each, holds) for each in query])

    def _all(self, alternative: Alternative, holds: Holds) -> sa.ColumnElement[bool]:
        wanted = [holds(phrase) for phrase in alternative.wanted]
        return sa.and_(*wanted, *[sa.not_(holds(phrase)) for phrase in alternative.unwanted])

    @abc.abstractmethod
    def _verbatim(self, statement: str) -> str:
        """The statement as the driver takes it without parameters."""

    @abc.abstractmethod
    def _indexed(self, query: SearchQuery, state: Mapping[str, str], *, best_first: bool) -> Route:
        """The rows by the index; ``best_first``: a page of the best of the whole store is wanted."""

    @abc.abstractmethod
    def text_holds(self, column: sa.ColumnElement[Any], phrase: Phrase) -> sa.ColumnElement[bool]:
        """Whether one text holds the phrase, read without an index."""

    @abc.abstractmethod
    def take_away(self, conn: sa.Connection) -> None:
        """Drops the index and what keeps it; the texts of calls stay or come back with it."""

    @abc.abstractmethod
    def build(self, conn: sa.Connection, *, trigram: bool) -> None:
        """An empty index that follows the rows up to ``through``, or all."""

    @abc.abstractmethod
    def detach(self, conn: sa.Connection) -> None:
        """Has no write meet the index any more; what it holds stays."""

    @abc.abstractmethod
    def difference(self, conn: sa.Connection) -> str | None:
        """What an index that is on lacks of the rows, in words; ``None`` for nothing."""

    @abc.abstractmethod
    def may_be_broken(self, error: BaseException | None) -> bool:
        """Whether ``error``, the driver's own, is one that a broken index gives; ``is_broken`` knows."""

    @abc.abstractmethod
    def is_broken(self, conn: sa.Connection, error: BaseException | None) -> bool:
        """Whether ``error`` of a statement, the driver's own, came out of the index."""


def _columns(texts: sa.FromClause, *, reasoning: bool) -> list[sa.ColumnElement[Any]]:
    found: list[sa.ColumnElement[Any]] = [sa.func.coalesce(texts.c[name], "") for name in TEXT_COLUMNS]
    thoughts = [sa.func.coalesce(MESSAGES.c[name], "") for name in _REASONING] if reasoning else []
    return found + thoughts
