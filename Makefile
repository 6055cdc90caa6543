# Every target prepares its own virtual environment, so each works in a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    ?= runs/demo
SITE   ?= build/site

.PHONY: help setup demo test test-faults test-app test-ray test-dist lint docs dist bench clean

help:
	@echo "make demo    train, sample and compare on digits with 2 % labels (writes $(OUT)/report.html)"
	@echo "make test    run the tests"
	@echo "make test-faults   the long form of tests/faults: kills, damage, full disks, hostile files"
	@echo "make test-app      the web page in a browser (Debian's chromium); SELFCAL_APP_MINUTES=10 clicks at random for long"
	@echo "make test-ray      a comparison on a Ray cluster of three nodes on this machine; installs Ray"
	@echo "make lint    ruff, mypy, and the order of the rooms"
	@echo "make docs    the documentation's site, in $(SITE)"
	@echo "make dist    a wheel and a source archive, in dist/"
	@echo "make test-dist     the wheel alone, in an empty environment: its commands run"
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

test-app: setup
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { echo "make test-app needs a browser: apt-get install chromium" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check 'playwright>=1.49'
	$(BIN)/python -m pytest -s --timeout 1200 tests/app/browser.py

test-ray: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray]'
	SELFCAL_RAY=1 $(BIN)/python -m pytest tests/cluster

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: docs dist test-dist
docs: setup
	rm -rf $(SITE)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env -d build/doctrees -c docs/site docs $(SITE)
	$(BIN)/python docs/site/links.py $(SITE)

dist: setup
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist

test-dist: dist
	SELFCAL_DIST=dist $(BIN)/python -m pytest tests/release

bench: setup
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
