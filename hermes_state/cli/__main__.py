"""``python -m hermes_state.cli``."""

from hermes_state.cli.main import app

app(prog_name="hermes-state")
