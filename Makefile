# Everything a developer does here; plain `make` lists it.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# For a new environment only. A second Python gets its own: make test VENV=.venv-3.12 PYTHON=python3.12
PYTHON ?= python3
VENV ?= .venv
SEEDS ?= 1000
EXAMPLES ?= 5000
MINUTES ?= 5
MESSAGES ?= 1000000
SAMPLE ?= 200
SEED ?= 1
ARGS ?=
# With this variable, each process of each step compiles all tests again, which takes 15 seconds.
unexport PYTHONDONTWRITEBYTECODE
# Many tests wait for processes most of the time.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 2)))

BIN := $(VENV)/bin
# Named after its place: scripts in .venv hold their full path, so a moved tree needs a new one.
STAMP := $(VENV)/.setup-$(shell pwd | cksum | cut -d ' ' -f 1)
# Two setups at once take turns; the kernel gives the lock back however one of them ends.
TAKE_TURNS := $(if $(shell command -v flock),flock .setup-lock)
INSTALL := $(BIN)/python -m pip --disable-pip-version-check --no-input install --quiet
NAME_ONE := name Python 3.11 or newer: make setup PYTHON=python3.12
AGAIN := see the message above, then run 'make setup' again
# Runs a command, and shows on a terminal how long it has taken; the line ends with the shell.
ticking = { tick=; \
	if [ -t 2 ]; then ( s=0; while sleep 1 && kill -0 $$$$ 2>/dev/null; do \
		s=$$((s+1)); printf '\rsetup: %s s' $$s >&2; done ) & tick=$$!; fi; \
	$(1); code=$$?; [ -z "$$tick" ] || { kill $$tick; printf '\r\033[K' >&2; }; [ $$code = 0 ]; }
fail = { echo "$(1)" >&2; exit 1; }

IMAGE ?= nodepool

.PHONY: help setup python pythons run run-kubernetes run-metal image test containers long lint format types bench simulation fuzz faults cell \
	mutation testbed kubernetes files manifests rules commands metrics contracts golden shapes dashboards panels lock check clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

# A link leads to the environment of another tree, which --clear would empty.
setup: ## Make .venv from requirements.lock; does nothing when it is up to date
	@[ ! -L $(VENV) ] || $(call fail,setup: $(VENV) is a link to $$(readlink $(VENV)): remove the link or name another environment: make setup VENV=.venv-own)
	@$(TAKE_TURNS) $(MAKE) --silent $(STAMP)

# The stamp comes last, so a setup that was cut short starts again the next time. The modules of this
# project are compiled too, because PYTHONDONTWRITEBYTECODE makes each start compile them otherwise.
$(STAMP): requirements.lock pyproject.toml | python
	@echo "setup: making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV) || $(call fail,setup: could not make $(VENV): $(AGAIN))
	@echo "setup: installing the packages of requirements.lock, which takes a minute or two"
	@$(call ticking,$(INSTALL) --require-hashes -r requirements.lock) || \
		$(call fail,setup: could not install requirements.lock: $(AGAIN))
	@$(INSTALL) --no-deps --no-build-isolation --editable . || \
		$(call fail,setup: could not install this project: $(AGAIN))
	@$(BIN)/python -m compileall -q shared services
	@touch $@

python:
	@$(PYTHON) -c '' 2>/dev/null || $(call fail,setup: cannot run '$(PYTHON)': $(NAME_ONE))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		$(call fail,setup: '$(PYTHON)' is too old: $(NAME_ONE))
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		$(call fail,setup: '$(PYTHON)' has no venv module: on Debian: apt install python3-venv)

# Before the packages are installed, which takes a minute.
define CHECK_PORT
import os, socket, sys
port = os.environ.get("NODEPOOL_NATS_PORT") or "4222"
if port.isdecimal() and 0 < int(port) < 65536:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", int(port)))
        except OSError as error:
            sys.exit(f"run: port {port} cannot be listened on ({error.strerror}): stop what does, or choose"
                     " another port with NODEPOOL_NATS_PORT")
endef
export CHECK_PORT

port: python
	@$(PYTHON) -c "$$CHECK_PORT"

run: port setup ## Start the whole control plane on this machine (Ctrl-C stops it)
	@exec $(BIN)/nodepool up --console --examples deploy/examples $(ARGS)

run-kubernetes: setup ## Start it beside a Kubernetes of its own, with an agent (needs `make testbed`; Ctrl-C stops it)
	@PYTHONPATH=deploy/build exec $(BIN)/python -m testbed.run $(ARGS)

run-metal: setup ## Start it with emulated real machines, and with a Kubernetes if there is a test bed (Ctrl-C stops it)
	@PYTHONPATH=tests:deploy/build exec $(BIN)/python -m redfish.run $(ARGS)

image: ## Build the image of the services, labelled with the version and the commit
	@docker build --file deploy/Dockerfile --tag $(IMAGE) \
		--build-arg VERSION="$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)" \
		--build-arg REVISION="$$(git rev-parse HEAD 2>/dev/null)" \
		--build-arg CREATED="$$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
		--build-arg SOURCE="$$(git remote get-url origin 2>/dev/null | sed 's|//[^/@]*@|//|')" \
		$(ARGS) .

test: setup ## Run all tests but those of containers, long and simulation (ARGS="-k quota" for some)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal \
		--ignore tests/simulation --ignore tests/containers --ignore tests/kube \
		--ignore-glob '*/long' $(ARGS)

pythons: ## Run the tests on each supported Python that can be had (ARGS="3.13 -- tests/bus" for some)
	@.ci/pythons $(ARGS)

containers: setup ## Bring up the compose file, kill and replace its parts, tests/containers/long too (needs an engine)
	@$(BIN)/python -m pytest tests/containers $(ARGS)

long: setup ## Run the long tests: a thousand Nodes, everything killed, a failure on each kind of input
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(filter-out tests/containers/long tests/kube/long,$(wildcard tests/*/long)) $(ARGS)

lint: setup ## Check style and formatting
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

format: setup ## Put style and formatting right
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

types: setup ## Check the types
	@$(BIN)/mypy

bench: setup ## Measure throughput and latency
	@PYTHONPATH=tests:deploy/build $(BIN)/python -m bench $(ARGS)

simulation: setup ## Run the simulation of faults, and check what it finds (SEEDS=1000)
	@$(BIN)/python -m pytest -n auto --dist worksteal tests/simulation --seeds=$(SEEDS) $(ARGS)

fuzz: setup ## Read many foreign bytes of every kind (EXAMPLES=5000 for each property)
	@$(BIN)/python -m pytest -n auto tests/fuzz --examples=$(EXAMPLES) --timeout=0 $(ARGS)

faults: setup ## Stop and kill services and servers of a cluster at random, and audit it (MINUTES=5)
	@PYTHONPATH=tests:deploy/build $(BIN)/python -m faults --minutes $(MINUTES) $(ARGS)

cell: setup ## Run a cell of 10,000 Nodes on a disk of 1 GB under kills, and audit it (MESSAGES=1000000)
	@PYTHONPATH=tests:deploy/build $(BIN)/python -m faults.cell --messages $(MESSAGES) $(ARGS)

mutation: setup ## Change decisions one at a time, and show what no test notices (SAMPLE=200 SEED=1)
	@$(BIN)/python -c 'import libcst' 2>/dev/null || \
		$(call fail,mutation: needs Python 3.11 or 3.12: make setup mutation PYTHON=python3.11 VENV=.venv-3.11)
	@PYTHONPATH=tests:deploy/build $(BIN)/python -m mutation --sample $(SAMPLE) --seed $(SEED) $(ARGS)

# Everything there is one cluster's, so one process runs it.
kubernetes: setup ## Apply the manifests to a real Kubernetes, which `make testbed` builds
	@$(BIN)/python -m pytest tests/kube $(ARGS)

testbed: ## Build a Kubernetes to test against, with Go, once into ~/.cache (15 CPU minutes, 5 GB)
	@deploy/build/testbed/build.sh "$${XDG_CACHE_HOME:-$$HOME/.cache}/nodepool/kubernetes"

files: contracts manifests rules commands metrics dashboards golden ## Write every file that is made from the code: manifests, contracts, pages, dashboards, rules, golden lines

manifests: setup ## Write what follows from the list of services: manifests, and parts of pages and rules
	@PYTHONPATH=deploy/build $(BIN)/python -m manifests

rules: manifests ## Write the alert rules as an object of the Prometheus operator
	@PYTHONPATH=deploy/build $(BIN)/python -m monitoring.rules

commands: setup ## Write shared/COMMANDS.md from the classes of the commands
	@PYTHONPATH=deploy/build $(BIN)/python -m pages.commands

metrics: setup ## Write deploy/METRICS.md from the list of metrics
	@PYTHONPATH=deploy/build $(BIN)/python -m pages.metrics

panels: setup ## Ask a real Prometheus beside all services for every panel; print how many series
	@$(BIN)/python -m pytest -q -s tests/operations/long/test_panels.py $(ARGS)

dashboards: setup ## Write deploy/grafana/dashboards from deploy/build/dashboards
	@PYTHONPATH=deploy/build $(BIN)/python -m dashboards

contracts: setup ## Write shared/asyncapi.yaml, shared/nodepool.schema.json and the CRD from the classes
	@PYTHONPATH=deploy/build $(BIN)/python -m contracts.files

golden: setup ## Add a line to tests/unit/golden.jsonl for each new sample of a message
	@PYTHONPATH=deploy/build $(BIN)/python -m contracts.golden

shapes: setup ## Write tests/unit/shapes.json when a release is made: what the next one must read
	@PYTHONPATH=deploy/build $(BIN)/python -m contracts.shapes

# A newer Python would leave out what only the oldest one needs.
lock: setup ## Write requirements.lock from pyproject.toml (ARGS="--upgrade" for news)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
		$(call fail,lock: needs the oldest Python: make distclean lock PYTHON=python3.11)
	@CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/python -m piptools compile --quiet \
		--generate-hashes --allow-unsafe --strip-extras --no-emit-index-url \
		--no-emit-trusted-host --no-emit-find-links --extra dev --extra local --extra otlp --extra nkeys --extra auth \
		--extra kubernetes --extra archive --extra console --extra metal --extra provider --extra peer \
		--output-file requirements.lock $(ARGS) pyproject.toml
# pip-compile drops this marker of pyproject.toml: on other Pythons libcst needs what the lock has not.
	@sed -i.old -E 's/^(libcst|mutmut)==([^ ]+) /\1==\2 ; python_version < "3.13" /' requirements.lock
	@rm requirements.lock.old

check: lint types test long ## All that must pass before a change goes in
	@$(MAKE) simulation SEEDS=45

clean: ## Remove the data of local runs, and caches
	@rm -rf .nodepool build dist
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find shared services deploy tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove .venv and the environments of other Pythons as well
	@rm -rf .venv .venv-* .setup-lock
