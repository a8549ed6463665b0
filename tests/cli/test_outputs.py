"""Files that commands write: never over a store (a newcomer's finding of issue 4)."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hermes_state import SessionDB
from hermes_state.cli.main import app


@pytest.mark.parametrize("command", ["export --all -o", "report --html"])
@pytest.mark.parametrize("kind", ["itself", "another", "a link", "a backup"])
def test_no_output_replaces_a_store(tmp_path: Path, command: str, kind: str) -> None:
    own, other = tmp_path / "own.db", tmp_path / "other.db"
    for path in (own, other):
        with SessionDB(path) as db:
            db.create_session(path.stem, "cli")
            db.append_message(path.stem, "user", "kept")
    (tmp_path / "link.db").symlink_to(other)
    target = {"itself": own, "another": other, "a link": tmp_path / "link.db", "a backup": tmp_path / "b.db"}[
        kind
    ]
    if kind == "a backup":
        assert CliRunner().invoke(app, ["--db", str(own), "backup", str(target)]).exit_code == 0
    result = CliRunner().invoke(app, ["--db", str(own), *command.split(), str(target)])
    assert result.exit_code == 1
    assert "give another name" in result.stderr
    for path in (own, target):
        with SessionDB(path) as db:
            assert len(db.list_sessions_rich()) == 1


def test_an_output_replaces_what_is_no_store(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "own.db") as db:
        db.create_session("s", "cli")
    for text in ("", "yesterday", "SQLite format 4"):
        (tmp_path / "out").write_text(text)
        result = CliRunner().invoke(
            app, ["--db", str(tmp_path / "own.db"), "export", "--all", "-o", str(tmp_path / "out")]
        )
        assert result.exit_code == 0
        assert (tmp_path / "out").read_text().startswith("{")
