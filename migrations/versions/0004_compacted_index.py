"""The index of the rows that were summarised away, which ordinary turns do not fill.

It imports nothing of the package: this file must mean the same for ever (DESIGN.md, decision 8).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
rebuilds_tables = False

_INDEX = "ix_messages__compacted"


def upgrade() -> None:
    where = sa.text("compacted")
    op.create_index(_INDEX, "messages", ["session_id"], sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    op.drop_index(_INDEX, "messages")
