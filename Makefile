# make demo     prove and run a kernel on this machine, then see a wrong one refuted
# make test     everything: lint, types, all tests that need no GPU
# make check    the quick loop: lint, types, the fast tests
# make nightly  what takes too long for every change: generated programs, mutants, second opinions and exact proofs of
#               everything that ships
# make docs     the documentation as a site, in build/site
#
# Each sets up what it needs in .venv. Requirements: Python 3.10 or newer, a C++ compiler, make.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= auto

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

JOBS ?= $(shell nproc)
NIGHTLY_COUNT ?= 2000
NIGHTLY_SEED ?= $(shell date +%Y%m%d)

# Tests start many processes, which load what the first one compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check test-alone check-alone nightly lint types docs clean

demo: $(VENV)/run.stamp
	$(BIN)/python -m argus demo

# Types are checked beside the tests, because mypy uses one core.
test check: $(VENV)/test.stamp lint
	@$(MAKE) --no-print-directory --jobs=2 types $@-alone

test-alone:
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -rs --costs=build/costs.txt

check-alone:
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q -m "not slow and not gpu and not nightly"

nightly: $(VENV)/test.stamp
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -rs -m nightly
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q --prove-results tests/kernels tests/layers tests/torch
	$(BIN)/python -m tests.verify.differential --count $(NIGHTLY_COUNT) --seed $(NIGHTLY_SEED) --emitted --again 20 --jobs $(JOBS)
	$(BIN)/python -m benchmarks mutants --seed $(NIGHTLY_SEED) --jobs $(JOBS)
	$(BIN)/python -m benchmarks trust --jobs $(JOBS)

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .

types: $(VENV)/test.stamp
	$(BIN)/mypy

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "argus needs Python 3.10 or newer: set PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "cannot make a virtual environment: on Debian, install python3-venv" >&2; exit 1; }

# The stamps say that the environment follows these two files.
$(VENV)/run.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/docs.stamp: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/test.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[test]'
	@touch $@ $(VENV)/run.stamp

docs: $(VENV)/docs.stamp
	$(BIN)/mkdocs build --quiet
	@echo "built build/site/index.html"

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
