# One command each; the virtual environment is made on first use. PYTHON names the interpreter to make it with.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= auto
PYTEST_ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CHECKED := hermes_state migrations tests examples benchmarks docs

.PHONY: help demo test lint format type check bench

help:
	@echo "make demo | test | lint | format | type | check (lint, type, test) | bench"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/python examples/demo.py

# The whole suite, on SQLite and on a real PostgreSQL server: without one this fails instead of skipping.
test: $(STAMP)
	HERMES_STATE_REQUIRE_POSTGRES=1 $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

format: $(STAMP)
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

type: $(STAMP)
	$(BIN)/python -m mypy $(CHECKED)

check: lint type test

bench: $(STAMP)
	$(BIN)/python -m benchmarks
