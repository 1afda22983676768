//! The report of a boot, for a person.

use super::balloon::balloon;
use super::hotplug::hotplug;
use super::restart::restart;
use crate::output::{FAINT, GOOD, HEADING, NOTE};
use crate::report::{Page, gaps, memory, share};
use crate::text::{self, bytes, count, head, milliseconds, plural};
use firstlight_lab::record::{From, Host, Marker, Phase, Record, Totals};
use firstlight_lab::run::Run;
use firstlight_lab::sweep::guest;

/// Columns of the longest bar.
const BAR: u64 = 40;

/// Everything, or with `full` off what fits a screen.
pub(crate) fn report(record: &Record, full: bool) -> String {
    let fold = |most| if full { usize::MAX } else { most };
    let mut page = Page::default();
    heading(&mut page, record);
    memory::remarks(&mut page, "note", NOTE, &record.notes, fold(8));
    if !record.regions.is_empty() {
        memory::regions(&mut page, &record.regions, fold(14));
    }
    memory::remarks(&mut page, "corrected", NOTE, &record.corrections, fold(6));
    if !record.nodes.is_empty() {
        memory::nodes(&mut page, record, fold(10));
    }
    if !record.zones.is_empty() {
        memory::zones(&mut page, record, fold(12));
    }
    time_line(&mut page, record);
    phases(&mut page, record);
    let most = if full { usize::MAX } else { 3 };
    gaps::gaps(&mut page, &record.gaps, unit(record), most);
    totals(&mut page, &record.totals);
    memory::metadata(&mut page, &record.memory);
    selftest(&mut page, record);
    bench(&mut page, record);
    sweep(&mut page, record);
    zeroed(&mut page, record);
    balloon(&mut page, record, full);
    restart(&mut page, record);
    hotplug(&mut page, record);
    if let Some(host) = record.host.as_ref().filter(|_| full) {
        markers(&mut page, &host.markers);
    }
    page.text
}

fn heading(page: &mut Page, record: &Record) {
    let mut name = match &*record.source.kind {
        "image" => "our image".to_owned(),
        _ => record.source.name.clone(),
    };
    let kernel = record.source.kernel.as_ref();
    if let Some(release) = kernel.and_then(|kernel| kernel.release.as_ref()) {
        name.push_str(&format!(" ({release})"));
    }
    let mut size = Vec::new();
    if let Some(asked) = &record.machine.asked {
        size.push(bytes(asked.memory_bytes));
        size.push(plural(asked.nodes, "node"));
        size.push(format!("{} on {}", plural(asked.cpus, "CPU"), asked.board));
    }
    let mut title = format!("firstlight {}: {name}", command(record));
    if !size.is_empty() {
        title.push_str(&format!(", {}", size.join(", ")));
    }
    page.styled(HEADING, &title);
    if let Some(host) = &record.host {
        runs_on(page, host, record.time_base.from);
    }
    page.line(format!(
        "  clock    {}",
        match record.clock {
            "instructions" => "instructions, each 1 ns: the same from run to run",
            _ => "wall",
        }
    ));
    if !record.source.command_line.is_empty() {
        page.line(format!("  words    {}", record.source.command_line));
    }
}

/// What made the record.
fn command(record: &Record) -> &'static str {
    match record.kind {
        "log" => "record",
        _ => "boot",
    }
}

fn runs_on(page: &mut Page, host: &Host, from: From) {
    let qemu = host.qemu_version.as_deref().unwrap_or("of no version");
    let reason = &host.accelerator_reason;
    page.line(format!(
        "  runs on  {}, QEMU {qemu}: {reason}",
        host.accelerator
    ));
    // Of a boot that counts from power-on it is part of the times.
    if let Some(ns) = host.before_clock_ns.filter(|_| from == From::Clock) {
        page.line(format!(
            "  hidden   {} ms of this host's clock before the guest's clock began",
            milliseconds(ns)
        ));
    }
    if let Some(why) = &host.retried_because {
        page.line(format!(
            "  {NOTE}note:{NOTE:#} boot {}: {why}",
            host.attempts
        ));
    }
}

/// What the record's clock counts.
fn unit(record: &Record) -> &'static str {
    if record.clock == "instructions" && !is_own_clock(record) {
        "million instructions"
    } else {
        "milliseconds"
    }
}

/// Whether a Linux's times are those of its own clock.
fn is_own_clock(record: &Record) -> bool {
    &*record.source.kind == "linux" && record.time_base.from == From::Clock
}

/// What the record's clock counts, and from when.
fn aside(record: &Record) -> String {
    let since = if is_own_clock(record) {
        "by the kernel's own clock"
    } else {
        "since the machine was started"
    };
    format!("{} {since}", unit(record))
}

fn time_line(page: &mut Page, record: &Record) {
    let milestones = &record.milestones;
    let mut known: Vec<(u64, &str)> = [
        (milestones.loader_entered_ns, "firmware starts the loader"),
        (milestones.loader_read_ns, "the image is read and placed"),
        (
            milestones.boot_services_ended_ns,
            "boot services have ended",
        ),
        (milestones.entry_ns, "the kernel begins"),
        (milestones.layout_ns, "nodes and zones known"),
        (milestones.first_frame_ns, "first frame handed out"),
        (milestones.all_allocatable_ns, "all memory allocatable"),
        (milestones.cpus_started_ns, "all CPUs run"),
        (milestones.all_described_ns, "every page has its descriptor"),
    ]
    .into_iter()
    .filter_map(|(ns, name)| Some((ns?, name)))
    .collect();
    if known.is_empty() {
        return;
    }
    known.sort_by_key(|(ns, _)| *ns);
    page.section("Time line", &aside(record));
    let mut before = None;
    let mut rows = Vec::new();
    for (ns, name) in &known {
        let gap = before.map_or(String::new(), |before| {
            format!("{} later", milliseconds(ns - before))
        });
        rows.push(vec![milliseconds(*ns), (*name).to_owned(), gap]);
        before = Some(*ns);
    }
    let lines = text::table("><<", &rows);
    for (line, (_, name)) in lines.iter().zip(&known) {
        if *name == "all memory allocatable" {
            page.styled(GOOD, line);
        } else {
            page.line(line);
        }
    }
    let all = milestones.entry_ns.zip(milestones.all_allocatable_ns);
    if let Some((entry, all)) = all.filter(|_| record.clock == "instructions") {
        let took = count(all.saturating_sub(entry));
        page.line(format!(
            "  {took} instructions from the kernel's entry to all memory allocatable"
        ));
    }
}

fn phases(page: &mut Page, record: &Record) {
    let phases = &record.phases;
    if phases.is_empty() {
        return;
    }
    let took = |phase: &Phase| phase.end_ns.saturating_sub(phase.start_ns);
    let all: u64 = phases.iter().map(took).fold(0, u64::saturating_add);
    let longest = phases.iter().map(took).max().unwrap_or(0).max(1);
    page.section("Phases", unit(record));
    let mut rows = vec![head(["phase", "from", "took", "share", ""])];
    for phase in phases {
        let took = took(phase);
        let bar = usize::try_from(share::parts(took, longest, BAR)).unwrap_or(0);
        rows.push(vec![
            phase.name.to_string(),
            milliseconds(phase.start_ns),
            milliseconds(took),
            share::share(took, all),
            "#".repeat(bar),
        ]);
    }
    page.table("<>>><", &rows);
}

/// Where a whole restart went, in the form such tables are published in.
fn totals(page: &mut Page, totals: &Totals) {
    let parts = totals.parts().into_iter().filter(|part| part.1.is_some());
    let all = [
        ("not explained", totals.not_explained_ns),
        ("Total", totals.total_ns),
    ];
    let rows = parts.chain(all).filter_map(|(name, ns)| {
        let seconds = milliseconds(ns? / 1000);
        Some(vec![name.to_owned(), seconds])
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return;
    }
    page.section("Totals", "seconds");
    page.table("<>", &rows);
}

fn selftest(page: &mut Page, record: &Record) {
    let Some(selftest) = &record.selftest else {
        return;
    };
    page.section("Put to work", "");
    page.line(format!(
        "  {} allocated {} and freed {} blocks",
        plural(selftest.cpus, "CPU"),
        count(selftest.allocated_blocks),
        count(selftest.freed_blocks),
    ));
    page.line(format!(
        "  then all memory at once: {} frames",
        count(selftest.all_frames)
    ));
    if selftest.failures == 0 {
        page.styled(GOOD, "  no check failed");
    }
}

fn zeroed(page: &mut Page, record: &Record) {
    let Some(zeroed) = &record.zeroed else { return };
    page.section("Zeroed allocations", "blocks of 2 MiB");
    page.line(format!(
        "  {} allocated as zeros, {} of it zeroed for that; {} were known to be zero",
        bytes(zeroed.allocated_bytes),
        bytes(zeroed.zeroed_bytes),
        bytes(zeroed.known_zero_bytes),
    ));
    if zeroed.wrong_blocks > 0 {
        page.line(format!(
            "  {NOTE}note:{NOTE:#} {} that should have been zero were not, and were zeroed",
            plural(zeroed.wrong_blocks, "block")
        ));
    }
    if let Some(ns) = zeroed.duration_ns {
        page.line(format!("  allocation took {} ms", milliseconds(ns)));
    }
}

/// What a sweep over numbers of threads measured.
fn sweep(page: &mut Page, record: &Record) {
    let run = Run::of_record(record).ok();
    let text = match run.map(|run| guest::of_runs(&[run])) {
        Some(Ok(Some(sweep))) => sweep.table(),
        Some(Err(why)) => format!("  {NOTE}note:{NOTE:#} {why}\n"),
        None | Some(Ok(None)) => return,
    };
    page.line("");
    page.text.push_str(&text);
}

fn bench(page: &mut Page, record: &Record) {
    let bench = record.bench.as_slice();
    if bench.is_empty() {
        return;
    }
    page.section("Bench", "nanoseconds an operation on each CPU");
    let host = record.host.as_ref();
    if record.clock == "wall" && host.is_some_and(|host| host.accelerator == "tcg") {
        page.line(format!(
            "  {NOTE}note:{NOTE:#} emulated time is no measure; \
             instructions are: --clock instructions"
        ));
    }
    let mut rows = vec![head([
        "workload",
        "by",
        "order",
        "CPUs",
        "operations",
        "ns",
    ])];
    rows.extend(bench.iter().map(|row| {
        let each = row.duration_ns.map_or("?".into(), |ns| {
            let operations = u128::from(row.operations.max(1));
            let tenths =
                (u128::from(ns) * 10).saturating_mul(row.threads.max(1).into()) / operations;
            format!("{}.{}", tenths / 10, tenths % 10)
        });
        vec![
            row.workload.clone(),
            row.contestant.clone(),
            row.order.to_string(),
            row.threads.to_string(),
            count(row.operations),
            each,
        ]
    }));
    page.table("<<>>>>", &rows);
}

fn markers(page: &mut Page, markers: &[Marker]) {
    if markers.is_empty() {
        return;
    }
    page.section(
        "Markers",
        "milliseconds since QEMU was started, on the host",
    );
    for marker in markers {
        page.line(format!(
            "  {:>10}  {:#04x} {FAINT}{}{FAINT:#}",
            milliseconds(marker.wall_ns),
            marker.code,
            marker.name.unwrap_or_default(),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstlight_lab::record::{Bench, Power};

    #[test]
    fn a_bench_on_emulated_time_is_no_measure_and_says_so() {
        let page = |clock, accelerator: &'static str| {
            let mut record = Record::new("boot", clock);
            record.bench.push(Bench {
                contestant: "firstlight".into(),
                workload: "pair".into(),
                order: 0,
                threads: 1,
                operations: 10,
                duration_ns: Some(1_120),
            });
            record.host = Some(Host {
                name: "h".into(),
                console: None,
                accelerator: accelerator.into(),
                accelerator_reason: String::new(),
                qemu_version: None,
                command: Vec::new(),
                attempts: 1,
                retried_because: None,
                power: Power::default(),
                exit_status: Some(85),
                wall_ns: 1,
                first_output_ns: None,
                lines_ns: Vec::new(),
                before_clock_ns: None,
                markers: Vec::new(),
            });
            report(&record, false)
        };
        let said = "emulated time is no measure; instructions are: --clock instructions";
        let emulated = page("wall", "tcg");
        assert!(emulated.contains(said), "{emulated}");
        let real = page("wall", "kvm");
        assert!(!real.contains(said) && real.contains("112.0"), "{real}");
        let counted = page("instructions", "tcg");
        assert!(!counted.contains(said), "{counted}");
    }
}
