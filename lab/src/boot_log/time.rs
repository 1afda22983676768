//! Milestones and phases of a Linux, by the times of its lines: the host's, from power-on, or
//! the stamps of its own clock.
//!
//! Its own clock runs late: until the kernel knows how fast the TSC is, stamps are
//! 0.000000 or, on some machines, ticks of a timer that are forgotten when the
//! TSC takes over. Neither is a time; both are left out. A phase that begins before the clock
//! is named in the record's time base: how long it took is not known.
//!
//! | phase | begins with the line |
//! |---|---|
//! | memory map | `Linux version` |
//! | memmap early | `Zone ranges:`, or the first `... zone: ... pages` in a piece of a log |
//! | hash tables | the one before `Dentry cache hash table entries`, which is printed when it is done |
//! | free to allocator | `mem auto-init` |
//! | SMP | `smp: Bringing up secondary CPUs` |
//! | deferred memmap | `smp: Brought up`, if a node reports deferred pages after it |
//! | memory blocks | `x86/mm: Memory block size`, up to the line after it |
//! | drivers | the line after that |
//! | root file system | the first that misses or mounts it |
//! | initrd | `Run /init as init process` |
//! | services | `systemd[1]: Switching root`, or `Run ... as init process` with another program |
//! | shutdown | `systemd-shutdown`, `systemd[1]: Shutting down`, `reboot:` |
//! | kernel | what is between them |

use firstlight_wire::phase::FIRMWARE;

use crate::log::{self, Line, SMP, clock_start};
use crate::record::{From, Milestones, Phase, Record, TimeBase};

/// Lines with the clock beside them, from where it runs on, never going back.
struct Timed<'l> {
    lines: &'l [Line<'l>],
    /// Index of the first line with the clock that runs on.
    start: usize,
}

impl<'l> Timed<'l> {
    fn new(lines: &'l [Line<'_>]) -> Self {
        Self {
            lines,
            start: clock_start(lines),
        }
    }

    /// When line `at` was printed, where its own stamp says so.
    fn told(&self, at: usize) -> Option<u64> {
        let ns = self.lines.get(at)?.stamp_ns?;
        (ns > 0 && at >= self.start).then_some(ns)
    }

    /// Index and time of the first line that has one.
    fn first(&self) -> Option<(usize, u64)> {
        let mut all = self.start..self.lines.len();
        all.find_map(|at| Some((at, self.told(at)?)))
    }

    /// The clock at line `at`; at its first value until it runs.
    fn clock(&self, at: usize) -> Option<u64> {
        let (first, first_ns) = self.first()?;
        let later = (first..=at).filter_map(|at| self.told(at));
        Some(later.fold(first_ns, u64::max))
    }

    fn position(&self, is: fn(&str) -> bool) -> Option<usize> {
        self.lines.iter().position(|line| is(&line.text))
    }

    fn last_position(&self, is: fn(&str) -> bool) -> Option<usize> {
        self.lines.iter().rposition(|line| is(&line.text))
    }
}

/// How the remark on a kernel's own clock begins.
const OWN_CLOCK: &str = "times are by the kernel's own clock";

/// Puts milestones and phases into `record`, by the kernel's own clock.
pub(super) fn tell(lines: &[Line<'_>], record: &mut Record) {
    // Where lines of several logs are mixed no stamp says when it was.
    let lines = match log::disorder(lines) {
        Some(found) if found.hides_time() => &[],
        _ => lines,
    };
    let timed = Timed::new(lines);
    fill(&timed, record);
    let first = timed.first().and_then(|(at, _)| lines.get(at));
    record.time_base.from = From::Clock;
    record.time_base.begins_at = first.map(|line| log::alike(&line.text));
    record.notes.push(match first {
        Some(first) => format!(
            "{OWN_CLOCK}, which began to run at \"{}\": firmware and what came before are not in them",
            first.text
        ),
        None => "no line of the log has a time".into(),
    });
}

/// Puts milestones and phases into `record`, by the times at which the host had each line, instead
/// of the kernel's own.
pub fn tell_heard(lines: &[Line<'_>], record: &mut Record) {
    let timed = Timed::new(lines);
    fill(&timed, record);
    record.notes.retain(|note| !note.starts_with(OWN_CLOCK));
    let begun = timed.position(begins).and_then(|at| timed.told(at));
    match begun {
        Some(ns) => {
            record.milestones.entry_ns = Some(ns);
            let firmware = Phase {
                name: FIRMWARE.into(),
                start_ns: 0,
                end_ns: ns,
            };
            record.phases.insert(0, firmware);
        }
        None => record.time_base.unclocked.push(FIRMWARE.into()),
    }
}

/// Puts milestones and phases into `record` by the host's clock. Firmware's phase is in it where
/// the restart before it is known.
pub(crate) fn tell_console(lines: &[Line<'_>], has_restart: bool, record: &mut Record) {
    tell_heard(lines, record);
    record.time_base.from = From::HostClock;
    if !has_restart {
        record.phases.retain(|phase| phase.name != FIRMWARE);
        if !record
            .time_base
            .unclocked
            .iter()
            .any(|name| name == FIRMWARE)
        {
            record.time_base.unclocked.push(FIRMWARE.into());
        }
    }
}

fn fill(lines: &Timed<'_>, record: &mut Record) {
    record.milestones = milestones(lines);
    let (phases, unclocked) = phases(lines);
    record.phases = phases;
    record.time_base = TimeBase {
        unclocked,
        ..TimeBase::default()
    };
}

fn is_deferred(text: &str) -> bool {
    text.starts_with("node ") && text.contains(" initialised")
}

fn are_all_up(text: &str) -> bool {
    text.starts_with("smp: Brought up") || text.starts_with("x86: Booted up")
}

fn milestones(lines: &Timed<'_>) -> Milestones {
    let stamp = |at: usize| lines.told(at).and(lines.clock(at));
    let first = |is: fn(&str) -> bool| lines.position(is).and_then(stamp);
    // The first that takes frames from the page allocator and says so.
    let first_frame_ns = first(|text| text.starts_with("SLUB: "));
    let all_allocatable_ns = match lines.last_position(is_deferred) {
        Some(at) => stamp(at),
        // Where nothing is put off, all is there as soon as anything is.
        None => first_frame_ns,
    };
    Milestones {
        layout_ns: first(|text| text.starts_with("Early memory node ranges")),
        first_frame_ns,
        all_allocatable_ns,
        cpus_started_ns: first(are_all_up),
        // It hands out nothing that it has not described.
        all_described_ns: all_allocatable_ns,
        ..Milestones::default()
    }
}

/// Which line's stamp a phase begins at.
#[derive(Clone, Copy)]
enum Edge {
    /// That of the first line that is one.
    First,
    /// That of the line before the first: the line reports what is done.
    Before,
    /// That of the line after the first.
    After,
    /// That of the last that is one.
    Last,
}

/// A phase, and which line it begins with.
type Boundary = (&'static str, Edge, fn(&str) -> bool);

/// Each counts once, in whatever order a kernel comes to them.
const BOUNDARIES: [Boundary; 16] = [
    ("memory map", Edge::First, begins),
    ("memmap early", Edge::First, |text| {
        let zone = text.contains(" zone: ") && text.contains(" pages");
        text.starts_with("Zone ranges:") || text.starts_with("Zone PFN ranges:") || zone
    }),
    (KERNEL, Edge::First, ends_memmap),
    ("hash tables", Edge::Before, |text| {
        text.starts_with("Dentry cache hash table entries")
    }),
    (KERNEL, Edge::First, |text| {
        text.starts_with("Inode-cache hash table entries")
    }),
    ("free to allocator", Edge::First, |text| {
        text.starts_with("mem auto-init")
    }),
    (KERNEL, Edge::First, |text| text.starts_with("SLUB: ")),
    ("SMP", Edge::First, |text| text.starts_with(SMP)),
    (DEFERRED, Edge::First, are_all_up),
    (KERNEL, Edge::Last, is_deferred),
    ("memory blocks", Edge::First, is_block_size),
    ("drivers", Edge::After, is_block_size),
    ("root file system", Edge::First, |text| {
        [
            "/dev/root: Can't",
            "VFS: Cannot open root",
            "VFS: Mounted root",
        ]
        .iter()
        .any(|start| text.starts_with(start))
    }),
    ("initrd", Edge::First, |text| {
        text.starts_with("Run /init as init process")
    }),
    ("services", Edge::First, |text| {
        let runs = text.starts_with("Run ") && text.ends_with(" as init process");
        (runs && !text.starts_with("Run /init ")) || text.starts_with("systemd[1]: Switching root")
    }),
    ("shutdown", Edge::First, |text| {
        [
            "systemd-shutdown[1]:",
            "systemd[1]: Shutting down",
            "reboot: ",
        ]
        .iter()
        .any(|start| text.starts_with(start))
    }),
];

fn begins(text: &str) -> bool {
    text.starts_with("Linux version ")
}

/// What Linux looks for once it has described its first memory.
fn ends_memmap(text: &str) -> bool {
    [
        "ACPI: PM-Timer",
        "ACPI: LAPIC",
        "IOAPIC[",
        "smpboot: Allow",
        "CPU topo:",
    ]
    .iter()
    .any(|start| text.starts_with(start))
}

fn is_block_size(text: &str) -> bool {
    text.starts_with("x86/mm: Memory block size")
}

const KERNEL: &str = "kernel";
const DEFERRED: &str = "deferred memmap";

/// Phases in order, one after the other without a gap, and names of those that begin before
/// the clock.
fn phases(lines: &Timed<'_>) -> (Vec<Phase>, Vec<String>) {
    let last = lines.lines.len().checked_sub(1);
    let end_ns = last.and_then(|last| lines.clock(last));
    let (Some((clock, _)), Some(end_ns)) = (lines.first(), end_ns) else {
        return Default::default();
    };
    let defers = lines.position(is_deferred).is_some();
    let mut edges = Vec::new();
    for (name, edge, is) in BOUNDARIES {
        let found = match edge {
            Edge::Last => lines.last_position(is),
            _ => lines.position(is),
        };
        let Some(at) = found else { continue };
        let at = match edge {
            Edge::First | Edge::Last => at,
            Edge::Before => at.saturating_sub(1),
            Edge::After => at + 1,
        };
        let nothing = name == DEFERRED && !defers;
        edges.push((at, if nothing { KERNEL } else { name }));
    }
    edges.sort_by_key(|edge| edge.0);
    let before = edges.iter().filter(|(at, _)| *at < clock);
    let mut unclocked: Vec<String> = before.map(|(_, name)| (*name).to_owned()).collect();
    unclocked.dedup();
    let mut phases: Vec<Phase> = Vec::new();
    for (at, name) in edges {
        let inside = at < lines.lines.len();
        let ns = lines.clock(at).filter(|_| inside).unwrap_or(end_ns);
        if let Some(running) = phases.last_mut() {
            running.end_ns = ns;
            if running.name == name {
                continue;
            }
        }
        phases.push(Phase {
            name: name.into(),
            start_ns: ns,
            end_ns: ns,
        });
    }
    if let Some(running) = phases.last_mut() {
        running.end_ns = end_ns;
    }
    phases.retain(|phase| phase.end_ns > phase.start_ns);
    (phases, unclocked)
}
