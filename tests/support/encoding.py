"""Rows encoded for unit tests, and how a message is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import InvalidMessageError
from hermes_state.codec import PLACE, EncodedMessage, encode_batch, encode_message

LIMIT = 1_000
NOW = 1_790_000_000.123456


def encode(message: Any, *, limit: int = LIMIT, **options: Any) -> EncodedMessage:
    """The row of one message of session ``s``."""
    return encode_message(message, 0, session_id="s", max_text_bytes=limit, **options)


def column(name: str, /, **keys: Any) -> Any:
    """What one column holds of a message of these keys; ``role`` is assistant if not given."""
    return encode({"role": "assistant", **keys}).values[PLACE[name]]


def refusal(**keys: Any) -> InvalidMessageError:
    """The error that refuses an assistant's message of these keys."""
    with pytest.raises(InvalidMessageError) as refused:
        encode({"role": "assistant", **keys})
    return refused.value


def batch(*messages: Any, clock: float = NOW) -> list[EncodedMessage]:
    """The rows of a batch written at the time ``clock``."""
    return encode_batch(messages, session_id="s", max_text_bytes=LIMIT, clock=lambda: clock)
