"""The command line as a program of its own, and transcripts to feed it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hermes_state.cli.main import app

Run = Callable[..., Result]
Write = Callable[..., Path]

PROJECT = Path(__file__).resolve().parents[2]
SAMPLES = PROJECT / "examples" / "transcripts"


@pytest.fixture
def cli() -> Run:
    """Runs ``hermes-state`` with exactly these arguments; the exit code must be ``code``."""

    def run(*arguments: object, code: int = 0, env: dict[str, str] | None = None) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], env=env)
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        assert "Traceback" not in result.stderr
        return result

    return run


@pytest.fixture
def run(cli: Run, store_url: str) -> Run:
    """Runs ``hermes-state`` on the store under test."""

    def on_store(*arguments: object, code: int = 0) -> Result:
        return cli("--url", store_url, *arguments, code=code)

    return on_store


@pytest.fixture
def transcript(tmp_path: Path) -> Write:
    """Writes messages into a file, one a line."""

    def write(messages: list[Any], name: str = "talk.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")
        return path

    return write


def talk(*roles: str) -> list[dict[str, Any]]:
    """A conversation in which each message says its position."""
    return [{"role": role, "content": f"text {at}"} for at, role in enumerate(roles)]
