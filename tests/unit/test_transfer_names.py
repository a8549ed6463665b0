"""What programs call stands in ``hermes_state.transfer``, and looking there loads nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hermes_state.transfer


@pytest.mark.parametrize("name", hermes_state.transfer.__all__)
def test_every_name_is_there_and_says_what_it_does(name: str) -> None:
    assert getattr(hermes_state.transfer, name).__doc__


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'teleport'"):
        hermes_state.transfer.teleport  # noqa: B018


def test_looking_there_loads_no_part_of_it() -> None:
    code = "import sys, hermes_state.transfer; print([m for m in sys.modules if m.startswith('hermes_state.transfer.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
