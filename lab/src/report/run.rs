//! What of a record is shown: [`Run`].

use std::ffi::OsStr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::compare::NoRecord;
use crate::gaps::Gap;
use crate::record::Asked;
use crate::records::Stored;

/// A phase of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Run {
    #[serde(skip)]
    pub(super) file: String,
    clock: String,
    source: Source,
    machine: Machine,
    pub(super) phases: Vec<Span>,
    pub(super) gaps: Vec<Gap>,
    pub(super) log: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Source {
    kind: String,
    name: String,
    command_line: String,
    kernel: Option<Kernel>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Kernel {
    release: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Machine {
    memory_bytes: Option<u64>,
    nodes: Option<u64>,
    cpus: Option<u64>,
    asked: Option<Asked>,
}

/// What runs of one set-up have in common, in the order in which set-ups are shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    system: String,
    words: String,
    pub(super) clock: String,
    nodes: Option<u64>,
    cpus: Option<u64>,
    pub(super) memory_bytes: Option<u64>,
}

impl Run {
    pub(super) fn of(stored: &Stored) -> Result<Self, NoRecord> {
        // The same checks as for a comparison.
        stored.told()?;
        let run = Self::deserialize(&stored.value);
        let mut run = run.map_err(|error| NoRecord::Form(error.to_string()))?;
        run.file = stored.path.display().to_string();
        Ok(run)
    }

    pub(super) fn key(&self) -> Key {
        let release = self.source.kernel.as_ref();
        let release = release.and_then(|kernel| kernel.release.clone());
        let kind = match &*self.source.kind {
            "image" => "our image",
            "linux" => "Linux",
            other => other,
        };
        let asked = self.machine.asked.as_ref();
        let of = |asked: Option<u64>, said: Option<u64>| asked.or(said);
        // A log says neither what was asked for nor, as a rule, that it is another machine.
        let alone = asked.is_none() && release.is_none();
        let file = Path::new(&self.source.name).file_name();
        let name = file.filter(|_| alone).map(OsStr::to_string_lossy);
        let name = name.unwrap_or_default();
        let release = release.unwrap_or_default();
        Key {
            system: [kind, &release, &name]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join(" "),
            words: self.source.command_line.clone(),
            clock: self.clock.clone(),
            nodes: of(asked.map(|asked| asked.nodes), self.machine.nodes),
            cpus: of(asked.map(|asked| asked.cpus), self.machine.cpus),
            memory_bytes: of(
                asked.map(|asked| asked.memory_bytes),
                self.machine.memory_bytes,
            ),
        }
    }

    pub(super) fn is_linux(&self) -> bool {
        self.source.kind == "linux"
    }

    /// To the end of its last phase, or of its longest gap where it has no phases.
    pub(super) fn total_ns(&self) -> Option<u64> {
        let start = self.phases.iter().map(|phase| phase.start_ns).min();
        let end = self.phases.iter().map(|phase| phase.end_ns).max();
        end.zip(start).map(|(end, start)| end.saturating_sub(start))
    }

    /// Names of the phases in their order, each once.
    pub(super) fn phase_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for phase in &self.phases {
            if !names.contains(&phase.name) {
                names.push(phase.name.clone());
            }
        }
        names
    }

    /// All time in phases of this name.
    pub(super) fn spent_ns(&self, name: &str) -> u64 {
        let phases = self.phases.iter().filter(|phase| phase.name == name);
        phases.map(Span::ns).fold(0, u64::saturating_add)
    }
}

impl Key {
    /// All but the memory.
    pub(super) fn family(&self) -> String {
        let mut parts = vec![self.system.clone()];
        parts.extend(self.nodes.map(|nodes| plural(nodes, "node")));
        parts.extend(self.cpus.map(|cpus| plural(cpus, "CPU")));
        if !self.words.is_empty() {
            parts.push(self.words.chars().take(60).collect());
        }
        parts.join(", ")
    }

    pub(super) fn name(&self) -> String {
        let memory = self.memory_bytes.map(|bytes| memory(bytes) + ", ");
        format!("{}{}", memory.unwrap_or_default(), self.family())
    }
}

/// Memory of a machine; what firmware keeps of it does not count.
pub(crate) fn memory(bytes: u64) -> String {
    let gib = bytes.saturating_add(512 << 20) >> 30;
    if bytes.abs_diff(gib << 30) <= bytes / 100 {
        format!("{gib} GiB")
    } else {
        format!("{} MiB", bytes >> 20)
    }
}

/// `1 node`, `2 nodes`.
pub(crate) fn plural(count: u64, word: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {word}{s}")
}
