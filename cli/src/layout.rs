//! `firstlight layout`: what a kernel would make of a machine, from the memory
//! map, affinity rows and command line that its log shows, and nothing else.

use crate::failure::Failure;
use crate::machine::Source;
use crate::output::{FAINT, HEADING, NOTE, Output};
use crate::text::{self, bytes, count, plural};
use clap::Args;
use firstlight_lab::linux::{LayoutAnswer, layout_of};
use std::fmt::Write;

/// What a kernel would make of a machine: nodes, zones, holes, deferral, hash tables, blocks
///
/// Reads only the e820, SRAT and command line rows of the log; what the kernel
/// that wrote it made of them is not looked at. An arm64 kernel prints no map:
/// there the early memory node ranges are read, and how far zone DMA reaches.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    source: Source,
}

const EXAMPLES: &str = "\
Examples:
  firstlight layout boot.log                         as a kernel on this engine would
  firstlight layout boot.log --as linux-6.12         as that Linux does
  firstlight layout boot.log --as linux-6.1 --json   for programs
  firstlight layout --shape memory=4T,nodes=8        a synthetic machine
  firstlight layout boot.log --plug 4G@0x140000000   with the blocks of a DIMM that came later

Exit codes: see firstlight --help";

/// Remarks a person is shown before the layout itself.
const MOST_NOTES: usize = 8;

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let (name, input) = options.source.input()?;
    let answer =
        layout_of(&input, options.source.kernel).map_err(|error| Failure::machine(&name, error))?;
    output.print(&answer, |answer| report(answer, &name))
}

fn report(answer: &LayoutAnswer, name: &str) -> String {
    let mut page = String::new();
    let present: u64 = answer.zones.iter().map(|zone| zone.present).sum();
    let _ = writeln!(
        page,
        "{HEADING}firstlight layout: {name}, as {}, {} in pages of {} below frame {:#x}{HEADING:#}",
        answer.flavour,
        bytes(present * answer.page_bytes),
        bytes(answer.page_bytes),
        answer.max_pfn,
    );
    let (shown, hidden) = text::fold(&answer.notices, MOST_NOTES);
    for notice in shown {
        let _ = writeln!(page, "  {NOTE}note:{NOTE:#} {notice}");
    }
    if hidden > 0 {
        let _ = writeln!(page, "  {FAINT}... and {hidden} more (--json){FAINT:#}");
    }
    memory(&mut page, answer);
    early(&mut page, answer);
    tables(&mut page, answer);
    page
}

/// Where memory lies: node ranges, zones, Movable.
fn memory(page: &mut String, answer: &LayoutAnswer) {
    let ranges = answer.node_ranges_pfn.iter().map(|(node, start, end)| {
        vec![
            node.to_string(),
            format!("{start:#x}..{end:#x}"),
            bytes((end - start) * answer.page_bytes),
        ]
    });
    text::titled_table(page, "Node ranges", &["node", "frames", "size"], ranges);
    let zones = answer.zones.iter().map(|zone| {
        vec![
            zone.node.to_string(),
            zone.zone.into(),
            format!("{:#x}", zone.start_pfn),
            count(zone.spanned),
            count(zone.present),
        ]
    });
    text::titled_table(
        page,
        "Zones",
        &[
            "node",
            "zone",
            "from frame",
            "frames spanned",
            "frames present",
        ],
        zones,
    );
    let movable = answer
        .movable_start
        .iter()
        .map(|(node, start)| vec![node.to_string(), start.clone()]);
    text::titled_table(page, "Movable zone starts", &["node", "address"], movable);
}

/// What is not there, and what is described early.
fn early(page: &mut String, answer: &LayoutAnswer) {
    let holes = answer.unavailable.iter().map(|(node, zone, frames)| {
        vec![node.to_string(), (*zone).into(), plural(*frames, "frame")]
    });
    text::titled_table(
        page,
        "Holes in sections with memory",
        &["node", "zone", "size"],
        holes,
    );
    let eager = answer.model_eager_pages.iter().map(|(node, frames)| {
        let first = answer.model_first_deferred_pfn.get(node);
        let deferred = first.map_or("nothing".into(), |frame| format!("from frame {frame:#x}"));
        vec![node.to_string(), count(*frames), deferred]
    });
    text::titled_table(
        page,
        "Descriptors before the other CPUs run",
        &["node", "frames", "deferred"],
        eager,
    );
}

/// Hash tables, and how many memory blocks.
fn tables(page: &mut String, answer: &LayoutAnswer) {
    let tables = answer.hash.iter().map(|(name, table)| {
        let estimated = answer.hash_estimated.contains(name);
        vec![
            (*name).to_owned(),
            count(table.entries),
            bytes(table.bytes),
            table.kind.to_owned(),
            if estimated { "estimated" } else { "" }.to_owned(),
        ]
    });
    text::titled_table(
        page,
        "Hash tables",
        &["table", "buckets", "size", "memory", ""],
        tables,
    );
    let _ = writeln!(
        page,
        "\n{HEADING}Memory blocks{HEADING:#}\n  {} of {} in {} (firstlight blocks)",
        plural(answer.memory_blocks, "block"),
        bytes(answer.memory_block_size),
        plural(answer.block_runs.len() as u64, "run"),
    );
}
