"""Reactions to messages.

Going down would lose them, so it refuses while there are any, unless forced.
It imports nothing of the package: this file must mean the same for ever (DESIGN.md, decision 8).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.types import TypeEngine

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
rebuilds_tables = False

TABLE = "message_reactions"
KEY = ("session_id", "message_uid", "actor")


def upgrade() -> None:
    op.create_table(
        TABLE,
        *[sa.Column(name, _id_text(), nullable=False) for name in KEY],
        sa.Column("emoji", sa.Text(), server_default=sa.text("'?'"), nullable=False),
        sa.Column("set_at", sa.Double(), server_default=_clock(), nullable=False),
        sa.Column("seen", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint(*KEY, name=op.f(f"pk_{TABLE}")),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f(f"fk_{TABLE}__session_id__sessions"),
            ondelete="CASCADE",
        ),
        *[_length_check(name) for name in KEY[1:]],
        *_checks_of_sqlite(),
    )


def downgrade() -> None:
    _refuse_to_lose_reactions()
    op.drop_table(TABLE)


def _refuse_to_lose_reactions() -> None:
    if context.get_x_argument(as_dictionary=True).get("force") == "true":
        return
    # Offline nobody can count, so the SQL is only written when it is asked for by force.
    losses = ["reactions that cannot be counted offline"] if context.is_offline_mode() else _reactions()
    if losses:
        refusal: type[RuntimeError] = context.config.attributes.get("refusal", RuntimeError)
        raise refusal(", ".join(losses))


def _reactions() -> list[str]:
    count = op.get_bind().scalar(sa.select(sa.func.count()).select_from(sa.table(TABLE)))
    return [f"{count} rows of {TABLE}"] if count else []


def _on_sqlite() -> bool:
    return op.get_context().dialect.name == "sqlite"


def _id_text() -> TypeEngine[str]:
    # Ids are ordered by code point on both databases.
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _clock() -> sa.TextClause:
    if _on_sqlite():
        return sa.text("((julianday('now') - 2440587.5) * 86400.0)")
    return sa.text("extract(epoch from clock_timestamp())::double precision")


def _length_check(column: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(
        f"length({column}) BETWEEN 1 AND 512", name=op.f(f"ck_{TABLE}__{column}_length")
    )


def _checks_of_sqlite() -> list[sa.CheckConstraint]:
    # SQLite has no booleans and would store a 2.
    if not _on_sqlite():
        return []
    return [sa.CheckConstraint("seen IN (0, 1)", name=op.f(f"ck_{TABLE}__seen_is_boolean"))]
