"""Text that is listed in order, or looked up by its beginning, is ordered by code point on PostgreSQL too.

In a locale such as en-US ``{`` comes before ``z``, so the titles that begin with ``Waltz`` were not between ``Waltz`` and
``Walt{``: a taken number was given out again. No row changes, only the indices on these columns are built anew; SQLite
orders by code point already. It imports nothing of the package: this file must mean the same for ever (DESIGN.md,
decision 8).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None
rebuilds_tables = False

COLUMNS = {
    "sessions": ("source", "cwd", "title"),
    "session_model_usage": ("model", "billing_provider", "billing_base_url", "billing_mode", "task"),
    "session_daily_usage": ("day",),
}


def upgrade() -> None:
    _change_type(sa.Text(collation="C"))


def downgrade() -> None:
    _change_type(sa.Text())


def _change_type(text: sa.Text) -> None:
    if op.get_context().dialect.name != "postgresql":
        return
    for table, columns in COLUMNS.items():
        for column in columns:
            op.alter_column(table, column, type_=text)
