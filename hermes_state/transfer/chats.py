"""Chat files of other programs: OpenAI's ``messages`` and ShareGPT's ``conversations``, one conversation an object.

Nothing is dropped: keys of a message that the store does not know are kept with the message as they are, those of the
conversation in the settings of the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_state.errors import InvalidArgumentError

SOURCE = "import"

# Who speaks, in the words of the ShareGPT files that are about.
_SPEAKERS = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "function_call": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "function_response": "tool",
    "observation": "tool",
}
_MESSAGE_KEYS = ("messages", "conversations", "conversation")


def chat_messages(value: Any) -> list[Any] | None:
    """The messages of one conversation object, in order; ``None`` for what is none.

    A message of ShareGPT gets ``role`` and ``content`` for ``from`` and ``value``; an unknown speaker becomes the role
    itself. The text under ``system`` that some files keep beside the messages comes first.
    """
    if not isinstance(value, Mapping) or "role" in value:
        return None
    key = next((key for key in _MESSAGE_KEYS if isinstance(value.get(key), list)), None)
    if key is None:
        return None
    system = value.get("system")
    first = [{"role": "system", "content": system}] if isinstance(system, str) and system else []
    return first + [_message(message) for message in value[key]]


def chat_session(value: Any, session_id: str) -> dict[str, Any] | None:
    """The conversation as ``import_sessions`` takes it, under ``session_id`` unless it has an id; ``None`` for what is none.

    An object with an id and ``messages`` is an export of this package and none of these. Raises ``InvalidArgumentError``
    for one whose messages are no list.
    """
    messages = chat_messages(value)
    if messages is None:
        _require_list(value)
        return None
    if "id" in value and "messages" in value:
        return None
    known = (*_MESSAGE_KEYS, "id", "system", "title", "model")
    session = {
        "id": str(value["id"]) if isinstance(value.get("id"), (str, int)) else session_id,
        "source": SOURCE,
        "messages": messages,
        "model_config": {str(key): item for key, item in value.items() if key not in known},
    }
    return session | {key: value[key] for key in ("title", "model") if isinstance(value.get(key), str)}


def _require_list(value: Any) -> None:
    if not isinstance(value, Mapping) or "role" in value:
        return
    key = next((key for key in _MESSAGE_KEYS if key in value), None)
    if key is not None:
        raise InvalidArgumentError(key, "it must be a list of messages")


def _message(message: Any) -> Any:
    if not isinstance(message, Mapping) or "role" in message or not isinstance(message.get("from"), str):
        return message
    rest = {key: item for key, item in message.items() if key not in ("from", "value")}
    speaker = message["from"]
    return {"role": _SPEAKERS.get(speaker.lower(), speaker), "content": message.get("value"), **rest}
