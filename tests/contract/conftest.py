"""What most contract tests start from."""

from __future__ import annotations

import pytest

from hermes_state import SessionDB


@pytest.fixture
def session(db: SessionDB) -> str:
    """The id of an open session."""
    return db.create_session("s", "cli")
