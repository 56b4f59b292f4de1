# Nothing but Python 3.11+ and make is needed: everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNTIME := $(VENV)/.runtime
PYTEST := $(BIN)/python -m pytest -n 4 --dist worksteal
AREAS := $(notdir $(patsubst %/,%,$(wildcard tests/areas/*/)))

# The tests start thousands of processes: without compiled modules each of them takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo system test quick areas check format torture gate flat scale bench repeats postgres postgres-stop pictures newest try-newest wheel clean
.DEFAULT_GOAL := help

help: ## what can be made
	@sed -n 's/^\([a-z%-]*\):.*## /\1\t/p' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "agentrun needs Python 3.11 or newer; say which with: make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV)

# What agentrun itself needs and no more: some 55 MB. The tools of the tests go into the same .venv, some 350 MB.
$(RUNTIME): pyproject.toml constraints.txt .ci/install | $(BIN)/python
	@echo "installing agentrun into $(VENV) ..."
	@INSTALLER=pip .ci/install $(VENV) --editable .
	@touch $(RUNTIME)

$(STAMP): pyproject.toml constraints.txt .ci/install | $(BIN)/python
	@echo "installing agentrun and the tools of its tests into $(VENV) ..."
	@.ci/install $(VENV) --editable '.[dev]'
	@touch $(RUNTIME) $(STAMP)

demo: $(RUNTIME) ## the sample batch of 200 documents, offline
	@$(BIN)/agentrun start samples/triage/job.toml --fresh --yes
	@.ci/after-demo $(BIN)

test: $(STAMP) ## all tests but the areas and the gate
	$(PYTEST) --durations 15

quick: $(STAMP) ## unit and contract tests, in less than a minute
	$(PYTEST) tests/unit tests/contract

areas: $(addprefix area-,$(AREAS)) ## tests that need a server, a browser, a cluster or a large library

# Looks for what people with screen readers, or with a keyboard alone, would stumble over.
# From npm, with the certificates that the system trusts, as pip does: a company's own among them.
AXE := $(VENV)/npm/node_modules/axe-core/axe.min.js
$(AXE): | $(STAMP)
	@certificates=/etc/ssl/certs/ca-certificates.crt; \
	[ ! -f $$certificates ] || export NODE_EXTRA_CA_CERTS=$${NODE_EXTRA_CA_CERTS:-$$certificates}; \
	npm install --prefix $(VENV)/npm --no-save --no-package-lock --no-audit --no-fund --silent axe-core@4.14.0 \
		|| echo "axe-core could not be installed: its tests are skipped, or fail with CI=true" >&2

area-browser: $(AXE)

area-%: $(STAMP) ## one of these: make area-llm
	$(PYTEST) --durations 5 tests/areas/$*

check: $(STAMP) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy runner/agentrun cli/agentrun_cli tests samples
	$(BIN)/lint-imports

format: $(STAMP) ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

system: ## programs that the tests start and pip does not have, by apt-get
	@.ci/system

torture: $(STAMP) ## the long crash tests: make torture SEED=7 MINUTES=60
	PYTHONPATH=tests $(BIN)/python -m crash.torture $(if $(SEED),--seed $(SEED)) --minutes $(or $(MINUTES),60)

gate: $(STAMP) ## seeded bugs, each caught by a crash test
	PYTHONPATH=tests $(BIN)/python -m crash.gate

flat: $(STAMP) ## does the cost of an item grow with progress?
	PYTHONPATH=tests $(BIN)/python -m benchmarks.flat

scale: $(STAMP) ## a real launch on a simulated cluster: make scale ITEMS=20000 SLOTS=100 SECONDS=10
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.scale $(if $(ITEMS),--items $(ITEMS)) $(if $(SLOTS),--slots $(SLOTS)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(FOLDER),--folder $(FOLDER))

bench: $(STAMP) ## beside the disk's limit and the peers: make bench QUICK=1 ONLY=item,rate AGAINST=commit
	@PYTHONPATH=tests $(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(AGAINST),--against $(AGAINST)) $(if $(ONLY),--only $(ONLY)) $(if $(WRITE),--write $(WRITE))

repeats: $(STAMP) ## finished calls repeated in 20 kills, of frameworks' agents: make repeats ONLY=langgraph WRITE=docs/page.md
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.frameworks $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED)) $(if $(WRITE),--write $(WRITE))

postgres: ## a Postgres on loopback for samples/postgres, from the system's packages; make postgres-stop ends it
	@samples/postgres/server.sh start

postgres-stop: ## stop it, and remove its data
	@samples/postgres/server.sh stop

pictures: $(STAMP) ## docs/pictures: the real command in a real terminal (tmux) and browser (chromium)
	PYTHONPATH=tests $(BIN)/python -m pages.pictures

newest: $(STAMP) ## renew constraints.txt: the newest versions of everything; install and try them
	@.ci/newest $(VENV)
	@git --no-pager diff --stat -- constraints.txt
	@$(MAKE) --no-print-directory $(STAMP) try-newest

try-newest: $(STAMP) ## the frameworks' tests on the newest releases, also beyond our own ranges
	@$(PYTHON) -m venv .bench/newest
	@NEWEST=true .ci/install .bench/newest --editable '.[dev]'
	@.bench/newest/bin/uv pip list --quiet | grep -E '^(langgraph|openai-agents|pydantic-ai-slim) '
	.bench/newest/bin/python -m pytest -n 4 --dist worksteal tests/unit/frameworks tests/areas/frameworks

wheel: $(STAMP) ## dist/*.whl
	$(BIN)/python -m build --wheel

clean: ## remove what was made
	rm -rf $(VENV) .bench dist .mypy_cache .ruff_cache .pytest_cache
