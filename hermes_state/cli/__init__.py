"""The command line: ``hermes-state``, or ``python -m hermes_state.cli``."""
