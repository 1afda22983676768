//! All tests of this crate from outside, as one program: a module for each thing that is tested.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; its numbers are small"
)]

mod boot_balloon;
mod boot_counts;
mod boot_descriptors;
mod boot_events;
mod boot_hotplug;
mod boot_image;
mod boot_linux_log;
mod boot_memory_device;
mod boot_pages;
mod boot_process;
mod boot_processors;
mod boot_restart;
mod boot_serial;
mod boot_trees;
mod boot_uefi;
mod boot_zeroed;
mod common;
mod console_bounds;
mod doctor;
mod doctor_rules;
mod fake_qemu;
mod gate_pairs;
mod gate_trials;
mod golden;
mod golden_arm64;
mod golden_layout;
mod hand_over;
mod image_arm_uefi;
mod image_hand_over;
mod image_loader;
mod image_tree;
mod log_dialects;
mod log_golden;
mod log_hostile;
mod log_machines;
mod machines_layout;
mod memblock_replay;
mod memmap_golden;
mod memmap_machines;
#[path = "../../../engine/tests/it/module_cycles_tests.rs"]
mod module_cycles_tests;
mod verdict_time;
