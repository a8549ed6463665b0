"""The content of a table as a number that does not depend on the database nor on the order of rows."""

from __future__ import annotations

import hashlib
from typing import Any

_MASK = (1 << 256) - 1


class TableDigest:
    """Count and digest of rows as ``RowConverter`` makes them: of one type in each column, NUL in none.

    Of each row the SHA-256 of its values as text, of all rows the sum: equal for equal rows in any order.
    """

    __slots__ = ("_total", "count")

    def __init__(self) -> None:
        self.count = 0
        self._total = 0

    def add(self, row: tuple[Any, ...]) -> int:
        """Adds a row; returns about how many bytes it has."""
        text = "\0".join(["" if value is None else f"={value}" for value in row]).encode()
        self._total += int.from_bytes(hashlib.sha256(text).digest(), "big")
        self.count += 1
        return len(text)

    @property
    def hexdigest(self) -> str:
        """The digest as text."""
        return f"{self._total & _MASK:064x}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableDigest):
            return NotImplemented
        return (self.count, self.hexdigest) == (other.count, other.hexdigest)

    __hash__ = None  # type: ignore[assignment]
