"""Sessions, messages, notes and system prompts.

It imports nothing of the package: this file must mean the same for ever (DESIGN.md, decision 8).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.types import TypeEngine

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None
rebuilds_tables = False

CARRIERS_SQLITE = """active AND role = 'assistant' AND instr(codex_reasoning_items, '"compaction"') > 0"""
CARRIERS_POSTGRESQL = (
    """active AND role = 'assistant' AND codex_reasoning_items::text LIKE '%"compaction"%'"""
)

SESSION_COUNTERS = (
    "message_count",
    "tool_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
    "compression_fallback_streak",
    "compression_ineffective_count",
    "compression_overload_streak",
    "rewind_count",
)
SESSION_FLAGS = ("archived", "pinned", "hidden", "auto_archived")
MESSAGE_FLAGS = ("observed", "active", "compacted")
TABLES = ("messages", "sessions", "state_meta", "system_prompts")  # children first


def upgrade() -> None:
    op.create_table("sessions", *_session_columns(), *_session_constraints())
    _create_session_indices()
    op.create_table("messages", *_message_columns(), *_message_constraints(), sqlite_autoincrement=True)
    _create_message_indices()
    op.create_table(
        "state_meta",
        sa.Column("key", _id_text(), nullable=False),
        *_texts("value"),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_state_meta")),
        _length_check("state_meta", "key"),
    )
    op.create_table(
        "system_prompts",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_system_prompts")),
    )


def downgrade() -> None:
    _refuse_to_lose_rows()
    for table in TABLES:
        op.drop_table(table)


def _refuse_to_lose_rows() -> None:
    if context.get_x_argument(as_dictionary=True).get("force") == "true":
        return
    # Offline nobody can count, so the SQL is only written when it is asked for by force.
    losses = ["rows that cannot be counted offline"] if context.is_offline_mode() else _filled_tables()
    if losses:
        refusal: type[RuntimeError] = context.config.attributes.get("refusal", RuntimeError)
        raise refusal(", ".join(losses))


def _filled_tables() -> list[str]:
    counts = {
        table: op.get_bind().scalar(sa.select(sa.func.count()).select_from(sa.table(table)))
        for table in TABLES
    }
    return [f"{count} rows of {table}" for table, count in counts.items() if count]


def _id_text() -> TypeEngine[str]:
    # Ids are ordered by code point on both databases.
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _session_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("id", _id_text(), nullable=False),
        sa.Column("source", sa.Text(), server_default=sa.text("'unknown'"), nullable=False),
        *_texts("created_source", "user_id", "session_key", "chat_id", "chat_type", "thread_id"),
        *_texts("model", "model_config", "system_prompt", "system_prompt_hash", "tool_names"),
        sa.Column("parent_session_id", _id_text()),
        *_texts("kind"),
        sa.Column("root_session_id", _id_text()),
        sa.Column("started_at", sa.Double(), server_default=_clock(), nullable=False),
        *_doubles("ended_at"),
        *_texts("end_reason"),
        *_doubles("last_active_at"),
        *_counters("message_count", "tool_call_count"),
        *_counters("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
        *_counters("reasoning_tokens", "api_call_count"),
        *_doubles("estimated_cost_usd", "actual_cost_usd"),
        *_texts("cost_status", "cost_source", "pricing_version"),
        *_texts("billing_provider", "billing_base_url", "billing_mode"),
        *_texts("cwd", "git_branch", "git_repo_root"),
        *_texts("title", "title_source"),
        *_doubles("compression_failure_cooldown_until"),
        *_texts("compression_failure_error"),
        *_counters("compression_fallback_streak", "compression_ineffective_count"),
        *_counters("compression_overload_streak"),
        *_doubles("compression_recovery_deadline"),
        *_counters("rewind_count"),
        *(_flag(name) for name in SESSION_FLAGS),
        *_doubles("last_read_at", "last_activity_at"),
        *_texts("last_activity_description", "last_activity_provenance"),
    ]


def _session_constraints() -> list[sa.Constraint]:
    return [
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.ForeignKeyConstraint(
            ["parent_session_id"],
            ["sessions.id"],
            name=op.f("fk_sessions__parent_session_id__sessions"),
            ondelete="SET NULL",
        ),
        _length_check("sessions", "id"),
        sa.CheckConstraint(
            "kind IN ('root', 'continuation', 'branch', 'delegate', 'tool')",
            name=op.f("ck_sessions__kind_is_known"),
        ),
        *(
            sa.CheckConstraint(f"{name} >= 0", name=op.f(f"ck_sessions__{name}_not_negative"))
            for name in SESSION_COUNTERS
        ),
        *_boolean_checks("sessions", SESSION_FLAGS),
    ]


def _create_session_indices() -> None:
    titled, keyed = sa.text("title IS NOT NULL"), sa.text("session_key IS NOT NULL")
    op.create_index(
        op.f("uq_sessions__title"),
        "sessions",
        ["title"],
        unique=True,
        sqlite_where=titled,
        postgresql_where=titled,
    )
    for column in ("parent_session_id", "root_session_id", "source"):
        op.create_index(op.f(f"ix_sessions__{column}"), "sessions", [column])
    op.create_index(
        op.f("ix_sessions__activity"), "sessions", [sa.text("coalesce(last_active_at, started_at)"), "id"]
    )
    op.create_index(
        op.f("ix_sessions__session_key"),
        "sessions",
        ["session_key"],
        sqlite_where=keyed,
        postgresql_where=keyed,
    )


def _message_columns() -> list[sa.Column[Any]]:
    row_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return [
        sa.Column("id", row_id, sa.Identity(), nullable=False),
        sa.Column("session_id", _id_text(), nullable=False),
        sa.Column("message_uid", sa.Text(), server_default=_fresh_uid(), nullable=False),
        sa.Column("role", sa.Text(), server_default=sa.text("'unknown'"), nullable=False),
        *_texts("content"),
        *_jsons("content_parts"),
        *_texts("tool_call_id"),
        *_jsons("tool_calls"),
        *_texts("tool_name"),
        sa.Column("timestamp", sa.Double(), server_default=_clock(), nullable=False),
        sa.Column("token_count", sa.BigInteger()),
        *_texts("finish_reason", "reasoning", "reasoning_content"),
        *_jsons("reasoning_details", "codex_reasoning_items", "codex_message_items"),
        *_texts("platform_message_id"),
        _flag("observed"),
        *_texts("effect_disposition", "api_content", "display_kind"),
        *_jsons("display_metadata", "extra"),
        sa.Column("active", sa.Boolean(), server_default=sa.true(), nullable=False),
        _flag("compacted"),
    ]


def _message_constraints() -> list[sa.Constraint]:
    return [
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_messages__session_id__sessions"),
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("session_id", "message_uid", name=op.f("uq_messages__session_id_message_uid")),
        _length_check("messages", "message_uid"),
        _length_check("messages", "platform_message_id"),
        sa.CheckConstraint("NOT (active AND compacted)", name=op.f("ck_messages__active_or_compacted")),
        *_boolean_checks("messages", MESSAGE_FLAGS),
    ]


def _create_message_indices() -> None:
    op.create_index(op.f("ix_messages__session_id_id"), "messages", ["session_id", "id"])
    op.create_index(
        op.f("ix_messages__active"),
        "messages",
        ["session_id", "id"],
        sqlite_where=sa.text("active"),
        postgresql_where=sa.text("active"),
    )
    op.create_index(
        op.f("ix_messages__carriers"),
        "messages",
        ["session_id", "id"],
        sqlite_where=sa.text(CARRIERS_SQLITE),
        postgresql_where=sa.text(CARRIERS_POSTGRESQL),
    )
    sent = sa.text("platform_message_id IS NOT NULL")
    op.create_index(
        op.f("ix_messages__session_id_platform_message_id"),
        "messages",
        ["session_id", "platform_message_id"],
        sqlite_where=sent,
        postgresql_where=sent,
    )


def _on_sqlite() -> bool:
    return op.get_context().dialect.name == "sqlite"


def _texts(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Text()) for name in names]


def _doubles(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Double()) for name in names]


def _counters(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False) for name in names]


def _jsons(*names: str) -> list[sa.Column[Any]]:
    # A column that SQLite sees declared as JSON is numeric there and rounds big numbers.
    return [sa.Column(name, sa.Text() if _on_sqlite() else sa.JSON()) for name in names]


def _flag(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean(), server_default=sa.false(), nullable=False)


def _clock() -> sa.TextClause:
    if _on_sqlite():
        return sa.text("((julianday('now') - 2440587.5) * 86400.0)")
    return sa.text("extract(epoch from clock_timestamp())::double precision")


def _fresh_uid() -> sa.TextClause:
    if _on_sqlite():
        return sa.text("(lower(hex(randomblob(16))))")
    return sa.text("replace(gen_random_uuid()::text, '-', '')")


def _length_check(table: str, column: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(
        f"length({column}) BETWEEN 1 AND 512", name=op.f(f"ck_{table}__{column}_length")
    )


def _boolean_checks(table: str, columns: tuple[str, ...]) -> list[sa.CheckConstraint]:
    if not _on_sqlite():
        return []
    return [
        sa.CheckConstraint(f"{column} IN (0, 1)", name=op.f(f"ck_{table}__{column}_is_boolean"))
        for column in columns
    ]
