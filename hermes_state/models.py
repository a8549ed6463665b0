"""The tables: sessions, messages and their reactions, state_meta, system_prompts and the two of leases. No behaviour.

Table and column names are those of the known store, because other programs read and write these tables
(CONTRACT.md section 6). Hence: every NOT NULL column but primary keys and ``messages.session_id`` has a server
default; no CHECK joins ``ended_at``, ``end_reason``, ``started_at``, ``kind`` and the parent; none tests the JSON of messages;
no unique index stands on carriers or continuations. No key spans sessions other than through ``sessions``
(DESIGN.md, decision 10). Times are epoch seconds.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from hermes_state.types import EpochNow, ExactJson, FreshUid, epoch, id_text, row_id

# The double underscore keeps (table a_b, column c) and (table a, column b_c) apart.
NAMING_CONVENTION = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s__%(column_0_N_name)s__%(referred_table_name)s",
    "uq": "uq_%(table_name)s__%(column_0_N_name)s",
    "ix": "ix_%(table_name)s__%(column_0_N_name)s",
    "ck": "ck_%(table_name)s__%(constraint_name)s",
}

# Which rows are carriers, derived by the database from the row itself, so that rows of other programs count too
# (CONTRACT.md section 4, rule 7). A statement that repeats these terms is planned through the index. Write them
# inside ``sa.text``, which doubles the % for psycopg; by hand, use ``doubled_percents``.
CARRIER_PREDICATE_SQLITE = (
    """active AND role = 'assistant' AND instr(codex_reasoning_items, '"compaction"') > 0"""
)
CARRIER_PREDICATE_POSTGRESQL = (
    """active AND role = 'assistant' AND codex_reasoning_items::text LIKE '%"compaction"%'"""
)

USAGE_COUNTERS = (
    "api_call_count", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
)  # fmt: skip
KINDS = ("root", "continuation", "branch", "delegate", "tool")

Counter = Annotated[int, mapped_column(sa.BigInteger, server_default=sa.text("0"))]
Id = Annotated[str, mapped_column(id_text())]
Json = Annotated[str, mapped_column(ExactJson())]
UsageKey = Annotated[str, mapped_column(sa.Text(), server_default=sa.text("''"))]
Off = Annotated[bool, mapped_column(sa.Boolean, server_default=sa.false())]


def doubled_percents(predicate: str) -> str:
    """``predicate`` for driver SQL that psycopg runs with parameters, where % opens a placeholder."""
    return predicate.replace("%", "%%")


def _length_check(column: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"length({column}) BETWEEN 1 AND 512", name=f"{column}_length")


def _counter_check(column: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} >= 0", name=f"{column}_not_negative")


def _usage_checks() -> tuple[sa.Constraint, ...]:
    key = sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], ondelete="CASCADE")
    return (key, *map(_counter_check, USAGE_COUNTERS))


def _boolean_check(column: str) -> sa.CheckConstraint:
    # SQLite has no booleans and would store a 2 (field report C3). ``info`` tells the drift check.
    check = sa.CheckConstraint(f"{column} IN (0, 1)", name=f"{column}_is_boolean", info={"only_on": "sqlite"})
    return check.ddl_if(dialect="sqlite")


class Base(DeclarativeBase):
    """The declarative base. Text has no length limit on either database (field report C4)."""

    metadata = sa.MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: sa.Text(),
        int: sa.BigInteger(),
        float: epoch(),
    }


class SessionRow(Base):
    """One conversation, or one part of it; ``parent_session_id`` and ``kind`` say how it hangs on another."""

    __tablename__ = "sessions"

    id: Mapped[Id] = mapped_column(primary_key=True)
    source: Mapped[str] = mapped_column(server_default=sa.text("'unknown'"))
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
    cwd: Mapped[str | None]
    git_branch: Mapped[str | None]
    git_repo_root: Mapped[str | None]
    title: Mapped[str | None]
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
        _length_check("id"),
        sa.CheckConstraint(f"kind IN {KINDS}", name="kind_is_known"),
        _counter_check("message_count"),
        _counter_check("tool_call_count"),
        _counter_check("input_tokens"),
        _counter_check("output_tokens"),
        _counter_check("cache_read_tokens"),
        _counter_check("cache_write_tokens"),
        _counter_check("reasoning_tokens"),
        _counter_check("api_call_count"),
        _counter_check("compression_fallback_streak"),
        _counter_check("compression_ineffective_count"),
        _counter_check("compression_overload_streak"),
        _counter_check("rewind_count"),
        _boolean_check("archived"),
        _boolean_check("pinned"),
        _boolean_check("hidden"),
        _boolean_check("auto_archived"),
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
        _length_check("message_uid"),
        _length_check("platform_message_id"),
        _boolean_check("observed"),
        _boolean_check("active"),
        _boolean_check("compacted"),
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
        _length_check("message_uid"),
        _length_check("actor"),
        _boolean_check("seen"),
    )


class MetaRow(Base):
    """A note of the store or of its owner, by key."""

    __tablename__ = "state_meta"

    key: Mapped[Id] = mapped_column(primary_key=True)
    value: Mapped[str | None]

    __table_args__ = (_length_check("key"),)


class SystemPromptRow(Base):
    """A system prompt, kept once for all sessions that use it. ``hash`` is the SHA-256 of the text in hexadecimal.

    No foreign key leads here: the key would span sessions (DESIGN.md, decision 10).
    """

    __tablename__ = "system_prompts"

    hash: Mapped[str] = mapped_column(primary_key=True)
    prompt: Mapped[str]


class CompressionLockRow(Base):
    """Who may compact a session, until when. No foreign key: a lock may come before its session."""

    __tablename__ = "compression_locks"

    session_id: Mapped[Id] = mapped_column(primary_key=True)
    holder: Mapped[str] = mapped_column(server_default=sa.text("'unknown'"))
    acquired_at: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    expires_at: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    """A row of another program that names no end is no live lease."""

    __table_args__ = (_length_check("session_id"), _length_check("holder"), sa.Index(None, "expires_at"))


class SessionTurnLeaseRow(Base):
    """Who runs the turn of a conversation, until when; the key is the first session of the conversation."""

    __tablename__ = "session_turn_leases"

    conversation_id: Mapped[Id] = mapped_column(primary_key=True)
    holder: Mapped[str] = mapped_column(server_default=sa.text("'unknown'"))
    acquired_at: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    expires_at: Mapped[float] = mapped_column(epoch(), server_default=EpochNow())
    """A row of another program that names no end is no live lease."""

    __table_args__ = (_length_check("conversation_id"), _length_check("holder"), sa.Index(None, "expires_at"))


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


metadata = Base.metadata
