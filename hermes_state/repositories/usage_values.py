"""What callers give for usage, checked before any SQL."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from hermes_state.errors import InvalidArgumentError
from hermes_state.models import USAGE_COUNTERS
from hermes_state.repositories.session_values import optional_text
from hermes_state.text import clean_text

COSTS = ("estimated_cost_usd", "actual_cost_usd")
PROVENANCE = ("cost_status", "cost_source", "pricing_version")
ROUTE = ("billing_provider", "billing_base_url", "billing_mode")
MAX_KEY_CHARACTERS = 256
MOST = 2**63 - 1
"""The highest number that a column can hold."""
_HALF = 2**32


class Change(NamedTuple):
    """New columns of the session, and what is booked in the ledgers."""

    totals: dict[str, Any]
    booked: dict[str, int | float | None]


@dataclass(frozen=True)
class Usage:
    """The usage that one call reports; made by ``checked_usage``."""

    amounts: dict[str, int | float | None]
    """Counters, and costs in US dollars; a cost that is not known is ``None``."""
    model: str | None = None
    billing_provider: str | None = None
    billing_base_url: str | None = None
    billing_mode: str | None = None
    cost_status: str | None = None
    cost_source: str | None = None
    pricing_version: str | None = None

    def change_of(self, session: Mapping[str, Any], *, absolute: bool) -> Change:
        """What changes in the session's row: totals; provenance (the newest); model and route where there was none."""
        totals: dict[str, Any] = {}
        booked: dict[str, int | float | None] = {}
        for name, amount in self.amounts.items():
            before = number_of(session[name])
            if amount is None:
                booked[name] = None
                continue
            totals[name] = amount if absolute else before + amount
            booked[name] = totals[name] - before
            if name in USAGE_COUNTERS and totals[name] > MOST:
                raise InvalidArgumentError(name, f"the total would be above {MOST}")
        totals |= {name: text for name in PROVENANCE if (text := getattr(self, name)) is not None}
        for name in ("model", *ROUTE):
            if getattr(self, name) and not session[name]:
                totals[name] = getattr(self, name)
        return Change(totals, booked)


def checked_usage(given: Mapping[str, Any]) -> Usage:
    """``Usage`` of the keyword arguments; ``InvalidArgumentError`` for an unfit value, ``TypeError`` for an unknown name."""
    known = {*USAGE_COUNTERS, *COSTS, *PROVENANCE, *ROUTE, "model"}
    if unknown := given.keys() - known:
        raise TypeError(f"unexpected arguments for usage: {', '.join(sorted(unknown))}")
    amounts: dict[str, int | float | None] = {
        name: _count(name, given.get(name, 0)) for name in USAGE_COUNTERS
    }
    amounts |= {name: _money(name, given.get(name)) for name in COSTS}
    texts = {name: optional_text(name, given.get(name)) or None for name in PROVENANCE}
    keys = {name: usage_key(name, given.get(name)) or None for name in ("model", *ROUTE)}
    return Usage(amounts, **keys, **texts)


def usage_key(argument: str, value: Any) -> str:
    """A text that usage is told apart by, cleaned; nothing is empty text."""
    text = optional_text(argument, value) or ""
    if len(text) > MAX_KEY_CHARACTERS:
        raise InvalidArgumentError(argument, f"it is longer than {MAX_KEY_CHARACTERS} characters")
    return text


def stored_key(stored: Any) -> str:
    """A text of a session as usage is told apart by it, whatever another program stored there."""
    return "" if stored is None else clean_text(str(stored))[:MAX_KEY_CHARACTERS]


def day_of(epoch: float) -> str:
    """The date of UTC, ``YYYY-MM-DD``."""
    return dt.datetime.fromtimestamp(epoch, dt.UTC).strftime("%Y-%m-%d")


def sum_columns(value: sa.ColumnElement[Any], name: str) -> list[sa.ColumnElement[Any]]:
    """The sum of a counter in two columns, which ``sum_of`` puts together: no database's whole number overflows."""
    return [
        sa.func.sum(value // sa.literal(_HALF, sa.BigInteger)).label(f"{name}_high"),
        sa.func.sum(value % sa.literal(_HALF, sa.BigInteger)).label(f"{name}_low"),
    ]


def sum_of(row: Mapping[Any, Any], name: str) -> int:
    """A sum as the driver gives it: PostgreSQL's may be a Decimal, SQLite's a float where other programs wrote one."""
    total = (row[f"{name}_high"] or 0) * _HALF + (row[f"{name}_low"] or 0)
    return int(total) if math.isfinite(total) else MOST


def _count(argument: str, value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise InvalidArgumentError(argument, f"it must be a whole number from 0 to {MOST}")
    return value


def _money(argument: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidArgumentError(argument, "it must be a number of US dollars")
    if not 0 <= value < 1e15 or not math.isfinite(value):
        raise InvalidArgumentError(argument, "it must be a finite number of US dollars, not below 0")
    return float(value)


def number_of(stored: Any) -> int | float:
    """A total as it is stored; what another program stored counts as nothing if no total can be that."""
    return stored if isinstance(stored, (int, float)) and 0 < stored <= MOST else 0
