"""Settings from the environment (prefix ``HERMES_STATE_``) and the default place of a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import platformdirs
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

_LONGEST_SECONDS = 86_400.0  # milliseconds must fit 32 bits on both databases
DEFAULT_MAX_TEXT_BYTES = 64 * 1024 * 1024


class Settings(BaseSettings):
    """What an operator can set; read once, when a ``SessionDB`` is made. Times are seconds, sizes bytes.

    An unusable value raises pydantic's ``ValidationError`` (a ``ValueError``) naming the variable.
    """

    model_config = SettingsConfigDict(env_prefix="HERMES_STATE_", frozen=True, extra="ignore")

    url: str | None = Field(default=None, repr=False)
    """Database URL of the default store; unset: a SQLite file, see :func:`default_url`."""
    busy_timeout_seconds: float = Field(default=20.0, ge=0, le=_LONGEST_SECONDS)
    """How long a write waits for another writer before ``StoreBusyError``."""
    statement_timeout_seconds: float = Field(default=60.0, ge=0, le=_LONGEST_SECONDS)
    """PostgreSQL only: longest time of one statement; 0 means no limit."""
    connect_timeout_seconds: float = Field(default=10.0, gt=0, le=_LONGEST_SECONDS)
    """PostgreSQL only: longest time to connect."""
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    """SQLite only: FULL syncs at every commit, NORMAL may lose the last commits at a power cut."""
    pool_size: int = Field(default=5, ge=1)
    """Connections kept open; up to ten more are opened under load."""
    max_text_bytes: int = Field(default=DEFAULT_MAX_TEXT_BYTES, ge=1024)
    """Longest text, or JSON text, of one column in UTF-8 bytes (CONTRACT.md section 2, rule 6)."""


def default_url(settings: Settings) -> str:
    """The URL of the store when none is named: ``HERMES_STATE_URL``, else ``state.db`` in ``HERMES_HOME``,
    else ``state.db`` in the platform's user data directory (issue 2, item 3)."""
    if settings.url:
        return settings.url
    home = os.environ.get("HERMES_HOME")
    folder = (
        Path(home).expanduser() if home else Path(platformdirs.user_data_dir("hermes_state", appauthor=False))
    )
    return f"sqlite:///{folder / 'state.db'}"
