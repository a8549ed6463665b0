"""``export`` and ``import`` as commands, and the files they make (issue 4, item 3; field reports R1, R5, R6)."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hermes_state import SessionDB
from hermes_state.cli.main import app
from hermes_state.repositories import exporting
from hermes_state.transfer import imports
from hermes_state.transfer.files import LineTooLong, TransferFileError, bounded_lines, opened, written
from hermes_state.transfer.imports import ImportRefusedError, import_file
from tests.cli.conftest import PROJECT, Run
from tests.contract.test_export import chain, pointers
from tests.support.builders import snapshot, user
from tests.support.raw import RawSql


def test_a_link_or_a_pipe_to_write_to_stays_one(run: Run, db: SessionDB, tmp_path: Path) -> None:
    db.create_session("a", "cli")
    whole = tmp_path / "whole.jsonl"
    link, pipe = tmp_path / "link.jsonl", tmp_path / "pipe.jsonl"
    whole.write_text("of yesterday")
    link.symlink_to(whole)
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        run("export", "--all", "-o", pipe)
        piped = reader.communicate()[0]
    run("export", "--all", "-o", link)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert piped == whole.read_bytes()
    assert [each["id"] for each in lines_of(piped)] == ["a"]


def test_lines_that_carry_on_nothing_are_told_by_their_place(db: SessionDB, tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    path.write_text('{"continues": "a", "messages": []}\n')
    with pytest.raises(ImportRefusedError) as caught:
        import_file(db, path)
    assert [(each["index"], each["line"]) for each in caught.value.errors] == [(0, 1)]


def lines_of(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


def write_lines(path: Path, values: list[Any]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def test_stdout_gets_one_session_a_line_and_nothing_else(run: Run, db: SessionDB) -> None:
    chain(db)
    result = run("export", "--all")
    assert lines_of(result.stdout_bytes) == db.export_all()
    assert "3 sessions with" in result.stderr
    assert lines_of(run("export", "b").stdout_bytes) == [db.export_session("b")]
    assert lines_of(run("export", "oth", "a").stdout_bytes) == [
        db.export_session("other"),
        db.export_session("a"),
    ]
    assert lines_of(run("export", "b", "--lineage").stdout_bytes) == db.export_session_lineage("b")
    assert lines_of(run("export", "--all", "--source", "web").stdout_bytes) == db.export_all(source="web")


def test_what_is_meant_must_be_said_and_known(run: Run, db: SessionDB) -> None:
    chain(db)
    run("export", code=2)
    run("export", "--all", "a", code=2)
    result = run("export", "a", "nobody", code=1)
    assert result.stdout == ""
    assert "UnknownSessionError" in result.stderr


@pytest.mark.parametrize("name", ["all.jsonl", "all.jsonl.gz", "all.jsonl.zst", "all"])
def test_a_file_comes_back_the_same_in_another_store(
    run: Run, cli: Run, db: SessionDB, raw: RawSql, tmp_path: Path, name: str
) -> None:
    chain(db)
    exported = db.export_all()
    path = tmp_path / name
    assert run("export", "--all", "-o", path).stdout == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = pointers(raw)
    raw("DELETE FROM sessions")
    result = run("import", path)
    assert "imported 3, skipped 0 that exist, left 0" in result.stdout
    assert db.export_all() == exported
    assert pointers(raw) == before
    again = tmp_path / f"again-{name}"
    run("export", "--all", "-o", again)
    assert again.read_bytes() == path.read_bytes()
    cli("--db", tmp_path / "other.db", "import", path)
    with SessionDB(tmp_path / "other.db") as other:
        assert other.export_all() == exported
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_one_store_is_piped_into_another(run: Run, db: SessionDB, tmp_path: Path) -> None:
    chain(db)
    data = run("export", "--all").stdout_bytes
    for name, given in (("plain.db", data), ("packed.db", gzip.compress(data))):
        result = CliRunner().invoke(app, ["--db", str(tmp_path / name), "import", "-"], input=given)
        assert result.exit_code == 0, result.stderr
        with SessionDB(tmp_path / name) as other:
            assert other.export_all() == db.export_all()


def test_a_session_over_several_lines_comes_back_whole(
    run: Run, db: SessionDB, raw: RawSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain(db)
    db.append_messages_batch("other", [user(f"q{n}") for n in range(100)])
    exported = db.export_all()
    monkeypatch.setattr(exporting, "PART_MESSAGES", 20)
    path = tmp_path / "all.jsonl"
    run("export", "--all", "-o", path)
    assert len(path.read_bytes().splitlines()) == 5
    raw("DELETE FROM sessions")
    run("import", path)
    assert db.export_all() == exported


def test_children_before_their_parents_and_across_lines_find_them(
    run: Run, db: SessionDB, raw: RawSql, tmp_path: Path
) -> None:
    chain(db)
    exported = db.export_all()
    before = pointers(raw)
    raw("DELETE FROM sessions")
    run("import", write_lines(tmp_path / "reversed.jsonl", exported[::-1]))
    assert db.export_all() == exported
    assert pointers(raw) == before


def test_existing_sessions_are_skipped_or_renamed_and_reported(
    run: Run, db: SessionDB, raw: RawSql, tmp_path: Path
) -> None:
    chain(db)
    path = write_lines(tmp_path / "all.jsonl", db.export_all())
    before = snapshot(raw)
    result = run("import", path)
    assert "imported 0, skipped 3" in result.stdout
    assert "exists, skipped: a" in result.stderr
    assert snapshot(raw) == before
    report = json.loads(run("import", path, "--rename", "--json").stdout)
    assert report["renamed_ids"] == {"a": "a-2", "b": "b-2", "other": "other-2"}
    assert raw.value("SELECT parent_session_id FROM sessions WHERE id = 'b-2'") == "a-2"
    assert [row[:4] for row in pointers(raw)[3:]] == [
        ("a-2", "q2", "a-2", "q2"),
        ("a-2", "q3", "a-2", "q3"),
        ("a-2", "late", "b-2", "late"),
    ]


def test_one_bad_entry_and_nothing_is_written(run: Run, raw: RawSql, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(
        b'{"id": "good"}\n\n'
        b'{"id": "x", "started_at": NaN}\n'
        b'{"id": "y", "messages": [{"content": "no role"}]}\n'
        b'{"continues": "y", "messages": []}\n'
        b'{"id": "good"}\n'
        b'{"role": "user", "content": "a message"}\n'
        b'{"id": "z"\n'
        b"[1]\n"
        b'{"continues": "elsewhere"}\n'
        b'{"id": "\xff"}\n'
    )
    result = run("import", path, "--json", code=1)
    report = json.loads(result.stdout)
    assert [(e["index"], e["line"]) for e in report["errors"]] == [
        (1, 3), (2, 4), (3, 6), (4, 7), (5, 8), (6, 9), (7, 11),
    ]  # fmt: skip
    assert (report["ok"], report["imported"], report["error_count"]) == (False, 0, 7)
    words = [e["error"] for e in report["errors"]]
    assert "NaN" in words[0]
    assert "twice" in words[2]
    assert "record" in words[3]
    assert snapshot(raw) == []
    assert "ImportRefusedError" in result.stderr
    assert run("import", path, code=1).stdout == ""


def test_a_part_that_follows_no_session_is_refused(db: SessionDB, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "parts.jsonl", [{"continues": "s", "messages": []}, {"id": "s"}])
    with pytest.raises(ImportRefusedError) as caught:
        import_file(db, path)
    assert caught.value.errors[0]["line"] == 1
    mixed = [{"id": "s"}, {"id": "t"}, {"continues": "s", "messages": [user()]}]
    with pytest.raises(ImportRefusedError, match="follow each other"):
        import_file(db, write_lines(tmp_path / "mixed.jsonl", mixed))


@pytest.mark.parametrize("text", ['[{"id": "a"}, {"id": "b"}]', '\ufeff[\n{"id": "a"},\n\n{"id":\n"b"}]\n'])
def test_one_json_list_is_taken(db: SessionDB, tmp_path: Path, text: str) -> None:
    path = tmp_path / "list.json"
    path.write_text(text, encoding="utf-8")
    assert import_file(db, path)["imported_ids"] == ["a", "b"]


def test_one_object_over_many_lines_is_taken(db: SessionDB, tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"id": "a", "messages": [user("t\u2028")]}, indent=2))
    assert import_file(db, path)["imported_ids"] == ["a"]
    assert db.get_messages("a")[0]["content"] == "t\u2028"


@pytest.mark.parametrize("text", ["", "\n \n", "[]"])
def test_a_file_without_sessions_imports_none(db: SessionDB, tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text(text)
    assert import_file(db, path)["imported"] == 0


def test_a_line_above_the_bound_is_refused_without_being_held(
    db: SessionDB, raw: RawSql, tmp_path: Path
) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.write(b'{"id": "a"}\n{"id": "long", "title": "')
        file.truncate(1_000_000_000)  # a hole: a gigabyte of NUL that takes no space
        file.seek(0, os.SEEK_END)
        file.write(b'"}\n{"id": 7}\n')
    limited = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from hermes_state import SessionDB\n"
        "from hermes_state.transfer.imports import ImportRefusedError, import_file\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "db = SessionDB(sys.argv[1])\n"
        "before = peak()\n"
        "try:\n"
        "    import_file(db, Path(sys.argv[2]))\n"
        "except ImportRefusedError as error:\n"
        "    print([(e['index'], e['line'], e['error']) for e in error.errors])\n"
        "print(peak() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, tmp_path / "new.db", path],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    found, megabytes = map(eval, done.stdout.splitlines())
    assert [(index, line) for index, line, _ in found] == [(1, 2), (2, 3)]
    assert "longer than 268,435,456 bytes" in found[0][2]
    assert megabytes < 60
    assert (
        import_file(db, write_lines(tmp_path / "short.jsonl", [{"id": "a"}]), max_line_bytes=11)["imported"]
        == 1
    )
    with pytest.raises(ImportRefusedError, match="longer than 10"):
        import_file(db, tmp_path / "short.jsonl", max_line_bytes=10)
    listed = tmp_path / "list.json"
    listed.write_text("[\n" + '{"id": "a"},\n' * 9 + '{"id": "b"}]')
    with pytest.raises(ImportRefusedError, match="write one session a line"):
        import_file(db, listed, max_line_bytes=30)


def test_lines_are_split_and_bounded_wherever_they_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"abc\r\nabcd\nabcdefgh\n\nab\nabcdefg")
    with path.open("rb") as stream:
        assert list(bounded_lines(stream, 4)) == [b"abc", b"abcd", b"abcdefgh", b"", b"ab", b"abcdefg"]


@pytest.mark.parametrize("length", [2**20 - 2, 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_lines_of_many_pieces_are_whole_up_to_the_bound(tmp_path: Path, length: int, end: bytes) -> None:
    path = tmp_path / "lines"
    line = b"x" * length
    path.write_bytes(b"a\n" + line + end)
    with path.open("rb") as stream:
        assert list(bounded_lines(stream, length)) == [b"a", line]
    with path.open("rb") as stream:
        _, refused = bounded_lines(stream, length - 1)
        assert isinstance(refused, LineTooLong)
        assert line.startswith(refused)


def test_a_long_list_is_refused_without_being_held(db: SessionDB, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(b"[\n" + b" " * 5_000_000 + b"\n]")
    assert import_file(db, path)["imported"] == 0
    tracemalloc.start()
    with pytest.raises(ImportRefusedError, match="a JSON list of more than 4,000,000 bytes"):
        import_file(db, path, max_line_bytes=4_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize("name", ["all.jsonl.gz", "all.jsonl.zst"])
@pytest.mark.parametrize("cut", [5, 200, -1])
def test_a_file_that_was_cut_off_or_damaged_is_refused(
    db: SessionDB, raw: RawSql, tmp_path: Path, name: str, cut: int
) -> None:
    path = tmp_path / name
    with written(path) as stream:
        for n in range(3000):
            stream.write(json.dumps({"id": f"{n}", "cwd": os.urandom(9).hex()}).encode() + b"\n")
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    with pytest.raises(TransferFileError, match="damaged or cut off"):
        import_file(db, path)
    path.write_bytes(whole[:300] + b"\0" * 50 + whole[350:])
    with pytest.raises(TransferFileError, match="damaged or cut off"):
        import_file(db, path)
    assert snapshot(raw) == []
    path.write_bytes(whole * 2 if name.endswith("gz") else whole)
    with opened(path) as plain:
        assert plain.read().count(b"\n") >= 3000


def test_an_export_that_fails_leaves_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl.gz"
    path.write_bytes(b"older")
    with pytest.raises(ZeroDivisionError), written(path) as stream:
        stream.write(str(1 // 0).encode())
    assert path.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(TransferFileError, match="No such file"), written(tmp_path / "absent" / "x"):
        pass


def test_equal_exports_are_equal_files_whatever_their_name(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        with written(tmp_path / name) as stream:
            stream.write(b"same")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"same"


def test_an_interrupted_import_goes_on_when_it_is_run_again(
    db: SessionDB, raw: RawSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain(db)
    exported, before = db.export_all(), pointers(raw)
    path = write_lines(tmp_path / "all.jsonl", exported)
    raw("DELETE FROM sessions")

    def interrupt(phase: str, done: int, _total: int | None) -> None:
        if phase == "importing" and done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_file(db, path, on_progress=interrupt)
    assert [s["id"] for s in db.export_all()] == ["a"]
    report = import_file(db, path)
    assert (report["imported_ids"], report["skipped_ids"]) == (["b", "other"], ["a"])
    assert db.export_all() == exported
    assert pointers(raw) == before


def test_chats_of_other_programs_become_sessions(db: SessionDB, tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    path = write_lines(
        tmp_path / "chats.train.jsonl",
        [
            {
                "messages": [
                    {"role": "user", "content": "a", "name": "ann"},
                    {"role": "assistant", "content": "b"},
                ],
                "tools": tools,
            },
            {
                "id": "share",
                "system": "be kind",
                "conversations": [
                    {"from": "human", "value": "c"},
                    {"from": "gpt", "value": "d", "weight": 1},
                    {"from": "observation", "value": "e"},
                    {"from": "Narrator", "value": "f"},
                ],
            },
            {"id": 7, "conversations": [{"role": "user", "content": "g"}]},
        ],
    )
    assert import_file(db, path)["imported_ids"] == ["chats-1", "share", "7"]
    first, second = db.export_session("chats-1"), db.export_session("share")
    assert first is not None
    assert second is not None
    assert json.loads(first["model_config"]) == {"tools": tools}
    assert first["messages"][0]["name"] == "ann"
    assert [(m["role"], m["content"]) for m in second["messages"]] == [
        ("system", "be kind"),
        ("user", "c"),
        ("assistant", "d"),
        ("tool", "e"),
        ("Narrator", "f"),
    ]
    assert second["messages"][2]["weight"] == 1
    assert second["source"] == "import"


@pytest.mark.parametrize("key", ["messages", "conversations", "conversation"])
@pytest.mark.parametrize("value", ["x", {"from": "human"}, None])
@pytest.mark.parametrize("others", [{}, {"id": "a"}])
def test_a_chat_whose_messages_are_no_list_is_named_as_that(
    db: SessionDB, raw: RawSql, tmp_path: Path, key: str, value: Any, others: dict[str, Any]
) -> None:
    with pytest.raises(ImportRefusedError, match=f"argument '{key}' is refused: it must be a list"):
        import_file(db, write_lines(tmp_path / "chats.jsonl", [others | {key: value}]))
    assert raw("SELECT id FROM sessions") == []


def test_only_so_many_errors_are_listed(
    db: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "MAX_LISTED_ERRORS", 3)
    with pytest.raises(ImportRefusedError, match="8 more") as caught:
        import_file(db, write_lines(tmp_path / "bad.jsonl", [7] * 9))
    assert (len(caught.value.errors), caught.value.count) == (3, 9)
