# Everything runs in the project's own virtual environment, .venv, made on first use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SERVES := $(VENV)/.serves
READY  := $(VENV)/.ready
PLOTS  := $(VENV)/.plots
AUDIT  := $(VENV)/.audit
EXTRAS := $(VENV)/.examples
SITE   := $(VENV)/.site

# With it, every server that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help serve example test test-fast docs model trials compat record audit fuzz charts matrix bare-root fresh mutants faults check format bench bench-quick flaky hostile storms outage debs node bench-debs clean

help:  ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# To be tried out it needs itself only: the tools of its tests take ten times as long to install.
$(SERVES): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Greendot needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 …"; exit 1; }
	@echo "→ making the virtual environment $(VENV) and installing Greendot (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(READY): $(SERVES)
	@echo "→ installing the tools of its tests (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

serve: $(SERVES)  ## Start a development server on http://127.0.0.1:8000 (make serve ARGS="--port 8010")
	@exec $(BIN)/greendot serve --dev $(ARGS)

example: $(EXTRAS)  ## Start an example with a server of its own: make example NAME=react (cursors, flask, fastapi, django, outbox)
	@exec $(BIN)/python examples/start.py $(NAME) $(ARGS)

test: $(READY) $(EXTRAS) $(SITE) debs node  ## Run all tests (installs what they need, where it may)
	@$(BIN)/python scripts/run-tests $(ARGS)

test-fast: $(READY) debs  ## Run most unit tests, the architecture rules and one end-to-end pass (40 s)
	@$(BIN)/python scripts/run-tests --fast

model: $(READY) debs  ## Ten thousand random stories on both engines, compared, and some of tenants and of stores (a quarter of an hour)
	@MODEL_EXAMPLES=$${MODEL_EXAMPLES:-10000} TENANT_EXAMPLES=$${TENANT_EXAMPLES:-600} STORE_EXAMPLES=$${STORE_EXAMPLES:-2000} \
	  $(BIN)/python -m pytest tests/model/test_engines_agree.py tests/model/test_tenants_model.py \
	  tests/model/test_misnamed.py tests/model/test_stores_agree.py --timeout=7200 $(ARGS)

trials: $(READY) debs  ## Ten thousand random stories of rooms on nodes that die and a bus that loses (a quarter of an hour)
	@TRIALS=$(or $(TRIALS),10000) TRIALS_FIRST=$(or $(TRIALS_FIRST),0) PYTHONHASHSEED=0 \
	  $(BIN)/python -m pytest tests/model/test_streams_trials.py --timeout=7200 $(ARGS)
	@SERVER_RUNS=$(or $(SERVER_RUNS),20) $(BIN)/python -m pytest tests/model/test_streams_servers.py --timeout=120 $(ARGS)

compat: $(READY) debs  ## Nodes, stores, pages and programs of the version before, with this one (half a minute; needs the history)
	@COMPAT=1 $(BIN)/python -m pytest tests/compat $(ARGS)

record: $(READY) debs  ## Write down how this version speaks, for those after it: make record AS=0.2.0
	@test -n "$(AS)" || { echo "As which version? make record AS=0.2.0"; exit 2; }
	@PYTHONPATH=$(or $(SOURCE),src):tests $(BIN)/python -m compat.record tests/fixtures/protocol/$(AS)

check: $(READY)  ## Format, lint, types and architecture, fast
	@$(BIN)/ruff format --check src tests bench examples
	@$(BIN)/ruff check src tests bench examples
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/architecture

docs: $(SITE)  ## Build the documentation as a site, build/site, without anything from elsewhere
	@$(BIN)/python scripts/site

$(SITE): $(READY)
	@echo "→ installing what builds the site (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

audit: $(AUDIT)  ## Known holes in dependencies, where their advisories can be had
	@$(BIN)/python scripts/audit

$(AUDIT): $(READY)
	@echo "→ installing pip-audit (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[audit]'
	@touch $@

fuzz: $(READY) debs  ## Ten thousand nonsensical frames, bodies and bus messages each (a quarter of an hour)
	@FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),10000) OPENAPI_EXAMPLES=$(or $(OPENAPI_EXAMPLES),50) \
	  $(BIN)/python -m pytest tests/fuzz tests/e2e/test_openapi_server.py --timeout=7200 $(ARGS)

mutants: $(READY)  ## Change pure modules bit by bit: do their unit tests notice? A sample; ALL=1: all (MODULES="presence/model": of these)
	@PYTHONPATH=tests $(BIN)/python -m mutants $(if $(ALL),--all) $(MODULES) $(ARGS)

faults: $(READY) debs  ## Plant faults in Lua and SQL one by one: are all of them found? (ARGS="reap": those with this in their names)
	@PYTHONPATH=tests $(BIN)/python -m mutants.faults $(ARGS)

charts: $(READY)  ## Lint and render the Helm chart and compare it with what is committed (WRITE=1: commit anew)
	@$(if $(WRITE),PYTHONPATH=tests $(BIN)/python tests/deployed/charted.py)
	@$(BIN)/python -m pytest tests/deployed/test_chart.py

matrix:  ## The fast tests and those end to end on each Python from 3.11 to 3.14 that is found (PYTHONS="…" names others)
	@$(PYTHON) scripts/matrix $(ARGS)

bare-root:  ## make test in a fresh clone on a bare Debian: needs root (ARGS="--suite trixie make check" and others)
	@sh scripts/ensure-debs debootstrap git
	@$(PYTHON) scripts/bare-root $(ARGS)

fresh: $(SERVES)  ## How long it takes from a fresh clone to the demo, with nothing but Python, make and a C compiler
	@$(BIN)/python scripts/fresh-clone

format: $(READY)  ## Put the code into the project's format
	@$(BIN)/ruff format src tests bench examples
	@$(BIN)/ruff check --fix src tests bench examples

bench: $(PLOTS) bench-debs  ## Measure Greendot beside its peers, write bench/RESULTS.md (a quarter of an hour)
	@$(BIN)/python bench/run.py $(ARGS)

bench-quick: $(PLOTS) bench-debs  ## The same, shorter and rougher, only printed (two minutes)
	@$(BIN)/python bench/run.py --quick $(ARGS)

$(PLOTS): $(READY)
	@echo "→ installing what draws the plots (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

$(EXTRAS): $(READY)
	@echo "→ installing the frameworks of the examples (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[examples]'
	@touch $@

flaky: $(READY) debs  ## Run the tests that measure time again and again beside a busy processor (TIMES=20)
	@$(BIN)/python scripts/flaky $(or $(TIMES),20) $(ARGS)

hostile: $(READY) debs  ## Floods by strangers and users, and response times, in full (five minutes)
	@HOSTILE=1 $(BIN)/python -m pytest tests/hostile tests/e2e/test_response_times.py $(ARGS)

storms: $(READY) debs  ## Ten thousand clients cut off at once, and a flood of signals: what is promised of them (three minutes)
	@$(BIN)/python bench/storms.py $(ARGS)

outage: $(READY) debs  ## Redis, and PostgreSQL, away for a minute under load: what is logged, and that all heals (three minutes)
	@OUTAGE_S=$(or $(OUTAGE_S),60) OUTAGE_CLIENTS=$(or $(OUTAGE_CLIENTS),100) \
	  $(BIN)/python -m pytest tests/cluster/test_outage.py -s --timeout=300 $(ARGS)

debs:
	@sh scripts/ensure-debs 'chromium-headless-shell|chromium' redis-server gcc postgresql=/usr/lib/postgresql \
	  nginx=/usr/sbin/nginx caddy systemd=systemd-analyze curl openssl git prometheus@/usr/bin/promtool

node: $(READY)
	@sh scripts/ensure-node $(BIN)/python

bench-debs:
	@sh scripts/ensure-debs redis-server gcc nginx libnginx-mod-nchan=/usr/lib/nginx/modules/ngx_nchan_module.so

clean:  ## Remove the virtual environment and everything built
	rm -rf $(VENV) build bench/build .mypy_cache .ruff_cache .pytest_cache .hypothesis
