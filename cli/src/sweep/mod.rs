//! `firstlight sweep`: how long descriptors take with one thread, two, and so
//! on. [`host`] measures on this machine, [`guest`] in a virtual one, [`linux`] boots
//! a Linux with more and more CPUs; the record
//! and its table are the [lab's](firstlight_lab::sweep).

mod guest;
mod host;
mod linux;

use crate::boot::Guest;
use crate::failure::Failure;
use crate::output::Output;
use crate::up::shape::{Shape, ShapeError};
use clap::Args;
use std::path::PathBuf;

/// Write descriptors for every page with 1, 2, ... threads and show the speed-up
///
/// A made-up machine's descriptors are really written, into memory of this
/// process that is mapped already, every one of them checked. The ways this
/// machine can fill memory are measured in the same rounds. With --memory a guest
/// of so much memory boots our image, which writes and checks its own; with --kernel
/// a Linux, once for each number of CPUs.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The machine to describe: memory=SIZE[,nodes=N]
    #[arg(long, value_name = "SHAPE", default_value = "memory=64G", value_parser = shape, conflicts_with = "Guest")]
    shape: Shape,
    /// Bytes of a descriptor: 8, 16, 32 (not in a guest) or 64
    #[arg(long, value_name = "N", default_value_t = 64)]
    descriptor_bytes: u32,
    /// Numbers of threads, in a guest for each node, as 1,2,4; else 1 and its doubles up to all CPUs
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    threads: Vec<u32>,
    /// Rounds; else 11, in a guest 5, and 1 on the instruction clock
    #[arg(long, value_name = "N")]
    runs: Option<u32>,
    /// Cut the work as Linux's padata does; a guest does so within a node
    #[arg(long, conflicts_with = "Guest")]
    padata: bool,
    /// Boot this Linux with each number of --cpus; needs --memory
    #[arg(long, value_name = "FILE", requires = "memory", conflicts_with_all = ["threads", "padata", "image"])]
    kernel: Option<PathBuf>,
    /// Show the rows of a published machine below: skylake, broadwell, haswell-128g, zen-64g, ...
    #[arg(long, value_name = "NAME", requires = "kernel")]
    beside: Option<String>,
    #[command(flatten, next_help_heading = "In a guest")]
    guest: Option<Guest>,
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

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    if let (Some(kernel), Some(guest)) = (&options.kernel, &options.guest) {
        let record = linux::sweep(options, guest, kernel)?;
        return output.print(&record, |record| record.table());
    }
    let record = match &options.guest {
        Some(guest) => guest::sweep(options, guest)?,
        None => host::sweep(options)?,
    };
    output.print(&record, |record| record.table())
}
