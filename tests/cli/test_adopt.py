"""``hermes-state adopt`` and what docs/moving.md shows of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import PROJECT, Run
from tests.support.builders import checkpoint
from tests.support.older_stores import OldStore


@pytest.fixture
def old(tmp_path: Path) -> Iterator[OldStore]:
    store = OldStore(tmp_path / "old.db")
    store.session()
    for name in "ab":
        items = json.dumps([checkpoint(name)])
        store.message(role="assistant", content=f"{name}\0", codex_reasoning_items=items)
    store.conn.execute("CREATE TABLE gateway_routing (a TEXT)")
    store.conn.execute("INSERT INTO gateway_routing VALUES ('x')")
    yield store
    store.close()


def test_it_fills_the_store_of_the_global_options(run: Run, old: OldStore, store_url: str) -> None:
    done = run("adopt", old.path)
    assert "1 sessions, 2 messages and 0 notes" in done.stdout
    assert "of checkpoints in 1 messages" in done.stdout
    assert "not copied: 1 rows of gateway_routing" in done.stdout
    assert re.search(r"messages +content +NUL, surrogates .* 2\n", done.stdout)
    with SessionDB(url=store_url) as db:
        assert len(db.get_messages("s")) == 2
    again = run("adopt", old.path, code=1)
    assert again.stderr.startswith("TargetNotEmptyError: ")


def test_it_says_everything_as_json_and_lists_conversions_in_a_file(
    cli: Run, old: OldStore, tmp_path: Path
) -> None:
    target, listed = tmp_path / "new.db", tmp_path / "conversions.jsonl"
    done = cli("adopt", old.path, "--into", target, "--json", "--keep-checkpoints", "--conversions", listed)
    report = json.loads(done.stdout)
    assert (report["into"], report["sessions"], report["messages"]) == (str(target), 1, 2)
    assert report["left_tables"] == {"gateway_routing": 1}
    assert report["stripped_messages"] == 0
    assert [entry["count"] for entry in report["conversion_counts"]] == [2]
    lines = [json.loads(line) for line in listed.read_text(encoding="utf-8").splitlines()]
    assert lines == report["conversions"]
    assert listed.stat().st_mode & 0o777 == 0o600
    assert [(line["table"], line["id"], line["column"]) for line in lines] == [
        ("messages", "1", "content"),
        ("messages", "2", "content"),
    ]


def test_it_takes_a_url_as_target(cli: Run, old: OldStore, store_url: str) -> None:
    assert "2 messages" in cli("adopt", old.path, "--into", store_url).stdout


def test_the_guide_names_every_rule() -> None:
    from hermes_state.transfer.adoption import values

    page = " ".join((PROJECT / "docs" / "moving.md").read_text(encoding="utf-8").split())
    named = [value for name, value in vars(values).items() if name.isupper() and isinstance(value, str)]
    assert [rule for rule in named if len(rule) > 20 and rule not in page] == []
