"""The pages and examples say what the code does."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_state import errors
from hermes_state.settings import Settings
from tests.cli.conftest import PROJECT

WITH_PACKAGE = {**os.environ, "PYTHONPATH": str(PROJECT)}
README = PROJECT / "README.md"
PAGES = [README, PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def test_the_ten_lines_of_the_readme_are_the_quickstart_and_run(tmp_path: Path) -> None:
    quickstart = PROJECT / "examples" / "quickstart.py"
    (block,) = re.findall(
        r"## Ten lines\n\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL
    )
    assert quickstart.read_text(encoding="utf-8").endswith(block)
    done = subprocess.run(
        [sys.executable, quickstart],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env=WITH_PACKAGE,
    )
    assert done.stderr == ""
    assert [word in done.stdout for word in ("six times seven", "'42'", "compaction", "Thank you.")] == [
        True
    ] * 4
    assert (tmp_path / "state.db").exists()


def test_the_demonstration_works_twice_and_says_where_the_file_is(tmp_path: Path) -> None:
    """On a copy of the examples, where no transcripts but our own are within reach."""
    project = tmp_path / "work" / "project"
    shutil.copytree(PROJECT / "examples", project / "examples")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, project / "examples" / "demo.py"],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
            env=WITH_PACKAGE,
        )
        assert "3 conversations of our own, every turn" in done.stdout
        assert str(project / "demo" / "state.db") in done.stdout
        assert done.stderr.count("already recorded") == 3


def test_the_schema_page_is_what_the_models_say() -> None:
    subprocess.run(
        [sys.executable, PROJECT / "docs" / "generate_schema.py", "--check"], check=True, env=WITH_PACKAGE
    )


def test_every_error_stands_in_the_table() -> None:
    classes = [name for name, found in inspect.getmembers(errors, inspect.isclass) if _is_error(found)]
    page = (PROJECT / "docs" / "operating.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [name for name in classes if not any(f"`{name}`" in row for row in rows)] == []
    for name in classes:
        row = next(row for row in rows if f"`{name}`" in row)
        assert row.split(" | ")[1] == ("yes" if getattr(errors, name).transient else "no"), name


@pytest.mark.parametrize("page", [README, PROJECT / "docs" / "operating.md"])
def test_every_setting_stands_in_the_table_with_its_default(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = dict(re.findall(r"^\| `HERMES_STATE_(\w+)` \| `?([\w.]+)`? \|", text, re.MULTILINE))
    expected = {name.upper(): field.default for name, field in Settings.model_fields.items()}
    assert found.keys() == expected.keys()
    for name, default in expected.items():
        assert found[name] == (
            "unset" if default is None else f"{default:g}" if isinstance(default, float) else str(default)
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_decisions_are_short_and_numbered_without_gaps() -> None:
    pages = sorted((PROJECT / "docs" / "adr").glob("*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:04d}" for number in range(1, len(pages) + 1)]
    assert max(len(page.read_text(encoding="utf-8").splitlines()) for page in pages) <= 40


def _is_error(found: type) -> bool:
    return issubclass(found, errors.HermesStateError) and found is not errors.HermesStateError
