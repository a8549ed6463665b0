"""The tables: sessions, messages and their reactions, state_meta, system_prompts and the two of leases. No behaviour.

Table and column names are those of the known store, because other programs read and write these tables
(CONTRACT.md section 6). Hence: every NOT NULL column but primary keys and ``messages.session_id`` has a server
default; no CHECK joins ``ended_at``, ``end_reason``, ``started_at``, ``kind`` and the parent; none tests the JSON of messages;
no unique index stands on carriers or continuations. No key spans sessions other than through ``sessions``
(DESIGN.md, decision 10). Times are epoch seconds.
"""

from __future__ import annotations

from hermes_state.models.base import (
    CARRIER_PREDICATE_POSTGRESQL,
    CARRIER_PREDICATE_SQLITE,
    KINDS,
    NAMING_CONVENTION,
    Base,
    doubled_percents,
)
from hermes_state.models.conversations import MessageReactionRow, MessageRow, SessionRow
from hermes_state.models.leases import CompressionLockRow, SessionTurnLeaseRow
from hermes_state.models.notes import MetaRow, SystemPromptRow
from hermes_state.models.usage import USAGE_COUNTERS, SessionDailyUsageRow, SessionModelUsageRow

__all__ = [
    "CARRIER_PREDICATE_POSTGRESQL",
    "CARRIER_PREDICATE_SQLITE",
    "KINDS",
    "NAMING_CONVENTION",
    "USAGE_COUNTERS",
    "Base",
    "CompressionLockRow",
    "MessageReactionRow",
    "MessageRow",
    "MetaRow",
    "SessionDailyUsageRow",
    "SessionModelUsageRow",
    "SessionRow",
    "SessionTurnLeaseRow",
    "SystemPromptRow",
    "doubled_percents",
    "metadata",
]

metadata = Base.metadata
