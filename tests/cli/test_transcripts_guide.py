"""docs/transcripts.md does what it says: its blocks are run in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "transcripts.md"


def test_the_blocks_of_the_guide_print_what_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    names["db"].close()  # type: ignore[attr-defined]
    assert len(printed) == 3
    assert all(f"This prints `{line}`" in text for line in printed)
