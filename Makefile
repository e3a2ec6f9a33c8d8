# Everything runs from .venv, which holds exactly what requirements/*.txt lock.
# A fresh machine needs only make and python3 (3.11 or later, with venv and pip).

PYTHON ?= python3
BIN    := .venv/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

# Whole files of tests go to the next idle process: what a file starts is started once. The long ones
# come first (tests/conftest.py). Many tests wait for others' clocks: so there are more processes than
# processors.
BY_FILE := --dist loadfile --no-loadscope-reorder

# What `make demo` runs.
DEMO   := examples/epidemic/demo

.DEFAULT_GOAL := help
.PHONY: help env dev demo check test test-again lint types bench bench-peers fuzz soak audit sim wheel lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 13

env: .venv/runtime ## make .venv with what covey needs to run
dev: .venv/dev ## add what its tests need

demo: env ## run a sweep: files in, files out, one table; functions; a second pilot; a policy
	@COVEY=$(CURDIR)/$(BIN)/covey $(DEMO)

check: dev ## what to run before every commit, in a minute: style, types, imports, unit and property tests
	$(MAKE) --no-print-directory lint types
	$(BIN)/pytest -q -n 2 $(BY_FILE) tests/tidy tests/property tests/unit

test: dev ## run every check and every test
	tools/install-test-packages
	$(MAKE) --no-print-directory lint types
	HYPOTHESIS_PROFILE=ci $(BIN)/pytest -n 4 $(BY_FILE)

test-again: dev ## run the tests 20 times, shuffled, on a busy machine, until a run fails (RUNS, BUSY)
	tools/install-test-packages
	tools/test-again

lint: dev ## style, import rules, and Python 3.6 for what runs on hosts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo
	tools/check-old-python

types: dev ## strict type checking
	$(BIN)/mypy

bench: dev ## measure (see bench/)
	$(BIN)/python -m bench

bench-peers: dev ## measure covey and its peers: hours (see docs/benchmarks.md)
	$(BIN)/python -m bench.peers

fuzz: dev ## ask our ClassAd engine and HTCondor's a million random questions: a quarter of an hour
	$(BIN)/python -m tests.classad_reference.fuzz

soak: dev ## memory of server and pilot over an hour of bags (SOAK_SECONDS), then hostile requests (FUZZ_SECONDS)
	$(BIN)/python -m tests.soak $${SOAK_SECONDS:-3600}
	FUZZ_SECONDS=$${FUZZ_SECONDS:-1200} FUZZ_SEED=$${FUZZ_SEED:-$$(date +%s)} \
		$(BIN)/pytest -q -s tests/fuzz/test_hostile.py

audit: ## look up known vulnerabilities of the locked versions (needs a way out to their lists)
	tools/audit

sim: env ## a short run of the simulated world
	$(BIN)/python -m tests.simulator

wheel: dev ## build dist/covey-*.whl
	$(BIN)/python -m build --wheel --no-isolation

lock: ## choose the newest versions again (needs uv)
	tools/lock

clean: ## remove .venv and all that was built
	rm -rf .venv dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# Stamps: a new lock makes a new .venv, a new pyproject.toml only installs covey again.
.venv/locked: requirements/runtime.txt
	$(PYTHON) -m venv --clear .venv
	$(PIP) install --require-hashes -r requirements/runtime.txt
	touch $@

.venv/runtime: .venv/locked pyproject.toml
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@

.venv/dev: .venv/runtime requirements/dev.txt
	$(PIP) install --require-hashes -r requirements/dev.txt
	touch $@
