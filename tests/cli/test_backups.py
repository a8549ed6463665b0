"""``backup`` and ``restore`` as an operator runs them (issue 4, item 6)."""

from __future__ import annotations

import json
from pathlib import Path

from hermes_state import SessionDB
from tests.cli.conftest import Run


def contents(url: str) -> list[object]:
    with SessionDB(url=url, read_only=True) as db:
        return [message["content"] for message in db.get_messages("s")]


def test_a_backup_prints_its_path_and_comes_back(run: Run, store_url: str, tmp_path: Path) -> None:
    with SessionDB(url=store_url) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "kept")
    folder = tmp_path / "backups"
    path = Path(run("backup", folder, "--keep", 3).stdout.strip())
    assert path.parent == folder
    with SessionDB(url=store_url) as db:
        db.append_message("s", "user", "later")
    found = json.loads(run("restore", path, "--yes", "--json").stdout)
    assert contents(store_url) == ["kept"]
    run("restore", found["path"], "--yes")
    assert contents(store_url) == ["kept", "later"]


def test_a_restore_asks_first(run: Run, store_url: str, tmp_path: Path) -> None:
    path = run("backup", tmp_path / "backups").stdout.strip()
    with SessionDB(url=store_url) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "stays")
    run("restore", path, code=1)
    assert contents(store_url) == ["stays"]


def test_an_open_store_makes_the_command_fail_with_one_line(run: Run, store_url: str, tmp_path: Path) -> None:
    found = json.loads(run("backup", tmp_path / "backups", "--json").stdout)
    assert found["size_bytes"] == Path(found["path"]).stat().st_size
    with SessionDB(url=store_url) as db:
        db.message_count()
        result = run("restore", found["path"], "--yes", code=1)
    assert result.stderr.startswith("StoreBusyError: ")
    assert result.stdout == ""
