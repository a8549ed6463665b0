"""Arbitrary messages for hypothesis, and what reading them must give, computed apart from the package."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# The fixtures are shared by all examples of a test: every example works in a session of its own.
quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ASSISTANT_TEXTS = ("reasoning", "reasoning_content")
TEXTS = ("tool_call_id", "tool_name", "finish_reason", "effect_disposition", "api_content", "display_kind")
REPLAY = ("reasoning_details", "codex_reasoning_items", "codex_message_items")
CLEANED_JSON = ("tool_calls", "display_metadata")

_SPECIAL = [
    "\0",
    "\ud800",
    "\udbff",
    "\udc00",
    "\udfff",
    "\ufffd",
    "\\",
    '"',
    "'",
    "%",
    "\\u0000",
    "compaction",
    "汉",
    "🙂",
]
# A high surrogate before a low one has no JSON form of its own: it reads as the character that the two make.
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")

texts = st.lists(
    st.one_of(st.sampled_from(_SPECIAL), st.characters(codec="utf-8")), max_size=8
).map("".join).filter(lambda text: not _PAIR.search(text))  # fmt: skip
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -0.0, 1e100, 2**63, 0.1]),
    texts,
)
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
containers = st.one_of(
    st.lists(json_values, max_size=4), st.dictionaries(texts, json_values, max_size=4), st.sampled_from([None, 0, False, 7.5])
)  # fmt: skip
roles = st.one_of(st.sampled_from(["user", "assistant", "assistant", "tool", "system"]), texts.filter(bool))
messages = st.fixed_dictionaries(
    {"role": roles},
    optional={
        "content": st.one_of(texts, json_values),
        "timestamp": st.one_of(st.none(), st.floats(0, 7e9), st.integers(0, 7_000_000_000)),
        "token_count": st.one_of(st.none(), st.integers(0, 2**63 - 1)),
        "observed": st.sampled_from([None, True, False, 0, 1]),
        "platform_message_id": st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=9),
        "a\0key": json_values,
        "a\ud800key": json_values,
        "name": json_values,
        **dict.fromkeys((*TEXTS, *ASSISTANT_TEXTS), st.one_of(st.none(), texts)),
        **dict.fromkeys((*REPLAY, *CLEANED_JSON), containers),
    },
)  # fmt: skip

junk = st.one_of(
    json_values,
    st.sampled_from(["compaction", {"deep": {"type": "compaction"}}, ["compaction"], {"type": ["compaction"]},
                     {"type": None}, {"type": "Compaction"}, {"kind": "compaction"}]),
    st.fixed_dictionaries({"type": texts}),
)  # fmt: skip
checkpoints = st.fixed_dictionaries({"type": st.just("compaction")}, optional={"data": json_values})
item_lists = st.lists(st.one_of(checkpoints, junk), max_size=5)


def cleaned(value: Any) -> Any:
    """``value`` without NUL and surrogates; keys that become equal are kept apart."""
    if isinstance(value, str):
        return "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in value)
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for key, item in value.items():
        name = cleaned(key)
        while name in result:
            name += "\ufffd"
        result[name] = cleaned(item)
    return result


def expected_row(message: dict[str, Any]) -> dict[str, Any]:
    """What a whole row of ``message`` must hold of the keys that a caller gives."""
    unknown = {k: v for k, v in message.items() if k in ("a\0key", "a\ud800key", "name")}
    row = {key: cleaned(message.get(key)) for key in ("role", "content", *TEXTS, *ASSISTANT_TEXTS)}
    row |= {key: _json(cleaned(message.get(key))) for key in CLEANED_JSON}
    row |= {key: _json(message.get(key)) for key in REPLAY}
    row |= {key: message.get(key) for key in ("token_count", "platform_message_id")}
    if message["role"] != "assistant":
        row |= dict.fromkeys((*ASSISTANT_TEXTS, *REPLAY))
    return row | {"observed": bool(message.get("observed"))} | dict(cleaned(unknown))


def expected_conversation(message: dict[str, Any]) -> dict[str, Any]:
    """What the conversation form of ``message`` must hold, its time apart."""
    row = expected_row(message)
    unknown = cleaned({k: v for k, v in message.items() if k in ("a\0key", "a\ud800key", "name")})
    found = {k: v for k, v in row.items() if k in unknown or k in ("role", "content") or v is not None}
    if "platform_message_id" in found:
        found["message_id"] = found.pop("platform_message_id")
    if not row["observed"]:
        del found["observed"]
    if row["reasoning"] == "":
        del found["reasoning"]
    if message["role"] != "assistant":
        found.pop("finish_reason", None)
    return found


def _json(value: Any) -> Any:
    return None if value in ("", [], {}) and not isinstance(value, (int, float)) else value


def without_checkpoints(items: list[Any]) -> list[Any] | None:
    """``items`` as the strip must leave them."""
    return [i for i in items if not (isinstance(i, dict) and i.get("type") == "compaction")] or None


def is_carrier(message: dict[str, Any]) -> bool:
    """Whether the message is an assistant's and holds a checkpoint in its list."""
    items = message.get("codex_reasoning_items")
    if message["role"] != "assistant" or not isinstance(items, list):
        return False
    return without_checkpoints(items) != (items or None)
