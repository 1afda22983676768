//! How fast this machine writes descriptors: [`sweep`].
//!
//! A made-up machine's descriptors are written for real, by the engine, into
//! memory that is mapped already. Rounds are interleaved: one of ours, one of
//! each [rival](crate::rivals) over the same memory with as many threads, and
//! from the start. Every descriptor is checked.

mod descriptors;
mod machine;

pub use descriptors::SIZES;
pub use machine::Machine;

use crate::crew::Pinned;
use crate::metadata::MetadataSpace;
use crate::reserve::Reservation;
use crate::rivals::{self, Rival};
use crate::{pressure, threads, writer};
use descriptors::Checked;
use firstlight::addr::{Frame, FrameRange, PAGE_BYTES};
use firstlight::memmap::{Memmap, MemmapPolicy, Part};
use firstlight::node::NodeId;
use firstlight::parallel::{Chunking, Job, WorkRange, Worker, Workers};
use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

/// What is swept.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a descriptor: one of [`SIZES`].
    pub descriptor_bytes: u32,
    /// Numbers of threads, each measured.
    pub threads: Vec<u32>,
    /// Rounds.
    pub runs: u32,
    /// How chunks are cut and taken.
    pub chunking: Chunking,
}

/// What was measured for one number of threads.
#[derive(Clone, Debug)]
pub struct Series {
    /// The node whose deferred part it is; `None`: all of the machine, room
    /// taken and the early part written by one thread included.
    pub node: Option<u16>,
    /// Number of threads.
    pub threads: u32,
    /// Frames described.
    pub pages: u64,
    /// Bytes of descriptors written.
    pub bytes_written: u64,
    /// Nanoseconds, a round each.
    pub ns: Vec<u64>,
    /// The fastest rival and its fastest round, in nanoseconds; the deferred part only.
    pub best_rival: Option<(&'static str, u64)>,
}

/// A sweep that could not be made.
#[derive(Debug)]
pub enum SweepError {
    /// What was asked for makes no sense.
    Asked(String),
    /// The operating system refused memory.
    Memory(std::io::Error),
    /// The engine refused the machine.
    Machine(String),
    /// A descriptor is not what it should be.
    Wrong {
        /// The first frame whose descriptor is wrong.
        frame: Frame,
    },
}

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(text) | Self::Machine(text) => f.write_str(text),
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
/// use firstlight_host::sweep::{Machine, Options, sweep};
/// let machine = Machine::new(&[(0, 1 << 20, 1 << 30)]);
/// let options = Options {
///     descriptor_bytes: 8,
///     threads: vec![1, 2],
///     runs: 1,
///     chunking: Default::default(),
/// };
/// let series = sweep(&machine, &options)?;
/// assert_eq!(series.len(), 4); // the deferred part of node 0, and the whole; twice
/// # Ok::<(), firstlight_host::sweep::SweepError>(())
/// ```
///
/// # Errors
/// [`SweepError`].
pub fn sweep(machine: &Machine, options: &Options) -> Result<Vec<Series>, SweepError> {
    let asked = |text: String| Err(SweepError::Asked(text));
    if options.threads.is_empty() || options.threads.contains(&0) {
        return asked("a sweep of 0 threads; expected at least 1".into());
    }
    if options.runs == 0 {
        return asked("a sweep of 0 runs; expected at least 1".into());
    }
    let bytes = machine
        .frames()
        .saturating_mul(options.descriptor_bytes.into());
    let available = pressure::available_bytes();
    if available.is_some_and(|available| bytes > available / 10 * 8) {
        return asked(format!(
            "{bytes} bytes of descriptors do not fit into the {} bytes available here: expected a smaller machine or smaller descriptors",
            available.unwrap_or_default()
        ));
    }
    descriptors::dispatch(options.descriptor_bytes, machine, options).unwrap_or_else(|| {
        asked(format!(
            "descriptors of {} bytes, expected one of {SIZES:?}",
            options.descriptor_bytes
        ))
    })
}

/// Nanoseconds since `start`.
fn since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What a round is made with.
struct Bench<'a> {
    machine: &'a Machine,
    options: &'a Options,
    cpus: Vec<u32>,
    space: MetadataSpace,
}

/// What one round of ours came to.
struct Round {
    pages: u64,
    ns: u64,
}

/// All series for descriptors of type `T`.
fn measure<T: Checked>(machine: &Machine, options: &Options) -> Result<Vec<Series>, SweepError> {
    let mut bench = Bench::new::<T>(machine, options)?;
    let nodes: Vec<_> = machine
        .nodes()
        .into_iter()
        .map(Some)
        .chain([None])
        .collect();
    let mut all = Vec::new();
    for &node in &nodes {
        for &threads in &options.threads {
            all.push(Series {
                node,
                threads,
                pages: 0,
                bytes_written: 0,
                ns: Vec::new(),
                best_rival: None,
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
            for rival in rivals::all() {
                let ns = bench.rival(rival, series.bytes_written, series.threads);
                let best = series.best_rival.get_or_insert((rival.name, ns));
                if ns < best.1 {
                    *best = (rival.name, ns);
                }
            }
        }
    }
    Ok(all)
}

impl<'a> Bench<'a> {
    /// Takes memory and touches all of it.
    fn new<T: Checked>(machine: &'a Machine, options: &'a Options) -> Result<Self, SweepError> {
        let cpus = threads::allowed_cpus().unwrap_or_default();
        if let Some(&first) = cpus.first() {
            // Refused where a container may not: it runs anywhere.
            let _ = threads::pin_current(first);
        }
        let bytes = machine.room_bytes(size_of::<T>() as u64);
        let bytes = usize::try_from(bytes).map_err(machine_error)?;
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

    /// The seats of `threads` CPUs for the deferred part of a node, or of all.
    fn seats(&self, node: Option<u16>, threads: u32) -> Vec<Worker> {
        let nodes = self.machine.nodes();
        (0..threads as usize)
            .map(|index| Worker::new(NodeId(node.unwrap_or(nodes[index % nodes.len()]))))
            .collect()
    }

    /// Writes and checks once.
    fn ours<T: Checked>(&mut self, node: Option<u16>, threads: u32) -> Result<Round, SweepError> {
        self.space.reset();
        let mut storage = self.machine.storage();
        let mut layout = self.machine.layout(&mut storage).map_err(machine_error)?;
        let mut seats = self.seats(node, threads);
        let crew = Pinned::new(&self.cpus);
        let job = Job::sections(self.options.chunking);
        let policy = MemmapPolicy {
            writer: writer::best(),
            always_write: true,
        };
        let begin = Instant::now();
        let memmap =
            Memmap::<T>::reserve(&mut layout, &self.space, policy).map_err(machine_error)?;
        let mut shares: Vec<_> = (0..memmap.ranges_needed())
            .map(|_| WorkRange::new(NodeId(0), FrameRange::EMPTY))
            .collect();
        if node.is_none() {
            memmap.describe(Part::Early);
        }
        let begin_deferred = Instant::now();
        let wanted = |own: NodeId| node.is_none_or(|node| node == own.0);
        let done =
            memmap.describe_nodes(Part::Deferred, wanted, &job, &mut shares, &mut seats, &crew);
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
    fn rival(&mut self, rival: Rival, bytes: u64, threads: u32) -> u64 {
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
        let seats: Vec<_> = (0..threads).map(|_| Worker::new(NodeId(0))).collect();
        let crew = Pinned::new(&self.cpus);
        let work = |index: usize| {
            if let Some(mut piece) = pieces.get(index).and_then(|piece| piece.lock().ok()) {
                rival.fill(&mut piece);
            }
        };
        let begin = Instant::now();
        if threads == 1 {
            work(0);
        } else {
            crew.run(&seats, &work);
        }
        since(begin)
    }
}

/// Checks the descriptors of `frames`, all of one bank.
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
