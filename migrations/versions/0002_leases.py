"""Compaction locks and turn leases.

Leases are state of running programs: going down refuses to drop live ones, unless forced; expired ones are no loss.
It imports nothing of the package: this file must mean the same for ever (DESIGN.md, decision 8).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.types import TypeEngine

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
rebuilds_tables = False

KEYS = {"compression_locks": "session_id", "session_turn_leases": "conversation_id"}


def upgrade() -> None:
    for table, key in KEYS.items():
        op.create_table(
            table,
            sa.Column(key, _id_text(), nullable=False),
            sa.Column("holder", sa.Text(), server_default=sa.text("'unknown'"), nullable=False),
            sa.Column("acquired_at", sa.Double(), server_default=_clock(), nullable=False),
            sa.Column("expires_at", sa.Double(), server_default=_clock(), nullable=False),
            sa.PrimaryKeyConstraint(key, name=op.f(f"pk_{table}")),
            _length_check(table, key),
            _length_check(table, "holder"),
        )
        op.create_index(op.f(f"ix_{table}__expires_at"), table, ["expires_at"])


def downgrade() -> None:
    _refuse_to_lose_live_leases()
    for table in KEYS:
        op.drop_table(table)


def _refuse_to_lose_live_leases() -> None:
    if context.get_x_argument(as_dictionary=True).get("force") == "true":
        return
    # Offline nobody can count, so the SQL is only written when it is asked for by force.
    losses = ["leases that cannot be counted offline"] if context.is_offline_mode() else _live_leases()
    if losses:
        refusal: type[RuntimeError] = context.config.attributes.get("refusal", RuntimeError)
        raise refusal(", ".join(losses))


def _live_leases() -> list[str]:
    counts = {
        table: op.get_bind().scalar(
            sa.select(sa.func.count()).select_from(sa.table(table)).where(sa.column("expires_at") > _clock())
        )
        for table in KEYS
    }
    return [f"{count} live rows of {table}" for table, count in counts.items() if count]


def _on_sqlite() -> bool:
    return op.get_context().dialect.name == "sqlite"


def _id_text() -> TypeEngine[str]:
    # Ids are ordered by code point on both databases.
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _clock() -> sa.TextClause:
    if _on_sqlite():
        return sa.text("((julianday('now') - 2440587.5) * 86400.0)")
    return sa.text("extract(epoch from clock_timestamp())::double precision")


def _length_check(table: str, column: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(
        f"length({column}) BETWEEN 1 AND 512", name=op.f(f"ck_{table}__{column}_length")
    )
