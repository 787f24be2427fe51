# Everything runs in .venv, which the first command builds from uv.lock: `make demo` and `make test` need only
# Python 3.11+, make and a package index. Plain POSIX shell and make, as old as the 3.81 of macOS.

.DEFAULT_GOAL := help
.NOTPARALLEL:

# The first interpreter that is new enough; override with `make PYTHON=/path/to/python`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --quiet --disable-pip-version-check
UV := env -u VIRTUAL_ENV UV_PROJECT_ENVIRONMENT=$(VENV) UV_PYTHON_DOWNLOADS=never $(VENV)/bin/uv
STAMP := $(VENV)/.installed

# Kept even where the shell says otherwise: without bytecode, each of the hundreds of processes that the tests start
# spends a second and a half of processor time on compiling what it imports.
unexport PYTHONDONTWRITEBYTECODE

# Parallel test processes; 0 runs the suite in one, where `--pdb` and `-s` work.
WORKERS ?= 2
# Passed on to pytest, as in `make unit ARGS="-k history -x"`.
ARGS ?=

# The lowest LangGraph that is supported, and the one that `make test-release` tests with.
LOWEST := 1.2.0
RELEASE ?= $(LOWEST)
PAST := .venv-$(RELEASE)
# What `make matrix-check` measures.
MEASURED ?= $(LOWEST) latest
PINS := src/deerflow_saver/staging/releases.toml

.PHONY: help demo test test-release test-lowest lint types unit bench matrix-check docs coverage format lock clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP)  ## Show what the package does, on SQLite and a real Postgres
	@$(VENV)/bin/deerflow-saver demo

test: $(STAMP)  ## All checks: lint, types, the tests, the benchmark's smoke run among them
	@began=$$(date +%s); \
	for step in lint types unit; do \
		printf '\n== make %s\n' $$step; \
		$(MAKE) --no-print-directory $$step \
			|| { printf '\nmake test: FAILED in "make %s"\n' $$step; exit 1; }; \
	done; \
	printf '\nmake test: lint, types and unit (docs and bench included) all passed in %s s\n' $$(($$(date +%s) - began))

lint: $(STAMP)  ## Style, formatting and the import contracts
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(VENV)/bin/lint-imports

types: $(STAMP)  ## mypy --strict
	@$(PY) -m mypy

unit: $(STAMP)  ## The tests alone, the docs' code blocks among them
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-release: $(PAST)/.installed  ## The tests with a past LangGraph, as in RELEASE=1.2.9
	@printf '\n== tests with langgraph %s\n' "$(RELEASE)"
	@$(PAST)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# What differs between releases is LangGraph and its savers. Left out: random histories and whole processes that race,
# which take longest, and the benchmark, the demo and the docs, which need one release only.
SLOW := --ignore=tests/differential --ignore=tests/guard/test_hypothesis.py --ignore=tests/guard/test_races.py \
	--ignore=tests/guard/test_faults.py --ignore=tests/bench --ignore=tests/test_cli_demo.py \
	--ignore=tests/test_docs.py --ignore=tests/test_memory.py

test-lowest:  ## The quicker tests with the lowest LangGraph
	@$(MAKE) --no-print-directory test-release RELEASE=$(LOWEST) ARGS="$(SLOW) $(ARGS)"

bench: $(STAMP)  ## The benchmark's smoke run
	@$(PY) -m bench --quick

matrix-check: $(STAMP)  ## Measure the lowest and the newest LangGraph again, compare with docs/compatibility.md
	@$(VENV)/bin/deerflow-saver fixes matrix $(MEASURED:%=--release %) --check docs/compatibility.md

docs: $(STAMP)  ## Run the code blocks of the README and the docs
	@$(PY) -m pytest tests/test_docs.py $(ARGS)

coverage: $(STAMP)  ## The tests with branch coverage
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal --cov $(ARGS)

format: $(STAMP)  ## Rewrite the code in the project's style
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

lock: $(STAMP)  ## Lock the newest releases
	@$(UV) --no-config lock --upgrade --default-index https://pypi.org/simple

clean:  ## Remove the environment and all caches
	@rm -rf $(VENV) .venv-* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks .coverage* \
		htmlcov build dist
	@find src tests bench patches -name __pycache__ -type d -prune -exec rm -rf {} +

# uv installs the locked releases from the addresses in the lock. Where only pip is set up to reach an index (a mirror,
# say), pip installs the same releases, checked against the same hashes.
$(STAMP): pyproject.toml uv.lock
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Installing into $(VENV) (once; about a minute)"
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install "uv>=0.9"
	@$(UV) sync --frozen --inexact --all-extras --quiet || { \
		echo "Installing the locked releases with pip instead"; \
		$(UV) export --frozen --all-extras --no-emit-project --quiet --output-file $(VENV)/requirements.txt && \
		$(PIP) install --require-hashes -r $(VENV)/requirements.txt && \
		$(PIP) install --no-deps --editable .; \
	}
	@touch $@

# Everything that is not of that release's day is as locked, as far as the day's releases allow.
$(PAST)/.installed: pyproject.toml uv.lock $(PINS) | $(STAMP)
	@$(PY) tests/support/releases.py $(RELEASE) >$(VENV)/pins.txt
	@echo "Installing langgraph $(RELEASE) into $(PAST) (once; about a minute)"
	@$(PY) -m venv --clear $(PAST)
	@mv $(VENV)/pins.txt $(PAST)/pins.txt
	@$(UV) export --frozen --all-extras --no-emit-project --quiet --output-file $(PAST)/requirements.txt
	@{ $(UV) --no-config pip compile pyproject.toml --all-extras --group test --constraints $(PAST)/pins.txt \
		--default-index https://pypi.org/simple --generate-hashes --quiet \
		--output-file $(PAST)/requirements.txt && \
	$(UV) pip install --python $(PAST)/bin/python --require-hashes --quiet -r $(PAST)/requirements.txt && \
	$(UV) pip install --python $(PAST)/bin/python --no-deps --quiet --editable .; } || { \
		echo "Installing with pip instead"; \
		extras=$$($(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"], sep=",")') && \
		$(PAST)/bin/python -m pip install --quiet --disable-pip-version-check "pip>=25.1" && \
		$(PAST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(PAST)/pins.txt \
			--group test --editable ".[$$extras]"; \
	}
	@touch $@
