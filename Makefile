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
PIP := $(BIN)/python -m pip --disable-pip-version-check
ARGS ?=

.PHONY: help setup chat test check test-long bench local lock clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with everything from the lock

$(STAMP): $(LOCK) pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python 3.11 or newer found. Install one, or say 'make setup PYTHON=/path/to/python3.11'." >&2; exit 1; fi
	@echo "Setting up $(VENV) with $(PYTHON) (a minute the first time) ..." >&2
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "Python could not make a virtual environment (Debian: apt-get install python3-venv)." >&2; exit 1; }
	@$(PIP) install -qq --require-hashes -r $(LOCK) >&2
	@$(PIP) install -qq --no-deps --no-build-isolation --no-index -e . >&2
	@$(BIN)/python -m compileall -q src >&2 || true
	@touch $(STAMP)
