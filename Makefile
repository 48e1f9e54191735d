# `make` lists the targets. Every one works as root and as a user.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

.PHONY: help run build test check conformance consistency fuzz drivers page
.PHONY: chaos bench-fences bench bench-quick bench-transaction bench-large bench-micro bench-time

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 19

run: prerequisites ## builds, starts a primary with two replicas under .run and Causeway before them; Ctrl-C ends all
	@cargo build --release -p causeway
	@exec target/release/causeway dev --directory .run

build: prerequisites ## the release binary, target/release/causeway
	@cargo build --release -p causeway

test: prerequisites ## all tests, on real PostgreSQL servers; at most 15 minutes on two cores
	@cargo build -p causeway
	@cargo test --workspace --no-fail-fast

check: prerequisites ## formatting and lints
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets -- -D warnings

conformance: prerequisites drivers ## all client drivers, PostgreSQL's tools and its own test suites, through Causeway and direct
	@tests/conformance/fetch
	@cargo build -p causeway
	@cargo test -p causeway-tests --test drivers --test tools
	@cargo test -p causeway-tests --test suites -- --test-threads=1 --nocapture

consistency: prerequisites ## reads against faults for long, and many simulated seeds; CAUSEWAY_SEED, CAUSEWAY_SEEDS (3000), CAUSEWAY_CHECK_SECONDS (30), CAUSEWAY_CHECK_ROUNDS (1)
	@cargo build -p causeway
	@CAUSEWAY_SEEDS=$${CAUSEWAY_SEEDS:-3000} cargo test -p causeway-tests --test simulation -- --nocapture
	@CAUSEWAY_CHECK_SECONDS=$${CAUSEWAY_CHECK_SECONDS:-30} CAUSEWAY_SHARE_SECONDS=$${CAUSEWAY_SHARE_SECONDS:-20} \
		cargo test -p causeway-tests --test consistency -- --nocapture --test-threads 1

chaos: prerequisites ## a bank under every fault, for long; CAUSEWAY_CHAOS_SEED (1), CAUSEWAY_CHAOS_ROUNDS (10), CAUSEWAY_CHAOS_SECONDS (5)
	@cargo build -p causeway
	@CAUSEWAY_CHAOS_ROUNDS=$${CAUSEWAY_CHAOS_ROUNDS:-10} CAUSEWAY_CHAOS_SECONDS=$${CAUSEWAY_CHAOS_SECONDS:-5} \
		cargo test -p causeway-tests --test chaos -- --nocapture

bench: bench-programs ## side by side with direct, HAProxy, PgBouncer and Pgpool-II: an hour; report in docs/benchmarks
	@target/release/compare --tls $(BENCH_OPTIONS)

bench-quick: bench-programs ## the same in a few minutes, to try it: establishes nothing; report in target/bench-quick
	@target/release/compare --rounds 2 --seconds 1 --out target/bench-quick $(BENCH_OPTIONS)

bench-transaction: bench-programs ## instructions of a whole transaction, Causeway's and PgBouncer's, under valgrind
	@target/release/transaction $(BENCH_OPTIONS)

bench-fences: build ## what consistent reads cost the primary and their clients, at 1, 16 and 64 of them
	@cargo build --release -p causeway-benches
	@target/release/fences $(BENCH_OPTIONS)

bench-large: bench-programs ## large reads from a server that runs ahead: MB/s, CPU a GB, receives a MiB
	@target/release/read_large_table $(BENCH_OPTIONS)

bench-micro: prerequisites ## the pieces of a statement's way by instructions, under valgrind, as a Markdown table
	@cargo build --release -p causeway-benches
	@target/release/instructions

bench-time: prerequisites ## the same pieces by time
	@cargo bench -p causeway-benches

fuzz: prerequisites ## every fuzz target for FUZZ_SECONDS (60) each; needs cargo-fuzz (see fuzz/README.md)
	@fuzz/run $${FUZZ_SECONDS:-60}

page: prerequisites ## the status page in a real browser without a screen; as root on Debian brings chromium if there is none
	@command -v chromium chromium-browser google-chrome >/dev/null || apt-get install -y --no-install-recommends chromium
	@cargo build -p causeway
	@CAUSEWAY_BROWSER=1 cargo test -p causeway-tests --test page -- --nocapture

drivers: ## brings the client drivers that `make test` tries (into target/drivers; Debian's packages as root only)
	@tests/drivers/install

.PHONY: bench-programs
# What is missing for a comparison is left out of it, and the report says so.
bench-programs: build
	@cargo build --release -p causeway-benches
	@benches/install || true

.PHONY: prerequisites
prerequisites:
	@scripts/prerequisites

.PHONY: deb observers
deb: build ## a Debian package, target/debian/causeway_*.deb; as root installed, tried and purged again
	@deploy/debian/try "$$(deploy/debian/build target/release/causeway)"

observers: ## brings promtool and an exporter for PgBouncer into target/observers, and tries them on Causeway
	@tests/observers/install
	@cargo test -p causeway-tests --test observers
