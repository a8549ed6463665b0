"""The messages that an adoption writes, and how another run goes on behind those of a run that was killed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from hermes_state.dialects.bulk import Row
from hermes_state.models import MessageRow, metadata
from hermes_state.repositories.base import table_of
from hermes_state.transfer.adoption.messages import LOADED_COLUMNS
from hermes_state.transfer.completeness import SourceChangedError
from hermes_state.transfer.digests import TableDigest
from hermes_state.transfer.filling import Filling

MESSAGES = table_of(MessageRow)
_WRITTEN, _RESTORED = "messages", "checkpoints"


class WrittenMessages:
    """The messages of the target, whichever run wrote them: each is written once.

    Beside every part, in its transaction, stands how many rows there are and the digest of them. A later run makes all
    rows again, for what is counted from them and for the list of conversions, but writes only those behind the ones that
    it finds. Where these are not the same, ``SourceChangedError``: rules, options or rows of the source are others.
    """

    def __init__(self, filling: Filling) -> None:
        self._filling = filling
        self._digest = TableDigest()
        self._earlier = self._noted(_WRITTEN)
        self._restored = self._noted(_RESTORED)

    @property
    def earlier(self) -> int:
        """How many rows of earlier runs are still to be passed by."""
        return 0 if self._earlier is None else int(self._earlier[0])

    def prepare(self) -> None:
        """Throws away all that an earlier run wrote but messages, and messages that are not those it noted."""
        with self._filling.transaction() as conn:
            for table in reversed(metadata.sorted_tables):
                if table is not MESSAGES:
                    conn.execute(sa.delete(table))
            if conn.scalar(sa.select(sa.func.count()).select_from(MESSAGES)) != self.earlier:
                conn.execute(sa.delete(MESSAGES))
                self._earlier = self._restored = None
                self._filling.keep(**{_WRITTEN: None, _RESTORED: None})

    def ends_a_part(self, length: int) -> bool:
        """Whether a part of ``length`` rows reaches just to the end of what an earlier run wrote."""
        return self._digest.count + length == self.earlier

    def write(self, part: Sequence[Row]) -> None:
        """The next rows, values of ``LOADED_COLUMNS``."""
        for row in part:
            self._digest.add(row)
        if self._earlier is not None:
            self._pass_by()
            return
        if self._restored is not None:
            raise SourceChangedError
        with self._filling.transaction():
            self._filling.load(MESSAGES, *_without_empty_columns(LOADED_COLUMNS, part))
            self._filling.keep(**{_WRITTEN: self._place()})

    def end(self) -> None:
        """All rows were given: none is left over of those that an earlier run wrote."""
        if self._earlier is not None:
            raise SourceChangedError

    def restoring(self) -> None:
        """In the running transaction: from now on newest messages have their checkpoints, so no others may follow."""
        if self._restored is None:
            self._restored = self._place()
            self._filling.keep(**{_RESTORED: self._restored})

    def _pass_by(self) -> None:
        self._filling.stay()
        if self._digest.count >= self.earlier:
            if self._place() != self._earlier:
                raise SourceChangedError
            self._earlier = None

    def _place(self) -> list[Any]:
        return [self._digest.count, self._digest.hexdigest]

    def _noted(self, key: str) -> list[Any] | None:
        found: list[Any] | None = json.loads(self._filling.notes.get(key, "null"))
        return found


def _without_empty_columns(names: Sequence[str], rows: Sequence[Row]) -> tuple[list[str], list[Row]]:
    """The columns that any of the rows fills: half of them are NULL in most parts, and binding them takes time."""
    columns = list(zip(*rows, strict=True))
    filled = [place for place, values in enumerate(columns) if values.count(None) < len(rows)]
    return [names[place] for place in filled], list(zip(*[columns[place] for place in filled], strict=True))
