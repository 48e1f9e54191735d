# `make` lists the targets. Every one works as root and as a user.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

.PHONY: help run build test check conformance bench bench-micro fuzz drivers

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 13

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

conformance: prerequisites ## client drivers and PostgreSQL's own tools alone, all that `make drivers` has brought
	@cargo test -p causeway-tests --test drivers --test tools

bench: prerequisites ## micro benchmarks, by time
	@cargo bench -p causeway-benches

bench-micro: prerequisites ## the same kernels by instructions, under valgrind, as a Markdown table
	@cargo build --release -p causeway-benches
	@target/release/instructions

fuzz: prerequisites ## every fuzz target for FUZZ_SECONDS (60) each; needs cargo-fuzz (see fuzz/README.md)
	@fuzz/run $${FUZZ_SECONDS:-60}

drivers: ## brings the client drivers that `make test` tries (into target/drivers; Debian's packages as root only)
	@tests/drivers/install

.PHONY: prerequisites
prerequisites:
	@scripts/prerequisites
