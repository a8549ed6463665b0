from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import PROJECT, SAMPLES, Run, Write, talk
from tests.support.raw import RawSql

CHECKPOINT = 5_000

REFUSING = {
    "sqlite": (
        "CREATE TRIGGER refuse BEFORE INSERT ON messages WHEN new.content = 'refused' "
        "BEGIN SELECT raise(ABORT, 'refused'); END"
    ),
    "postgresql": "ALTER TABLE messages ADD CONSTRAINT refuse CHECK (content <> 'refused')",
}


def _report(output: str) -> dict[str, Any]:
    (report,) = json.loads(output)["sessions"]
    return dict(report)


def _contents(raw: RawSql, session_id: str) -> list[Any]:
    return raw.column("SELECT content FROM messages WHERE session_id = ? ORDER BY id", session_id)


def test_a_transcript_is_recorded_into_the_session_of_its_stem(
    run: Run, transcript: Write, raw: RawSql
) -> None:
    result = run("record", transcript(talk("user", "assistant", "user", "assistant")))
    assert _contents(raw, "talk") == ["text 0", "text 1", "text 2", "text 3"]
    assert raw.value("SELECT source FROM sessions WHERE id = ?", "talk") == "transcript"
    assert "talk" in result.stdout
    assert result.stderr == ""


def test_every_turn_is_one_transaction(
    db: SessionDB, run: Run, transcript: Write, raw: RawSql, backend: str
) -> None:
    """The database refuses the last message of the third turn: the first two turns are there, whole."""
    db.ensure_session("talk", source="cli")
    raw(REFUSING[backend])
    messages = [*talk("user", "assistant", "user", "assistant"), *talk("user", "assistant")]
    messages[5]["content"] = "refused"
    result = run("record", transcript(messages), code=1)
    assert _contents(raw, "talk") == ["text 0", "text 1", "text 2", "text 3"]
    assert raw.value("SELECT message_count FROM sessions") == 4
    assert result.stderr.startswith("ConstraintViolationError: ")
    assert result.stderr.count("\n") == 1


def test_the_second_run_writes_nothing_and_says_so(run: Run, raw: RawSql) -> None:
    path = SAMPLES / "balcony-garden.jsonl"
    run("record", path)
    before = raw("SELECT * FROM messages ORDER BY id")
    again = run("record", "--json", path)
    assert raw("SELECT * FROM messages ORDER BY id") == before
    assert "already recorded in session 'balcony-garden'" in again.stderr
    report = _report(again.stdout)
    assert (report["messages"], report["new_messages"], report["bytes_written"]) == (12, 0, 0)


def test_an_interrupted_or_grown_transcript_goes_on_where_it_stood(
    run: Run, transcript: Write, raw: RawSql
) -> None:
    whole = talk("system", "user", "assistant", "tool", "assistant", "tool", "assistant")
    run("record", transcript(whole[:4]))
    report = _report(run("record", "--json", transcript(whole)).stdout)
    assert _contents(raw, "talk") == [f"text {at}" for at in range(7)]
    assert (report["messages"], report["new_messages"]) == (7, 3)


def test_a_changed_transcript_is_refused_and_the_session_stays(
    run: Run, transcript: Write, raw: RawSql
) -> None:
    run("record", transcript(talk("user", "assistant")))
    changed = talk("user", "assistant")
    changed[1]["content"] = "other"
    result = run("record", transcript(changed), code=1)
    assert "holds a different message 2" in result.stderr
    assert "--session" in result.stderr
    assert _contents(raw, "talk") == ["text 0", "text 1"]
    run("record", transcript(changed), "--session", "second")
    assert _contents(raw, "second") == ["text 0", "other"]


def test_a_message_is_known_by_the_uid_that_the_file_gives_it(
    run: Run, transcript: Write, raw: RawSql
) -> None:
    messages = talk("user", "assistant", "user")
    messages[0]["message_uid"] = "mine"
    messages[1]["message_uid"] = 5
    messages[2]["message_uid"] = "x" * 600
    run("record", transcript(messages))
    run("record", transcript(messages))
    uids = raw.column("SELECT message_uid FROM messages ORDER BY id")
    assert uids[0] == "mine"
    assert [uid.rpartition("-")[0] for uid in uids[1:]] == ["transcript-1", "transcript-2"]


def test_two_programs_recording_one_file_at_once_write_it_once(store_url: str, raw: RawSql) -> None:
    command = [
        sys.executable,
        "-m",
        "hermes_state.cli",
        "--url",
        store_url,
        "record",
        *map(str, SAMPLES.glob("*.jsonl")),
    ]
    running = [
        subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [each.communicate(timeout=60)[1] for each in running]
    assert [each.returncode for each in running] == [0, 0], said
    assert raw.value("SELECT count(*) FROM messages") == 38
    assert raw.column("SELECT message_count FROM sessions ORDER BY id") == [12, 14, 12]


def test_a_recording_that_was_killed_is_completed_by_the_next(
    store_url: str, run: Run, transcript: Write, raw: RawSql
) -> None:
    path = transcript(talk(*["user", "assistant"] * 300))
    command = [sys.executable, "-m", "hermes_state.cli", "--url", store_url, "record", str(path)]
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        while raw.value("SELECT count(*) FROM messages") < 20:
            assert running.poll() is None
        running.kill()
    left = raw.value("SELECT count(*) FROM messages")
    assert left % 2 == 0
    assert raw.value("SELECT message_count FROM sessions") == left
    run("record", path)
    assert _contents(raw, "talk") == [f"text {at}" for at in range(600)]


def test_checkpoints_are_added_counted_and_only_the_newest_is_kept(run: Run, raw: RawSql) -> None:
    path = SAMPLES / "fix-date-parser.jsonl"
    report = _report(run("record", "--json", "--checkpoint-bytes", CHECKPOINT, path).stdout)
    assert report["turns"] == 6
    assert report["checkpoint_bytes"] == 6 * CHECKPOINT
    assert report["checkpoint_bytes_kept"] == CHECKPOINT
    assert report["checkpoint_bytes_saved"] == 5 * CHECKPOINT
    items = raw.json(
        "SELECT codex_reasoning_items FROM messages WHERE codex_reasoning_items IS NOT NULL ORDER BY id"
    )
    kept = [[item["type"] for item in row] for row in items]
    assert kept == [["reasoning"], ["reasoning"], ["reasoning"], ["compaction"]]


def test_checkpoints_given_as_json_text_count_as_handed_over(run: Run, transcript: Write) -> None:
    items = [{"type": "compaction", "x": "y" * 500}]
    answers = [
        {"role": "assistant", "content": "a", "codex_reasoning_items": json.dumps(items)} for _ in range(3)
    ]
    lines = [message for answer in answers for message in ({"role": "user", "content": "q"}, answer)]
    report = _report(run("record", "--json", transcript(lines)).stdout)
    one = len(json.dumps(items[0]))
    assert report["checkpoint_bytes"] == 3 * one
    assert (report["checkpoint_bytes_kept"], report["checkpoint_bytes_saved"]) == (one, 2 * one)


def test_recording_again_with_checkpoints_brings_none_back(run: Run, raw: RawSql) -> None:
    path = SAMPLES / "fix-date-parser.jsonl"
    run("record", "--checkpoint-bytes", CHECKPOINT, path)
    before = raw("SELECT * FROM messages ORDER BY id")
    report = _report(run("record", "--json", "--checkpoint-bytes", CHECKPOINT, path).stdout)
    assert raw("SELECT * FROM messages ORDER BY id") == before
    assert report["checkpoint_bytes"] == report["checkpoint_bytes_saved"] == 0
    assert report["checkpoint_bytes_kept"] == CHECKPOINT


def test_without_the_option_no_checkpoint_is_made(run: Run, raw: RawSql) -> None:
    run("record", *SAMPLES.glob("*.jsonl"))
    assert raw.value("SELECT count(*) FROM messages") == 38
    texts = raw.json("SELECT codex_reasoning_items FROM messages")
    assert "compaction" not in json.dumps(texts)


def test_a_malformed_file_writes_nothing_of_itself_and_keeps_what_came_before(
    run: Run, transcript: Write, tmp_path: Path, raw: RawSql
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"role": "user", "content": "a"}\n{oops\n', encoding="utf-8")
    result = run("record", transcript(talk("user", "assistant")), bad, code=1)
    assert result.stderr == f"TranscriptError: {bad}, line 2: it is not JSON: {_reason('{oops')}\n"
    assert raw.column("SELECT id FROM sessions") == ["talk"]
    assert "talk" in result.stdout


def test_a_value_that_cannot_be_stored_does_not_stop_the_recording(
    run: Run, tmp_path: Path, raw: RawSql, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(
        '{"role": "user", "content": "a"}\n{"role": "assistant", "content": "b", "tool_calls": [NaN]}\n',
        encoding="utf-8",
    )
    result = run("record", "--json", path)
    refused = {"message": 2, "key": "tool_calls", "reason": "a number is not finite"}
    assert _report(result.stdout)["refused"] == [refused]
    assert result.stderr == f"{path}: message 2, key 'tool_calls': a number is not finite; kept as text\n"
    assert caplog.records == []
    assert _contents(raw, "odd") == ["a", "b"]
    (extra,) = raw.json("SELECT extra FROM messages WHERE content = ?", "b")
    assert extra["_refused"][0]["text"] == "[nan]"
    assert _report(run("record", "--json", path).stdout)["refused"] == []


def test_a_session_closed_by_compression_is_refused(
    db: SessionDB, run: Run, transcript: Write, raw: RawSql
) -> None:
    db.ensure_session("talk", source="cli")
    db.end_session("talk", "compression")
    result = run("record", transcript(talk("user", "assistant")), code=1)
    assert result.stderr.startswith("CompressionSessionClosedError: ")
    assert raw.value("SELECT count(*) FROM messages") == 0


def test_several_files_into_one_session_is_wrong_usage(run: Run, transcript: Write, raw: RawSql) -> None:
    paths = [transcript(talk("user"), name) for name in ("a.jsonl", "b.jsonl")]
    assert "--session takes one file" in run("record", "--session", "s", *paths, code=2).stderr
    assert raw.value("SELECT count(*) FROM sessions") == 0


def test_json_output_is_nothing_but_json_and_names_the_store(run: Run, store_url: str) -> None:
    found = json.loads(run("record", "--json", *sorted(SAMPLES.glob("*.jsonl"))).stdout)
    assert [each["session_id"] for each in found["sessions"]] == [
        "balcony-garden",
        "fix-date-parser",
        "release-notes",
    ]
    assert found["store"] in store_url
    assert (found["file_bytes"] is not None) == store_url.startswith("sqlite")


def test_the_table_adds_up_and_ends_with_the_store(run: Run, store_url: str) -> None:
    lines = run("record", *SAMPLES.glob("*.jsonl")).stdout.rstrip("\n").split("\n")
    total = next(line.split() for line in lines if line.split()[:1] == ["total"])
    assert total[1:4] == ["38", "38", "13"]
    assert lines[-1].split(": ")[0] in store_url


@pytest.mark.parametrize(
    "arguments", [("record",), ("record", "absent.jsonl"), ("record", "--checkpoint-bytes", "1")]
)
def test_wrong_usage_of_record_ends_with_two(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments, code=2).stdout == ""


def _reason(text: str) -> str:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(text)
    return caught.value.msg
