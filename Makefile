# SPDX-License-Identifier: MIT OR Apache-2.0
# What a script, a person or a CI asks of this repository. `make help` lists it.

PREFIX ?= /usr/local
CARGO ?= cargo
# Of `make swarm` and `make test-faults`.
SEEDS ?= 10000
KILLS ?= 500
# Of `make test-gm`: sends of each of two nodes.
MESSAGES ?= 5000000
# Of `make test-documented`, which begins with seed SEED if that is set.
PROGRAMS ?= 10000
export CARGO

.DEFAULT_GOAL := build
.PHONY: help setup build wheel test-wheel bench instructions test test-arm test-first test-launch test-faults test-documented test-gm test-mpi swarm fuzz lint demo install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing on this machine
	@scripts/setup.sh

build: setup ## build target/release/portolan, portolan-sim, heat and the C libraries
	$(CARGO) build --release --workspace --exclude portolan-openmpi
	@scripts/build-libraries.sh
	@scripts/build-openmpi.sh

wheel: build ## build the wheel of the Python package into target/wheels; needs pip
	@scripts/build-wheel.sh

test-wheel: ## test the wheel in a fresh virtual environment of each Python from 3.11 on, and in a clean root; needs pip
	@scripts/test-wheel.sh
	@scripts/test-wheel-root.sh

bench: build ## measure for some two minutes, and append the medians to bench-history.jsonl
	@scripts/bench.sh

instructions: build ## count the instructions of a message, and compare with scripts/instructions/figures.txt; needs valgrind
	@scripts/instructions.sh

test: setup ## check the core's independence and run all tests
	@scripts/test.sh

test-arm: setup ## build for 64-bit Arm, test under emulation, and build its packages; needs qemu-user-static
	@scripts/test-arm.sh

test-first: ## as root: the first commands of README.md, by an ordinary user on a fresh checkout and two hosts
	@scripts/test-first.sh

test-faults: setup ## kill a process at KILLS (500) points, and hosts of casts; test all faults on all paths
	KILLS=$(KILLS) $(CARGO) test -p portolan-cli --test jobs --test network --test cast -- --ignored --nocapture \
		kills:: troubles:: copies:: limits::

test-documented: setup ## run PROGRAMS (10000) random programs and compare with the documentation; SEED=S PROGRAMS=1 repeats one
	DOCUMENTED_PROGRAMS=$(PROGRAMS) DOCUMENTED_SEED=$(SEED) $(CARGO) test -p portolan-cli --test documented -- \
		--ignored --nocapture

test-gm: setup ## GM's tokens over MESSAGES (5000000) sends of each of two nodes, within a host and with loss
	$(CARGO) build --release -p portolan-cli
	GM_MESSAGES=$(MESSAGES) $(CARGO) test --release -p portolan-gm --test programs -- --ignored --nocapture

swarm: setup ## simulate SEEDS (10000) clusters, and reduce failures
	$(CARGO) run --release -p portolan-sim -- swarm --seeds $(SEEDS)

test-launch: build ## as root: a program under portolan run, mpirun, mpiexec and a Slurm cluster in a lab; installs packages
	@scripts/test-launch.sh

fuzz: setup ## fuzz each target for FUZZ_SECONDS (60); needs nightly and cargo-fuzz
	@scripts/fuzz.sh

# As root also across the hosts of a lab; after `make build`.
test-mpi: ## MPI programs and mpi4py's tests over Portolan (needs the network; not in CI)
	@scripts/test-mpi.sh

lint: setup ## formatting, clippy, documentation, licences, scripts
	@scripts/lint.sh

demo: ## set up, build, and show the main job
	@scripts/demo.sh

# No setup and no build when the binaries are there: it may run as root.
install: ## install under PREFIX (default /usr/local), below DESTDIR if set
	@scripts/install.sh "$(DESTDIR)$(PREFIX)" "$(PREFIX)"
	@scripts/install-libraries.sh "$(PREFIX)" "$(DESTDIR)"

clean: ## remove what was built
	$(CARGO) clean
