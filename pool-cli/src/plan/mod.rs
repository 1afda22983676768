//! `firstlight pool plan`: how many slabs to keep. Starts and stops are played with the daemon's own
//! decisions and a clock that jumps, for one stock after the other.
//!
//! - `trace.rs` reads starts from a file, `words.rs` what options say;
//! - `cluster.rs` draws them, deals them out to nodes, and searches; `node.rs` plays a node;
//! - `record.rs` is what comes of it, `draw.rs` draws that. What is left out of the world: `node.rs`.

mod cluster;
mod draw;
mod node;
mod record;
mod trace;
mod words;

use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use crate::start::TOPUP_MS;
use crate::text::plural;
use clap::Args;
use cluster::{Dealing, deal, draw, play_all, search};
use firstlight_figures::random::Random;
use firstlight_pool::config::Size;
use firstlight_pool::machine::MOST_SLABS;
use firstlight_pool::protocol::PageSize;
use node::{Host, takes};
pub(crate) use record::Record;
use record::{Stock, report};
use std::fs;
use std::path::{Path, PathBuf};
use trace::{SECOND, Start};
use words::{Goal, Lifetimes, Rate, Share, Time};

/// Bytes of a trace at most.
const MOST_TRACE_BYTES: u64 = (256 << 20) - 1;

/// Starts that are drawn at most: some 70 bytes of memory each.
const MOST_STARTS: f64 = 2e7;

/// How many slabs to keep: play starts and stops with one stock after the other
///
/// From a trace, or from rates and distributions, on one node or on many alike. A start that finds
/// a clean slab waits for the request; one that does not waits for the kernel to zero its memory,
/// or for a top-up. All slabs are clean at the beginning. Needs no daemon.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Starts, a line each below `time,size,node,lifetime`: seconds, a size, a node's number or
    /// nothing, seconds
    #[arg(
        value_name = "FILE",
        conflicts_with = "starts",
        required_unless_present = "starts"
    )]
    trace: Option<PathBuf>,
    /// Instead of a trace: starts of all nodes together, at random moments
    #[arg(long, value_name = "N/TIME", requires_all = ["sizes", "lifetime"])]
    starts: Option<Rate>,
    /// Their sizes, with shares where they differ
    #[arg(
        long,
        value_name = "SIZE[:SHARE],...",
        value_delimiter = ',',
        requires = "starts"
    )]
    sizes: Vec<Share>,
    /// How long they live: in the mean, exponentially distributed, or all of them so long
    #[arg(long, value_name = "[fixed:]TIME", requires = "starts")]
    lifetime: Option<Lifetimes>,
    /// For how long
    #[arg(long, value_name = "TIME", default_value = "1h", requires = "starts")]
    duration: Time,
    /// What is drawn at random is drawn from this
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many nodes; else as many as the trace names
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: Option<u32>,
    /// Which node starts without one go to
    #[arg(long, value_enum, default_value_t = Dealing::Least)]
    dealing: Dealing,
    /// What is to be reached: p99=100ms, p50=1s, or hits=99%
    #[arg(long, default_value = "p99=100ms")]
    goal: Goal,
    /// Bytes of a slab; else of the largest start
    #[arg(long, value_name = "SIZE")]
    slab: Option<Size>,
    /// Memory of a node that slabs may take; else as much as helps
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Bytes a second that each node fills with, as `rate` of the configuration
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    rate: Size,
    /// Bytes a second that the kernel zeroes for a start that waits
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    zeroing: Size,
    /// Time for topping up a smaller slab; else as `pool run`: 5s, and only where that is faster
    #[arg(long, value_name = "TIME")]
    topup: Option<Time>,
    /// What a request takes that finds a clean slab
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    request: Time,
    /// Starts before this are played and not counted
    #[arg(long, value_name = "TIME", default_value = "0s")]
    warm_up: Time,
    /// Also draw it
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  firstlight pool plan starts.csv                          one node, p99 of 100 ms
  firstlight pool plan starts.csv --nodes 20 --memory 256G --goal hits=99% --svg plan.svg
  firstlight pool plan --starts 60/h --sizes 8G --lifetime 10m --duration 1d
  firstlight pool plan --starts 1000000/h --sizes 2G:3,8G:1 --lifetime fixed:5m --nodes 10000

Exit codes: 5 where no stock that memory allows meets the goal, 2 for a trace that is none; see
firstlight --help";

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let record = planned(options)?;
    if let Some(path) = &options.svg {
        fs::write(path, draw::drawn(&record)).map_err(|error| {
            let path = path.display();
            Failure::Io(format!(
                "--svg {path}: expected a file that can be written: {error}"
            ))
        })?;
    }
    output.print::<_, Failure>(&record, report)?;
    if record.smallest_slabs.is_some() {
        return Ok(());
    }
    let slabs = plural(record.most_slabs.into(), "slab");
    let why = if options.memory.is_some() {
        "the most that --memory has space for"
    } else {
        "and more change nothing"
    };
    let goal = record.goal;
    Err(Failure::Unmet(format!(
        "no stock meets {goal}: not one of {slabs}, {why}"
    )))
}

fn planned(options: &Options) -> Result<Record, Failure> {
    let mut random = Random::new(options.seed);
    let (starts, end_ns) = starts(options, &mut random)?;
    let warm_up_ns = options.warm_up.0;
    let counted = starts.iter().filter(|start| start.at_ns >= warm_up_ns);
    let Some(largest) = counted.map(|start| start.bytes).max() else {
        let text = "there are no starts after --warm-up: expected one at least";
        return Err(Failure::Usage(text.into()));
    };
    let named = starts.iter().filter_map(|start| start.node).max();
    let nodes = options
        .nodes
        .unwrap_or(named.map_or(1, |node| node.saturating_add(1)));
    if nodes > 1_000_000 || named.is_some_and(|named| named >= nodes) {
        let named = named.unwrap_or_default();
        return Err(Failure::Usage(format!(
            "the trace names node {named} of {nodes}: expected numbers from 0, below --nodes and 1,000,000"
        )));
    }
    let slab = options.slab.map_or(largest, Size::bytes);
    let slab_bytes = slab
        .checked_next_multiple_of(PageSize::Huge.bytes())
        .filter(|bytes| *bytes > 0);
    let Some(slab_bytes) = slab_bytes.filter(|bytes| *bytes <= 1 << 50) else {
        let text = format!("a slab of {slab} bytes: expected a size above 0, and 1P at most");
        return Err(Failure::Usage(text));
    };
    let zeroing_rate = match options.zeroing.bytes() {
        0 => {
            return Err(Failure::Usage(
                "--zeroing 0: expected a size such as 4G".into(),
            ));
        }
        rate => rate,
    };
    let fill_rate = match options.rate.bytes() {
        0 => zeroing_rate,
        rate => rate.min(zeroing_rate),
    };
    let topup_ms = |time: Time| u32::try_from(time.0 / 1_000_000).unwrap_or(u32::MAX);
    let host = Host {
        slab_bytes,
        fill_rate,
        zeroing_rate,
        request_ns: options.request.0,
        topup: options
            .topup
            .map_or((TOPUP_MS, true), |time| (topup_ms(time), false)),
        window_ns: (warm_up_ns, end_ns),
    };
    let dealt = deal(&starts, nodes, options.dealing, &mut random);
    // With a slab for each start, none waits for one.
    let most_starts = dealt.iter().map(Vec::len).max().unwrap_or(0) as u64;
    let space = options
        .memory
        .map_or(u64::MAX, |memory| memory.bytes() / slab_bytes);
    let most = most_starts.min(space).min(MOST_SLABS.into());
    let most_slabs = u32::try_from(most).unwrap_or(u32::MAX);
    let counted_ns = end_ns.saturating_sub(warm_up_ns);
    let stock = |slabs| {
        let tally = play_all(&dealt, slabs, &host);
        Stock::new(slabs, &tally, options.goal, slab_bytes, counted_ns, nodes)
    };
    let (smallest_slabs, stocks) = search(most_slabs, stock, |stock| stock.meets);
    Ok(Record {
        schema: "firstlight.pool-plan/1",
        goal: options.goal.to_string(),
        nodes,
        slab_bytes,
        fill_ns: takes(slab_bytes, fill_rate),
        most_slabs,
        counted_ns,
        smallest_slabs,
        stocks: stocks.into_values().collect(),
    })
}

/// All starts, and until when they are counted.
fn starts(options: &Options, random: &mut Random) -> Result<(Vec<Start>, u64), Failure> {
    if let Some(path) = &options.trace {
        let text = read(path)?;
        let starts = trace::parse(&text)
            .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        let end_ns = starts.last().map_or(0, |last| last.at_ns);
        return Ok((starts, end_ns));
    }
    let (Some(rate), Some(lifetime)) = (options.starts, options.lifetime) else {
        let text = "expected a trace, or --starts, --sizes and --lifetime";
        return Err(Failure::Usage(text.into()));
    };
    let end_ns = options.warm_up.0.saturating_add(options.duration.0);
    if rate.0 * end_ns as f64 / SECOND as f64 > MOST_STARTS {
        let text =
            "more than 20,000,000 starts: expected a lower --starts, or a shorter --duration";
        return Err(Failure::Usage(text.into()));
    }
    Ok((draw(rate, &options.sizes, lifetime, end_ns, random), end_ns))
}

fn read(path: &Path) -> Result<String, Failure> {
    let expected = |what: String| {
        let path = path.display();
        Failure::Usage(format!("{path}: expected a trace {what}"))
    };
    input::read(path, MOST_TRACE_BYTES)
        .map_err(|error| expected(format!("that can be read: {error}")))?
        .ok_or_else(|| expected("below 256 MiB".into()))
}
