"""docs/transfer.md does what it says: its Python block is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "transfer.md"


def test_the_blocks_of_the_guide_print_what_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == text.count("This prints ")
    assert all(f"This prints `{line}`" in text for line in printed)
