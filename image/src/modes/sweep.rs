//! `sweep`: how long the writing of all page descriptors takes, with ever more threads
//! a node: node by node in chunks as Linux cuts them, and all nodes at once from one
//! queue. Each writing is checked frame by frame, and poisoned before the next.

use firstlight::memmap::Part;
use firstlight::node::NodeId;
use firstlight::parallel::{Chunking, Job, WorkRange, Worker};
use firstlight_wire::{Event, Outcome};
use log::{error, info};

use crate::arch::ticks;
use crate::console::event;
use crate::deferred::work_ranges;
use crate::descriptors::Descriptors;
use crate::lists::list;
use crate::machine::Machine;
use crate::processors::{Processors, StartedCpus};

/// Threads a node when the command line names none: powers of two, up to its CPUs.
const DOUBLING: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// A sweep.
struct Sweep<'a> {
    machine: &'a Machine,
    descriptors: &'a mut Descriptors,
    processors: &'a mut Processors,
    ranges: &'static mut [WorkRange],
    workers: &'static mut [Worker],
}

/// Runs the sweep.
pub(super) fn run(machine: &Machine, processors: &mut Processors) -> Outcome {
    let Some((mode, descriptors)) = &machine.hooks.descriptors else {
        return Outcome::CheckFailed;
    };
    let layout = machine.frames.layout();
    let nodes = layout.nodes().iter().filter(|node| node.has_memory());
    let count = nodes.clone().count();
    let most_threads = machine.words.threads.into_iter().max().unwrap_or_default() as usize;
    let most_workers = count * most_threads.max(processors.started());
    let ranges = work_ranges(&machine.frames, &descriptors.read());
    let workers = list(&machine.frames, most_workers, |_| {
        Worker::new(NodeId::default())
    });
    let (Some(ranges), Some(workers)) = (ranges, workers) else {
        error!("sweep: no memory for its lists");
        return Outcome::CheckFailed;
    };
    let mut descriptors = descriptors.write();
    let mut sweep = Sweep {
        machine,
        descriptors: &mut descriptors,
        processors,
        ranges,
        workers,
    };
    let mut good = true;
    for part in [Part::Deferred, Part::Whole] {
        for node in nodes.clone() {
            good &= sweep.span(part, Some(node.id), Chunking::Padata);
        }
        if count > 1 {
            good &= sweep.span(part, None, Chunking::Stealing);
        }
    }
    good &= descriptors.report(*mode, layout);
    if good {
        Outcome::Ok
    } else {
        Outcome::CheckFailed
    }
}

impl Sweep<'_> {
    /// One node, or all, with every number of threads, `runs` times each.
    fn span(&mut self, part: Part, node: Option<NodeId>, chunking: Chunking) -> bool {
        let words = &self.machine.words;
        let here = |at: NodeId| node.is_none_or(|only| only == at);
        let cpus = self.processors.nodes().filter(|(_, at)| here(*at)).count();
        let nodes = self.machine.frames.layout().nodes().iter();
        let nodes = nodes.filter(|node| node.has_memory() && here(node.id));
        // Threads are counted a node.
        let most = cpus.div_ceil(nodes.count().max(1)).max(1);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let given = words.threads.into_iter().filter(|&threads| threads > 0);
        let none = given.clone().next().is_none();
        let doubling = DOUBLING
            .into_iter()
            .filter(|&threads| threads < most)
            .chain([most]);
        let mut good = true;
        for threads in given.chain(doubling.filter(|_| none)) {
            for _ in 0..words.runs.max(1) {
                good &= self.once(part, node, chunking, threads, cpus);
            }
        }
        good
    }

    /// One writing, timed and checked.
    fn once(
        &mut self,
        part: Part,
        node: Option<NodeId>,
        chunking: Chunking,
        threads: u32,
        cpus: usize,
    ) -> bool {
        // SAFETY: no reference to a descriptor is kept in this mode.
        unsafe { self.descriptors.poison() };
        let layout = self.machine.frames.layout();
        let wanted = |at: NodeId| node.is_none_or(|only| only == at);
        let nodes = layout
            .nodes()
            .iter()
            .filter(|node| node.has_memory() && wanted(node.id));
        let mut workers = 0;
        let homes = nodes.flat_map(|node| (0..threads).map(|_| node.id));
        for (worker, home) in self.workers.iter_mut().zip(homes) {
            *worker = Worker::new(home);
            workers += 1;
        }
        let cpus_started = StartedCpus::new(self.processors);
        let mut lists = (&mut *self.ranges, &mut self.workers[..workers]);
        let job = Job::sections(chunking);
        let begin = ticks();
        let done = self
            .descriptors
            .describe_with(part, wanted, &job, &mut lists, &cpus_started);
        let ticks = ticks() - begin;
        let pages = match done {
            Ok(report) => report.frames,
            Err(refused) => {
                error!("sweep: {refused}");
                return false;
            }
        };
        let (checked, wrong) = self.descriptors.check(layout);
        let missing = pages.saturating_sub(checked);
        if wrong + missing > 0 {
            error!("sweep: {wrong} descriptors are wrong, {missing} missing");
        }
        self.report(
            part,
            node,
            chunking,
            [threads.into(), cpus as u64, pages, ticks],
        );
        wrong + missing == 0
    }

    fn report(&self, part: Part, node: Option<NodeId>, chunking: Chunking, figures: [u64; 4]) {
        let [threads, cpus, pages, ticks] = figures;
        let (part, chunking) = (part.name(), chunking.name());
        match node {
            Some(node) => info!("sweep: {node}, {part} part, {threads} threads: {ticks} ticks"),
            None => info!("sweep: all nodes, {part} part, {threads} threads each: {ticks} ticks"),
        }
        let descriptor_bytes = self.descriptors.bytes();
        event(&Event::Sweep {
            node: node.map(|node| node.0),
            part,
            chunking,
            descriptor_bytes,
            threads,
            cpus,
            pages,
            bytes_written: pages * descriptor_bytes,
            ticks,
        });
    }
}
