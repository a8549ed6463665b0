"""``doctor`` (issue 6, item 5)."""

from __future__ import annotations

import json

from hermes_state import SessionDB
from tests.cli.conftest import Run
from tests.support.raw import RawSql


def test_differences_are_exit_code_1_until_they_are_mended(db: SessionDB, run: Run, raw: RawSql) -> None:
    db.create_session("s\u202e", "cli")
    assert run("doctor").stdout == ""
    raw("UPDATE sessions SET message_count = 5")
    assert "message_count" in run("doctor", code=1).stdout
    (found,) = json.loads(run("doctor", "--json", code=1).stdout)
    assert (found["found"], found["expected"], found["repaired"]) == (5, 0, False)
    assert "\u202e" not in run("doctor", "--repair").stdout
    assert json.loads(run("doctor", "--json").stdout) == []
