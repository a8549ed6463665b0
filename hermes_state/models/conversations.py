"""Sessions, their messages, and the reactions to these."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from hermes_state.models.base import (
    CARRIER_PREDICATE_POSTGRESQL,
    CARRIER_PREDICATE_SQLITE,
    KINDS,
    Base,
    Counter,
    Id,
    Json,
    Off,
    OrderedText,
    boolean_check,
    counter_check,
    length_check,
)
from hermes_state.types import EpochNow, FreshUid, epoch, row_id


class SessionRow(Base):
    """One conversation, or one part of it; ``parent_session_id`` and ``kind`` say how it hangs on another."""

    __tablename__ = "sessions"

    id: Mapped[Id] = mapped_column(primary_key=True)
    source: Mapped[OrderedText] = mapped_column(server_default=sa.text("'unknown'"))
    created_source: Mapped[str | None]
    user_id: Mapped[str | None]
    session_key: Mapped[str | None]
    chat_id: Mapped[str | None]
    chat_type: Mapped[str | None]
    thread_id: Mapped[str | None]
    model: Mapped[str | None]
    model_config: Mapped[str | None]
    """JSON text exactly as it was given; never parsed by the database."""
    system_prompt: Mapped[str | None]
    """The prompt itself in rows of other programs; ours name it by ``system_prompt_hash``."""
    system_prompt_hash: Mapped[str | None]
    tool_names: Mapped[str | None]
    parent_session_id: Mapped[Id | None]
    kind: Mapped[str | None]
    """NULL in a row that another program wrote: it is classified when read."""
    root_session_id: Mapped[Id | None]
    """NULL means the own id. No foreign key: the root may be deleted first."""
    started_at: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    ended_at: Mapped[float | None]
    end_reason: Mapped[str | None]
    last_active_at: Mapped[float | None]
    message_count: Mapped[Counter]
    tool_call_count: Mapped[Counter]
    input_tokens: Mapped[Counter]
    output_tokens: Mapped[Counter]
    cache_read_tokens: Mapped[Counter]
    cache_write_tokens: Mapped[Counter]
    reasoning_tokens: Mapped[Counter]
    api_call_count: Mapped[Counter]
    estimated_cost_usd: Mapped[float | None]
    actual_cost_usd: Mapped[float | None]
    cost_status: Mapped[str | None]
    cost_source: Mapped[str | None]
    pricing_version: Mapped[str | None]
    billing_provider: Mapped[str | None]
    billing_base_url: Mapped[str | None]
    billing_mode: Mapped[str | None]
    cwd: Mapped[OrderedText | None]
    git_branch: Mapped[str | None]
    git_repo_root: Mapped[str | None]
    title: Mapped[OrderedText | None]
    title_source: Mapped[str | None]
    compression_failure_cooldown_until: Mapped[float | None]
    compression_failure_error: Mapped[str | None]
    compression_fallback_streak: Mapped[Counter]
    compression_ineffective_count: Mapped[Counter]
    compression_overload_streak: Mapped[Counter]
    compression_recovery_deadline: Mapped[float | None]
    rewind_count: Mapped[Counter]
    archived: Mapped[Off]
    pinned: Mapped[Off]
    hidden: Mapped[Off]
    auto_archived: Mapped[Off]
    last_read_at: Mapped[float | None]
    last_activity_at: Mapped[float | None]
    last_activity_description: Mapped[str | None]
    last_activity_provenance: Mapped[str | None]

    __table_args__ = (
        sa.ForeignKeyConstraint(["parent_session_id"], ["sessions.id"], ondelete="SET NULL"),
        length_check("id"),
        sa.CheckConstraint(f"kind IN {KINDS}", name="kind_is_known"),
        counter_check("message_count"),
        counter_check("tool_call_count"),
        counter_check("input_tokens"),
        counter_check("output_tokens"),
        counter_check("cache_read_tokens"),
        counter_check("cache_write_tokens"),
        counter_check("reasoning_tokens"),
        counter_check("api_call_count"),
        counter_check("compression_fallback_streak"),
        counter_check("compression_ineffective_count"),
        counter_check("compression_overload_streak"),
        counter_check("rewind_count"),
        boolean_check("archived"),
        boolean_check("pinned"),
        boolean_check("hidden"),
        boolean_check("auto_archived"),
        sa.Index(
            "uq_sessions__title",
            "title",
            unique=True,
            sqlite_where=sa.text("title IS NOT NULL"),
            postgresql_where=sa.text("title IS NOT NULL"),
        ),
        sa.Index(None, "parent_session_id"),
        sa.Index(None, "root_session_id"),
        sa.Index(None, "source"),
        sa.Index(
            None,
            "system_prompt_hash",
            sqlite_where=sa.text("system_prompt_hash IS NOT NULL"),
            postgresql_where=sa.text("system_prompt_hash IS NOT NULL"),
        ),
        sa.Index("ix_sessions__activity", sa.text("coalesce(last_active_at, started_at)"), "id"),
        sa.Index(
            None,
            "session_key",
            sqlite_where=sa.text("session_key IS NOT NULL"),
            postgresql_where=sa.text("session_key IS NOT NULL"),
        ),
    )


class MessageRow(Base):
    """One message. ``id`` is the order of a transcript; ``timestamp`` is only shown (CONTRACT.md section 2, rule 5)."""

    __tablename__ = "messages"

    id: Mapped[int] = mapped_column(row_id(), sa.Identity(), primary_key=True)
    session_id: Mapped[Id]
    message_uid: Mapped[str] = mapped_column(server_default=FreshUid())
    role: Mapped[str] = mapped_column(server_default=sa.text("'unknown'"))
    content: Mapped[str | None]
    content_parts: Mapped[Json | None]
    tool_call_id: Mapped[str | None]
    tool_calls: Mapped[Json | None]
    tool_name: Mapped[str | None]
    timestamp: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    token_count: Mapped[int | None]
    finish_reason: Mapped[str | None]
    reasoning: Mapped[str | None]
    reasoning_content: Mapped[str | None]
    reasoning_details: Mapped[Json | None]
    codex_reasoning_items: Mapped[Json | None]
    codex_message_items: Mapped[Json | None]
    platform_message_id: Mapped[str | None]
    observed: Mapped[Off]
    effect_disposition: Mapped[str | None]
    api_content: Mapped[str | None]
    display_kind: Mapped[str | None]
    display_metadata: Mapped[Json | None]
    extra: Mapped[Json | None]
    active: Mapped[bool] = mapped_column(server_default=sa.true())
    compacted: Mapped[Off]
    superseded_by: Mapped[int | None]
    """The row that carries this one on, of a rewound row that a compaction replaced by a copy; it never comes back."""

    __table_args__ = (
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("session_id", "message_uid"),
        length_check("message_uid"),
        length_check("platform_message_id"),
        boolean_check("observed"),
        boolean_check("active"),
        boolean_check("compacted"),
        sa.CheckConstraint("NOT (active AND compacted)", name="active_or_compacted"),
        sa.Index(None, "session_id", "id"),
        sa.Index(
            "ix_messages__active",
            "session_id",
            "id",
            sqlite_where=sa.text("active"),
            postgresql_where=sa.text("active"),
        ),
        # Ordinary turns do not fill it. Without it a session that was never compacted is read to its end to learn so.
        sa.Index(
            "ix_messages__compacted",
            "session_id",
            sqlite_where=sa.text("compacted"),
            postgresql_where=sa.text("compacted"),
        ),
        sa.Index(
            "ix_messages__carriers",
            "session_id",
            "id",
            sqlite_where=sa.text(CARRIER_PREDICATE_SQLITE),
            postgresql_where=sa.text(CARRIER_PREDICATE_POSTGRESQL),
        ),
        sa.Index(
            None,
            "session_id",
            "platform_message_id",
            sqlite_where=sa.text("platform_message_id IS NOT NULL"),
            postgresql_where=sa.text("platform_message_id IS NOT NULL"),
        ),
        # Without AUTOINCREMENT SQLite hands the highest id out again after a delete.
        {"sqlite_autoincrement": True},
    )


class MessageReactionRow(Base):
    """What somebody thinks of a message, one for each ``actor``; it belongs to the message, not to one of its rows.

    So the key names the uid, which a compaction carries on. No foreign key leads to the message: its row changes.
    """

    __tablename__ = "message_reactions"

    session_id: Mapped[Id] = mapped_column(primary_key=True)
    message_uid: Mapped[Id] = mapped_column(primary_key=True)
    actor: Mapped[Id] = mapped_column(primary_key=True)
    emoji: Mapped[str] = mapped_column(server_default=sa.text("'?'"))
    set_at: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    seen: Mapped[Off]

    __table_args__ = (
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], ondelete="CASCADE"),
        length_check("message_uid"),
        length_check("actor"),
        boolean_check("seen"),
    )
