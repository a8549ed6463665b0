"""A full disk or a reader that has gone behind stdout: one line or none, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import SAMPLES, Run

PRINTING = [
    ["current"],
    ["sql"],
    ["stats"],
    ["search", "the"],
    ["export", "--all"],
    ["sessions", "list"],
    ["sessions", "list", "--json"],
    ["sessions", "show", "balcony-garden"],
]


@pytest.fixture
def path(cli: Run, tmp_path: Path) -> Path:
    cli("--db", tmp_path / "state.db", "record", SAMPLES / "balcony-garden.jsonl")
    return tmp_path / "state.db"


def command(path: Path, arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "hermes_state.cli", "--db", str(path), *arguments]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_full_disk_is_told_in_one_line(path: Path, arguments: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            command(path, arguments), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("OSError: No space left")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_reader_that_has_gone_is_no_fault(path: Path, arguments: list[str]) -> None:
    with subprocess.Popen(
        command(path, arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        said = program.stderr.read()
    assert program.returncode in (0, 1)
    assert said == b""
