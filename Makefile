# All targets run in the project's virtual environment, .venv, which is created on first use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SERVES := $(VENV)/.serves
READY  := $(VENV)/.ready
PLOTS  := $(VENV)/.plots
EXTRAS := $(VENV)/.examples
SITE   := $(VENV)/.site
SPEED  := $(VENV)/.speedups
SHIP   := $(VENV)/.release
FUZZ   := $(VENV)/.fuzz
# Targets that measure use the fastest Python of the machine, in an environment of their own.
FAST   := build/fast
ON_FAST = $(MAKE) --no-print-directory VENV=$(FAST) \
  PYTHON="$$([ -x $(FAST)/bin/python ] && echo $(FAST)/bin/python || $(PYTHON) scripts/fastest-python $(PYTHON))"

# With this variable, every server that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help serve example test test-fast docs model trials simulate chaos compat record audit fuzz fuzz-long autobahn charts matrix bare-root fresh mutants faults check format bench bench-now bench-quick bench-quick-now flaky hostile storms storms-now scale scale-now soak growth growth-now passes outage release release-check lock-image debs production node bench-debs clean

help:  ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# `make serve` installs only Greendot: the test tools take ten times as long to install.
$(SERVES): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Greendot needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1). Use: make PYTHON=python3.11 …"; exit 1; }
	@echo "→ creating the virtual environment $(VENV) and installing Greendot (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(READY): $(SERVES)
	@echo "→ installing the test tools (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

serve: $(SERVES)  ## Start a development server on http://127.0.0.1:8000 (make serve ARGS="--port 8010")
	@exec $(BIN)/greendot serve --dev $(ARGS)

example: $(EXTRAS)  ## Start an example with its own server: make example NAME=react (cursors, flask, fastapi, django, outbox)
	@exec $(BIN)/python examples/start.py $(NAME) $(ARGS)

test: $(READY) $(EXTRAS) $(SITE) $(SPEED) debs node  ## Run all tests (installs missing programs if permitted)
	@$(BIN)/python scripts/run-tests $(ARGS)

test-fast: $(READY) debs  ## Run most unit tests, the architecture rules and one end-to-end pass (40 s)
	@$(BIN)/python scripts/run-tests --fast

model: $(READY) debs  ## Compare both engines, both stores, and tenants alone and together, in random sequences of calls (15 minutes)
	@MODEL_EXAMPLES=$${MODEL_EXAMPLES:-10000} TENANT_EXAMPLES=$${TENANT_EXAMPLES:-600} STORE_EXAMPLES=$${STORE_EXAMPLES:-2000} \
	  $(BIN)/python -m pytest tests/model/test_engines_agree.py tests/model/test_tenants_model.py \
	  tests/model/test_misnamed.py tests/model/test_stores_agree.py --timeout=7200 $(ARGS)

trials: $(READY) debs  ## Test rooms with 10,000 random histories in which nodes die and the bus loses messages (15 minutes)
	@TRIALS=$(or $(TRIALS),10000) TRIALS_FIRST=$(or $(TRIALS_FIRST),0) PYTHONHASHSEED=0 \
	  $(BIN)/python -m pytest tests/model/test_streams_trials.py --timeout=7200 $(ARGS)
	@SERVER_RUNS=$(or $(SERVER_RUNS),20) $(BIN)/python -m pytest tests/model/test_streams_servers.py --timeout=120 $(ARGS)

simulate: $(READY)  ## Simulate whole clusters under faults, with a checker of their promises (SEEDS=1000, FIRST=0; 100,000 seeds: 45 minutes)
	@PYTHONPATH=tests PYTHONHASHSEED=0 $(BIN)/python -m simulation --seeds $(or $(SEEDS),1000) --first $(or $(FIRST),0) $(ARGS)

chaos: $(READY) debs node  ## Cause faults on real nodes, Redis Cluster and PostgreSQL, with checked clients (MINUTES=30, FAMILY="kill flush", SEED=1)
	@sh scripts/ensure-debs faketime
	@[ -d clients/node_modules ] || PATH="$(CURDIR)/$(VENV)/node:$$PATH" npm ci --silent --prefix clients || echo "npm ci failed: the JavaScript clients are left out"
	@PYTHONPATH=tests:clients/behaviour $(BIN)/python -m chaos --minutes $(or $(MINUTES),30) --family "$(FAMILY)" --seed $(or $(SEED),1) $(ARGS)

compat: $(READY) debs  ## Test nodes, stores and clients of the previous version with this version (30 s; needs the git history)
	@COMPAT=1 $(BIN)/python -m pytest tests/compat $(ARGS)

record: $(READY) debs  ## Record the protocol of this version for tests of later versions: make record AS=0.2.0
	@test -n "$(AS)" || { echo "No version given. Use: make record AS=0.2.0"; exit 2; }
	@PYTHONPATH=$(or $(SOURCE),src):tests $(BIN)/python -m compat.record tests/fixtures/protocol/$(AS)

check: $(READY)  ## Check format, lint, types and architecture (fast)
	@$(BIN)/ruff format --check src tests bench examples clients/behaviour
	@$(BIN)/ruff check src tests bench examples clients/behaviour
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/architecture

docs: $(SITE)  ## Build the documentation site in build/site, without external resources
	@$(BIN)/python scripts/site

$(SITE): $(READY)
	@echo "→ installing the site generator (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

audit: $(READY)  ## Compare dependencies with the copy of known vulnerabilities, without a network (REFRESH=1: first write the copy again)
	@PYTHONPATH=tests REFRESH="$(REFRESH)" ADVISORIES="$(ADVISORIES)" $(BIN)/python -m audit

fuzz: $(READY) debs  ## Fuzz with 10,000 invalid frames, bodies and bus messages each (15 minutes)
	@FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),10000) OPENAPI_EXAMPLES=$(or $(OPENAPI_EXAMPLES),50) \
	  $(BIN)/python -m pytest tests/fuzz tests/e2e/test_openapi_server.py --timeout=7200 $(ARGS)

fuzz-long: $(FUZZ)  ## Fuzz with coverage, 10 million inputs (20 minutes; ARGS="codec bus" only these; KEEP=1 keeps the corpus)
	@PYTHONPATH=tests KEEP="$(KEEP)" FUZZ_SCALE="$(FUZZ_SCALE)" $(BIN)/python -m fuzz.long $(ARGS)

$(FUZZ): $(READY)
	@echo "→ installing atheris (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	@touch $@

autobahn: $(READY)  ## Run the Autobahn suite of RFC 6455, 517 cases (1 minute; needs Python 2.7: PYTHON2=…; WRITE=1 writes the page)
	@PYTHONPATH=tests PYTHON2="$(PYTHON2)" WRITE="$(WRITE)" $(BIN)/python -m rfc6455.autobahn $(ARGS)

mutants: $(READY)  ## Mutation-test a sample of the pure modules (ALL=1: all mutants; MODULES="presence/model": only these modules)
	@PYTHONPATH=tests $(BIN)/python -m mutants $(if $(ALL),--all) $(MODULES) $(ARGS)

faults: $(READY) debs  ## Plant faults in Lua and SQL one by one, and check that tests find each (ARGS="reap": only names with this word)
	@PYTHONPATH=tests $(BIN)/python -m mutants.faults $(ARGS)

charts: $(READY)  ## Lint and render the Helm chart and compare it with the committed output (WRITE=1: write the output again)
	@$(if $(WRITE),PYTHONPATH=tests $(BIN)/python tests/deployed/charted.py)
	@$(BIN)/python -m pytest tests/deployed/test_chart.py

matrix:  ## Run the fast and end-to-end tests on each installed Python from 3.11 to 3.14 (PYTHONS="…" names interpreters)
	@$(PYTHON) scripts/matrix $(ARGS)

bare-root:  ## Run make test in a fresh clone on a minimal Debian; needs root (for example ARGS="--suite trixie make check")
	@sh scripts/ensure-debs debootstrap git
	@$(PYTHON) scripts/bare-root $(ARGS)

fresh: $(SERVES)  ## Measure the time from a fresh clone to the demo, with only Python and make
	@$(BIN)/python scripts/fresh-clone

format: $(READY)  ## Format the code and apply lint fixes
	@$(BIN)/ruff format src tests bench examples clients/behaviour
	@$(BIN)/ruff check --fix src tests bench examples clients/behaviour

bench:  ## Measure Greendot and its peers, and write bench/RESULTS.md (15 minutes)
	@$(ON_FAST) bench-now

bench-now: $(PLOTS) $(SPEED) bench-debs
	@$(BIN)/python bench/run.py $(ARGS)

bench-quick:  ## Run a shorter, less exact benchmark and only print the results (2 minutes)
	@$(ON_FAST) bench-quick-now

bench-quick-now: $(PLOTS) $(SPEED) bench-debs
	@$(BIN)/python bench/run.py --quick $(ARGS)

$(PLOTS): $(READY)
	@echo "→ installing the plotting library (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

$(EXTRAS): $(READY)
	@echo "→ installing the frameworks of the examples (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[examples]'
	@touch $@

# Optional: without a compiler or the headers of Python, Greendot uses its function in Python.
$(SPEED): $(READY) speedups/greendot_speedups.c speedups/pyproject.toml
	@echo "→ compiling greendot-speedups (once)"
	@headers=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["include"])'); \
	  sh scripts/ensure-debs gcc "python3-dev=$$headers/Python.h"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check ./speedups || \
	  { [ -z "$$CI" ] && echo "greendot-speedups could not be compiled; its tests are skipped"; }
	@touch $@

flaky: $(READY) debs  ## Run the tests that measure time repeatedly, with one processor kept busy (TIMES=20)
	@$(BIN)/python scripts/flaky $(or $(TIMES),20) $(ARGS)

hostile: $(READY) debs  ## Run the full tests of floods by unknown clients and users, and of response times (5 minutes)
	@HOSTILE=1 $(BIN)/python -m pytest tests/hostile tests/e2e/test_response_times.py $(ARGS)

storms:  ## Check the promises for 10,000 clients that reconnect at once, and for more signals than a node can send (3 minutes)
	@$(ON_FAST) storms-now

storms-now: $(READY) debs
	@$(BIN)/python bench/storms.py $(ARGS)

scale:  ## Connect 100,000 clients to 8 nodes, kill, flush and restart, and check that no client sees a change (25 minutes)
	@$(ON_FAST) scale-now

scale-now: $(READY) debs
	@$(BIN)/python bench/scale.py $(ARGS)

soak: $(READY) debs  ## Let 5,000 clients live through days and a fault every 30 s, and check that all figures stay flat (HOURS=8 CLIENTS=5000 SEED=1)
	@$(BIN)/python bench/soak.py --hours $(or $(HOURS),8) --clients $(or $(CLIENTS),5000) --seed $(or $(SEED),1) $(ARGS)

growth:  ## Measure costs with 1 to 6 nodes and 10,000 to 1,000,000 users, and write docs/capacity.md (10 minutes)
	@$(ON_FAST) growth-now

growth-now: $(READY) debs
	@$(BIN)/python bench/growth.py --write $(ARGS)

passes: $(READY)  ## Check that heartbeats are answered in time on a node with 15,000 clients and 400,000 watched users (5 minutes)
	@PASSES_WATCHED=400000 PASSES_CONNECTIONS=15000 PASSES_S=35 \
	  $(BIN)/python -m pytest tests/e2e/test_passes.py tests/e2e/test_passes_served.py -s --timeout=900 $(ARGS)

outage: $(READY) debs  ## Stop Redis and PostgreSQL for a minute under load, and check logs and recovery (3 minutes)
	@OUTAGE_S=$(or $(OUTAGE_S),60) OUTAGE_CLIENTS=$(or $(OUTAGE_CLIENTS),100) \
	  $(BIN)/python -m pytest tests/cluster/test_outage.py -s --timeout=300 $(ARGS)

release: $(SHIP) node  ## Build everything that a release publishes, except the image, in build/release
	@PYTHONPATH=tests $(BIN)/python -m release build build/release

release-check: $(SHIP) node  ## Do all steps of a release except the upload: build, compare, install, run (5 minutes)
	@PYTHONPATH=tests $(BIN)/python -m release check build/release

lock-image: $(READY)  ## Write the lock files of the image (deploy/image) with the newest versions and their hashes
	@PYTHONPATH=tests $(BIN)/python -m release lock-image

$(SHIP): $(READY)
	@echo "→ installing the tools of a release (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	@touch $@

debs:
	@sh scripts/ensure-debs 'chromium-headless-shell|chromium' redis-server gcc postgresql=/usr/lib/postgresql \
	  nginx=/usr/sbin/nginx caddy systemd=systemd-analyze curl openssl git \
	  prometheus@/usr/bin/promtool prometheus@/usr/bin/prometheus

production: $(READY)  ## Run deploy/compose/production.yml without Docker, on ports of this machine (make production ARGS="--folder /var/tmp/greendot")
	@sh scripts/ensure-debs caddy prometheus@/usr/bin/prometheus
	@exec $(BIN)/python deploy/compose/without-docker $(ARGS)

node: $(READY)
	@sh scripts/ensure-node $(BIN)/python

bench-debs:
	@sh scripts/ensure-debs redis-server gcc nginx libnginx-mod-nchan=/usr/lib/nginx/modules/ngx_nchan_module.so

clean:  ## Remove the virtual environment and all build output
	rm -rf $(VENV) build bench/build .mypy_cache .ruff_cache .pytest_cache .hypothesis
