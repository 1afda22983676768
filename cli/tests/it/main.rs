//! All tests of this crate from outside, as one program: a module for each thing that is tested.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; its numbers are small"
)]

mod action;
mod bench_alloc;
mod bench_descriptors;
mod bench_pool;
mod bench_zero;
mod bisect;
mod blocks;
mod boot;
mod common;
mod compare;
mod demo;
mod dist;
mod doctor;
mod documents;
#[path = "../../../lab/tests/it/fake_qemu/mod.rs"]
mod fake_qemu;
mod gate;
mod gate_absent;
mod history;
mod kept_boots;
mod layout;
mod linux_kernels;
mod matrix;
#[path = "../../../engine/tests/it/module_cycles_tests.rs"]
mod module_cycles_tests;
mod places;
mod pool_daemon;
mod pool_qemu;
mod pool_run;
mod pool_serve;
mod pool_status;
mod predict;
mod record;
mod regressions;
mod report;
mod same_total;
mod slurm;
mod sources;
mod stick;
mod unsafe_code;
mod up;
mod watch;
mod words;
