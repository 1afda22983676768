//! The options of `firstlight sweep`.

use crate::boot::Guest;
use clap::Args;
use firstlight_bench::machine::{Shape, ShapeError};
use std::path::PathBuf;

/// Write descriptors for every page with 1, 2, ... threads and show the speed-up
///
/// The descriptors of a synthetic machine are written, into memory of this process
/// that is mapped already, and all of them checked. The ways in which this machine
/// can fill memory are measured in the same rounds. With --memory a guest of so much
/// memory boots our image, which writes and checks its own; with --kernel a Linux,
/// once for each number of CPUs.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The machine to describe: memory=SIZE[,nodes=N]
    #[arg(long, value_name = "SHAPE", default_value = "memory=64G", value_parser = shape, conflicts_with = "Guest")]
    pub(super) shape: Shape,
    /// Bytes of a descriptor: 8, 16, 32 (not in a guest) or 64
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(super) descriptor_bytes: u32,
    /// Numbers of threads, in a guest for each node, as 1,2,4; else 1 and its doubles up to all CPUs
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(super) threads: Vec<u32>,
    /// Rounds; else 11, in a guest 5, and 1 on the instruction clock
    #[arg(long, value_name = "N")]
    pub(super) runs: Option<u32>,
    /// Cut the work as Linux's padata does; a guest does so within a node
    #[arg(long, conflicts_with = "Guest")]
    pub(super) padata: bool,
    /// Boot this Linux with each number of --cpus; needs --memory
    #[arg(long, value_name = "FILE", requires = "memory", conflicts_with_all = ["threads", "padata", "image"])]
    pub(super) kernel: Option<PathBuf>,
    /// Show the rows of a published machine below: skylake, broadwell, haswell-128g, zen-64g, ...
    #[arg(long, value_name = "NAME", requires = "kernel")]
    pub(super) beside: Option<String>,
    #[command(flatten, next_help_heading = "In a guest")]
    pub(super) guest: Option<Guest>,
}

const EXAMPLES: &str = "\
Examples:
  firstlight sweep                                       64 GiB, 64 bytes a page
  firstlight sweep --descriptor-bytes 8 --threads 1,2
  firstlight sweep --shape memory=16G,nodes=2 --runs 21 --json
  firstlight sweep --memory 64G --cpus 4                 in a guest of 64 GiB
  firstlight sweep --memory 1G --clock instructions      instructions a page
  firstlight sweep --kernel vmlinuz --memory 64G --cpus 1,2,4 --beside skylake

Exit codes: see firstlight --help";

fn shape(text: &str) -> Result<Shape, ShapeError> {
    text.parse()
}
