from __future__ import annotations

import json

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import SAMPLES, Run
from tests.support.raw import RawSql


@pytest.fixture
def recorded(run: Run) -> Run:
    run("record", *sorted(SAMPLES.glob("*.jsonl")))
    return run


def test_list_prints_each_session_with_its_counts(recorded: Run) -> None:
    result = recorded("sessions", "list")
    found = {
        line.split()[0]: line.split()[1:4] for line in result.stdout.splitlines() if "transcript" in line
    }
    assert found == {
        "balcony-garden": ["transcript", "12", "2"],
        "fix-date-parser": ["transcript", "14", "6"],
        "release-notes": ["transcript", "12", "3"],
    }
    assert result.stderr == ""


def test_list_pages_and_filters(recorded: Run, db: SessionDB) -> None:
    db.create_session("from-chat", "chat")

    def ids(*arguments: object) -> list[str]:
        found = json.loads(recorded("sessions", "list", "--json", *arguments).stdout)
        return [each["id"] for each in found["sessions"]]

    assert ids() == [*ids("--limit", 2), *ids("--limit", 2, "--offset", 2)]
    assert ids("--source", "chat") == ["from-chat"]
    assert ids("--source", "nobody") == []


def test_an_empty_list_is_a_note_and_no_data(run: Run) -> None:
    result = run("sessions", "list")
    assert (result.stdout, result.stderr) == ("", "no sessions\n")
    assert run("sessions", "list", "--json").stdout == '{\n  "sessions": [],\n  "next_cursor": null\n}\n'


def test_show_prints_the_conversation_in_order_with_calls_parts_and_chinese(recorded: Run) -> None:
    text = recorded("sessions", "show", "balcony-garden").stdout
    places = [
        text.index(words)
        for words in ("What is eating my basil?", "(image_url, ", "谢谢", "-> weather(", "reminder 58")
    ]
    assert places == sorted(places)
    assert "iVBORw0" not in text
    assert "(reasoning: The user changed to Chinese" in text


def test_show_takes_a_unique_prefix_and_refuses_others(recorded: Run) -> None:
    assert "12 tests pass" in recorded("sessions", "show", "fix").stdout
    result = recorded("sessions", "show", "nothing", code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("UnknownSessionError: 'nothing'")
    assert result.stderr.count("\n") == 1


def test_show_as_json_holds_whole_rows_and_nothing_else(recorded: Run) -> None:
    found = json.loads(recorded("sessions", "show", "balcony-garden", "--json").stdout)
    assert found["session"]["message_count"] == 12
    assert len(found["messages"]) == 12
    assert found["messages"][0]["content"][1]["type"] == "image_url"
    assert found["messages"][9]["tool_calls"][0]["function"]["name"] == "remind"


def test_show_leaves_archived_messages_out_unless_asked(recorded: Run, db: SessionDB) -> None:
    db.archive_and_compact("release-notes", [{"role": "user", "content": "summary"}])
    assert "Final text" not in recorded("sessions", "show", "release-notes").stdout
    text = recorded("sessions", "show", "--all", "release-notes").stdout
    assert "Final text" in text
    assert "user compacted" in text


def test_long_text_is_cut_unless_full(run: Run, db: SessionDB) -> None:
    db.ensure_session("long", source="cli")
    db.append_message("long", "tool", "x" * 5_000 + "end")
    cut = run("sessions", "show", "long").stdout
    assert "3,003 more characters; --full shows them" in cut
    assert "end" not in cut.replace("--full", "")
    assert "xend" in run("sessions", "show", "--full", "long").stdout


def test_stored_control_characters_do_not_reach_the_terminal(run: Run, db: SessionDB) -> None:
    db.ensure_session("\x1b]0;title\x07id", source="cli")
    db.append_message("\x1b]0;title\x07id", "tool", "\x1b[2Jcleared [bold]kept[/bold]", tool_name="\x1b[31m")
    for arguments in (("list",), ("show", "\x1b")):
        text = run("sessions", *arguments).stdout
        assert "\x1b" not in text
        assert "\x07" not in text
    assert "cleared [bold]kept[/bold]" in run("sessions", "show", "\x1b").stdout


def test_a_row_of_another_program_with_an_impossible_time_is_shown(
    run: Run, db: SessionDB, raw: RawSql
) -> None:
    db.ensure_session("s", source="cli")
    raw("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'once', 1e300)")
    assert "once" in run("sessions", "show", "s").stdout


def test_a_lone_surrogate_in_a_replay_payload_is_still_json(run: Run, db: SessionDB) -> None:
    db.ensure_session("s", source="cli")
    items = [{"type": "reasoning", "text": "\ud83d"}]
    db.append_message("s", "assistant", "a", codex_reasoning_items=items)
    found = json.loads(run("sessions", "show", "s", "--json").stdout)
    assert found["messages"][0]["codex_reasoning_items"] == items


def test_reading_commands_change_nothing(recorded: Run, raw: RawSql) -> None:
    before = raw("SELECT * FROM sessions ORDER BY id"), raw("SELECT * FROM messages ORDER BY id")
    recorded("sessions", "list")
    recorded("sessions", "show", "release-notes")
    assert (raw("SELECT * FROM sessions ORDER BY id"), raw("SELECT * FROM messages ORDER BY id")) == before
