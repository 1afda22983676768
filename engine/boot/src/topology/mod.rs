//! Nodes from firmware's tables: the readers of SRAT, SLIT and device trees, beside the
//! [`Topology`] they fill and its [`TopologyBuilder`].
#![deny(unsafe_code)]

mod acpi;
mod notice;
mod tree;

pub use acpi::{add_srat, set_slit};
pub use firstlight_frames::topology::*;
pub use notice::TableNotice;
pub use tree::{add_tree, set_tree_distances};
