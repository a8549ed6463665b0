"""A path that names no store makes none, whatever is asked of it; what is meant to make one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state import SessionDB, StoreUnavailableError
from tests.cli.conftest import SAMPLES, Run

ASKING = [
    ["current"],
    ["check"],
    ["downgrade", "base"],
    ["doctor"],
    ["doctor", "--repair"],
    ["search", "word"],
    ["index"],
    ["index", "rebuild"],
    ["index", "--trigram", "on"],
    ["stats"],
    ["usage"],
    ["reclaim", "--dry-run"],
    ["reclaim"],
    ["export", "--all"],
    ["sessions", "list"],
    ["sessions", "show", "s"],
    ["sessions", "title", "s", "a title"],
    ["sessions", "archive", "s"],
    ["sessions", "delete", "s", "--yes"],
    ["sessions", "prune", "--yes"],
]


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
def test_a_mistyped_path_is_refused_by_name_and_stays_empty(
    cli: Run, tmp_path: Path, arguments: list[str]
) -> None:
    absent = tmp_path / "folder" / "mistyped.db"
    result = cli("--db", absent, *arguments, code=1)
    assert result.stderr.startswith("StoreUnavailableError: ")
    assert str(absent) in result.stderr
    assert "upgrade" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["upgrade"], ["record", str(SAMPLES / "balcony-garden.jsonl")]], ids=lambda given: given[0]
)
def test_what_fills_a_store_makes_it(cli: Run, tmp_path: Path, arguments: list[str]) -> None:
    path = tmp_path / "folder" / "new.db"
    cli("--db", path, *arguments)
    cli("--db", path, "check")


def test_a_backup_of_no_store_leaves_nothing(cli: Run, tmp_path: Path) -> None:
    cli("--db", tmp_path / "mistyped.db", "backup", tmp_path / "backup.db", code=1)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_only_to_be_checked_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="there is no store at"):
        SessionDB(tmp_path / "mistyped.db", migrate=False)
    assert list(tmp_path.iterdir()) == []
