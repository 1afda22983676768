//! `firstlight blocks`: the memory blocks of a machine, why they are as large as they are, and what
//! another size would change.

use crate::failure::Failure;
use crate::machine::Source;
use crate::output::{FAINT, HEADING, NOTE, Output};
use crate::report::Page;
use crate::text::{bytes, count, plural};
use clap::Args;
use firstlight::blocks::BlockSize;
use firstlight::firmware::acpi::Cedt;
use firstlight_bench::alloc::{BlockShares, Share, block_shares};
use firstlight_figures::size;
use firstlight_lab::file;
use firstlight_lab::linux::{BlocksAnswer, Run, blocks_of};
use serde::Serialize;
use std::path::PathBuf;

/// Show the memory blocks of a machine: size and why, runs of blocks, what another size would change
///
/// A block is the unit in which Linux's tools see memory come and go; each is a directory
/// memoryN there, which costs time at boot. The engine stores nothing for blocks.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    source: Source,
    /// Blocks of this size, instead of the one that is chosen
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    size: Option<BlockSize>,
    /// A raw ACPI table CEDT: firmware's windows for CXL memory, which advise a size to ours
    #[arg(long, value_name = "FILE")]
    cedt: Option<PathBuf>,
    /// Also run the fragmentation workload of `bench alloc` on one node of this size, which is not the
    /// machine of the blocks, and count which blocks could leave after it
    #[arg(long, value_name = "SIZE", value_parser = memory, num_args = 0..=1, default_missing_value = "8G", require_equals = true)]
    fragmentation: Option<u64>,
}

const EXAMPLES: &str = "\
Examples:
  firstlight blocks boot.log                          as a kernel on this engine has them
  firstlight blocks boot.log --as linux-6.12 --json   as that Linux has them, for programs
  firstlight blocks --shape memory=2T --size 128M     16,384 blocks: what that costs
  firstlight blocks boot.log --plug 384M@0x140000000,node=1
  firstlight blocks --shape memory=2T --fragmentation=8G

Exit codes: see firstlight --help";

/// Remarks a person is shown before the blocks themselves, and rows of runs.
const MOST_NOTES: usize = 8;
const MOST_RUNS: usize = 64;
/// Memory of the machine that fragmentation is tried on: enough for several blocks of 2 GiB.
const FRAGMENTATION_BYTES: std::ops::RangeInclusive<u64> = 1 << 30..=64 << 30;

fn block_size(text: &str) -> Result<BlockSize, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    BlockSize::new(bytes).map_err(|error| error.to_string())
}

fn memory(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    let whole = Some(bytes)
        .filter(|bytes| FRAGMENTATION_BYTES.contains(bytes) && bytes.is_multiple_of(4096));
    whole.ok_or_else(|| "expected 1G to 64G".into())
}

/// Blocks, and what fragmentation leaves of them.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document {
    #[serde(flatten)]
    blocks: BlocksAnswer,
    fragmentation: Option<Fragmentation>,
}

/// Shares of another machine than that of the blocks: one of its own size.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Fragmentation {
    /// Nodes of that machine.
    nodes: u32,
    #[serde(flatten)]
    shares: BlockShares,
}

impl Fragmentation {
    /// Runs the workload, which has one node only.
    fn new(memory_bytes: u64) -> Result<Self, Failure> {
        let shares = block_shares(memory_bytes)
            .map_err(|error| Failure::Io(format!("the fragmentation workload: {error}")))?;
        Ok(Self { nodes: 1, shares })
    }
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let (name, mut input) = options.source.input()?;
    input.block_size = options.size;
    if let Some(path) = &options.cedt {
        let table = file::read(path)?;
        let cedt = Cedt::parse(&table)
            .map_err(|error| Failure::machine(&path.display().to_string(), error))?;
        for error in cedt.windows().filter_map(Result::err) {
            input.notices.push(error);
        }
        input.advised_bytes = cedt.advised_bytes();
    }
    let blocks =
        blocks_of(&input, options.source.kernel).map_err(|error| Failure::machine(&name, error))?;
    let fragmentation = options.fragmentation.map(Fragmentation::new).transpose()?;
    let document = Document {
        blocks,
        fragmentation,
    };
    output.print(&document, |document| report(document, &name))
}

fn report(document: &Document, name: &str) -> String {
    let answer = &document.blocks;
    let mut page = Page::default();
    page.styled(
        HEADING,
        &format!(
            "firstlight blocks: {name}, as {}, {} of {}",
            answer.flavour,
            plural(answer.blocks, "block"),
            bytes(answer.size_bytes)
        ),
    );
    page.line(format!("  size  {}", answer.reason));
    for notice in answer.notices.iter().take(MOST_NOTES) {
        page.line(format!("  {NOTE}note:{NOTE:#} {notice}"));
    }
    let hidden = answer.notices.len().saturating_sub(MOST_NOTES);
    if hidden > 0 {
        page.line(format!("  {FAINT}... and {hidden} more (--json){FAINT:#}"));
    }
    page.section("Blocks", "in runs that differ in their numbers only");
    let header = ["blocks", "count", "from", "state", "zones", "nodes"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let row = |run: &Run| row(run, answer.size_bytes);
    rows.extend(answer.runs.iter().take(MOST_RUNS).map(row));
    page.table(">>><<<", &rows);
    let hidden = answer.runs.len().saturating_sub(MOST_RUNS);
    if hidden > 0 {
        page.line(format!("  {FAINT}... and {hidden} more (--json){FAINT:#}"));
    }
    sizes(&mut page, answer);
    if let Some(Fragmentation { shares, .. }) = &document.fragmentation {
        fragmentation(&mut page, shares);
    }
    page.text
}

fn row(run: &Run, size_bytes: u64) -> Vec<String> {
    let zones = match run.zones.as_slice() {
        [] => "none".to_owned(),
        some => some.join(" "),
    };
    let nodes: Vec<_> = run.nodes.iter().map(u16::to_string).collect();
    vec![
        match run.first == run.last {
            true => run.first.to_string(),
            false => format!("{}-{}", run.first, run.last),
        },
        count(run.last - run.first + 1),
        format!("{:#x}", run.first.saturating_mul(size_bytes)),
        run.state.to_owned(),
        zones,
        nodes.join(" "),
    ]
}

fn sizes(page: &mut Page, answer: &BlocksAnswer) {
    page.section(
        "Other sizes",
        "seconds of directories in Linux, by the published 14 s for 16,288 found by search, and 0.5 s by lookup",
    );
    let header = [
        "",
        "size",
        "blocks",
        "in no zone",
        "by search",
        "by lookup",
        "smallest DIMM",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(answer.sizes.iter().map(|size| {
        vec![
            if size.chosen { "*" } else { "" }.to_owned(),
            bytes(size.size_bytes),
            count(size.blocks),
            count(size.stuck),
            format!("{:.3}", size.searched_s),
            format!("{:.3}", size.looked_up_s),
            bytes(size.finest_dimm_bytes),
        ]
    }));
    page.table(">", &rows);
}

fn fragmentation(page: &mut Page, shares: &BlockShares) {
    page.section(
        "After fragmentation",
        &format!(
            "on one node of {}, not on the machine above: {} in use, then {} that stay; blocks that could leave",
            bytes(shares.memory_bytes),
            bytes(shares.in_use_bytes),
            bytes(shares.long_lived_bytes)
        ),
    );
    let percent = |part: u64, all: u64| format!("{} %", part * 100 / all.max(1));
    let header = ["size", "blocks", "free", "movable only", "free at the end"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(shares.rows.iter().map(|row| {
        let Share { free, movable_only } = row.in_use;
        vec![
            bytes(row.size_bytes),
            count(row.blocks),
            percent(free, row.blocks),
            percent(movable_only, row.blocks),
            percent(row.at_end.free, row.blocks),
        ]
    }));
    page.table(">", &rows);
    if shares.cut_short {
        page.line(format!(
            "  {NOTE}note:{NOTE:#} time was up before the workload's end"
        ));
    }
}
