//! Figures as people write them, and how several of the same are summed up.
//!
//! - [`size`]: `64GiB`, `512M`: the one grammar of sizes of all commands and files;
//! - [`spread`]: median, median absolute deviation, least and most.

pub mod size;
pub mod spread;
