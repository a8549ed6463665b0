"""Recording transcript files turn by turn, through the flusher, as a live agent would (issue 2, item 7).

A transcript file is UTF-8 text: one JSON message a line, one JSON list of messages, or one conversation object of OpenAI's or
ShareGPT's kind. Recording is idempotent: the
uid of a message is made of its position in the file and a digest of what it says, so the same file again, a longer
copy of it, or a run after an interruption writes only what the session does not hold yet.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hermes_state.agent import TranscriptFlusher
from hermes_state.checkpoints import carried_items, is_checkpoint
from hermes_state.errors import CompressionSessionClosedError, HermesStateError
from hermes_state.store import SessionDB
from hermes_state.text import is_usable_id
from hermes_state.transfer.chats import chat_messages
from hermes_state.transfer.readable import json_bytes

SOURCE = "transcript"
SMALLEST_CHECKPOINT_BYTES = 64
_MAX_ROLE_CHARACTERS = 64
_UID_PREFIX = "transcript-"
_PAGE_ROWS = 500

Message = dict[str, Any]


class TranscriptError(HermesStateError, ValueError):
    """A transcript file cannot be recorded. ``line`` counts from 1; it is ``None`` where the file is one JSON list
    that parses, or where the fault is not in one line."""

    def __init__(self, path: Path, line: int | None, reason: str) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {reason}")


@dataclass(frozen=True, slots=True)
class Transcript:
    """The messages of one file, in order."""

    path: Path
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class RefusedValue:
    """A value that could not be stored as it was. ``message`` counts the messages of the file from 1."""

    message: int
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class RecordReport:
    """What recording one transcript did. Sizes are bytes of JSON text in UTF-8.

    ``bytes_written`` and ``checkpoint_bytes`` count the messages this run added, as they were handed to the store;
    ``checkpoint_bytes_kept`` is what the session holds afterwards, ``checkpoint_bytes_saved`` what this run handed over and
    the store no longer keeps. ``refused`` names the values of added messages that were kept as text only.
    """

    path: str
    session_id: str
    messages: int
    new_messages: int
    turns: int
    bytes_written: int
    checkpoint_bytes: int
    checkpoint_bytes_kept: int
    checkpoint_bytes_saved: int
    refused: list[RefusedValue]


@dataclass(frozen=True, slots=True)
class _Held:
    """What a session holds: the uids of all its rows, and the bytes of all its checkpoints."""

    uids: frozenset[str]
    checkpoint_bytes: int


def read_transcript(path: Path) -> Transcript:
    """Reads and checks a whole file; ``TranscriptError`` for one that cannot be read or holds anything but messages.

    A byte order mark and blank lines are skipped, and a ``message_uid`` that cannot be one is left out. Keys that start with ``_`` are left out: they are notes of the agent
    that wrote the file about its own store, and would be taken for notes about this one.
    """
    try:
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise TranscriptError(path, None, error.strerror or "it cannot be read") from error
    found = list(_from_whole(path, data) if _is_whole(data) else _from_lines(path, data))
    messages = [_checked(path, line, value) for line, value in _of_chat(path, found)]
    if not messages:
        raise TranscriptError(path, None, "it holds no messages")
    return Transcript(path, messages)


def split_turns(messages: list[Message]) -> list[list[Message]]:
    """The messages in flushes, in order; none is left out.

    A turn is the user's message, or several in a row, and all that follows up to the next one. Where the user speaks
    only once, a turn is an answer of the assistant with the tool results that follow. What comes before the first
    turn belongs to it.
    """
    starts = [at for at in range(len(messages)) if _begins(messages, at, "user")]
    if len(starts) < 2:
        starts = [at for at in range(len(messages)) if messages[at]["role"] == "assistant"]
    edges = [0, *starts[1:], len(messages)]
    return [messages[start:end] for start, end in pairwise(edges) if start < end]


def record_transcript(
    db: SessionDB,
    transcript: Transcript,
    session_id: str | None = None,
    *,
    checkpoint_bytes: int | None = None,
    on_turn: Callable[[], None] = lambda: None,
) -> RecordReport:
    """Records a transcript into a session (default: the file's stem), one flush a turn, and says what that did.

    The session is created when missing. ``checkpoint_bytes`` is for demonstrations: the last assistant message of every
    turn gets a synthetic checkpoint of that many bytes. ``on_turn`` is called after each turn. Errors: those of the
    store, with the turns before the failing one recorded; ``CompressionSessionClosedError`` for a session that was
    compressed; ``TranscriptError``, before anything is written, when a different message was recorded at the same
    position. A message that has a ``message_uid`` of its own is known by that alone.
    """
    target = session_id if session_id is not None else transcript.path.stem
    messages = _identified(transcript.messages)
    _open_session(db, target)
    before = _held(db, target)
    _require_same_beginning(transcript.path, target, messages, before.uids)
    turns = split_turns(messages)
    if checkpoint_bytes is not None:
        for turn in turns:
            _add_checkpoint(turn, checkpoint_bytes)
    new = {at for at, message in enumerate(messages) if _uid(message) not in before.uids}
    written = sum(json_bytes(_public(messages[at])) for at in new)
    handed_over = sum(_checkpoint_bytes(messages[at]) for at in new)
    refused = _flush(TranscriptFlusher(db, target), turns, before.uids, on_turn)
    kept = _held(db, target).checkpoint_bytes
    return RecordReport(
        path=str(transcript.path),
        session_id=target,
        messages=len(messages),
        new_messages=len(new),
        turns=len(turns),
        bytes_written=written,
        checkpoint_bytes=handed_over,
        checkpoint_bytes_kept=kept,
        checkpoint_bytes_saved=handed_over - (kept - before.checkpoint_bytes),
        refused=refused,
    )


def synthetic_checkpoint(size: int, seed: str) -> dict[str, str]:
    """A checkpoint of ``size`` bytes of JSON (at least 64) that does not compress, the same for the same ``seed``."""
    item = {"type": "compaction", "encrypted_content": ""}
    room = max(0, size - json_bytes(item))
    noise = hashlib.shake_256(seed.encode()).digest(room)
    item["encrypted_content"] = base64.b64encode(noise).decode()[:room]
    return item


def _is_whole(data: bytes) -> bool:
    """Whether the file is one JSON text: a list, or an object that goes on after its first line."""
    first = data.lstrip().partition(b"\n")[0].strip()
    return first.startswith(b"[") or first == b"{"


def _from_whole(path: Path, data: bytes) -> Iterator[tuple[int | None, Any]]:
    value = _parsed(path, None, data)
    return ((None, each) for each in (value if isinstance(value, list) else [value]))


def _of_chat(path: Path, found: list[tuple[int | None, Any]]) -> list[tuple[int | None, Any]]:
    """The messages of the one conversation object that the file holds; the values themselves where it holds messages."""
    chats = [(line, messages) for line, value in found if (messages := chat_messages(value)) is not None]
    if not chats:
        return found
    if len(found) > 1:
        reason = "it holds several conversations; `hermes-state import` makes a session of each"
        raise TranscriptError(path, found[1][0], reason)
    ((line, messages),) = chats
    return [(line, message) for message in messages]


def _from_lines(path: Path, data: bytes) -> Iterator[tuple[int | None, Any]]:
    # Bytes split at line feeds only; text would also split at U+2028, which may stand inside a JSON string.
    for line, text in enumerate(data.splitlines(), start=1):
        if text.strip():
            yield line, _parsed(path, line, text)


def _parsed(path: Path, line: int | None, data: bytes) -> Any:
    try:
        return json.loads(data.decode())
    except UnicodeDecodeError as error:
        raise TranscriptError(path, line, "it is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise TranscriptError(path, line or error.lineno, f"it is not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise TranscriptError(path, line, f"it cannot be parsed: {error}") from error


def _checked(path: Path, line: int | None, value: Any) -> Message:
    if not isinstance(value, dict):
        raise TranscriptError(path, line, f"a message is a JSON object, not {type(value).__name__}")
    role = value.get("role")
    if not isinstance(role, str) or not 1 <= len(role) <= _MAX_ROLE_CHARACTERS:
        raise TranscriptError(path, line, "a message needs a role: text of 1 to 64 characters")
    message = _public(value)
    if not is_usable_id(message.get("message_uid")):
        message.pop("message_uid", None)
    return message


def _public(message: Message) -> Message:
    return {key: value for key, value in message.items() if not key.startswith("_")}


def _begins(messages: list[Message], at: int, role: str) -> bool:
    return messages[at]["role"] == role and (at == 0 or messages[at - 1]["role"] != role)


def _identified(messages: list[Message]) -> list[Message]:
    return [message | {"_message_uid": _made_uid(at, message)} for at, message in enumerate(messages)]


def _made_uid(at: int, message: Message) -> str:
    text = json.dumps(message, sort_keys=True)
    return f"{_UID_PREFIX}{at}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _uid(message: Message) -> Any:
    # The store, too, lets a uid that the file itself gives win.
    return message.get("message_uid", message["_message_uid"])


def _add_checkpoint(turn: list[Message], size: int) -> None:
    answers = [message for message in turn if message["role"] == "assistant"]
    items = (answers[-1].get("codex_reasoning_items") or []) if answers else None
    if isinstance(items, list):
        checkpoint = synthetic_checkpoint(size, str(_uid(answers[-1])))
        answers[-1]["codex_reasoning_items"] = [*items, checkpoint]


def _checkpoint_bytes(message: Any) -> int:
    items = carried_items(message) or []
    return sum(json_bytes(item) for item in items if is_checkpoint(item))


def _open_session(db: SessionDB, session_id: str) -> None:
    session = db.get_session(session_id)
    if session is None:
        db.create_session(session_id, SOURCE)
    elif session["end_reason"] == "compression":
        # The flusher would go on in the continuation, where none of the earlier messages is known.
        raise CompressionSessionClosedError(session_id)


def _require_same_beginning(
    path: Path, session_id: str, messages: list[Message], held: frozenset[str]
) -> None:
    """Two files of one name, or a file that was rewritten, must not be mixed in one session."""
    taken = {uid.rpartition("-")[0] for uid in held if uid.startswith(_UID_PREFIX)}
    for at, message in enumerate(messages):
        if _uid(message) not in held and f"{_UID_PREFIX}{at}" in taken:
            reason = (
                f"session {session_id!r} holds a different message {at + 1}; "
                "record this file under an id of its own with --session"
            )
            raise TranscriptError(path, None, reason)


def _held(db: SessionDB, session_id: str) -> _Held:
    uids: set[str] = set()
    checkpoint_bytes, last_id = 0, 0
    while rows := db.get_messages(session_id, include_inactive=True, after_id=last_id, limit=_PAGE_ROWS):
        uids.update(row["message_uid"] for row in rows)
        checkpoint_bytes += sum(_checkpoint_bytes(row) for row in rows)
        last_id = rows[-1]["id"]
    return _Held(frozenset(uids), checkpoint_bytes)


def _flush(
    flusher: TranscriptFlusher, turns: list[list[Message]], held: frozenset[str], on_turn: Callable[[], None]
) -> list[RefusedValue]:
    refused: list[RefusedValue] = []
    done = 0
    for turn in turns:
        fresh = [(at, each) for at, each in enumerate(turn, start=done + 1) if _uid(each) not in held]
        if fresh and not flusher.flush([message for _, message in fresh]):
            raise flusher.last_error or HermesStateError("the flush failed without a reason")
        # ``last_refused`` is that of the last flush, which may be one of an earlier turn.
        refusals = flusher.last_refused if fresh else []
        refused += [RefusedValue(fresh[each["index"]][0], each["key"], each["reason"]) for each in refusals]
        done += len(turn)
        on_turn()
    return refused
