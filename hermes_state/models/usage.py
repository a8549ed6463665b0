"""What model calls used, by model and by day."""

from __future__ import annotations

from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from hermes_state.models.base import Base, Counter, Id, counter_check
from hermes_state.types import EpochNow, code_point_text, epoch

USAGE_COUNTERS = (
    "api_call_count", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
)  # fmt: skip
UsageKey = Annotated[str, mapped_column(code_point_text(), server_default=sa.text("''"))]


def _usage_checks() -> tuple[sa.Constraint, ...]:
    key = sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], ondelete="CASCADE")
    return (key, *map(counter_check, USAGE_COUNTERS))


class SessionModelUsageRow(Base):
    """What a session used of one model, by provider and task; the task of the conversation itself is empty text.

    Reasoning tokens are part of the output tokens.
    """

    __tablename__ = "session_model_usage"

    session_id: Mapped[Id] = mapped_column(primary_key=True)
    model: Mapped[UsageKey] = mapped_column(primary_key=True)
    billing_provider: Mapped[UsageKey] = mapped_column(primary_key=True)
    billing_base_url: Mapped[UsageKey] = mapped_column(primary_key=True)
    billing_mode: Mapped[UsageKey] = mapped_column(primary_key=True)
    task: Mapped[UsageKey] = mapped_column(primary_key=True)
    api_call_count: Mapped[Counter]
    input_tokens: Mapped[Counter]
    output_tokens: Mapped[Counter]
    cache_read_tokens: Mapped[Counter]
    cache_write_tokens: Mapped[Counter]
    reasoning_tokens: Mapped[Counter]
    estimated_cost_usd: Mapped[float | None]
    actual_cost_usd: Mapped[float | None]
    cost_status: Mapped[str | None]
    cost_source: Mapped[str | None]
    pricing_version: Mapped[str | None]
    first_seen: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    last_seen: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())

    __table_args__ = _usage_checks()


class SessionDailyUsageRow(Base):
    """What a session used on one day, all tasks together. ``day`` is a date of UTC, ``YYYY-MM-DD``."""

    __tablename__ = "session_daily_usage"

    session_id: Mapped[Id] = mapped_column(primary_key=True)
    day: Mapped[UsageKey] = mapped_column(primary_key=True)
    api_call_count: Mapped[Counter]
    input_tokens: Mapped[Counter]
    output_tokens: Mapped[Counter]
    cache_read_tokens: Mapped[Counter]
    cache_write_tokens: Mapped[Counter]
    reasoning_tokens: Mapped[Counter]
    estimated_cost_usd: Mapped[float | None]
    actual_cost_usd: Mapped[float | None]
    first_seen: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    last_seen: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())

    __table_args__ = _usage_checks()
