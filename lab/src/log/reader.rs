//! Rows from lines: [`Rows`] offers each line to every reader.

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

use super::kernel_log::{AcpiTable, CpuCounts, KernelLog};
use super::layout::Section;
use super::line::Line;
use super::problem::LogProblem;
use super::rows::Scan;
use super::{deferred, e820, layout, memblock, pages, processor, srat};

/// A log being read, line by line.
#[derive(Default)]
pub(super) struct Rows {
    section: Section,
    pub(super) log: KernelLog,
}

impl Rows {
    /// Reads `line`; says whether it is a row.
    pub(super) fn take(&mut self, line: &Line<'_>) -> bool {
        let row = message(line, &mut self.section, &mut self.log)
            || recover(line, &mut self.section, &mut self.log);
        self.log.bound_problems();
        row
    }

    pub(super) fn finish(mut self) -> KernelLog {
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
