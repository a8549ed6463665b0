"""Usage by model, provider and task, and by day; what sessions counted so far is taken over.

A session that has counted tokens, calls or money before gets one row by its own model and provider, and one for the
day (UTC) on which it began. Going down loses the breakdown, not the totals of the sessions: it is refused while there
are rows, unless forced. It imports nothing of the package: this file must mean the same for ever (DESIGN.md, decision 8).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.types import TypeEngine

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None
rebuilds_tables = False

COUNTERS = (
    "api_call_count", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
)  # fmt: skip
COSTS = ("estimated_cost_usd", "actual_cost_usd")
BY_MODEL = ("model", "billing_provider", "billing_base_url", "billing_mode", "task")
_PROMPTS_INDEX = "ix_sessions__system_prompt_hash"


def upgrade() -> None:
    _create("session_model_usage", BY_MODEL, "cost_status", "cost_source", "pricing_version")
    _create("session_daily_usage", ("day",))
    is_used = sa.text("system_prompt_hash IS NOT NULL")
    op.create_index(
        _PROMPTS_INDEX, "sessions", ["system_prompt_hash"], sqlite_where=is_used, postgresql_where=is_used
    )
    _take_over()


def downgrade() -> None:
    _refuse_to_lose_rows()
    op.drop_index(_PROMPTS_INDEX, "sessions")
    op.drop_table("session_daily_usage")
    op.drop_table("session_model_usage")


def _create(table: str, keys: tuple[str, ...], *texts: str) -> None:
    op.create_table(
        table,
        sa.Column("session_id", _id_text(), nullable=False),
        *[sa.Column(name, sa.Text(), server_default=sa.text("''"), nullable=False) for name in keys],
        *[sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False) for name in COUNTERS],
        *[sa.Column(name, sa.Double(), nullable=True) for name in COSTS],
        *[sa.Column(name, sa.Text(), nullable=True) for name in texts],
        sa.Column("first_seen", sa.Double(), server_default=_clock(), nullable=False),
        sa.Column("last_seen", sa.Double(), server_default=_clock(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", *keys, name=op.f(f"pk_{table}")),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f(f"fk_{table}__session_id__sessions"),
            ondelete="CASCADE",
        ),
        *[
            sa.CheckConstraint(f"{name} >= 0", name=op.f(f"ck_{table}__{name}_not_negative"))
            for name in COUNTERS
        ],
    )


def _take_over() -> None:
    counted = " OR ".join([*(f"{name} > 0" for name in COUNTERS), *(f"{name} > 0" for name in COSTS)])
    shared = ", ".join([*COUNTERS, *COSTS])
    seen = "started_at, coalesce(last_active_at, started_at)"
    op.execute(
        f"INSERT INTO session_model_usage (session_id, model, billing_provider, billing_base_url, billing_mode, {shared}, "
        "cost_status, cost_source, pricing_version, first_seen, last_seen) "
        "SELECT id, coalesce(model, ''), coalesce(billing_provider, ''), coalesce(billing_base_url, ''), "
        f"coalesce(billing_mode, ''), {shared}, cost_status, cost_source, pricing_version, {seen} "
        f"FROM sessions WHERE {counted}"
    )
    op.execute(
        f"INSERT INTO session_daily_usage (session_id, day, {shared}, first_seen, last_seen) "
        f"SELECT id, {_day_of('started_at')}, {shared}, {seen} FROM sessions WHERE {counted}"
    )


def _day_of(column: str) -> str:
    if _on_sqlite():
        return f"coalesce(strftime('%Y-%m-%d', {column}, 'unixepoch'), '')"
    moment = f"to_timestamp({column}) AT TIME ZONE 'UTC'"
    # Another program may have stored a time that no calendar reaches.
    return f"CASE WHEN {column} BETWEEN 0 AND 253402300799 THEN to_char({moment}, 'YYYY-MM-DD') ELSE '' END"


def _refuse_to_lose_rows() -> None:
    if context.get_x_argument(as_dictionary=True).get("force") == "true":
        return
    # Offline nobody can count, so the SQL is only written when it is asked for by force.
    losses = ["usage that cannot be counted offline"] if context.is_offline_mode() else _rows()
    if losses:
        refusal: type[RuntimeError] = context.config.attributes.get("refusal", RuntimeError)
        raise refusal(", ".join(losses))


def _rows() -> list[str]:
    counts = {
        table: op.get_bind().scalar(sa.select(sa.func.count()).select_from(sa.table(table)))
        for table in ("session_model_usage", "session_daily_usage")
    }
    return [f"{count} rows of {table}" for table, count in counts.items() if count]


def _on_sqlite() -> bool:
    return op.get_context().dialect.name == "sqlite"


def _id_text() -> TypeEngine[str]:
    # Ids are ordered by code point on both databases.
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _clock() -> sa.TextClause:
    if _on_sqlite():
        return sa.text("((julianday('now') - 2440587.5) * 86400.0)")
    return sa.text("extract(epoch from clock_timestamp())::double precision")
