//! All tests of this crate from outside, as one program: a module for each thing that is tested.
#![expect(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a test fails by panicking; its numbers are small"
)]

#[macro_use]
mod acpi_tables;
mod acceptance_machine;
#[cfg(all(feature = "content", feature = "hotplug"))]
mod blocks_machine;
mod blocks_model;
#[cfg(feature = "content")]
mod content_known;
#[cfg(feature = "content")]
mod content_machine;
mod cpu_cache;
mod cpu_cell;
mod cpu_machine;
mod cpu_nodes;
mod cpu_ranges;
mod cpu_segments;
mod early_model;
mod early_rules;
mod fdt_blob;
mod firmware_acpi;
mod firmware_acpi_walk;
mod firmware_arm;
mod firmware_cedt;
mod firmware_fadt;
mod firmware_fdt;
mod firmware_fpdt;
mod firmware_maps;
mod firmware_serial;
mod firmware_slit;
mod firmware_trees;
mod frames_absurd;
mod frames_bounded;
mod frames_machine;
mod frames_opening;
mod frames_ranges;
#[cfg(all(feature = "content", feature = "hotplug"))]
mod frames_stress;
#[cfg(feature = "hotplug")]
mod frames_windows;
#[cfg(feature = "content")]
mod hash_tables;
#[cfg(all(feature = "content", feature = "hotplug"))]
mod isolate_machine;
#[cfg_attr(
    not(all(feature = "content", feature = "hotplug")),
    expect(dead_code, reason = "without these features some tests are not built")
)]
mod kit;
mod layout_cmdline;
mod layout_extents;
mod layout_properties;
mod layout_topology;
mod map_corrections;
mod map_model;
#[cfg(all(feature = "content", feature = "hotplug"))]
mod memmap_machine;
mod memmap_model;
mod memmap_places;
mod model_names_tests;
mod module_cycles_tests;
mod node_masks;
#[cfg(feature = "hotplug")]
mod occupancy_machine;
#[cfg(all(feature = "content", feature = "hotplug"))]
mod offline_machine;
#[cfg(all(feature = "content", feature = "hotplug"))]
mod over_machine;
mod preserve_machine;
mod preserve_table;
#[cfg(feature = "content")]
mod reporting_machine;
mod shown;
mod start_machine;
mod tables_machine;
mod water_marks_machine;
#[cfg(all(feature = "content", feature = "hotplug"))]
mod windows_beside;
#[cfg(all(feature = "content", feature = "hotplug"))]
mod windows_machine;
#[cfg(feature = "content")]
mod zeroing_knobs;
#[cfg(feature = "content")]
mod zeroing_machine;
mod zones_machine;
