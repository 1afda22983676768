//! Reader of kernel logs: from whatever a serial line recorded to [`KernelLog`].
//!
//! [`read`] never fails: what is recognised but cannot be taken as it stands is
//! listed in [`KernelLog::problems`] with its line number; everything else in a
//! log is somebody else's business and passed over.
//!
//! | file | concept |
//! |---|---|
//! | `line` | from bytes to messages: escape codes, noise, what was left out |
//! | `json` | messages of logs in JSON |
//! | `stamp`, `prefix` | time stamps; what tools put in front of messages |
//! | `heard` | lines by the host's clock |
//! | `alike` | names of lines, numbers taken out |
//! | `boots` | where one boot ends and the next begins |
//! | `end` | where it ends |
//! | `clock` | from which line on its clock runs |
//! | `rows` | numbers and address ranges; [`Span`] |
//! | `e820` | the firmware's memory map |
//! | `srat` | which memory and CPU belongs to which node |
//! | `layout` | what the kernel made of it: ranges, zones, holes |
//! | `processor` | which processor it runs on |
//! | `pages` | how large a page is |
//! | `deferred` | when put-off memory was ready |
//! | `named` | initcalls and services with their time |
//! | `memblock` | the early allocator's trace |
//! | `source` | which rows to take as the machine's memory |
//! | `problem` | [`LogProblem`] |

mod alike;
mod boots;
mod clock;
mod deferred;
mod e820;
mod end;
mod heard;
mod json;
mod layout;
mod line;
mod memblock;
mod named;
mod pages;
mod prefix;
mod problem;
mod processor;
mod rows;
mod source;
mod srat;
mod stamp;

pub use alike::alike;
use boots::Boundary;
pub use boots::{Boot, boots, each_boot};
pub use clock::clock_start;
pub(crate) use clock::{SMP, disorder};
pub use deferred::DeferredRow;
pub use e820::{E820Change, E820Kind, E820Row};
pub(crate) use end::End;
pub use heard::heard;
pub(crate) use json::begins as is_json;
pub use layout::{MovableStart, NodeRow, NodeSpan, PagesOf, Unavailable, ZonePages, ZoneRow};
pub(crate) use line::clean_text;
pub use line::{Line, lines};
pub use memblock::{MemblockAction, MemblockDump, MemblockEvent, MemblockRequest, MemblockRow};
pub use named::{Named, initcalls, services};
pub use pages::PageSize;
pub(crate) use prefix::{is_omission, is_prompt};
pub use problem::LogProblem;
pub use processor::Processor;
pub use rows::Span;
pub use source::MemorySource;
pub use srat::{NodeOverlap, SratCpu, SratRow};

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
use layout::Section;
use rows::Scan;

/// What a kernel said of its machine while it booted. Rows stand in the order of their lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelLog {
    /// Release, `6.1.0-55-cloud-amd64`.
    pub release: Option<String>,
    /// Which processor it runs on.
    pub processor: Processor,
    /// How large a page is, if tables or the release say so.
    pub page_size: Option<PageSize>,
    /// The command line.
    pub command_line: Option<String>,
    /// The firmware's memory map, as printed.
    pub e820: Vec<E820Row>,
    /// The map after `mem=` and `memmap=`.
    pub user_map: Vec<E820Row>,
    /// The map cut at what the boot loader passed on ("reserve setup_data"); byte-granular.
    pub setup_data: Vec<E820Row>,
    /// The map after the kernel's own corrections (before 3.x).
    pub modified_map: Vec<E820Row>,
    /// Single changes of the map.
    pub e820_changes: Vec<E820Change>,
    /// Memory of nodes.
    pub srat_memory: Vec<SratRow>,
    /// CPUs of nodes.
    pub srat_cpus: Vec<SratCpu>,
    /// Nodes that claim the same memory.
    pub node_overlaps: Vec<NodeOverlap>,
    /// The one node made up where firmware names none.
    pub faked_node: Option<Span>,
    /// Present memory, node by node ("Early memory node ranges").
    pub node_ranges: Vec<NodeRow>,
    /// Where each node's own data was put.
    pub node_data: Vec<NodeRow>,
    /// Zone bounds.
    pub zones: Vec<ZoneRow>,
    /// Counts of zones' pages (older kernels).
    pub zone_pages: Vec<ZonePages>,
    /// Where Movable zones start.
    pub movable_starts: Vec<MovableStart>,
    /// What nodes span.
    pub node_spans: Vec<NodeSpan>,
    /// Page frames without memory.
    pub unavailable: Vec<Unavailable>,
    /// Nodes whose deferred memory is ready, in the order they said so.
    pub deferred: Vec<DeferredRow>,
    /// The early allocator's trace.
    pub memblock: Vec<MemblockEvent>,
    /// The early allocator's state, whenever printed.
    pub memblock_dumps: Vec<MemblockDump>,
    /// ACPI tables listed.
    pub acpi_tables: Vec<AcpiTable>,
    /// The line that shows a virtual machine: its hypervisor's, or that of its firmware's maker.
    pub virtual_machine: Option<String>,
    /// CPUs.
    pub cpus: CpuCounts,
    /// What could not be taken as it stands: the first [`MOST_PROBLEMS`].
    pub problems: Vec<LogProblem>,
    /// Problems besides these, counted only.
    pub more_problems: u64,
}

/// Most problems of a log that are kept: what is wrong with a log must not need
/// more memory than the log.
pub const MOST_PROBLEMS: usize = 10_000;

/// How many CPUs a log speaks of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// CPUs the kernel allows, those that may be plugged in included.
    pub allowed: Option<u32>,
    /// Those of them that may be plugged in later.
    pub hotplug: Option<u32>,
    /// CPUs that came up.
    pub brought_up: Option<u32>,
    /// Nodes named when they had come up.
    pub nodes: Option<u32>,
}

/// An ACPI table as listed: `ACPI: SRAT 0x00000000A49EB3C0 005A30 (v03 ...)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcpiTable {
    /// Its four letters.
    pub signature: String,
    /// Where it lies.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// Line number.
    pub line: usize,
}

/// Reads a kernel log: any bytes, any age of kernel, stamps or none.
///
/// Only the first boot in a log is read; where another one begins is a problem listed.
///
/// ```
/// let log = firstlight_lab::log::read(
///     b"[    0.000000] BIOS-e820: [mem 0x0000000000100000-0x00000000bffdffff] usable\r\n\
///       [    0.000000] BIOS-e820: [mem 0x00000000c0000000-0x00000000bfffffff] usable\r\n",
/// );
/// assert_eq!(log.e820.len(), 1);
/// assert_eq!(log.e820[0].span.last, 0xbffd_ffff);
/// assert_eq!(log.problems[0].line, 2); // ends before it starts
/// ```
pub fn read(text: &[u8]) -> KernelLog {
    let mut rows = Rows::default();
    let mut boundary = Boundary::default();
    let mut problems = Vec::new();
    line::messages(text, &mut problems, |line, cut| {
        rows.log.problems.append(cut);
        if let Some(number) = boundary.another_begins(&line) {
            let what = "another boot begins here; only the first one was read";
            let problem = LogProblem::new(number, what, &line.text);
            rows.log.problems.push(problem);
            return false;
        }
        rows.take(&line);
        true
    });
    rows.log.problems.append(&mut problems);
    rows.finish()
}

/// A log being read, line by line.
#[derive(Default)]
struct Rows {
    section: Section,
    log: KernelLog,
}

impl Rows {
    /// Reads `line`; says whether it is a row.
    fn take(&mut self, line: &Line<'_>) -> bool {
        let row = message(line, &mut self.section, &mut self.log)
            || recover(line, &mut self.section, &mut self.log);
        self.log.bound_problems();
        row
    }

    fn finish(mut self) -> KernelLog {
        let of_release = || pages::of_release(self.log.release.as_deref()?);
        self.log.page_size = self.log.page_size.or_else(of_release);
        self.log.bound_problems();
        self.log
    }
}

/// Offers `line` to every reader; says whether one took it.
fn message(line: &Line<'_>, section: &mut Section, log: &mut KernelLog) -> bool {
    e820::read(line, log)
        || srat::read(line, log)
        || memblock::read(line, log)
        || deferred::read(line, log)
        || processor::read(line, log)
        || pages::read(line, log)
        || layout::read(line, section, log)
        || general(line, log)
}

/// A row behind other text on its line is still a row, and worth a remark.
fn recover(line: &Line<'_>, section: &mut Section, log: &mut KernelLog) -> bool {
    static KEYS: OnceLock<AhoCorasick> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let keys = ["BIOS-e820: [mem", "SRAT: Node ", "SRAT: PXM ", "NODE_DATA("];
        // A few bytes of literals.
        AhoCorasick::new(keys).unwrap_or_else(|_| unreachable!("keys are short literals"))
    });
    let found = keys.find(&*line.text).map(|found| found.start());
    let Some(text) = found
        .filter(|at| *at > 0)
        .and_then(|at| line.text.get(at..))
    else {
        return false;
    };
    let what = "other text stands in front of this row; row taken";
    log.problems
        .push(LogProblem::new(line.number, what, &line.text));
    let row = Line {
        text: text.into(),
        ..line.clone()
    };
    message(&row, section, log)
}

/// What firmware of virtual machines calls itself.
const VIRTUAL: [&str; 9] = [
    "QEMU",
    "KVM",
    "VMware",
    "VirtualBox",
    "Virtual Machine",
    "Xen HVM",
    "Google Compute Engine",
    "Amazon EC2",
    "OpenStack",
];

/// Release, command line, CPUs, ACPI tables, virtual machine or not.
fn general(line: &Line<'_>, log: &mut KernelLog) -> bool {
    let mut scan = Scan::new(&line.text);
    if scan.eat("Linux version ") {
        let release = log.release.get_or_insert_with(|| scan.word().to_owned());
        if let Some(processor) = processor::of_release(release) {
            log.processor = processor;
        }
    } else if scan.eat("Command line:") || scan.eat("Kernel command line:") {
        log.command_line
            .get_or_insert_with(|| scan.remainder().to_owned());
    } else if scan.eat("smpboot: Allowing") || scan.eat("CPU topo: Allowing") {
        allowed_cpus(&mut scan, &mut log.cpus);
    } else if scan.eat("smp: Brought up") || scan.eat("x86: Booted up") || scan.eat("Brought up") {
        brought_up(&mut scan, &mut log.cpus);
    } else if scan.eat("Hypervisor detected:") {
        log.virtual_machine
            .get_or_insert_with(|| line.text.to_string());
    } else if scan.eat("DMI:") {
        if VIRTUAL.iter().any(|maker| scan.remainder().contains(maker)) {
            log.virtual_machine
                .get_or_insert_with(|| line.text.to_string());
        }
    } else if scan.eat("ACPI:") {
        return acpi_table(&mut scan, line.number, log);
    } else {
        return false;
    }
    true
}

/// `4 CPUs, 0 hotplug CPUs` or `4 present CPUs plus 0 hotplug CPUs`.
fn allowed_cpus(scan: &mut Scan<'_>, cpus: &mut CpuCounts) {
    let Ok(first) = scan.small() else { return };
    let beside = scan.eat("present CPUs plus");
    let hotplug = if beside || scan.eat("CPUs,") {
        scan.small().ok()
    } else {
        None
    };
    cpus.hotplug = hotplug;
    // Newer kernels count the ones that may come beside, older ones among the rest.
    cpus.allowed = Some(if beside {
        first.saturating_add(hotplug.unwrap_or(0))
    } else {
        first
    });
}

/// `2 nodes, 4 CPUs` or `4 CPUs`.
fn brought_up(scan: &mut Scan<'_>, cpus: &mut CpuCounts) {
    let Ok(first) = scan.small() else { return };
    if scan.eat("CPU") {
        cpus.brought_up = Some(first);
    } else if scan.eat("nodes,") || scan.eat("node,") {
        cpus.nodes = Some(first);
        cpus.brought_up = scan.small().ok();
    }
}

fn acpi_table(scan: &mut Scan<'_>, line: usize, log: &mut KernelLog) -> bool {
    let signature = scan.word().to_owned();
    let plain = signature
        .bytes()
        .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
    if signature.len() != 4 || !plain || !scan.remainder().starts_with("0x") {
        return false;
    }
    let (Ok(address), Ok(bytes)) = (scan.hex(), scan.hex()) else {
        return false;
    };
    log.acpi_tables.push(AcpiTable {
        signature,
        address,
        bytes,
        line,
    });
    true
}

impl KernelLog {
    fn bound_problems(&mut self) {
        let more = self.problems.len().saturating_sub(MOST_PROBLEMS);
        self.problems.truncate(MOST_PROBLEMS);
        self.more_problems += more as u64;
    }

    /// Remarks on addresses no machine has; the row stays, the engine decides what to make of it.
    fn note_absurd(&mut self, span: Span, line: &Line<'_>) {
        if span.is_absurd() {
            let what = "reaches beyond 4 PiB, where no machine has addresses; row kept";
            self.problems
                .push(LogProblem::new(line.number, what, &line.text));
        }
    }
}
