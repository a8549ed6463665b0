"""What an adoption reports: counts, and every value that could not be taken over as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from hermes_state.salvage import cut, text_form

MOST_LISTED = 1_000
_SHOWN_BYTES = 100


class Conversion(NamedTuple):
    """One value that the new store holds otherwise than the older one did.

    ``id`` is that of the row in the older store, ``value`` the beginning of what stood there, ``rule`` what became of it.
    """

    table: str
    id: str
    column: str
    rule: str
    value: str


@dataclass
class AdoptReport:
    """What was adopted.

    ``finishing_seconds`` is the part of ``seconds`` after the last message. ``conversions`` lists the first 1,000, ``conversion_counts`` counts all, by table, column and rule. ``left_tables``: rows of
    tables that this package does not have. ``stripped_bytes``: JSON text of checkpoints that no request reads again.
    ``resumed_after``: messages that an earlier run had written; 0 for a run from the beginning.
    """

    source: str
    version: int | None
    sessions: int = 0
    messages: int = 0
    resumed_after: int = 0
    notes: int = 0
    seconds: float = 0.0
    finishing_seconds: float = 0.0
    stripped_messages: int = 0
    stripped_bytes: int = 0
    left_tables: dict[str, int] = field(default_factory=dict)
    conversion_counts: dict[tuple[str, str, str], int] = field(default_factory=dict)
    conversions: list[Conversion] = field(default_factory=list)


class Notebook:
    """Counts conversions, lists the first of them and hands each one on."""

    def __init__(self, on_conversion: Callable[[Conversion], None] | None) -> None:
        self._on_conversion = on_conversion
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.listed: list[Conversion] = []

    def add(self, table: str, row_id: object, column: str, rule: str, value: object) -> None:
        """Writes one conversion down."""
        self.counts[table, column, rule] += 1
        if self._on_conversion is None and len(self.listed) >= MOST_LISTED:
            return
        found = Conversion(table, _shown(row_id), column, rule, _shown(value))
        if len(self.listed) < MOST_LISTED:
            self.listed.append(found)
        if self._on_conversion is not None:
            self._on_conversion(found)


def _shown(value: object) -> str:
    shortened = value[: 4 * _SHOWN_BYTES] if isinstance(value, (str, bytes)) else value
    return cut(text_form(shortened), _SHOWN_BYTES)
