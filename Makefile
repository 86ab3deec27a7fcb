# The commands of this repository; `make` lists them. `make demo` and `make test` need only
# Python >= 3.11 and Java >= 17: they install the rest into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/setup.stamp
DEMO_STAMP := $(VENV)/demo.stamp
PROJECTS := $(wildcard plugin_sdk/pyproject.toml streams/pyproject.toml runtime/pyproject.toml plugins/*/pyproject.toml)
EDITABLE := $(foreach project,$(PROJECTS),--editable ./$(patsubst %/,%,$(dir $(project))))

# How many files of tests run at once; 0: one after another, in one process.
TEST_PROCESSES ?= 3

# Which part of the extended tests runs beside the core ones: none, all, or a slice such as 3/5.
TEST_SLICE ?= none

# More for pytest, such as --crash-rounds 3.
TEST_OPTIONS ?=

PYTEST = $(BIN)/python -m pytest $(TEST_OPTIONS)

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' runtime/pyproject.toml)

export PYTHON

# Tests start Python some hundred times: compiled modules are kept, whatever the machine's default is.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup check-machine demo demo-kafka test test-all durations lint types imports tests simulation spark \
	cluster crash crash-kafka backlog-kafka soak versions bench image kube docs screenshots site docs-tests changelog release lock audit sbom clean
.NOTPARALLEL:

# Lists the commands: the text after `##` of each target.
help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: check-machine $(DEMO_STAMP) ## count the words of a text, from an empty clone to the result
	@$(BIN)/python docs/demo/demo.py

demo-kafka: setup ## start a Kafka broker and count the words that are typed into a socket
	@$(BIN)/python docs/demo/demo_kafka.py

setup: check-machine $(STAMP) ## install all packages that the other commands need into .venv

check-machine:
	@sh .ci/check-machine

# The packages of the runtime alone, which is all that the demo needs.
$(DEMO_STAMP): requirements/runtime.lock $(PROJECTS) | check-machine
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python tools/install.py requirements/runtime.lock
	@echo "installing Bicycle itself"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-compile $(EDITABLE)
	@touch $@

$(STAMP): requirements/development.lock deploy/operator/pyproject.toml $(DEMO_STAMP)
	@$(BIN)/python tools/install.py requirements/development.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-compile --editable ./deploy/operator
	@touch $@

test: lint types imports tests ## all checks, and the core tests: about a quarter of an hour

test-all: TEST_SLICE = all
test-all: test ## all checks and all tests

durations: TEST_SLICE = all
durations: TEST_OPTIONS = --record-durations
durations: tests ## write how long each test takes into tests/durations.tsv

lint: setup ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy: static types of SDK, toolkit, runtime and plugins
	$(BIN)/mypy

imports: setup ## import-linter: the directions of imports
	$(BIN)/lint-imports
	$(BIN)/lint-imports --config deploy/operator/pyproject.toml

tests: setup ## the core tests; TEST_SLICE=3/8 adds a slice of the extended tests
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder \
		--extended $(TEST_SLICE) $(TEST_OPTIONS)

docs: setup ## write the generated parts of docs/
	$(BIN)/python tools/generate.py --write

screenshots: setup ## write the screenshots of docs/ with Chromium
	$(BIN)/python -m tests.browser.docs_pictures

site: .venv-site/setup.stamp ## build the docs as a site in .build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict --quiet --config-file tools/mkdocs.yml

changelog: .venv-release/setup.stamp ## show the changelog that the fragments of changelog.d produce
	.venv-release/bin/towncrier build --draft --version $(VERSION)

# Tools of a group with a separate lock file: `site`, `release`.
.venv-%/setup.stamp: requirements/%.lock
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python tools/install.py $<
	@touch $@

# Tools that only look at the lock files; no file locks them.
.venv-%/tool.stamp:
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check $*
	@touch $@

docs-tests: site ## the site, and the tests of docs against code
	$(PYTEST) tests/docs

release: setup .venv-release/setup.stamp ## build the wheels, check them, and run the demo from them
	$(BIN)/nox --session release

image: setup ## build the container image, run jobs in it, and run the compose file; needs root, buildah, podman and Maven
	$(BIN)/nox --session image

kube: setup ## run the operator against a real API server; needs Go and etcd
	$(BIN)/nox --session kube

versions: setup ## the core tests on Python 3.12, 3.13 and 3.14
	$(BIN)/nox

# The long forms of tests; some take hours.
simulation: setup ## thousands of seeded schedules of crashes, delays, restarts and rescales
	$(PYTEST) tests/simulation --driver-schedules=2000 --timeout=600

spark: setup ## the tests that start a JVM
	$(PYTEST) -m spark

cluster: setup ## the tests on a Spark cluster of this machine, with ten schedules of losses
	$(PYTEST) -m cluster --cluster-schedules=10

crash: setup ## every crash point ten times
	$(PYTEST) -m crash --crash-rounds=10 --timeout=3600

crash-kafka: setup ## every crash point of jobs with Kafka a hundred times: hours
	$(PYTEST) tests/kafka -m crash --crash-rounds=100 --outage-seconds=60

backlog-kafka: setup ## a job that starts with five million messages
	$(PYTEST) tests/kafka/test_backlog.py --backlog-messages=5000000

soak: setup ## twenty thousand small epochs: memory, threads and files must stay flat
	$(PYTEST) -m soak --soak-epochs=20000 --timeout=0

lock: .venv-uv/tool.stamp ## write the hashes of the lock files again
	.venv-uv/bin/python tools/lock.py

audit: .venv-pip-audit/tool.stamp ## look for known vulnerabilities in the locked packages
	set -e; for file in requirements/*.lock; do \
		.venv-pip-audit/bin/pip-audit --strict --disable-pip --no-deps --require-hashes --requirement $$file; done

sbom: .venv-cyclonedx-bom/tool.stamp ## write the bill of materials of the locked packages: .build/sbom.json
	mkdir -p .build
	cat requirements/runtime.lock requirements/development.lock > .build/all.lock
	.venv-cyclonedx-bom/bin/cyclonedx-py requirements .build/all.lock --output-reproducible --output-file .build/sbom.json

bench: setup ## the benchmarks
	set -e; for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

clean: ## remove everything that was built, .venv included
	rm -rf $(VENV) .venv-* .build .nox .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
	find plugin_sdk streams runtime deploy plugins -name '*.egg-info' -prune -exec rm -rf {} +
	rm -rf plugin_sdk/build streams/build runtime/build deploy/*/build plugins/*/build
