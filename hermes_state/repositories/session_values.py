"""What callers give for a session, checked and cleaned before any SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hermes_state.errors import InvalidArgumentError
from hermes_state.json_values import checked, dump_json
from hermes_state.repositories.base import require_id
from hermes_state.text import clean_text

PLACEHOLDER_SOURCE = "unknown"
ROUTING_KEYS = ("user_id", "session_key", "chat_id", "chat_type", "thread_id")
WORKSPACE_KEYS = ("cwd", "git_branch", "git_repo_root")
FLAGS = ("archived", "pinned", "hidden")
_PLAIN_KEYS = ("model", *ROUTING_KEYS, *WORKSPACE_KEYS)


def checked_values(source: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a new session. ``TypeError`` for an unknown name, ``InvalidArgumentError`` for an unfit value."""
    unknown = given.keys() - {*_PLAIN_KEYS, "model_config", "system_prompt", "parent_session_id"}
    if unknown:
        raise TypeError(f"unexpected arguments for a session: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {"source": optional_text("source", source) or PLACEHOLDER_SOURCE}
    for key in (*_PLAIN_KEYS, "system_prompt"):
        if given.get(key) is not None:
            values[key] = optional_text(key, given[key])
    if given.get("parent_session_id"):
        values["parent_session_id"] = require_id("parent_session_id", given["parent_session_id"])
    config = config_text("model_config", given.get("model_config"))
    if config is not None:
        values["model_config"] = config
    return values


def optional_text(argument: str, value: Any) -> str | None:
    """Cleaned text or ``None``."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArgumentError(argument, "it must be text")
    return clean_text(value)


def config_text(argument: str, value: Any) -> str | None:
    """``model_config`` as it is stored: a dict encoded, JSON text exactly as it was given; nothing is NULL."""
    if value is None or value in ({}, ""):
        return None
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(argument, "it is not JSON") from error
        if not isinstance(parsed, dict):
            raise InvalidArgumentError(argument, "it must be a JSON object")
        return clean_text(value)
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(argument, "it must be a dict or the JSON text of one")
    try:
        return dump_json(checked(dict(value), clean=True))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(argument, str(error)) from error


def checked_patch(argument: str, patch: Any) -> dict[str, Any]:
    """A change of ``model_config`` by keys; ``InvalidArgumentError`` for what is no dict of JSON values."""
    if not isinstance(patch, Mapping):
        raise InvalidArgumentError(argument, "it must be a dict")
    config_text(argument, patch)
    return dict(patch)


def inherited(parent: Mapping[str, Any], kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a child takes over from its parent because it was given none of them.

    Branch and root of a repository belong to a directory: they come only along with it. Who is talked to (known store,
    section 2.2) and the owner's flags are those of a whole conversation: a continuation takes them over from a parent that
    was ended by compression.
    """
    taken: dict[str, Any] = {}
    if given.get("cwd") in (None, parent["cwd"]):
        taken |= {key: parent[key] for key in WORKSPACE_KEYS}
    if kind == "continuation" and parent["end_reason"] == "compression":
        taken |= {key: parent[key] for key in (*ROUTING_KEYS, *FLAGS)}
    return {key: value for key, value in taken.items() if value is not None and given.get(key) is None}
