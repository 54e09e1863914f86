# `make demo` and `make test` set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is never imported need not be compiled: half of the time of an installation.
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
# Hundreds of processes start in a run of the tests; each would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE
GATED := fake:rejects --set token_delay_s=0.001
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev

.PHONY: setup setup-dev demo test gate baseline check fix types clean capture

setup: $(READY)
setup-dev: $(READY_DEV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("contextlab needs Python 3.11 or newer; name one: make PYTHON=python3.11 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(READY): $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[llama]'
	$(BIN)/contextlab models add smollm2
	touch $@

$(READY_DEV): $(READY)
	$(PIP) --editable '.[llama,hf,optuna,parquet,tier,dev]'
	touch $@

# Exit 1 means that the tool found something, which is what the demo is for.
demo: setup
	$(BIN)/contextlab overflow smollm2 || test $$? -eq 1

# Three files of tests at a time, since many wait for others; then those that measure time and do little else (`calm`);
# then, one by one, those that measure time (`alone`).
of = $(shell grep -rlE 'pytest\.mark\.$(1)' tests --include='test_*.py')
test: setup-dev
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m 'not alone and not calm'
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m calm $(call of,calm)
	$(BIN)/python -m pytest -m alone $(call of,alone)

# The gate on itself: a target against the same target is never worse (1) and never dies (4). A busy machine leaves it
# open (3), which is no failure of the gate.
gate: setup
	rm -rf build/gate
	$(BIN)/contextlab gate run --base '$(GATED)' --candidate '$(GATED)' --blocks 7 --max-blocks 7 --requests 6 \
	  --load warmup=1 --load reply_tokens=8 --output build/gate || test $$? -eq 3

# The default target as it is, to be committed as what later records are compared with: make baseline REASON="…"
baseline: export REASON := $(REASON)
baseline: setup
	@test -n "$$REASON" || { echo 'say why: make baseline REASON="…"'; exit 2; }
	rm -rf build/baseline
	$(BIN)/contextlab gate run --base smollm2 --candidate smollm2 --blocks 7 --max-blocks 7 --requests 8 \
	  --load warmup=1 --load reply_tokens=8 --output build/baseline || test $$? -eq 3
	@$(BIN)/contextlab report build/baseline --as json | grep -q '"contaminated": null' \
	  || { echo 'the machine was not quiet: a baseline made now would mislead'; exit 3; }
	$(BIN)/contextlab gate accept build/baseline --name smollm2 --reason "$$REASON"

check: setup-dev types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fix: setup-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# scenarios/ and reports/ import as parts of contextlab; mypy needs to see them there.
types:
	@rm -rf build/types && mkdir -p build/types/contextlab
	@ln -s $(CURDIR)/contextlab/* $(CURDIR)/scenarios $(CURDIR)/reports build/types/contextlab/
	@ln -s $(CURDIR)/tests build/types/tests

# The terminal capture in the README, made from a real run.
capture: setup
	$(BIN)/python docs/capture.py

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
