//! The steps of the demo, and the logs that they show.

use super::browser;
use super::step::Step;
use crate::boot::Boots;
use crate::doctor;
use crate::text::{self, bytes, count, microseconds, milliseconds, plural};
use firstlight_host::clock::Clock;
use firstlight_lab::boot::{self, BootError, Machine, Request};
use firstlight_lab::boot_log;
use firstlight_lab::doctor::Beside;
use firstlight_lab::export::{self, Format};
use firstlight_lab::record::Record;
use firstlight_lab::records;
use firstlight_lab::report::Report;
use firstlight_lab::up;
use std::fs;
use std::path::{Path, PathBuf};

/// A log that is part of the program.
pub(super) struct Log {
    /// Its file's name.
    pub(super) name: &'static str,
    /// What is in it.
    pub(super) text: &'static [u8],
}

/// A Linux of 16 GiB on the instruction clock; then one kernel on 4 GiB and on 256 GiB.
pub(super) const LOGS: [Log; 3] = [
    Log {
        name: "linux-6.12-16g.log",
        text: include_bytes!("../../logs/linux-6.12-16g.log"),
    },
    Log {
        name: "linux-6.1-4g.log",
        text: include_bytes!("../../logs/A_6.1_4G_n1_c4.log"),
    },
    Log {
        name: "linux-6.1-256g.log",
        text: include_bytes!("../../logs/A_6.1_256G_n1_c4.log"),
    },
];

/// Losses that are shown.
const MOST_LOSSES: usize = 4;

/// This machine's memory map.
pub(super) fn this_machine(clock: Clock) -> Step {
    let mut step = Step {
        name: "This machine's memory map, brought up in a process",
        lines: Vec::new(),
        left_out: None,
        commands: vec!["firstlight up".into()],
    };
    match up::this_machine().and_then(|described| up::bring_up(described, clock)) {
        Ok(record) => step.lines = summary(&record),
        Err(error) => step.left_out = Some(error.to_string()),
    }
    step
}

fn summary(record: &Record) -> Vec<String> {
    let (machine, milestones) = (&record.machine, &record.milestones);
    let mut lines = vec![format!(
        "{}, {}, {}",
        machine.memory_bytes.map_or("memory".into(), bytes),
        plural(machine.nodes.unwrap_or(0), "node"),
        plural(machine.cpus.unwrap_or(0), "CPU"),
    )];
    if let (Some(layout), Some(all)) = (milestones.layout_ns, milestones.all_allocatable_ns) {
        let took = microseconds(all.saturating_sub(layout));
        lines.push(format!("all memory allocatable {took} µs after the layout"));
    }
    if let Some(written) = record.memory.metadata_written_bytes {
        lines.push(format!("{} of tables written until then", bytes(written)));
    }
    lines
}

/// Our image in a virtual machine, beside the log of a Linux in one that is alike.
///
/// # Errors
/// It was stopped.
pub(super) fn beside_linux(boots: &Boots, folder: Option<&Path>) -> Result<Step, BootError> {
    const GIB: u64 = 16;
    let [log, ..] = &LOGS;
    let mut step = Step {
        name: "A virtual machine of 16 GiB beside a Linux's log",
        lines: vec!["instructions until all memory is allocatable".into()],
        left_out: None,
        commands: vec![format!(
            "firstlight boot --memory {GIB}G --clock instructions"
        )],
    };
    let mut rows = Vec::new();
    let request = Request {
        machine: Machine {
            memory_mib: GIB << 10,
            clock: boot::Clock::Instructions,
            ..Machine::default()
        },
        ..Request::default()
    };
    match boots.boot(&request) {
        Ok(record) => {
            let milestones = &record.milestones;
            let took = milestones.all_allocatable_ns.zip(milestones.entry_ns);
            let took = took.map(|(all, entry)| all.saturating_sub(entry));
            rows.push(vec!["our image".into(), took.map_or("-".into(), count)]);
            if let Some(folder) = folder {
                keep(&mut step, &folder.join("image-16g.json"), &record);
            }
        }
        Err(stopped @ BootError::Interrupted(_)) => return Err(stopped),
        Err(error) => step.left_out = Some(error.to_string()),
    }
    for record in boot_log::records(log.name, log.text) {
        let all = record.milestones.all_allocatable_ns;
        rows.push(vec![
            "Linux 6.12, its log".into(),
            all.map_or("-".into(), count),
        ]);
    }
    step.lines.extend(text::table("<>", &rows));
    step.lines
        .push("Linux becomes a whole kernel in that time.".into());
    if let Some(folder) = folder {
        let log = shown(&folder.join(log.name));
        step.commands
            .push(format!("firstlight doctor --record {log}"));
    }
    Ok(step)
}

/// Writes the record, for the page.
fn keep(step: &mut Step, path: &Path, record: &Record) {
    let text = serde_json::to_vec_pretty(record);
    let written = text
        .map_err(std::io::Error::from)
        .and_then(|text| fs::write(path, text));
    if let Err(error) = written {
        step.left_out = Some(format!("cannot write {}: {error}", path.display()));
    }
}

/// Two boots of a kernel: which is slower, and in what.
pub(super) fn two_logs(folder: Option<&Path>) -> Step {
    let [_, a, b] = &LOGS;
    let report = doctor::two([a, b].map(|log| (Path::new(log.name), Ok(log.text.to_vec()))));
    let mut step = Step {
        name: "Two boots of one kernel: what takes longer, and why",
        lines: Vec::new(),
        left_out: None,
        commands: Vec::new(),
    };
    match &report.beside {
        Some(beside) => step.lines = losses(beside),
        None => step.left_out = Some("the logs cannot stand beside each other".into()),
    }
    if let Some(folder) = folder {
        let names = [a, b].map(|log| shown(&folder.join(log.name)));
        step.commands
            .push(format!("firstlight doctor {}", names.join(" ")));
    }
    step
}

fn losses(beside: &Beside) -> Vec<String> {
    let mut rows = vec![text::head(["milliseconds", "4 GiB", "256 GiB"])];
    let ms = |ns: Option<u64>| ns.map_or("-".into(), milliseconds);
    let [a, b] = beside.total_ns;
    rows.push(vec!["the boot".into(), ms(a), ms(b)]);
    let phases = beside
        .slower
        .iter()
        .filter(|loss| loss.kind.name() == "phase");
    for loss in phases.take(MOST_LOSSES) {
        rows.push(vec![loss.name.clone(), ms(loss.a_ns), ms(Some(loss.b_ns))]);
    }
    text::table("<>", &rows)
}

/// All of it as a page; it is opened where that is wished and somebody sees it.
pub(super) fn page(folder: Result<&Path, String>, opens: bool) -> Step {
    let mut step = Step {
        name: "All of it as a page",
        lines: Vec::new(),
        left_out: None,
        commands: Vec::new(),
    };
    match folder.and_then(|folder| Ok((folder, write(folder)?))) {
        Ok((folder, page)) => {
            step.lines.push(page.display().to_string());
            if opens && browser::open(&page) {
                step.lines.push("opened in the browser".into());
            }
            let (folder, page) = (shown(folder), shown(&page));
            step.commands
                .push(format!("firstlight report {folder} -o {page}"));
        }
        Err(why) => step.left_out = Some(why),
    }
    step
}

fn write(folder: &Path) -> Result<PathBuf, String> {
    let found = records::read(folder).map_err(|error| error.to_string())?;
    let mut report = Report::of(found, Vec::new());
    report.title = "firstlight demo".into();
    report.folder = Some(folder.to_owned());
    let text = export::report(&report, Format::Html).map_err(|error| error.to_string())?;
    let page = folder.join("report.html");
    let written = fs::write(&page, text);
    written.map_err(|error| format!("cannot write {}: {error}", page.display()))?;
    Ok(page)
}

/// A path as a shell takes it.
fn shown(path: &Path) -> String {
    boot::shell_words(&[path.display().to_string()])
}
