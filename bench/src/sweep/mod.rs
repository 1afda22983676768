//! How fast this machine writes descriptors: [`sweep`].
//!
//! The engine writes the descriptors of a synthetic machine into memory that is
//! mapped already. Rounds are interleaved: one of the engine, then one of each
//! [fill](fills) over the same memory with as many threads. Every descriptor is
//! checked.

mod descriptors;
pub mod fills;

pub use descriptors::SIZES;

use crate::machine::Machine;
use descriptors::Checked;
use fills::Fill;
use firstlight::addr::{Frame, FrameRange, PAGE_BYTES};
use firstlight::memmap::{Memmap, MemmapPolicy, Part};
use firstlight::node::NodeId;
use firstlight::parallel::{Chunking, Job, WorkRange, Worker, Workers};
use firstlight_host::meminfo::available_bytes;
use firstlight_host::metadata::MetadataSpace;
use firstlight_host::reserve::Reservation;
use firstlight_host::threads;
use firstlight_host::workers::Pinned;
use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

/// The settings of a sweep.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a descriptor: one of [`SIZES`].
    pub descriptor_bytes: u32,
    /// Numbers of threads, each measured.
    pub threads: Vec<u32>,
    /// Rounds.
    pub runs: u32,
    /// How chunks are cut and distributed.
    pub chunking: Chunking,
}

/// The rounds of one number of threads.
#[derive(Clone, Debug)]
pub struct Series {
    /// The node whose deferred part it is; `None`: all of the machine, with the
    /// reservation of space and the early part, which one thread writes.
    pub node: Option<u16>,
    /// Number of threads.
    pub threads: u32,
    /// Frames described.
    pub pages: u64,
    /// Bytes of descriptors written.
    pub bytes_written: u64,
    /// Nanoseconds, a round each.
    pub ns: Vec<u64>,
    /// The fastest fill and its fastest round, in nanoseconds; the deferred part only.
    pub best_fill: Option<(&'static str, u64)>,
}

/// A sweep that failed.
#[derive(Debug)]
pub enum SweepError {
    /// The options make no sense, or not on this host.
    Options(String),
    /// The operating system refused memory.
    Memory(std::io::Error),
    /// The engine refused the machine.
    Machine(String),
    /// A descriptor has the wrong content.
    Wrong {
        /// The first frame whose descriptor is wrong.
        frame: Frame,
    },
}

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(text) | Self::Machine(text) => f.write_str(text),
            Self::Memory(error) => write!(f, "no memory to write descriptors into: {error}"),
            Self::Wrong { frame } => write!(f, "the descriptor of {frame} is not what was written"),
        }
    }
}

impl std::error::Error for SweepError {}

fn machine_error(error: impl fmt::Display) -> SweepError {
    SweepError::Machine(error.to_string())
}

/// Measures `machine` for every number of threads.
///
/// ```
/// use firstlight_bench::machine::Machine;
/// use firstlight_bench::sweep::{Options, SweepError, sweep};
/// let machine = Machine::pc(1 << 30, 1);
/// let options = Options {
///     descriptor_bytes: 8,
///     threads: vec![1, 2],
///     runs: 1,
///     chunking: Default::default(),
/// };
/// let series = sweep(&machine, &options)?;
/// assert_eq!(series.len(), 4); // the deferred part of node 0, and the whole; twice
/// # Ok::<(), SweepError>(())
/// ```
///
/// # Errors
/// [`SweepError`].
pub fn sweep(machine: &Machine, options: &Options) -> Result<Vec<Series>, SweepError> {
    let refuse = |text: String| Err(SweepError::Options(text));
    if options.threads.is_empty() || options.threads.contains(&0) {
        return refuse("a sweep of 0 threads; expected at least 1".into());
    }
    if options.runs == 0 {
        return refuse("a sweep of 0 runs; expected at least 1".into());
    }
    let bytes = machine
        .frames()
        .saturating_mul(options.descriptor_bytes.into());
    let available = available_bytes();
    if available.is_some_and(|available| bytes > available / 10 * 8) {
        return refuse(format!(
            "{bytes} bytes of descriptors do not fit into the {} bytes available here: expected a smaller machine or smaller descriptors",
            available.unwrap_or_default()
        ));
    }
    descriptors::dispatch(options.descriptor_bytes, machine, options).unwrap_or_else(|| {
        refuse(format!(
            "descriptors of {} bytes, expected one of {SIZES:?}",
            options.descriptor_bytes
        ))
    })
}

/// Nanoseconds since `start`.
fn since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Everything that a round needs.
struct Bench<'a> {
    machine: &'a Machine,
    options: &'a Options,
    cpus: Vec<u32>,
    space: MetadataSpace,
}

/// One round of the engine.
struct Round {
    pages: u64,
    ns: u64,
}

/// All series for descriptors of type `T`.
fn measure<T: Checked>(machine: &Machine, options: &Options) -> Result<Vec<Series>, SweepError> {
    let mut bench = Bench::new::<T>(machine, options)?;
    let mut all = Vec::new();
    for node in (0..machine.nodes).map(Some).chain([None]) {
        for &threads in &options.threads {
            all.push(Series {
                node,
                threads,
                pages: 0,
                bytes_written: 0,
                ns: Vec::new(),
                best_fill: None,
            });
        }
    }
    for _ in 0..options.runs {
        for series in &mut all {
            let round = bench.ours::<T>(series.node, series.threads)?;
            series.pages = round.pages;
            series.bytes_written = round.pages * size_of::<T>() as u64;
            series.ns.push(round.ns);
            if series.node.is_none() {
                continue;
            }
            for fill in fills::all() {
                let ns = bench.fill(fill, series.bytes_written, series.threads);
                let best = series.best_fill.get_or_insert((fill.name, ns));
                if ns < best.1 {
                    *best = (fill.name, ns);
                }
            }
        }
    }
    Ok(all)
}

impl<'a> Bench<'a> {
    /// Allocates memory and touches all of it.
    fn new<T: Checked>(machine: &'a Machine, options: &'a Options) -> Result<Self, SweepError> {
        let cpus = threads::allowed_cpus().unwrap_or_default();
        if let Some(&first) = cpus.first() {
            // A container may refuse it; then it runs on any CPU.
            let _ = threads::pin_current(first);
        }
        let bytes = machine.descriptor_bytes(size_of::<T>());
        let space = Reservation::huge(bytes).map_err(SweepError::Memory)?;
        let mut space = MetadataSpace::over(space);
        space.as_mut_slice().fill(0xa5);
        Ok(Self {
            machine,
            options,
            cpus,
            space,
        })
    }

    /// `threads` workers for the deferred part of a node, or of all.
    fn workers(&self, node: Option<u16>, threads: u32) -> Vec<Worker> {
        let turns = (0..self.machine.nodes).cycle().take(threads as usize);
        turns
            .map(|turn| Worker::new(NodeId(node.unwrap_or(turn))))
            .collect()
    }

    /// Writes and checks all descriptors once.
    fn ours<T: Checked>(&mut self, node: Option<u16>, threads: u32) -> Result<Round, SweepError> {
        self.space.reset();
        let mut storage = self.machine.storage();
        let mut layout = self.machine.layout(&mut storage).map_err(machine_error)?;
        let mut workers = self.workers(node, threads);
        let pinned = Pinned::new(&self.cpus);
        let job = Job::sections(self.options.chunking);
        let policy = MemmapPolicy {
            writer: firstlight_host::writer::best(),
            always_write: true,
        };
        let begin = Instant::now();
        let memmap =
            Memmap::<T>::reserve(&mut layout, &self.space, policy).map_err(machine_error)?;
        let mut ranges: Vec<_> = (0..memmap.ranges_needed())
            .map(|_| WorkRange::new(NodeId(0), FrameRange::EMPTY))
            .collect();
        if node.is_none() {
            memmap.describe(Part::Early);
        }
        let begin_deferred = Instant::now();
        let wanted = |own: NodeId| node.is_none_or(|node| node == own.0);
        let done = memmap.describe_nodes(
            Part::Deferred,
            wanted,
            &job,
            &mut ranges,
            &mut workers,
            &pinned,
        );
        let begin = if node.is_none() {
            begin
        } else {
            begin_deferred
        };
        let ns = since(begin);
        let report = done.map_err(machine_error)?;
        let early = if node.is_none() {
            Part::Whole
        } else {
            Part::Deferred
        };
        let mut pages = 0;
        for frames in memmap.ranges(early).filter(|frames| !frames.is_empty()) {
            if memmap
                .place(frames.start())
                .is_some_and(|place| wanted(place.node))
            {
                check(&memmap, frames)?;
                pages += frames.count();
            }
        }
        debug_assert!(report.frames <= pages);
        Ok(Round { pages, ns })
    }

    /// Fills as many bytes with `threads` threads.
    fn fill(&mut self, fill: Fill, bytes: u64, threads: u32) -> u64 {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let memory = self.space.as_mut_slice();
        let end = bytes.min(memory.len());
        // Whole pages a thread, so that no line has two writers.
        let page = usize::try_from(PAGE_BYTES).unwrap_or(1);
        let piece = end
            .div_ceil(threads as usize)
            .next_multiple_of(page)
            .max(page);
        let pieces: Vec<_> = memory[..end].chunks_mut(piece).map(Mutex::new).collect();
        let workers: Vec<_> = (0..threads).map(|_| Worker::new(NodeId(0))).collect();
        let work = |index: usize| {
            if let Some(mut piece) = pieces.get(index).and_then(|piece| piece.lock().ok()) {
                fill.fill(&mut piece);
            }
        };
        let begin = Instant::now();
        if threads == 1 {
            work(0);
        } else {
            Pinned::new(&self.cpus).run(&workers, &work);
        }
        since(begin)
    }
}

/// Checks the descriptors of `frames`, all in one descriptor range.
fn check<T: Checked>(memmap: &Memmap<'_, T>, frames: FrameRange) -> Result<(), SweepError> {
    for number in frames.start().get()..frames.end().get() {
        let frame = Frame::new(number);
        let right = memmap
            .place(frame)
            .zip(memmap.peek(frame))
            .is_some_and(|(place, descriptor)| descriptor.is_right(place));
        if !right {
            return Err(SweepError::Wrong { frame });
        }
    }
    Ok(())
}
