"""${message}.

Rules (DESIGN.md, decision 8; house style, traps 1 to 5 and 14):
- import alembic and sqlalchemy only, never the package: this file must mean the same for ever;
- name every constraint with op.f("..."); what differs between the databases is spelled out by dialect;
- a NOT NULL column of a table that other programs write has a server default;
- a changed CHECK gets a new name, since the drift check compares names;
- if SQLite has to rebuild a table, set ``rebuilds_tables = True``, and recreate its triggers, its expression
  indices and its AUTOINCREMENT here: batch mode loses them without a word;
- a downgrade that loses rows refuses unless forced, see 0001; a data step is done in chunks.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}
rebuilds_tables = False


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
