# Every target installs what it needs first (scripts/setup.sh), then does its job.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

# Arguments of `make run`, for example: make run ARGS="--shape memory=4T,nodes=8"
ARGS ?=
# Seconds for each target of `make fuzz`.
SECONDS ?= 60
MSRV := $(shell sed -n 's/^rust-version *= *"\(.*\)"/\1.0/p' Cargo.toml)
BARE := x86_64-unknown-none
# No C library of the machine, so no code chosen by its processor.
COUNTED := x86_64-unknown-linux-musl

.DEFAULT_GOAL := help
.PHONY: help run test bench counts check msrv miri loom fuzz clean setup

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install what a build needs and nothing else
	@scripts/setup.sh

run: setup ## bring up this machine's memory map: firstlight up
	@cargo build --release --quiet -p firstlight-cli
	@cargo run --release --quiet -p firstlight-cli -- up $(ARGS)

test: setup ## all tests, documentation examples among them
	@cargo test --workspace

bench: setup ## measure beside the rivals
	@cargo bench --quiet -p firstlight-bench --bench bring_up

counts: setup ## count instructions and guard them; UPDATE=1 commits to new counts
	@command -v valgrind >/dev/null || scripts/setup.sh debian valgrind
	@scripts/setup.sh target $(COUNTED)
	@cargo run --quiet --profile counts --target $(COUNTED) -p firstlight-bench --bin counts -- $(if $(UPDATE),update)

check: setup ## format, lints, documentation, the engine without an operating system
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --quiet -- -D warnings
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	@scripts/setup.sh target $(BARE)
	@cargo check --quiet -p firstlight --target $(BARE)

msrv: setup ## all crates with the oldest Rust that is promised
	@scripts/setup.sh toolchain $(MSRV)
	@cargo +$(MSRV) check --workspace --all-targets --quiet --target-dir target/msrv

miri: setup ## the engine's tests under Miri
	@scripts/setup.sh toolchain nightly miri rust-src
	@PROPTEST_CASES=4 MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks" \
	    cargo +nightly miri test -p firstlight --lib --quiet --target-dir target/miri
	@MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks" cargo +nightly miri test -p firstlight \
	    --test frames_machine --quiet --target-dir target/miri -- misuse requests_stay a_given

loom: setup ## the concurrent parts under every interleaving
	@RUSTFLAGS="--cfg loom -C debug-assertions" cargo test --release -p firstlight --lib --quiet --target-dir target/loom loom

fuzz: setup ## every fuzz target, SECONDS=60 each
	@scripts/setup.sh toolchain nightly rust-src
	@scripts/setup.sh tool cargo-fuzz
	@fuzz/run.sh $(SECONDS)

clean: ## remove what was built
	@cargo clean
