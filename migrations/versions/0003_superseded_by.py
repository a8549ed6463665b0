"""The message that took another's place when a compaction carried it on.

Such an original is kept for audit and must not come back beside its successor. Going down would forget which ones
those are, so it refuses while there are any, unless forced.
It imports nothing of the package: this file must mean the same for ever (DESIGN.md, decision 8).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
rebuilds_tables = False


def upgrade() -> None:
    op.add_column("messages", sa.Column("superseded_by", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    _refuse_to_forget_successors()
    op.drop_column("messages", "superseded_by")


def _refuse_to_forget_successors() -> None:
    if context.get_x_argument(as_dictionary=True).get("force") == "true":
        return
    # Offline nobody can count, so the SQL is only written when it is asked for by force.
    losses = ["successors that cannot be counted offline"] if context.is_offline_mode() else _successors()
    if losses:
        refusal: type[RuntimeError] = context.config.attributes.get("refusal", RuntimeError)
        raise refusal(", ".join(losses))


def _successors() -> list[str]:
    messages = sa.table("messages", sa.column("superseded_by"))
    count = op.get_bind().scalar(
        sa.select(sa.func.count()).select_from(messages).where(messages.c.superseded_by.is_not(None))
    )
    return [f"the successors of {count} rows of messages"] if count else []
