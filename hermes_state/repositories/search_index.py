"""The search index as a whole: building it in parts, switching it, noticing that it is broken (issue 5, items 3 and 5)."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from hermes_state.dialects.search import EVERYTHING
from hermes_state.reports import Difference, difference
from hermes_state.repositories import rows
from hermes_state.repositories.base import Repository

_MESSAGES = rows.MESSAGES
_BEFORE_ALL = -(2**63)


class SearchIndexRepository(Repository):
    """Each verb leaves the index usable, off, or marked; the caller opens a transaction for each part."""

    def begin(self, *, trigram: bool | None = None) -> None:
        """An empty index that follows nothing yet; goes on with one that is being built."""
        with self._transaction.verb() as conn:
            search = self._operations.search
            state = search.state(conn)
            wanted = state["trigram"] == "on" if trigram is None else trigram
            if state["index"] == "building" and wanted == (state["trigram"] == "on"):
                return
            search.take_away(conn)
            search.note(conn, index="building", trigram="on" if wanted else "off", through=str(_BEFORE_ALL))
            search.build(conn, trigram=wanted)

    def step(self, count: int) -> int:
        """Indexes the next ``count`` rows; returns how many were left to do, 0 once the index is whole."""
        with self._transaction.verb() as conn:
            search = self._operations.search
            state = search.state(conn)
            if state["index"] != "building":
                return 0
            after = int(state["through"])
            through = self._last_of(conn, after, count)
            if through is None:
                search.note(conn, index="on", through=str(EVERYTHING))
                return 0
            search.run(conn, "step", after=after, through=through)
            if state["trigram"] == "on":
                search.run(conn, "trigram step", after=after, through=through)
            search.note(conn, through=str(through))
            return max(1, self._left(conn, through))

    def switch_off(self) -> None:
        """Takes the index away; searches read the rows."""
        with self._transaction.verb() as conn:
            if self._operations.search.state(conn)["index"] != "off":
                self._operations.search.take_away(conn)
                self._operations.search.note(conn, index="off", through=str(EVERYTHING))

    def difference(self) -> list[Difference]:
        """What the index lacks of the rows; nothing for one that was switched off."""
        with self._transaction.verb() as conn:
            state = self._operations.search.state(conn)["index"]
            found = self._operations.search.difference(conn) if state == "on" else f"it is {state}"
        is_told = found is not None and state != "off"
        return [difference("search index", None, None, found, "on")] if is_told else []

    def is_broken(self, error: Any) -> bool:
        """Whether ``error``, the driver's own, came out of the index."""
        with self._transaction.verb() as conn:
            return self._operations.search.is_broken(conn, error)

    def detach_broken(self, error: Any) -> bool:
        """Whether ``error`` came out of the index; then no write meets it any more and the state is ``degraded``."""
        with self._transaction.verb() as conn:
            if not self.is_broken(error):
                return False
            self._operations.search.detach(conn)
            self._operations.search.note(conn, index="degraded")
            return True

    def _last_of(self, conn: sa.Connection, after: int, count: int) -> int | None:
        part = (
            sa.select(_MESSAGES.c.id)
            .where(_MESSAGES.c.id > after)
            .order_by(_MESSAGES.c.id)
            .limit(count)
            .subquery()
        )
        last: int | None = conn.scalar(sa.select(sa.func.max(part.c.id)))
        return last

    def _left(self, conn: sa.Connection, through: int) -> int:
        stmt = sa.select(sa.func.count()).select_from(_MESSAGES).where(_MESSAGES.c.id > through)
        return conn.scalar(stmt) or 0
