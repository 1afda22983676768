# Every target installs what it needs first (scripts/setup.sh), then does its job.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
# Under `make -j` cargo would look for a jobserver that recipes are not given.
unexport MAKEFLAGS MFLAGS
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

# Arguments of `make run`, for example: make run ARGS="--no-browser"
ARGS ?=
# Words of the command line of `make stick`.
APPEND ?= selftest
# Seconds for each target of `make fuzz`.
SECONDS ?= 60
# Length of `make stress`.
MINUTES ?= 1
# Schedules of `make miri-seeds`.
SEEDS ?= 64
# Boots of `make guests`, and what their damages are made from.
CASES ?= 500
SEED ?= $(shell date +%s)
# Lines that the tests reach, in percent, at least.
COVERAGE ?= 92
# The commit that `make semver` compares with, if not that of the engine's version.
BASE ?=
MSRV := $(shell sed -n 's/^rust-version *= *"\(.*\)"/\1.0/p' Cargo.toml)
OSTD_TOOLCHAIN := $(shell sed -n 's/^channel *= *"\(.*\)"/\1/p' ports/ostd/rust-toolchain.toml)
HOST = $(shell rustc --version --verbose | sed -n 's/^host: //p')
BARE := x86_64-unknown-none
# What the image's UEFI loader is built for.
UEFI := x86_64-unknown-uefi aarch64-unknown-uefi
# What the image is built for besides, and QEMU's names of those processors.
OTHERS := aarch64-unknown-none riscv64gc-unknown-none-elf
EMULATED := x86_64 aarch64 riscv64
# The engine's crates, each after those that it needs, and those with unsafe code.
ENGINE := firstlight-memory firstlight-frames firstlight-boot firstlight-memmap firstlight-workers firstlight-blocks firstlight
# All features but those that change the size of pages.
DOCUMENTED := content,hotplug,movable,small-caches,check-double-free,x86_64
UNSAFE := firstlight-memory firstlight-frames firstlight-boot firstlight-memmap firstlight-workers
# Those whose tests run with each size of pages, and how many cases of each property `make test-pages` tries.
PAGES := firstlight-memory firstlight-frames firstlight-boot firstlight-memmap firstlight-workers firstlight-blocks
PAGE_CASES ?= 10
# No C library of the machine, so no code chosen by its processor.
COUNTED := x86_64-unknown-linux-musl

.DEFAULT_GOAL := help
.PHONY: help build image stick run test test-workspace test-features test-pages test-pages-long nightly mutants coverage stress verify verify-planted soak slurm kubernetes pairs libvirt systemd cloud-hypervisor deb rpm dist publish-order rules bench measurements picture counts profile boot-counts arm check check-host check-fuzz check-bare check-kubernetes publish-check semver msrv msrv-engine miri miri-setup miri-units miri-machines miri-seeds loom loom-whole fuzz guests port-c port-ostd port-ostd-stress port-small port-hello port-features foreign linux clean setup

help: ## release: this list
	@for group in start test long measure release; do \
	    echo "$$group"; \
	    sed -n "s/^\([a-z-]*\):.*## $$group: \(.*\)/  make \1\t\2/p" $(MAKEFILE_LIST) | expand -t 20; \
	done

setup: ## start: install what a build needs and nothing else
	@scripts/setup.sh

build: setup ## start: the command alone, target/release/firstlight
	@[ -x $${CARGO_TARGET_DIR:-target}/release/firstlight ] || echo "firstlight: the first build takes some minutes" >&2
	@# On a terminal cargo shows how far it is.
	@if [ -t 2 ]; then cargo build --release -p firstlight-cli; else cargo build --release --quiet -p firstlight-cli; fi
	@echo "firstlight: built, $${CARGO_TARGET_DIR:-target}/release/firstlight" >&2

run: build ## start: firstlight demo: this machine's memory map, a machine beside a Linux, a slow boot; ARGS="--no-browser"
	@scripts/setup.sh qemu && scripts/setup.sh target $(BARE) || true
	@cargo run --release --quiet -p firstlight-cli -- demo $(ARGS)

image: setup ## start: build the bare-metal image for all processors and its UEFI loader, docs/image.md; ONLY=x86_64
	@echo "firstlight: the first build takes some minutes" >&2
	@for target in $(or $(filter $(ONLY)%,$(BARE) $(OTHERS)),$(error ONLY=$(ONLY): expected x86_64, aarch64 or riscv64)); do \
	    scripts/setup.sh target $$target; \
	    cargo build --release --quiet -p firstlight-image --target $$target; \
	done
	@$(if $(ONLY),,for target in $(UEFI); do scripts/setup.sh target $$target; done)
	@$(if $(ONLY),,cargo build --release --quiet -p firstlight-image-uefi $(UEFI:%=--target %))

stick: setup ## start: a USB stick that runs the image on a real machine, as the file target/stick.img, docs/stick.md; APPEND="words"
	@for target in $(BARE) $(OTHERS) $(UEFI); do scripts/setup.sh target $$target; done
	@[ -x $${CARGO_TARGET_DIR:-target}/release/firstlight ] || echo "firstlight: the first build takes some minutes" >&2
	@cargo run --release --quiet -p firstlight-cli -- stick --output $${CARGO_TARGET_DIR:-target}/stick.img --append "$(APPEND)"

test: test-workspace test-features ## test: all tests, documentation examples among them (minutes); FIRSTLIGHT_REQUIRE=root,hugepages,qemu,browser,linux lets none be skipped

test-workspace: setup
	@for target in $(BARE) $(UEFI) $(OTHERS); do scripts/setup.sh target $$target; done
	@scripts/setup.sh ovmf x86_64 aarch64 || echo "firstlight: tests that need UEFI say that they are skipped" >&2
	@scripts/setup.sh qemu $(EMULATED) || echo "firstlight: tests that need QEMU say that they are skipped" >&2
	@scripts/setup.sh debian dosfstools gdisk || echo "firstlight: sticks are not looked at by fsck.fat and sgdisk" >&2
	@scripts/setup.sh browser || echo "firstlight: tests that need a browser say that they are skipped" >&2
	@scripts/setup.sh tool cargo-nextest || echo "firstlight: without cargo-nextest the tests of a crate run after those of another" >&2
	@# Cargo makes it with a test that it compiles, and all may be kept from another clone.
	@mkdir -p $${CARGO_TARGET_DIR:-target}/tmp
	@if command -v cargo-nextest >/dev/null; then \
	    scripts/skipped.sh scripts/boots/kept.sh cargo nextest run --workspace $(if $(CI),--profile ci); \
	else \
	    scripts/skipped.sh scripts/boots/kept.sh cargo test --quiet --workspace --lib --bins --tests; \
	fi
	@cargo test --quiet --workspace --doc

# Few of the engine's tests, with other features: to optimise them all takes minutes more than these take.
TEST_ANEW = cargo test --quiet -p firstlight $(ENGINE:%=--config profile.dev.package.%.opt-level=0)

test-features: setup
	@$(TEST_ANEW) --features check-double-free --test it -- cpu_cache:: cpu_cell:: cpu_machine:: cpu_ranges::
	@$(TEST_ANEW:firstlight=firstlight-frames) --features check-double-free --lib -- caches_agree
	@$(TEST_ANEW) --no-default-features --features movable --test it -- tables_machine:: frames_machine::

TEST_PAGES = cargo test --quiet -p firstlight $(PAGES:%=-p %)
# Those that fill a GiB with pages of 16 KiB, and one that searches it again and again.
PAGES_LONG := reporting_machine:: zeroing_machine:: zeroing_knobs:: a_row_by_a_cpu_is_of_memory_that_is_accepted_near

# Of each property one case in twenty: the code is that of 4 KiB, with other numbers.
test-pages: setup ## test: the engine's crates with pages of 16 and of 64 KiB, and the aarch64 image, booted
	@scripts/setup.sh target aarch64-unknown-none
	@scripts/setup.sh qemu aarch64 || echo "firstlight: tests that need QEMU say that they are skipped" >&2
	@cargo test --quiet -p firstlight-lab --test it -- --ignored --nocapture boot_pages::
	@for pages in page-16k page-64k; do \
	    FIRSTLIGHT_MODEL_CASES=$(PAGE_CASES) $(TEST_PAGES) --features $$pages --lib; \
	done
	@$(TEST_PAGES) --features page-16k --test it -- $(PAGES_LONG:%=--skip %)

test-pages-long: setup ## long: all tests of the engine with pages of 16 and of 64 KiB (minutes)
	@for pages in page-16k page-64k; do $(TEST_PAGES) --features $$pages --lib --test it; done

stress: setup ## long: threads over all operations of the allocator, recounted every few seconds; MINUTES=120 for the long run
	@FIRSTLIGHT_STRESS_SECONDS=$$(( $(MINUTES) * 60 )) cargo test --release --quiet -p firstlight \
	    --test it -- --ignored --nocapture frames_stress::for_the_requested_time

nightly: ## long: what continuous integration leaves out, in turns, with a table at its end (hours); SECONDS and MINUTES as below
	@FIRSTLIGHT_REQUIRE=$$(cat .ci/require) CPU_MINUTES=2000 KEEP_GOING=1 scripts/steps.sh .ci/nightly

mutants: setup ## long: 60 mutations of the code, drawn by SEED; fails where more than 5 % of them are noticed by no test
	@scripts/setup.sh tool cargo-mutants
	@scripts/mutants.sh $(SEED)

coverage: setup ## long: which lines the tests reach; fails below the share that is reached today
	@scripts/setup.sh tool cargo-llvm-cov
	@rustup component add llvm-tools >&2
	@# The image is for other targets, which have no runtime that counts.
	@cargo llvm-cov nextest --workspace --target $(HOST) --coverage-target-only --summary-only --fail-under-lines $(COVERAGE)

verify: setup ## test: proves what docs/proofs.md says, prints the theorems; builds the prover the first time (a quarter of an hour)
	@command -v python3 >/dev/null || scripts/setup.sh debian python3
	@proofs/verify.py prove

verify-planted: setup ## long: mistakes in copies of the proven files, each of which the prover must refuse (minutes)
	@command -v python3 >/dev/null || scripts/setup.sh debian python3
	@proofs/verify.py planted

soak: setup ## long: the pool's daemon killed 220 times and poisoned in 1,100 rounds (root, huge pages; minutes)
	@FIRSTLIGHT_POISON_ROUNDS=1100 FIRSTLIGHT_CRASHES=220 cargo test -p firstlight-cli --test it -- pool_serve::poison pool_serve::crash --nocapture

simulate: ## long: lives of the pool's daemon, with all faults, from seeds for SECONDS=60
	@FIRSTLIGHT_SIMULATE_SECONDS=$(SECONDS) cargo test --release --quiet -p firstlight-pool --lib machine::simulation -- --nocapture

slurm: setup ## test: boots on the nodes of a real Slurm on this machine, one of which dies (root; a minute)
	@scripts/setup.sh target $(BARE)
	@scripts/setup.sh qemu
	@scripts/setup.sh debian slurmctld slurmd slurm-client munge
	@# Of the whole workspace, as `make test` builds it: dependencies of one package have other features.
	@FIRSTLIGHT_REQUIRE=slurm,qemu cargo test --quiet --workspace --test it slurm::

libvirt: setup ## long: domains of a real libvirtd on the pool, then how long virsh start takes (root, 8 GiB in huge pages; minutes)
	@scripts/setup.sh qemu
	@scripts/setup.sh debian libvirt-daemon-system libvirt-clients procps
	@FIRSTLIGHT_REQUIRE=root,hugepages,libvirt cargo test --quiet -p firstlight-pool-cli --test it libvirt::
	@FIRSTLIGHT_REQUIRE=root,hugepages,libvirt cargo test --release --quiet -p firstlight-pool-cli --test it -- --ignored --nocapture libvirt::

kubernetes: setup ## long: a real Kubernetes on this machine, pods on slabs, ROUNDS=5 kills for plugin and driver each (root, 112 huge pages, Go; half an hour to build, once)
	@scripts/setup.sh qemu
	@{ command -v jq && command -v openssl && command -v pgrep && command -v ip && command -v pkg-config; } >/dev/null || scripts/setup.sh debian jq openssl procps iproute2 gcc pkg-config
	@ROUNDS=$(or $(ROUNDS),5) kubernetes/cluster/run.sh

pairs: setup ## long: the gate over 50 pairs of the same boot, none of which is an alarm, on 1 CPU and on 4 (minutes)
	@scripts/setup.sh target $(BARE)
	@scripts/setup.sh qemu
	@FIRSTLIGHT_REQUIRE=qemu FIRSTLIGHT_PAIRS=50 cargo test --quiet -p firstlight-lab --test it gate_pairs::

systemd: setup ## long: the installed package under a real systemd in an emulated Debian, from install to purge (minutes)
	@scripts/setup.sh qemu
	@scripts/setup.sh debian mmdebstrap binutils cpio
	@scripts/linux.sh
	@scripts/systemd/run.sh

deb: setup ## release: Debian packages of the pool and of the command, in target/debian
	@command -v objdump >/dev/null || scripts/setup.sh debian binutils
	@packaging/debian/build.sh

rpm: deb ## release: the pool's package for Fedora and openSUSE, with a SELinux module, in target/rpm
	@{ command -v rpmbuild && command -v checkmodule && command -v semodule_package; } >/dev/null || scripts/setup.sh debian rpm checkpolicy semodule-utils
	@packaging/rpm/build.sh

dist: setup ## release: static programs for two processors, packages, stick, container images, bill of materials, checksums: target/dist
	@command -v objdump >/dev/null || scripts/setup.sh debian binutils
	@command -v python3 >/dev/null || scripts/setup.sh debian python3
	@packaging/dist/build.sh

# Each is packed as the registry gets it, those that it needs before it.
PUBLISHED = firstlight-figures $(ENGINE) firstlight-wire firstlight-workloads firstlight-host firstlight-bench \
    firstlight-lab firstlight-pool firstlight-pool-cli firstlight-cli

publish-order: setup ## release: all crates in the order in which they are published, as a dry run; each is built from what the registry gets
	@echo $(PUBLISHED)
	@cargo publish --dry-run --allow-dirty --quiet $(PUBLISHED:%=-p %)

rules: setup ## test: the alert rules and the dashboard's queries, read by Prometheus's own checker
	@{ command -v promtool && command -v jq; } >/dev/null || scripts/setup.sh debian prometheus jq
	@packaging/prometheus/check.sh

bench: setup ## measure: time the engine beside other allocators (minutes, 10 GiB of memory)
	@cargo bench --quiet -p firstlight-bench --bench bring_up
	@cargo bench --quiet -p firstlight-bench --bench bring_up -- blocks
	@cargo bench --quiet -p firstlight-bench --bench bring_up -- hash

measurements: setup ## measure: measure what docs/measurements.md shows and write it (a quarter of an hour); ONLY=allocator, or another part; ONLY=none writes it alone
	@scripts/setup.sh target $(BARE)
	@scripts/setup.sh qemu
	@[ -e $${CARGO_TARGET_DIR:-target}/linux/6.12/vmlinuz ] || scripts/linux.sh
	@cargo build --release --quiet -p firstlight-cli
	@cargo build --release --quiet -p firstlight-image --target $(BARE)
	@cargo run --release --quiet -p firstlight-bench --bin measurements -- $(ONLY)

picture: setup ## measure: write the README's picture and figures, and docs/measurements.md, from the records there are
	@cargo run --release --quiet -p firstlight-bench --bin measurements -- none

counts: setup ## measure: count instructions, fail where they grew by 2 %; UPDATE=1 accepts the new counts
	@command -v valgrind >/dev/null || scripts/setup.sh debian valgrind
	@scripts/setup.sh target $(COUNTED)
	@cargo run --quiet --profile counts --target $(COUNTED) -p firstlight-bench --bin counts -- $(if $(UPDATE),update)
	@cargo run --quiet --profile counts --target $(COUNTED) -p firstlight-bench --features page-16k --bin counts -- $(if $(UPDATE),update)
	@$(if $(UPDATE),cargo run --release --quiet -p firstlight-bench --bin measurements -- counts)

profile: setup ## measure: instructions of one row of `make counts` by function and by line: ROW=page_pairs
	@command -v valgrind >/dev/null || scripts/setup.sh debian valgrind
	@scripts/setup.sh target $(COUNTED)
	@TARGET=$(COUNTED) scripts/profile.sh $(ROW)

arm: setup ## long: the image on Arm machines of many shapes by UEFI (EDK2): 1 to 123 CPUs, 4 nodes, ACPI and a device tree (minutes)
	@for target in aarch64-unknown-none aarch64-unknown-uefi; do scripts/setup.sh target $$target; done
	@scripts/setup.sh qemu aarch64
	@scripts/setup.sh ovmf aarch64
	@cargo test --quiet -p firstlight-lab --test it -- --ignored --nocapture boot_uefi::arm::arm_machines

boot-counts: setup ## measure: count the instructions of the image's boots; UPDATE=1 accepts the new counts
	@for target in $(BARE) $(OTHERS); do scripts/setup.sh target $$target; done
	@scripts/setup.sh qemu $(EMULATED)
	@$(if $(UPDATE),FIRSTLIGHT_UPDATE_BOOT_COUNTS=1) cargo test --quiet -p firstlight-lab --test it -- --nocapture boot_counts::
	@cargo test --quiet -p firstlight-lab --test it -- --nocapture boot_restart::memory_is_ready
	@$(if $(UPDATE),cargo run --release --quiet -p firstlight-bench --bin measurements -- counts)

check: check-host check-fuzz check-bare publish-check ## test: format, lints, prose, licences, documentation, fuzz targets, the engine without an operating system

check-host: setup
	@command -v shellcheck >/dev/null || scripts/setup.sh debian shellcheck
	@git ls-files '*.sh' .ci/run | xargs shellcheck --severity=warning
	@scripts/setup.sh tool typos-cli typos
	@typos
	@scripts/setup.sh tool cargo-deny
	@cargo deny --log-level error check licenses bans sources
	@command -v python3 >/dev/null || scripts/setup.sh debian python3
	@proofs/verify.py check
	@scripts/steps-wake.sh
	@cargo fmt --all --check
	@cargo fmt --manifest-path ports/ostd/Cargo.toml --all --check
	@cargo clippy --workspace --all-targets --quiet -- -D warnings
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

check-fuzz: setup
	@# Nothing is linked, so libFuzzer is not compiled.
	@CUSTOM_LIBFUZZER_PATH=/dev/null cargo check --manifest-path fuzz/Cargo.toml --locked --quiet --target-dir $${CARGO_TARGET_DIR:-target}

check-bare: setup
	@scripts/setup.sh target $(BARE)
	@# Workers need `content`.
	@cargo clippy --quiet $(patsubst %,-p %,$(filter-out firstlight-workers,$(ENGINE))) --no-default-features -- -D warnings
	@cargo clippy --release --quiet $(ENGINE:%=-p %) -p firstlight-image --target $(BARE) -- -D warnings
	@for target in $(UEFI); do scripts/setup.sh target $$target; done
	@cargo clippy --release --quiet -p firstlight-image-uefi $(UEFI:%=--target %) -- -D warnings
	@for target in $(OTHERS); do \
	    scripts/setup.sh target $$target; \
	    cargo clippy --release --quiet $(ENGINE:%=-p %) -p firstlight-image --target $$target -- -D warnings; \
	done

publish-check: setup ## test: the engine as the registry gets it: packed, built on its own, documented as docs.rs does
	@cargo publish --dry-run --allow-dirty --quiet $(ENGINE:%=-p %)
	@scripts/setup.sh toolchain nightly
	@RUSTDOCFLAGS="--cfg docsrs -D warnings" cargo +nightly doc $(ENGINE:%=-p %) --features $(DOCUMENTED) --no-deps --quiet --target-dir target/docsrs

semver: setup ## test: what breaks the engine's interface since it got its version, or since BASE=COMMIT (the tool takes minutes to build, once)
	@scripts/setup.sh tool cargo-semver-checks
	@scripts/semver.sh "$(ENGINE)" $(BASE)

# `make check` lints against what the standard library got later; `make nightly` builds all programs with it.
msrv-engine: setup
	@scripts/setup.sh toolchain $(MSRV)
	@cargo +$(MSRV) check -p firstlight --quiet --target-dir target/msrv
	@rustup target list --installed --toolchain $(MSRV) | grep -qx $(BARE) || rustup target add --toolchain $(MSRV) $(BARE) >&2
	@cargo +$(MSRV) check -p firstlight-image --target $(BARE) --quiet --target-dir target/msrv

msrv: msrv-engine ## test: all libraries and programs with the oldest Rust that is promised
	@cargo +$(MSRV) check --workspace --quiet --target-dir target/msrv
	@rustup target add --toolchain $(MSRV) $(UEFI) >/dev/null 2>&1
	@cargo +$(MSRV) check -p firstlight-image-uefi $(UEFI:%=--target %) --quiet --target-dir target/msrv
	@for target in $(OTHERS); do \
	    rustup target list --installed --toolchain $(MSRV) | grep -qx $$target || rustup target add --toolchain $(MSRV) $$target >&2; \
	    cargo +$(MSRV) check -p firstlight-image --target $$target --quiet --target-dir target/msrv; \
	done
	@cargo +$(MSRV) check --manifest-path ports/c/Cargo.toml --locked --quiet --target-dir target/msrv

# Miri interprets on one processor: `make -j2 miri` takes two. Modules that deny unsafe code have no undefined behaviour
# to be seen: `make test` runs their tests. model_names_tests.rs holds this list to that.
SAFE = background clock cmdline frames::word layout parallel preserve tables::size topology
MIRI = MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks $(1)" \
    cargo +nightly miri test --quiet --target-dir target/miri

miri: miri-units miri-machines ## test: the engine's tests under Miri, which sees undefined behaviour (minutes)

miri-setup: setup
	@scripts/setup.sh toolchain nightly miri rust-src
	@cargo +nightly miri setup --quiet --target-dir target/miri

miri-units: miri-setup
	@PROPTEST_CASES=1 $(call MIRI) $(UNSAFE:%=-p %) --lib -- $(SAFE:%=--skip %::)

miri-machines: miri-setup
	@$(call MIRI) -p firstlight --test it -- \
	    cpu_cache:: cpu_cell:: \
	    frames_ranges::a_kernel_s_own_deallocate frames_ranges::an_owned_block \
	    frames_ranges::blocks_beside_a_giant_frame frames_machine::huge_frames_in_a_row_go_on frames_machine::misuse \
	    cpu_machine::a_frame_free_in_the_shared_levels cpu_machine::a_slot_serves cpu_machine::the_block_freed_last \
	    start_machine::between start_machine::memory_that_is_too_small start_machine::storage \
	    memmap_machine::added::added_memory memmap_machine::every_descriptor_of_16 memmap_machine::every_descriptor_of_24 \
	    memmap_machine::linear memmap_machine::memory_that_is_zero memmap_machine::of_templates \
	    over_machine::bad_ranges over_machine::what_was_never_added \
	    content_machine::what_an_isolation content_machine::what_is_borrowed \
	    hash_tables::a_table_on_the_allocator_s_memory

miri-seeds: miri-setup ## long: the allocator's threads and a CPU's cache under Miri, SEEDS=64 schedules each, and more cases of its models
	@$(call MIRI,-Zmiri-many-seeds=0..$(SEEDS)) -p firstlight-frames --lib -- threads_never
	@$(call MIRI,-Zmiri-many-seeds=0..$(SEEDS)) -p firstlight-frames --lib -- small_caches
	@FIRSTLIGHT_MODEL_CASES=4 $(call MIRI) -p firstlight-frames --lib -- frames::tests::model frames::segment::pinned

# Models run beside each other: each keeps the stacks of its threads, engine/loom/src/stacks.rs.
loom: setup ## test: the allocator's concurrency under the model checker loom (minutes)
	@RUSTFLAGS="--cfg firstlight_loom" cargo test --manifest-path engine/loom/Cargo.toml --locked --profile loom --lib --quiet --target-dir target/loom -- loom stacks::

loom-whole: ## long: all models of loom, the longest whole
	@FIRSTLIGHT_LOOM_WHOLE=1 $(MAKE) loom

fuzz: setup ## long: all fuzz targets; SECONDS=60 is for each
	@scripts/setup.sh toolchain nightly rust-src
	@scripts/setup.sh tool cargo-fuzz
	@fuzz/run.sh $(SECONDS)

guests: setup ## long: boot the image in QEMU with damaged hand-overs; CASES=500, another SEED each time
	@scripts/setup.sh target $(BARE)
	@seed=$(SEED); echo "SEED=$$seed repeats these boots" >&2; \
	    PROPTEST_CASES=$(CASES) PROPTEST_RNG_SEED=$$seed cargo test --quiet -p firstlight-lab --test it image_hand_over::whatever

port-c: setup ## test: the C port: its header, tests on this host, a C kernel on 4 CPUs in QEMU; by gcc and by clang
	@scripts/setup.sh target $(BARE)
	@scripts/setup.sh qemu
	@{ command -v gcc && command -v clang; } >/dev/null || scripts/setup.sh debian gcc clang libc6-dev
	@ports/c/run.sh

KUBERNETES = --manifest-path kubernetes/plugin/Cargo.toml --locked --quiet --target-dir $${CARGO_TARGET_DIR:-target}

check-kubernetes: setup ## test: the plugin and the driver of Kubernetes between a pool's daemon, a kubelet and an apiserver of their tests
	@command -v openssl >/dev/null || scripts/setup.sh debian openssl
	@scripts/setup.sh tool cargo-deny
	@cargo deny --log-level error --config deny.toml --manifest-path kubernetes/plugin/Cargo.toml check licenses bans sources
	@cargo fmt --manifest-path kubernetes/plugin/Cargo.toml --all --check
	@cargo clippy $(KUBERNETES) --all-targets -- -D warnings
	@RUSTDOCFLAGS="-D warnings" cargo doc $(KUBERNETES) --no-deps
	@cargo test $(KUBERNETES)

port-small: setup ## test: how much of the allocator a small kernel links
	@scripts/setup.sh target $(BARE)
	@ports/small/run.sh

port-hello: setup ## test: a small kernel to copy from, ports/hello: its memory, a heap, in QEMU
	@scripts/setup.sh target $(BARE)
	@scripts/setup.sh qemu
	@ports/hello/run.sh

port-features: setup ## measure: what each feature of the engine costs a small kernel: code, a CPU's data, tables, instructions (minutes)
	@command -v valgrind >/dev/null || scripts/setup.sh debian valgrind
	@scripts/setup.sh target $(BARE)
	@scripts/setup.sh target $(COUNTED)
	@ports/small/features.sh

port-ostd: setup ## test: ostd, the kernel framework of Asterinas, on our allocator: its own tests, stress, costs (minutes)
	@scripts/setup.sh toolchain $(OSTD_TOOLCHAIN) rust-src
	@scripts/setup.sh qemu
	@ports/ostd/run.sh

port-ostd-stress: setup ## test: the same without ostd's own tests
	@scripts/setup.sh toolchain $(OSTD_TOOLCHAIN) rust-src
	@scripts/setup.sh qemu
	@UNITS= ports/ostd/run.sh

foreign: setup ## test: the engine's tests on emulated aarch64 and riscv64 (minutes); an emulator on x86-64 says nothing of weak ordering
	@scripts/foreign.sh

cloud-hypervisor: setup ## long: guests of a real Cloud Hypervisor on the pool, and how long their start takes; CH=PATH of it (root, /dev/kvm, 8 GiB in huge pages)
	@cargo build --release --quiet -p firstlight-pool-cli
	@scripts/linux.sh
	@scripts/cloud-hypervisor.sh "$(CH)"

linux: ## start: fetch and unpack Debian's 6.1 and 6.12 kernels to compare with; FRESH=1 looks for newer ones
	@FRESH=$(FRESH) scripts/linux.sh

clean: ## release: remove what was built
	@cargo clean
