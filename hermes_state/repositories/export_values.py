"""What an export holds of rows that other programs wrote: values that an import takes (field reports C1 to C6).

One odd value must not keep a whole store from being imported elsewhere. The rules are those of ``fitting.py``; beyond them, a negative
counter becomes 0, an unknown kind and an unusable platform id are absent, a time outside 1970..2200 becomes 0, and a row that is
both active and compacted counts as compacted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from hermes_state.codec import END_OF_TIME
from hermes_state.models import KINDS, MessageReactionRow, MessageRow, SessionRow
from hermes_state.repositories.base import table_of
from hermes_state.repositories.fitting import Fitter
from hermes_state.text import is_usable_id

_SESSIONS, _MESSAGES = table_of(SessionRow), table_of(MessageRow)
_REACTIONS = table_of(MessageReactionRow)
_OF_SESSION, _OF_MESSAGE, _OF_REACTION = Fitter(_SESSIONS), Fitter(_MESSAGES), Fitter(_REACTIONS)
_COUNTERS = [c.name for c in _SESSIONS.columns if isinstance(c.type, sa.Integer) and not c.nullable]
# Decoded already: JSON and states.
_PLAIN = (
    "message_uid", "role", "tool_call_id", "tool_name", "timestamp", "token_count", "finish_reason", "reasoning",
    "reasoning_content", "platform_message_id", "effect_disposition", "api_content", "display_kind",
)  # fmt: skip


def session_values(record: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a session."""
    values = {name: _OF_SESSION.fit(name, value) for name, value in record.items()}
    for name in _COUNTERS:
        values[name] = max(0, values[name] or 0)
    if values["kind"] not in KINDS:
        values["kind"] = None
    return values


def message_values(record: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a message."""
    values = dict(record)
    for name in _PLAIN:
        if values[name] is not None:
            values[name] = _OF_MESSAGE.fit(name, values[name])
    if isinstance(values["content"], (str, bytes)):
        values["content"] = _OF_MESSAGE.fit("content", values["content"])
    values["timestamp"] = _time(values["timestamp"])
    if not is_usable_id(values["platform_message_id"]):
        values["platform_message_id"] = None
    if (values["token_count"] or 0) < 0:
        values["token_count"] = None
    values["active"] = values["active"] and not values["compacted"]
    return values


def reaction_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a reaction."""
    values = {name: _OF_REACTION.fit(name, value) for name, value in row.items()}
    return values | {"set_at": _time(values["set_at"]), "seen": bool(values["seen"])}


def _time(seconds: Any) -> float:
    return seconds if seconds is not None and 0 <= seconds < END_OF_TIME else 0.0
