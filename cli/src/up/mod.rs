//! `firstlight up`: a machine's memory comes up, for real except that nothing
//! of the memory itself is touched.
//!
//! The [lab](firstlight_lab::up) does it; [`render`] shows the [record](firstlight_lab::record) of
//! it to a person.

mod render;

use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
use firstlight_bench::machine::{Shape, ShapeError};
use firstlight_host::clock::Clock;
use firstlight_lab::boot::record_of_result;
use firstlight_lab::file;
use firstlight_lab::up::{Described, bring_up, described, this_machine};
use std::path::PathBuf;

/// Bring up a machine's memory and see when it was ready
///
/// The engine runs for real: it lays out nodes and zones, writes its tables
/// into reserved address space, and real threads allocate and free. The memory
/// the map speaks of is not touched.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A kernel log, a raw ACPI SRAT, or a directory with a log and raw ACPI tables
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "shape")]
    machine: Option<PathBuf>,
    /// What a run from a stick found, firstlight/result.jsonl on it: shown as a boot's record
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "shape", "append"])]
    result: Option<PathBuf>,
    /// A synthetic machine: memory=SIZE[,nodes=N][,cpus=N]; else 1 node, 1 CPU a node
    #[arg(long, value_name = "SHAPE", value_parser = named_shape)]
    shape: Option<(Shape, String)>,
    /// Kernel command line words to apply: mem= memmap= kernelcore= movablecore= movable_node
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    append: String,
    /// Show every region, node, zone and correction
    #[arg(long)]
    full: bool,
}

const EXAMPLES: &str = "\
Examples:
  firstlight up                                      this machine
  firstlight up --machine dmesg.txt                  the machine a kernel log speaks of
  firstlight up --machine tables/                    raw ACPI tables, with or without a log
  firstlight up --shape memory=4T,nodes=8,cpus=64    a synthetic machine
  firstlight up --append \"kernelcore=25% mem=16G\"    as if booted with these words
  firstlight up --result result.jsonl                what a run from a stick found
  firstlight up --json | jq .milestones              for programs

Exit codes: see firstlight --help";

fn named_shape(text: &str) -> Result<(Shape, String), ShapeError> {
    Ok((text.parse()?, text.to_owned()))
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, clock: Clock, output: &mut Output) -> Result<(), Failure> {
    if let Some(path) = &options.result {
        let name = path.display().to_string();
        let record = record_of_result(&name, &file::read(path)?)
            .map_err(|error| Failure::machine(&name, error))?;
        return output.print(&record, |record| {
            crate::boot::render::report(record, options.full)
        });
    }
    let mut described = match (&options.machine, &options.shape) {
        (Some(path), _) => described(path)?,
        (None, Some((shape, name))) => {
            let memory = shape.memory_rows();
            Described::synthetic(name, shape.map(), memory, shape.cpu_nodes())
        }
        (None, None) => this_machine()?,
    };
    described.append(&options.append);
    let record = bring_up(described, clock)?;
    output.print(&record, |record| render::report(record, options.full))
}
