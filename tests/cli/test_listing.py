"""``sessions list`` and ``sessions archive``: the owner finds conversations and puts them aside (issue 6, item 6)."""

from __future__ import annotations

import json

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import Run
from tests.support.builders import user
from tests.support.raw import RawSql


@pytest.fixture
def filled(db: SessionDB, raw: RawSql) -> SessionDB:
    """Five conversations, one of them compressed, of which the first started was used last."""
    for number, (name, source) in enumerate(
        [("garden", "cli"), ("100%", "chat"), ("pins", "chat"), ("away", "cron"), ("secret", "cli")]
    ):
        db.create_session(name, source, cwd=f"/work/{name}")
        raw("UPDATE sessions SET started_at = ? WHERE id = ?", 1000 + number, name)
    for text in ("When do tomatoes\ngo outside?", "And basil?"):
        db.append_message("garden", "user", text)
    db.publish_continuation("garden", "garden-2", [user("summary"), user("more")])
    db.set_session_title("100%", "Release notes")
    db.set_session_pinned("pins", True)
    db.set_session_archived("away", True)
    db.set_session_hidden("secret", True)
    return db


def ids(run: Run, *arguments: object) -> list[str]:
    return [
        each["id"] for each in json.loads(run("sessions", "list", "--json", *arguments).stdout)["sessions"]
    ]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), ["garden-2", "pins", "100%"]),
        (("--by", "start"), ["pins", "100%", "garden-2"]),
        (("--all",), ["garden-2", "secret", "away", "pins", "100%"]),
        (("--children",), ["garden-2", "garden", "pins", "100%"]),
        (("--source", "chat"), ["pins", "100%"]),
        (("--source", "chat", "--source", "cli"), ["garden-2", "pins", "100%"]),
        (("--exclude-source", "chat"), ["garden-2"]),
        (("--cwd", "/work/100%"), ["100%"]),
        (("--cwd", "/work/"), ["garden-2", "pins", "100%"]),
        (("--cwd", "/wor_"), []),
        (("--min-messages", "2"), ["garden-2"]),
        (("--id", "%"), ["100%"]),
        (("--search", "notes release"), ["100%"]),
        (("--search", "..."), []),
        (("--pinned",), ["pins"]),
        (("--not-pinned",), ["garden-2", "100%"]),
        (("--archived",), ["away"]),
        (("--hidden",), ["secret"]),
        (("--limit", "1", "--offset", "1"), ["pins"]),
    ],
)
def test_each_filter_finds_what_it_says(
    filled: SessionDB, run: Run, arguments: tuple[str, ...], found: list[str]
) -> None:
    assert ids(run, *arguments) == found


def test_pages_follow_one_another_by_cursor(filled: SessionDB, run: Run) -> None:
    seen: list[str] = []
    more: tuple[str, ...] = ()
    while True:
        page = json.loads(run("sessions", "list", "--all", "--limit", 2, "--json", *more).stdout)
        seen += [each["id"] for each in page["sessions"]]
        if page["next_cursor"] is None:
            break
        more = ("--cursor", page["next_cursor"])
    assert seen == ids(run, "--all")
    note = run("sessions", "list", "--limit", 2).stderr
    assert note.startswith("there are more: --cursor ")
    assert "100%" in run("sessions", "list", "--limit", 2, "--cursor", note.split()[-1]).stdout
    assert run("sessions", "list", "--cursor", "bogus", code=1).stderr.startswith("InvalidArgumentError: ")


def test_people_see_titles_and_beginnings(filled: SessionDB, run: Run) -> None:
    text = run("sessions", "list").stdout
    assert "Release notes" in text
    assert "summary" in text
    filled.append_message("pins", "user", "a\x1b[31m" + "long " * 1_000)
    (line,) = [line for line in run("sessions", "list").stdout.splitlines() if "pins" in line]
    assert line.rstrip().endswith("...")
    assert "\x1b" not in line


def test_archiving_hides_whole_conversations_and_can_be_undone(
    filled: SessionDB, run: Run, raw: RawSql
) -> None:
    found = run("sessions", "archive", "garden-2", "100", "100%", "--json")
    assert json.loads(found.stdout) == {"archived": True, "sessions": ["garden-2", "100%"]}
    assert found.stderr == ""
    assert ids(run) == ["pins"]
    assert ids(run, "--archived") == ["garden-2", "away", "100%"]
    assert "1 conversations shown again" in run("sessions", "archive", "--undo", "garden").stdout
    assert ids(run) == ["garden-2", "pins"]


def test_one_unknown_id_hides_nothing(filled: SessionDB, run: Run) -> None:
    assert run("sessions", "archive", "100%", "nobody", code=1).stderr.startswith("UnknownSessionError: ")
    run("sessions", "archive", code=2)
    assert ids(run) == ["garden-2", "pins", "100%"]


@pytest.mark.parametrize(
    "arguments", [("--by", "size"), ("--limit", "0"), ("--offset", "-1"), ("--min-messages", "-1")]
)
def test_wrong_options_are_wrong_usage(filled: SessionDB, run: Run, arguments: tuple[str, ...]) -> None:
    assert run("sessions", "list", *arguments, code=2).stdout == ""
