# Every target prepares its own virtual environment, so each works in a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    ?= runs/demo

.PHONY: help setup demo test test-faults test-ray lint bench clean

help:
	@echo "make demo    train, sample and compare on digits with 2 % labels (writes $(OUT)/report.html)"
	@echo "make test    run the tests"
	@echo "make test-faults   the long form of tests/faults: kills, damage, full disks, hostile files"
	@echo "make test-ray      a comparison on a Ray cluster of three nodes on this machine; installs Ray"
	@echo "make lint    ruff, mypy, and the order of the rooms"
	@echo "make bench   speed and quality ratios, measured in one run"
	@echo "make setup   only prepare $(VENV), development tools included"

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "selfcal needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	$(BIN)/selfcal demo --out $(OUT)

test: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-faults: setup
	SELFCAL_FAULTS=long $(BIN)/python -m pytest -n 2 --dist worksteal tests/faults

test-ray: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray]'
	SELFCAL_RAY=1 $(BIN)/python -m pytest tests/cluster

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
