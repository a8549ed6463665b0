from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state.transfer.readable import json_bytes
from hermes_state.transfer.transcripts import (
    TranscriptError,
    read_transcript,
    split_turns,
    synthetic_checkpoint,
)
from tests.cli.conftest import SAMPLES, Write, talk


def _turns(*roles: str) -> list[str]:
    return ["".join(m["role"][0] for m in turn) for turn in split_turns(talk(*roles))]


def test_a_turn_goes_from_a_user_message_to_the_next() -> None:
    assert _turns("user", "assistant", "user", "assistant", "tool", "assistant") == ["ua", "uata"]


def test_what_comes_before_the_first_user_belongs_to_the_first_turn() -> None:
    assert _turns("system", "user", "assistant", "user", "assistant") == ["sua", "ua"]


def test_user_messages_in_a_row_are_one_turn() -> None:
    assert _turns("user", "user", "assistant", "user", "assistant") == ["uua", "ua"]


def test_with_one_user_message_each_answer_with_its_tool_results_is_a_turn() -> None:
    assert _turns("system", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant") == [
        "suatt",
        "at",
        "a",
    ]


def test_messages_without_any_answer_are_one_turn() -> None:
    assert _turns("system", "user") == ["su"]


def test_no_message_is_lost_or_moved_by_splitting() -> None:
    for path in sorted(SAMPLES.glob("*.jsonl")):
        messages = read_transcript(path).messages
        assert [m for turn in split_turns(messages) for m in turn] == messages


def test_lines_and_a_list_hold_the_same_messages(transcript: Write, tmp_path: Path) -> None:
    lines = transcript(talk("user", "assistant"))
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps(talk("user", "assistant"), indent=1), encoding="utf-8")
    assert read_transcript(lines).messages == read_transcript(listed).messages == talk("user", "assistant")


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    "chat",
    [
        {"messages": talk("user", "assistant"), "tools": []},
        {
            "id": 7,
            "conversations": [{"from": "human", "value": "text 0"}, {"from": "gpt", "value": "text 1"}],
        },
    ],
)
def test_one_conversation_of_another_program_is_a_transcript(
    tmp_path: Path, chat: dict[str, object], indent: int | None
) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(chat, indent=indent), encoding="utf-8")
    assert read_transcript(path).messages == talk("user", "assistant")
    path.write_text(json.dumps([chat], indent=indent), encoding="utf-8")
    assert read_transcript(path).messages == talk("user", "assistant")


def test_several_conversations_in_a_file_are_for_an_import(transcript: Write) -> None:
    path = transcript([{"messages": talk("user")}, {"messages": talk("user")}])
    with pytest.raises(TranscriptError, match="several conversations") as caught:
        read_transcript(path)
    assert caught.value.line == 2


def test_byte_order_mark_blank_lines_and_carriage_returns_are_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_bytes(b'\xef\xbb\xbf\r\n{"role": "user", "content": "a"}\r\n\r\n  \n{"role": "assistant"}')
    assert read_transcript(path).messages == [{"role": "user", "content": "a"}, {"role": "assistant"}]


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text('{"role": "user", "content": "a\u2028b\u0085c"}\n', encoding="utf-8")
    assert read_transcript(path).messages[0]["content"] == "a\u2028b\u0085c"


def test_private_keys_of_the_agent_that_wrote_the_file_are_left_out(transcript: Write) -> None:
    path = transcript([{"role": "user", "content": "a", "_row_id": 7, "_session_persisted": "talk"}])
    assert read_transcript(path).messages == [{"role": "user", "content": "a"}]


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b'{"role": "user"}\n{"role": "assistant"', 2, "not JSON"),
        (b'{"role": "user"}\n\n7\n', 3, "a JSON object, not int"),
        (b'{"role": "user"}\n{"content": "who?"}\n', 2, "needs a role"),
        (b'{"role": ""}\n', 1, "needs a role"),
        (b'{"role": 5}\n', 1, "needs a role"),
        (b'{"role": "user"}\n{"role": "user", "content": "\xff"}\n', 2, "not UTF-8"),
        (b'{"role": "user", "n": ' + b"9" * 5000 + b"}", 1, "cannot be parsed"),
        (b'{"role": "user", "n": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", 1, "cannot be parsed"),
        (b'[\n{"role": "user"},\n{]', 3, "not JSON"),
        (b'[{"role": "user"}, "x"]', None, "a JSON object, not str"),
        (b"", None, "holds no messages"),
        (b"[]", None, "holds no messages"),
    ],
)
def test_what_is_no_transcript_is_refused_with_file_and_line(
    tmp_path: Path, data: bytes, line: int | None, words: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(data)
    with pytest.raises(TranscriptError, match=words) as caught:
        read_transcript(path)
    assert (caught.value.path, caught.value.line) == (path, line)
    assert isinstance(caught.value, ValueError)
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_read_is_the_same_typed_error(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError, match="No such file"):
        read_transcript(tmp_path / "absent.jsonl")


@pytest.mark.parametrize("size", [64, 1000, 120_000])
def test_a_synthetic_checkpoint_has_the_size_asked_for_and_is_repeatable(size: int) -> None:
    checkpoint = synthetic_checkpoint(size, "a")
    assert json_bytes(checkpoint) == size
    assert checkpoint == synthetic_checkpoint(size, "a")
    assert checkpoint != synthetic_checkpoint(size, "b")
