//! `sweep`: how long the writing of all page descriptors takes, with ever more
//! threads a node: node by node in chunks as Linux cuts them, and all nodes at
//! once in ours. Each writing is checked frame by frame, and spoiled before the
//! next.

use firstlight::memmap::Part;
use firstlight::node::NodeId;
use firstlight::parallel::{Chunking, Job, WorkRange, Worker};
use firstlight_image::outcome::Outcome;
use firstlight_image::wire::Event;
use log::{error, info};

use crate::arch::ticks;
use crate::bring_up::Machine;
use crate::console::event;
use crate::descriptors::{Descriptors, list, shares};
use crate::processors::{Processors, Team};

/// Threads a node when the command line names none: powers of two, up to its CPUs.
const DOUBLING: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// What the measurements work with.
struct Sweep<'a> {
    machine: &'a Machine,
    descriptors: &'a mut Descriptors,
    processors: &'a mut Processors,
    shares: &'static mut [WorkRange],
    seats: &'static mut [Worker],
}

/// Runs the sweep.
pub(super) fn run(machine: &Machine, processors: &mut Processors) -> Outcome {
    let Some((mode, descriptors)) = &machine.descriptors else {
        return Outcome::CheckFailed;
    };
    let mut descriptors = descriptors.write();
    let layout = machine.frames.layout();
    let nodes = layout.nodes().iter().filter(|node| node.has_memory());
    let count = nodes.clone().count();
    let most_threads = machine.words.threads.into_iter().max().unwrap_or_default() as usize;
    let most_seats = count * most_threads.max(processors.started());
    let shares = shares(&machine.frames, &descriptors);
    let seats = list(&machine.frames, most_seats, |_| {
        Worker::new(NodeId::default())
    });
    let (Some(shares), Some(seats)) = (shares, seats) else {
        error!("sweep: no memory for its lists");
        return Outcome::CheckFailed;
    };
    let mut sweep = Sweep {
        machine,
        descriptors: &mut descriptors,
        processors,
        shares,
        seats,
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
    /// One node, or all, with every number of threads, as often as asked.
    fn span(&mut self, part: Part, node: Option<NodeId>, chunking: Chunking) -> bool {
        let words = &self.machine.words;
        let here = |at: NodeId| node.is_none_or(|only| only == at);
        let cpus = self.processors.nodes().filter(|(_, at)| here(*at)).count();
        let nodes = self.machine.frames.layout().nodes().iter();
        let nodes = nodes.filter(|node| node.has_memory() && here(node.id));
        // Threads are counted a node.
        let most = cpus.div_ceil(nodes.count().max(1)).max(1);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let asked = words.threads.into_iter().filter(|&threads| threads > 0);
        let none = asked.clone().next().is_none();
        let doubling = DOUBLING
            .into_iter()
            .filter(|&threads| threads < most)
            .chain([most]);
        let mut good = true;
        for threads in asked.chain(doubling.filter(|_| none)) {
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
        // SAFETY: nobody keeps a reference to a descriptor in this mode.
        unsafe { self.descriptors.poison() };
        let layout = self.machine.frames.layout();
        let wanted = |at: NodeId| node.is_none_or(|only| only == at);
        let nodes = layout
            .nodes()
            .iter()
            .filter(|node| node.has_memory() && wanted(node.id));
        let mut seats = 0;
        let homes = nodes.flat_map(|node| (0..threads).map(|_| node.id));
        for (seat, home) in self.seats.iter_mut().zip(homes) {
            *seat = Worker::new(home);
            seats += 1;
        }
        let team = Team::new(self.processors);
        let mut lists = (&mut *self.shares, &mut self.seats[..seats]);
        let job = Job::sections(chunking);
        let begin = ticks();
        let done = self
            .descriptors
            .describe_with(part, wanted, &job, &mut lists, &team);
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
        self.tell(
            part,
            node,
            chunking,
            [threads.into(), cpus as u64, pages, ticks],
        );
        wrong + missing == 0
    }

    fn tell(&self, part: Part, node: Option<NodeId>, chunking: Chunking, figures: [u64; 4]) {
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
