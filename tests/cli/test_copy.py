"""``copy`` as a command."""

from __future__ import annotations

import json
from pathlib import Path

from hermes_state import SessionDB
from tests.cli.conftest import Run
from tests.contract.test_export import chain
from tests.support.raw import RawSql


def test_a_store_is_copied_there_and_back_and_proved(cli: Run, store_url: str, tmp_path: Path) -> None:
    source, back = tmp_path / "source.db", tmp_path / "back.db"
    with SessionDB(source) as db:
        chain(db)
    result = cli("copy", source, store_url)
    assert "complete," in result.stdout
    assert "every digest agrees" in result.stdout
    report = json.loads(cli("copy", store_url, back, "--json").stdout)
    digests = {each["table"]: each["digest"] for each in report["tables"]}
    assert [word[:16] in result.stdout for word in digests.values()] == [True] * len(digests)
    with SessionDB(source) as one, SessionDB(back) as other:
        assert one.export_all() == other.export_all()


def test_what_was_changed_is_said_beside_the_data(cli: Run, store_url: str, tmp_path: Path) -> None:
    source = tmp_path / "source.db"
    with SessionDB(source) as db:
        chain(db)
    RawSql(f"sqlite:///{source}")("UPDATE sessions SET title = 'a' || char(0) WHERE id = 'a'")
    result = cli("copy", source, store_url)
    assert "sessions a, title: NUL became U+FFFD" in result.stderr
    assert "became" not in result.stdout


def test_a_target_that_is_not_empty_is_one_line_and_exit_code_1(
    cli: Run, db: SessionDB, store_url: str, tmp_path: Path
) -> None:
    chain(db)
    with SessionDB(tmp_path / "other.db") as other:
        chain(other)
    result = cli("copy", tmp_path / "other.db", store_url, code=1)
    assert result.stderr.startswith("TargetNotEmptyError: ")
    assert result.stderr.count("\n") == 1
    cli("--db", tmp_path / "other.db", "copy", tmp_path / "other.db", store_url, code=2)
    cli("copy", tmp_path / "absent.db", store_url, code=1)
