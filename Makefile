# The commands of this repository. `make demo` and `make test` need only Python >= 3.11 and Java >= 17:
# they set up the rest in .venv. The sessions of noxfile.py call these targets, so both always agree.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/setup.stamp
PROJECTS := $(wildcard plugin_sdk/pyproject.toml runtime/pyproject.toml plugins/*/pyproject.toml)
EDITABLE := $(foreach project,$(PROJECTS),--editable ./$(patsubst %/,%,$(dir $(project))))

# How many files of tests run at once; 0: one after another, in one process.
TEST_PROCESSES ?= 3

# Which part of the extended tests runs beside the core ones: none, all, or a slice such as 3/5.
TEST_SLICE ?= none

# More for pytest, such as --crash-rounds 3.
TEST_OPTIONS ?=

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' runtime/pyproject.toml)

export PYTHON

# Tests start Python some hundred times: compiled modules are kept, whatever the machine's default is.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup check-machine demo demo-kafka test test-all durations lint types imports tests docs site changelog \
	bench clean
.NOTPARALLEL:

help:
	@echo "make demo       count the words of a text, from nothing to the result"
	@echo "make demo-kafka start a Kafka broker, and count through it what is typed into a socket"
	@echo "make test       all checks, and a test of everything that is promised: ten minutes"
	@echo "make test-all   all checks and all tests"
	@echo "make setup      only what these two need, in $(VENV)"
	@echo "make lint       ruff; also: make types, make imports, make tests"
	@echo "make docs       write the generated parts of docs/"
	@echo "make site       build the docs as a site in .build/site; warnings are errors"
	@echo "make changelog  show the changelog that the fragments of changelog.d make"
	@echo "make bench      the benchmarks"
	@echo "make clean      remove everything that was built, $(VENV) included"

setup: check-machine $(STAMP)

check-machine:
	@sh .ci/check-machine

$(STAMP): requirements.lock $(PROJECTS) | check-machine
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing $$(grep -c == requirements.lock) packages into $(VENV), once; this takes some minutes"
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --require-hashes --progress-bar off \
		--requirement requirements.lock
	@echo "installing Bicycle itself"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(EDITABLE)
	@touch $@

demo: setup
	@$(BIN)/python docs/demo/demo.py

demo-kafka: setup
	@$(BIN)/python docs/demo/demo_kafka.py

test: lint types imports tests

test-all: TEST_SLICE = all
test-all: test

# Writes how long each test takes on this machine into tests/durations.tsv.
durations: TEST_SLICE = all
durations: TEST_OPTIONS = --record-durations
durations: tests

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

tests: setup
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder \
		--extended $(TEST_SLICE) $(TEST_OPTIONS)

docs: setup
	$(BIN)/python tools/generate.py --write

site: .venv-site/setup.stamp
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict --quiet

changelog: .venv-release/setup.stamp
	.venv-release/bin/towncrier build --draft --version $(VERSION)

# Tools of a group with a lock file of its own: `site`, `release`.
.venv-%/setup.stamp: requirements-%.lock
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
		--requirement $<
	@touch $@

bench: setup
	set -e; for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

clean:
	rm -rf $(VENV) .venv-site .venv-release .build .nox .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
	find plugin_sdk runtime plugins -name '*.egg-info' -prune -exec rm -rf {} +
	rm -rf plugin_sdk/build runtime/build plugins/*/build
