//! A run record as it is read, whatever wrote it: [`Run`]. Records of runs just made and of
//! files take the same way, through JSON.
//!
//! | file | concept |
//! |---|---|
//! | `setup` | which runs are of one set-up, [`Setup`] |
//!
//! Records of a Linux on the wall clock that an older version wrote are timed again by the
//! host's clock, from their own log.

mod setup;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use firstlight_wire::phase::FIRMWARE;

use crate::boot_log;
use crate::gaps;
use crate::log::{self, End, Line};
use crate::record::{
    self, Asked, DeferredWork, Descriptors, From, Gap, Milestones, Record, Step, Swept, TimeBase,
    Word,
};
pub(crate) use setup::unlike;
pub use setup::{Machine, Setup, memory};

/// What is read of a run record.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Run {
    schema: String,
    kind: String,
    /// Which clock the times are from.
    pub clock: String,
    /// The file it is from, where it is from one.
    #[serde(skip)]
    pub file: String,
    pub(crate) source: Source,
    pub(crate) machine: Size,
    pub(crate) milestones: BTreeMap<String, Option<u64>>,
    pub(crate) phases: Vec<Span>,
    #[serde(default)]
    pub(crate) time_base: Option<TimeBase>,
    #[serde(default)]
    pub(crate) gaps: Vec<Gap>,
    #[serde(default)]
    pub(crate) initcalls: Vec<Step>,
    #[serde(default)]
    pub(crate) services: Vec<Step>,
    #[serde(default)]
    pub(crate) memory: Memory,
    #[serde(default)]
    pub(crate) descriptors: Option<Descriptors>,
    #[serde(default)]
    pub(crate) deferred_work: Option<DeferredWork>,
    #[serde(default)]
    pub(crate) sweep: Vec<Swept>,
    #[serde(default)]
    nodes: Vec<Node>,
    #[serde(default)]
    pub(crate) log: Vec<String>,
    #[serde(default)]
    pub(crate) host: Option<Host>,
    #[serde(default)]
    history: History,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Source {
    pub(crate) kind: Word,
    #[serde(default)]
    name: String,
    #[serde(default)]
    pub(crate) command_line: String,
    /// The cell of the matrix that made it.
    #[serde(default)]
    cell: Option<String>,
    #[serde(default)]
    kernel: Option<Kernel>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Kernel {
    #[serde(default)]
    release: Option<String>,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    initrd: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Size {
    #[serde(default)]
    memory_bytes: Option<u64>,
    #[serde(default)]
    nodes: Option<u64>,
    #[serde(default)]
    cpus: Option<u64>,
    #[serde(default)]
    pub(crate) asked: Option<Asked>,
}

/// A phase of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Span {
    /// Its name.
    pub name: String,
    /// When it began.
    pub start_ns: u64,
    /// When it had ended.
    pub end_ns: u64,
}

impl Span {
    /// How long it took.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Memory {
    #[serde(default)]
    pub(crate) present_frames: Option<u64>,
}

/// Its place in a history.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct History {
    #[serde(default)]
    label: Option<String>,
    #[serde(default)]
    unix_seconds: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Host {
    pub(crate) accelerator: String,
    #[serde(default)]
    console: Option<String>,
    #[serde(default)]
    lines_ns: Vec<u64>,
    #[serde(default)]
    attempts: u64,
    #[serde(default)]
    retried_because: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Node {
    #[serde(default)]
    present_frames: u64,
}

/// What a record is.
const WANTED: &str = "expected what `firstlight boot --json` prints, or a kernel log";

/// Why something is no record of a boot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRecord {
    /// It is no JSON.
    #[error("it is no JSON ({0}); {WANTED}")]
    NoJson(String),
    /// A field is missing, or is not what it should be.
    #[error("it is no record of a run ({0}); {WANTED}")]
    Form(String),
    /// A record of something else.
    #[error("its schema is {schema:?} and its kind {kind:?}; {WANTED}")]
    Other {
        /// Its schema.
        schema: String,
        /// Its kind.
        kind: String,
    },
}

/// Whether a file's content is JSON, and not a log in JSON.
#[must_use]
pub fn is_record(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"{") && !crate::log::is_json(bytes)
}

impl Run {
    /// Reads a file's content.
    ///
    /// # Errors
    /// [`NoRecord`].
    pub fn read(bytes: &[u8]) -> Result<Self, NoRecord> {
        let value = serde_json::from_slice(bytes)
            .map_err(|error: serde_json::Error| NoRecord::NoJson(error.to_string()))?;
        Self::of(value)
    }

    /// Reads a file's content: a record, or a kernel log, whose first boot counts.
    ///
    /// # Errors
    /// [`NoRecord`].
    pub fn of_file(name: &str, bytes: &[u8]) -> Result<Self, NoRecord> {
        if is_record(bytes) {
            return Self::read(bytes);
        }
        let boots = boot_log::records(name, bytes);
        let record = boots.first().filter(|record| record.has_times());
        let none = || NoRecord::NoJson("and no kernel log with times either".into());
        let mut run = Self::of_record(record.ok_or_else(none)?)?;
        name.clone_into(&mut run.file);
        Ok(run)
    }

    /// The run of a record that was just made.
    ///
    /// # Errors
    /// [`NoRecord`].
    pub fn of_record(record: &Record) -> Result<Self, NoRecord> {
        let value = serde_json::to_value(record);
        Self::of(value.map_err(|error| NoRecord::NoJson(error.to_string()))?)
    }

    pub(crate) fn of(value: Value) -> Result<Self, NoRecord> {
        let mut run =
            Self::deserialize(value).map_err(|error| NoRecord::Form(error.to_string()))?;
        if run.schema != record::SCHEMA || !["boot", "log"].contains(&&*run.kind) {
            return Err(NoRecord::Other {
                schema: run.schema,
                kind: run.kind,
            });
        }
        run.time_again();
        if run.may_be_cut() {
            let end = End::common(&[&run.lines()]);
            run = end.and_then(|end| run.ended(end)).unwrap_or(run);
        }
        Ok(run)
    }

    /// Times of an older version's record of a Linux, from its log.
    fn time_again(&mut self) {
        if self.time_base.is_some() || !self.is_linux() {
            return;
        }
        let mut again = Record::new("log", "wall");
        again.time_base.from = From::Clock;
        let text = self.log.join("\n");
        match log::boots(text.as_bytes()).first() {
            Some(boot) if self.is_heard() => {
                boot_log::tell_heard(&log::heard(&boot.lines, self.lines_ns()), &mut again);
                boot_log::tell_steps(&boot.lines, &mut again);
            }
            Some(boot) => boot_log::tell_boot(boot, &mut again),
            None => {}
        }
        if !again.phases.is_empty() {
            self.phases = again.phases.iter().map(Span::of).collect();
            self.milestones = map_of(&again.milestones);
        }
        self.initcalls = again.initcalls;
        self.services = again.services;
        self.time_base = Some(again.time_base);
    }

    /// Whether the host's clock says when each line came.
    fn is_heard(&self) -> bool {
        let lines = self.lines_ns().len();
        self.kind == "boot" && self.clock == "wall" && lines > 0 && lines == self.log.len()
    }

    fn lines_ns(&self) -> &[u64] {
        self.host.as_ref().map_or(&[], |host| &host.lines_ns)
    }

    /// Whether there is a log and nothing else.
    pub(crate) fn is_log(&self) -> bool {
        self.kind == "log"
    }

    /// Whether it is known by its lines alone: they may end before the boot does, or go on after it.
    pub(crate) fn may_be_cut(&self) -> bool {
        self.is_log()
            || self
                .host
                .as_ref()
                .is_some_and(|host| host.console.is_some())
    }

    /// The boot of a log up to this end; `None` where it does not show that.
    pub(crate) fn ended(&self, end: End) -> Option<Self> {
        let lines = self.lines();
        let at = end.at(&lines)?;
        if lines
            .iter()
            .skip(at + 1)
            .all(|line| line.stamp_ns.is_none())
        {
            return Some(self.clone());
        }
        self.until(lines.get(at)?.number)
    }

    /// The boot of a log up to line `number`; `None` where that has no times.
    pub(crate) fn until(&self, number: usize) -> Option<Self> {
        let log = self.log.get(..number)?;
        if self.time_base().from == From::HostClock {
            return Some(self.heard_until(log));
        }
        let boots = boot_log::records(&self.source.name, log.join("\n").as_bytes());
        let boot = Self::of_record(boots.first().filter(|boot| boot.has_times())?).ok()?;
        Some(Self {
            phases: boot.phases,
            milestones: boot.milestones,
            time_base: boot.time_base,
            gaps: boot.gaps,
            initcalls: boot.initcalls,
            services: boot.services,
            log: log.to_vec(),
            ..self.clone()
        })
    }

    /// A real machine's boot up to the end of `log`, the start of its own.
    fn heard_until(&self, log: &[String]) -> Self {
        let mut run = self.clone();
        run.log = log.to_vec();
        if let Some(host) = &mut run.host {
            host.lines_ns.truncate(log.len());
        }
        let lines = run.lines();
        let mut again = Record::new("boot", "wall");
        boot_log::tell_console(&lines, !self.is_unclocked(FIRMWARE), &mut again);
        run.phases = again.phases.iter().map(Span::of).collect();
        run.milestones = map_of(&again.milestones);
        run.gaps = gaps::longest(&lines, &again.phases);
        run.initcalls.retain(|step| step.line <= log.len());
        run.services.retain(|step| step.line <= log.len());
        run.time_base = Some(again.time_base);
        run
    }

    /// Whether a phase of this name began before the clock.
    pub(crate) fn is_unclocked(&self, name: &str) -> bool {
        let mut unclocked = self.time_base.iter().flat_map(|base| &base.unclocked);
        unclocked.any(|phase| phase == name)
    }

    /// The messages of the log, with the times that the phases are made of.
    pub(crate) fn lines(&self) -> Vec<Line<'static>> {
        let text = self.log.join("\n");
        let lines = log::lines(text.as_bytes()).into_iter();
        let lines: Vec<Line<'static>> = lines.map(Line::into_owned).collect();
        match self.time_base().from {
            From::PowerOn | From::HostClock if self.is_linux() && self.is_heard() => {
                log::heard(&lines, self.lines_ns())
            }
            _ => lines,
        }
    }

    /// What its times count from.
    pub(crate) fn time_base(&self) -> TimeBase {
        self.time_base.clone().unwrap_or_default()
    }

    pub(crate) fn is_linux(&self) -> bool {
        self.source.kind == "linux"
    }

    /// What the kernel calls itself.
    pub(crate) fn release(&self) -> Option<&str> {
        self.source.kernel.as_ref()?.release.as_deref()
    }

    /// How many attempts a boot took that was made again, and why.
    pub(crate) fn repeated(&self) -> Option<(u64, &str)> {
        let host = self.host.as_ref().filter(|host| host.attempts > 1)?;
        let why = host.retried_because.as_deref().unwrap_or_default();
        Some((host.attempts, why))
    }

    /// CPUs that run.
    pub(crate) fn cpus(&self) -> Option<u64> {
        self.machine.cpus
    }

    pub(crate) fn nodes_with_memory(&self) -> u64 {
        let nodes = self.nodes.iter().filter(|node| node.present_frames > 0);
        nodes.count() as u64
    }

    /// To the end of the kernel's part.
    #[expect(clippy::cast_precision_loss, reason = "figures to print")]
    pub(crate) fn kernel_ms(&self) -> Option<f64> {
        let phases = self.phases.iter();
        let own =
            phases.filter(|phase| !["initrd", "services", "shutdown"].contains(&&*phase.name));
        let end_ns = own.map(|phase| phase.end_ns).max()?;
        Some(end_ns.checked_sub(self.entry_ns().unwrap_or(0))? as f64 / 1e6)
    }

    /// The whole boot: from power-on, from a real machine's kernel's entry, or from where a kernel's clock begins, to the end of the
    /// last phase. The figure of every command that says how long a boot took.
    pub(crate) fn total_ns(&self) -> Option<u64> {
        let end = self.phases.iter().map(|phase| phase.end_ns).max()?;
        let start = match self.time_base().from {
            From::PowerOn => 0,
            From::HostClock => self.entry_ns()?,
            From::Clock => self.phases.iter().map(|phase| phase.start_ns).min()?,
        };
        end.checked_sub(start).filter(|ns| *ns > 0)
    }

    /// When the kernel began.
    pub(crate) fn entry_ns(&self) -> Option<u64> {
        self.milestones.get("entry_ns").copied().flatten()
    }

    /// What it is called in a history, else the name of its file, and when it was added.
    pub(crate) fn history(&self) -> (String, Option<u64>) {
        let file = Path::new(&self.file).file_stem();
        let file = || file.map(|name| name.to_string_lossy().into_owned());
        let label = self.history.label.clone().or_else(file);
        (label.unwrap_or_default(), self.history.unix_seconds)
    }

    /// Names of the phases in their order, each once.
    pub(crate) fn phase_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for phase in &self.phases {
            if !names.contains(&&*phase.name) {
                names.push(&phase.name);
            }
        }
        names
    }

    /// All time in phases of this name: 0 if there are none, `None` if one began before the
    /// clock.
    pub(crate) fn spent_ns(&self, name: &str) -> Option<u64> {
        if self.is_unclocked(name) {
            return None;
        }
        let phases = self.phases.iter().filter(|phase| phase.name == name);
        Some(phases.map(Span::ns).fold(0, u64::saturating_add))
    }
}

impl Span {
    fn of(phase: &record::Phase) -> Self {
        Self {
            name: phase.name.to_string(),
            start_ns: phase.start_ns,
            end_ns: phase.end_ns,
        }
    }
}

/// Milestones by their names.
fn map_of(milestones: &Milestones) -> BTreeMap<String, Option<u64>> {
    let value = serde_json::to_value(milestones);
    value.and_then(serde_json::from_value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_just_made_is_read() {
        let mut record = Record::new("boot", "wall");
        record.milestones.layout_ns = Some(7);
        let run = Run::of_record(&record).unwrap();
        assert_eq!(run.milestones["layout_ns"], Some(7));
        assert_eq!(run.milestones["entry_ns"], None);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let mut up = serde_json::to_value(Record::new("up", "wall")).unwrap();
        let refused = |bytes: &[u8]| Run::read(bytes).unwrap_err().to_string();
        for (text, part) in [
            ("", "no JSON"),
            ("[]", "no record of a run"),
            (&up.to_string(), "kind \"up\""),
        ] {
            let why = refused(text.as_bytes());
            assert!(why.contains(part) && why.contains("boot --json"), "{why}");
        }
        up["phases"] = serde_json::json!([{"name": "x", "start_ns": -1, "end_ns": 1}]);
        let why = refused(up.to_string().as_bytes());
        assert!(why.contains("-1"), "{why}");
    }
}
