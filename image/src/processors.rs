//! The other CPUs: listed, and on nodes, by firmware's tables, each with a stack on its
//! own node, started all at once.

use firstlight::addr::{Frame, PhysRange};
use firstlight::clock::Frequency;
use firstlight::frames::Request;
use firstlight::node::NodeId;
use firstlight::parallel::{Worker, Workers};
use firstlight_image::words::Test;
use spin::Mutex;

use crate::arch::cpus::{self, AREA_ORDER, Cpus};
use crate::console::{correction, note};
use crate::firmware::Cpu;
use crate::machine::Machine;

/// Longest wait of the first CPU for the others.
const WAIT_NS: u64 = 500_000_000;
/// Longest wait for the CPU that a test delayed.
const LATE_WAIT_NS: u64 = 10_000_000_000;

/// All CPUs, the first one among them.
pub(crate) struct Processors {
    /// None if no others can be started.
    cpus: Option<Cpus>,
    /// CPUs that the firmware lists as usable.
    pub(crate) listed: usize,
    /// The one that a test delays, and the clock for that.
    delayed: Option<(usize, Frequency)>,
    /// CPUs besides the first that can work once they have started.
    added: usize,
    /// The node of each CPU, by its number.
    nodes: [NodeId; cpus::MOST],
}

impl Processors {
    /// Starts all CPUs; without a clock none, because their start needs delays.
    pub(crate) fn start(machine: &Machine, clock: Option<Frequency>) -> Self {
        let mut this = Self {
            cpus: None,
            listed: 1,
            delayed: None,
            added: 0,
            nodes: [NodeId::default(); cpus::MOST],
        };
        let own = cpus::own_id();
        this.nodes[0] = node_of(machine, own).unwrap_or_default();
        machine.tables.report_cpus();
        let listed = || machine.tables.cpus().filter(move |cpu| cpu.id != own);
        this.listed += listed().count();
        if this.listed == 1 {
            return this;
        }
        let page = match cpus::FIRST_PAGE_END {
            Some(_) => machine.trampoline,
            None => Some(PhysRange::EMPTY),
        };
        let (Some(page), Some(clock)) = (page, clock) else {
            note(
                "only the first CPU runs: there is no page below 1 MiB or no clock to start others with",
            );
            return this;
        };
        // SAFETY: early memory allocated the page for this.
        let mut cpus = unsafe { Cpus::new(page) };
        for (before, cpu) in listed().enumerate() {
            if this.added + 1 == cpus::MOST {
                note(format_args!(
                    "{} CPUs from id {:#x} on are not started: at most {} are",
                    listed().count() - before,
                    cpu.id,
                    cpus::MOST
                ));
                break;
            }
            // A second start would reset it while it works.
            if cpus.has(cpu.id) {
                correction(format_args!(
                    "CPU with id {:#x} listed twice, counted once",
                    cpu.id
                ));
                this.listed -= 1;
            } else {
                let node = node_of(machine, cpu.id).unwrap_or_default();
                if let Some(number) = add(&mut cpus, machine, cpu, node) {
                    this.nodes[number] = node;
                    this.added = number;
                }
            }
        }
        let added = this.added;
        let delayed = usize::from(machine.words.test == Some(Test::LateCpu) && added > 0);
        cpus.start(1..added + 1 - delayed, clock, WAIT_NS);
        for number in cpus.missing() {
            note(format_args!(
                "CPU {number} has not started yet; it joins when it does"
            ));
        }
        this.delayed = (delayed == 1).then_some((added, clock));
        this.cpus = Some(cpus);
        this
    }

    /// CPUs that have started so far.
    pub(crate) fn started(&self) -> usize {
        self.cpus.as_ref().map_or(1, Cpus::joined)
    }

    /// When the last CPU started, if all have.
    pub(crate) fn all_started_ticks(&self) -> Option<u64> {
        if self.started() < self.listed {
            return None;
        }
        self.cpus
            .as_ref()
            .map_or_else(|| Some(crate::arch::ticks()), Cpus::last_joined_ticks)
    }

    /// Runs `work` on those CPUs that have started and are `wanted`; how many did.
    pub(crate) fn run(
        &mut self,
        wanted: &dyn Fn(usize) -> bool,
        work: &(dyn Fn(usize) + Sync),
    ) -> usize {
        match &mut self.cpus {
            Some(cpus) => cpus.run(wanted, work),
            None => {
                work(0);
                1
            }
        }
    }

    /// Runs `work` on all CPUs that have started; how many did.
    pub(crate) fn run_all(&mut self, work: &(dyn Fn(usize) + Sync)) -> usize {
        self.run(&|_| true, work)
    }

    /// Stops all but the first for good; how many.
    pub(crate) fn stop(&mut self) -> usize {
        self.cpus.as_mut().map_or(0, Cpus::stop)
    }

    /// Number and node of each CPU that has started.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (usize, NodeId)> {
        let started = |number: &usize| {
            let others = self.cpus.as_ref();
            *number == 0 || others.is_some_and(|cpus| cpus.has_joined(*number))
        };
        (0..=self.added)
            .filter(started)
            .map(|number| (number, self.nodes[number]))
    }

    /// Starts the CPU that a test delayed, and reports late ones.
    pub(crate) fn late(&mut self) {
        let Some(cpus) = &mut self.cpus else { return };
        let before = cpus.joined();
        if let Some((number, clock)) = self.delayed.take() {
            cpus.start(number..number + 1, clock, LATE_WAIT_NS);
        }
        let late = cpus.joined() - before;
        if late > 0 {
            let with = cpus.run(&|_| true, &|_| {});
            note(format_args!(
                "{late} CPU joined late; work now runs on {with}"
            ));
        }
    }
}

/// Allocates a CPU's area, best on its own node.
fn add(cpus: &mut Cpus, machine: &Machine, cpu: Cpu, node: NodeId) -> Option<usize> {
    let id = cpu.id;
    if !cpus.can_reach(id) {
        note(format_args!(
            "CPU with id {id:#x} not started: it cannot be addressed"
        ));
        return None;
    }
    let request = Request::new(AREA_ORDER).on(node);
    let area = match machine.frames.allocate(request) {
        Ok(frame) => area(frame),
        Err(error) => {
            note(format_args!("CPU with id {id:#x} not started: {error}"));
            return None;
        }
    };
    // SAFETY: the frames were just allocated, and are never freed.
    unsafe { cpus.add(id, area) }
}

fn area(frame: Frame) -> PhysRange {
    PhysRange::with_size(frame.addr().get(), AREA_ORDER.bytes()).unwrap_or_default()
}

/// The node of a CPU, by firmware's tables.
fn node_of(machine: &Machine, id: u64) -> Option<NodeId> {
    let domain = machine.tables.domain_of(id)?;
    machine.frames.layout().topology().node_of(domain)
}

/// All CPUs that have started, as workers of the engine's jobs.
pub(crate) struct StartedCpus<'p>(Mutex<&'p mut Processors>);

impl<'p> StartedCpus<'p> {
    /// They run nothing else meanwhile.
    pub(crate) fn new(processors: &'p mut Processors) -> Self {
        Self(Mutex::new(processors))
    }
}

impl Workers for StartedCpus<'_> {
    /// A worker gets a CPU of its node, as long as there is one, else any.
    fn run(&self, workers: &[Worker], work: &(dyn Fn(usize) + Sync)) {
        const NONE: u16 = u16::MAX;
        let mut processors = self.0.lock();
        // Worker by CPU number; more workers than CPUs are left to the caller.
        let mut worker_of = [NONE; cpus::MOST];
        for at_home in [true, false] {
            let taken = worker_of;
            for (index, worker) in (0..NONE).zip(workers) {
                if taken.contains(&index) {
                    continue;
                }
                let free = |&(cpu, node): &(usize, NodeId)| {
                    worker_of[cpu] == NONE && (node == worker.node() || !at_home)
                };
                let cpu = processors.nodes().find(free);
                if let Some((cpu, _)) = cpu {
                    worker_of[cpu] = index;
                }
            }
        }
        processors.run(&|cpu| worker_of[cpu] != NONE, &|cpu| {
            work(usize::from(worker_of[cpu]));
        });
    }
}
