"""Which store is meant, exit codes, and what is never printed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.cli.conftest import PROJECT, SAMPLES, Run

SAMPLE = SAMPLES / "release-notes.jsonl"
PASSWORD = "open-sesame"


def test_db_names_a_file_and_url_a_database(cli: Run, tmp_path: Path) -> None:
    cli("--db", tmp_path / "a.db", "record", SAMPLE)
    assert "release-notes" in cli("--url", f"sqlite:///{tmp_path / 'a.db'}", "sessions", "list").stdout


def test_without_options_the_environment_names_the_store(cli: Run, tmp_path: Path) -> None:
    cli("record", SAMPLE, env={"HERMES_STATE_URL": f"sqlite:///{tmp_path / 'named.db'}"})
    cli("record", SAMPLE, env={"HERMES_HOME": str(tmp_path / "home")})
    assert (tmp_path / "named.db").exists()
    assert (tmp_path / "home" / "state.db").exists()


def test_both_options_at_once_are_wrong_usage(cli: Run, tmp_path: Path) -> None:
    assert "not both" in cli("--db", tmp_path / "a.db", "--url", "sqlite:///b.db", "current", code=2).stderr


def test_an_unusable_setting_is_wrong_usage_and_named(cli: Run) -> None:
    result = cli("current", code=2, env={"HERMES_STATE_POOL_SIZE": "many"})
    assert "HERMES_STATE_POOL_SIZE" in result.stderr


@pytest.mark.parametrize(
    "arguments", [("unknown",), ("sessions", "unknown"), ("--nonsense",), ("downgrade",)]
)
def test_unknown_commands_and_options_end_with_two(cli: Run, arguments: tuple[str, ...]) -> None:
    assert cli(*arguments, code=2).stdout == ""


def test_help_tells_the_exit_codes(cli: Run) -> None:
    assert "1 the store refused" in " ".join(cli("--help").stdout.split())


@pytest.mark.parametrize("url", ["nonsense", "mysql://root@localhost/x", "postgresql://host:port/x"])
def test_a_url_that_cannot_be_used_is_one_line(cli: Run, url: str) -> None:
    result = cli("--url", url, "current", code=1)
    assert result.stderr.startswith("InvalidArgumentError: ")
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_no_database_and_a_folder_are_typed_and_untouched(cli: Run, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be looked at" * 40)
    before = text.read_bytes()
    for command in (("current",), ("upgrade",), ("check",), ("record", SAMPLE), ("sessions", "list")):
        for path in (text, tmp_path):
            assert cli("--db", path, *command, code=1).stderr.startswith("NotADatabaseError: ")
    assert text.read_bytes() == before


def test_a_store_of_an_older_program_is_left_alone(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT)")
        conn.execute("CREATE TABLE schema_version (version INTEGER)")
    conn.close()
    before = path.read_bytes()
    for command in (("upgrade",), ("record", SAMPLE), ("sessions", "list"), ("check",)):
        assert cli("--db", path, *command, code=1).stderr.startswith("SchemaMismatchError: ")
    assert path.read_bytes() == before


def test_a_server_that_is_not_there_is_one_line_without_the_password(cli: Run) -> None:
    url = f"postgresql://agent:{PASSWORD}@127.0.0.1:1/none?password={PASSWORD}"
    for command in (("current",), ("upgrade",), ("record", SAMPLE), ("sessions", "list")):
        result = cli("--url", url, *command, code=1)
        assert result.stderr.startswith("StoreUnavailableError: ")
        assert result.stderr.count("\n") == 1
        assert PASSWORD not in result.output


@pytest.mark.postgres
def test_no_command_prints_the_password_of_a_server(cli: Run, fresh_postgres_url: str) -> None:
    url = make_url(fresh_postgres_url).set(password=PASSWORD).render_as_string(hide_password=False)
    assert PASSWORD in url
    commands = [
        ("upgrade",),
        ("current",),
        ("check",),
        ("record", str(SAMPLE)),
        ("record", "--json", str(SAMPLE)),
        ("sessions", "list"),
        ("downgrade", "base", "--force"),
    ]
    assert PASSWORD not in "".join(cli("--url", url, *command).output for command in commands)


def test_the_module_runs_as_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hermes_state.cli", "--db", str(tmp_path / "a.db")]
    done = subprocess.run(
        [*command, "record", str(SAMPLE)], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    failed = subprocess.run(
        [*command, "sessions", "show", "x"], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("UnknownSessionError: 'x' ")


def test_a_terminal_without_unicode_gets_question_marks_not_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hermes_state.cli", "--db", str(tmp_path / "a.db")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    garden = str(SAMPLES / "balcony-garden.jsonl")
    subprocess.run(
        [*command, "record", garden], cwd=PROJECT, env=environment, capture_output=True, check=True
    )
    for option in ([], ["--json"]):
        done = subprocess.run(
            [*command, "sessions", "show", *option, "balcony-garden"],
            cwd=PROJECT,
            env=environment,
            capture_output=True,
            check=True,
        )
        assert done.stdout.isascii()
