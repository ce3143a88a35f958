# Two commands on a fresh machine: `make demo` runs the main job, `make test` the tests.
# Each needs Python 3.11+, make, a C++ compiler and a network that reaches a Python package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLIENTS := .venv-clients
TOOLSPEC := $(BIN)/sglang-toolspec

.PHONY: help install demo test lint clients accept gpu-check wheel clean

help:
	@echo "make install  create $(VENV) and install everything (about 11 GB, 5 minutes)"
	@echo "make demo     plain decoding against TOOLSPEC on a real model (up to 15 minutes)"
	@echo "make test     lint, types and the tests but the long ones (15 minutes on 2 cores)"
	@echo "make accept   the long checks; resumable; writes docs/acceptance.json"
	@echo "make gpu-check  one CUDA GPU: the same replies? how fast? (15 minutes; resumable)"
	@echo "make clients  create $(CLIENTS), with client libraries that make accept tests against the server"
	@echo "make wheel    build the wheel into dist/"

install: $(VENV)/installed

# Installing again is needed only when what is declared changes.
$(VENV)/installed: pyproject.toml tools/preflight.sh
	@PYTHON="$(PYTHON)" sh tools/preflight.sh $(VENV)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[test]'
	@touch $@

demo: install
	@echo "make demo: two servers one after the other, 26 requests each; up to 15 minutes on 2 cores without a GPU."
	@$(TOOLSPEC) model fetch
	@$(TOOLSPEC) demo --requests examples/assistant.json

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: install lint
	@echo "make test: the tests but the long ones; 15 minutes on 2 cores, 6 GB of memory."
	@$(TOOLSPEC) model fetch || echo "The model cannot be fetched: tests that need it are skipped."
	$(BIN)/python -m pytest -n 2 --no-loadscope-reorder  # the engine tests first: they take longest

clients: $(CLIENTS)/installed

# Apart from $(VENV): SGLang pins an older openai than these clients need.
$(CLIENTS)/installed: tests/clients/requirements.txt
	@test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --disable-pip-version-check -r tests/clients/requirements.txt
	@touch $@

accept: install clients
	@$(TOOLSPEC) model fetch
	$(BIN)/python -m tests.accept
	$(BIN)/python tools/headline.py

gpu-check: install
	@$(TOOLSPEC) bench gpu-check --output gpu-check

wheel: install
	$(BIN)/python -m build --wheel

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
