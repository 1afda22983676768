//! A run record as anybody may hand it over: [`Told`]. Records of runs just made
//! and of files take the same way, through JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::boot::linux;
use crate::record::{self, Asked, DeferredWork, Descriptors, Milestones, Record, Word};

/// What is compared of a run record.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Told {
    schema: String,
    kind: String,
    /// Which clock the times are from.
    pub clock: String,
    pub(super) source: Source,
    pub(super) machine: Machine,
    pub(super) milestones: BTreeMap<String, Option<u64>>,
    pub(super) phases: Vec<Phase>,
    #[serde(default)]
    pub(super) memory: Memory,
    #[serde(default)]
    pub(super) descriptors: Option<Descriptors>,
    #[serde(default)]
    pub(super) deferred_work: Option<DeferredWork>,
    #[serde(default)]
    pub(super) log: Vec<String>,
    #[serde(default)]
    pub(super) host: Option<Host>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Source {
    pub(super) kind: Word,
    #[serde(default)]
    pub(super) command_line: String,
    #[serde(default)]
    kernel: Option<Kernel>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Kernel {
    #[serde(default)]
    release: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Machine {
    #[serde(default)]
    pub(super) asked: Option<Asked>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Phase {
    pub(super) name: String,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Memory {
    #[serde(default)]
    pub(super) present_frames: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Host {
    pub(super) accelerator: String,
}

/// Why something is no record of a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRecord {
    /// It is no JSON.
    NoJson(String),
    /// A field is missing, or is not what it should be.
    Form(String),
    /// A record of something else.
    Other {
        /// Its schema.
        schema: String,
        /// Its kind.
        kind: String,
    },
}

impl fmt::Display for NoRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = "expected what `firstlight boot --json` prints, or a kernel log";
        match self {
            Self::NoJson(why) => write!(f, "it is no JSON ({why}); {wanted}"),
            Self::Form(why) => write!(f, "it is no record of a run ({why}); {wanted}"),
            Self::Other { schema, kind } => {
                write!(
                    f,
                    "its schema is {schema:?} and its kind {kind:?}; {wanted}"
                )
            }
        }
    }
}

impl std::error::Error for NoRecord {}

impl Told {
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
        if bytes.trim_ascii_start().starts_with(b"{") {
            return Self::read(bytes);
        }
        let records = linux::records(name, bytes);
        let record = records.first().filter(|record| {
            let stamped = record.milestones != Milestones::default();
            stamped || !record.gaps.is_empty() || !record.phases.is_empty()
        });
        let none = || NoRecord::NoJson("and no kernel log with times either".into());
        Self::of_run(record.ok_or_else(none)?)
    }

    /// The same of a run just made.
    ///
    /// # Errors
    /// [`NoRecord`].
    pub fn of_run(record: &Record) -> Result<Self, NoRecord> {
        let value = serde_json::to_value(record);
        Self::of(value.map_err(|error| NoRecord::NoJson(error.to_string()))?)
    }

    pub(crate) fn of(value: Value) -> Result<Self, NoRecord> {
        let told = Self::deserialize(value).map_err(|error| NoRecord::Form(error.to_string()))?;
        if told.schema != record::SCHEMA || !["boot", "log"].contains(&&*told.kind) {
            return Err(NoRecord::Other {
                schema: told.schema,
                kind: told.kind,
            });
        }
        Ok(told)
    }

    /// The machine that was asked for.
    pub(crate) fn asked(&self) -> Option<&Asked> {
        self.machine.asked.as_ref()
    }

    /// What the kernel calls itself.
    pub(super) fn release(&self) -> Option<&str> {
        self.source.kernel.as_ref()?.release.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_just_made_is_read() {
        let mut record = Record::new("boot", "wall");
        record.milestones.layout_ns = Some(7);
        let told = Told::of_run(&record).unwrap();
        assert_eq!(told.milestones["layout_ns"], Some(7));
        assert_eq!(told.milestones["entry_ns"], None);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let mut up = serde_json::to_value(Record::new("up", "wall")).unwrap();
        let refused = |bytes: &[u8]| Told::read(bytes).unwrap_err().to_string();
        for (text, part) in [
            ("", "no JSON"),
            ("[]", "no record of a run"),
            (&up.to_string(), "kind \"up\""),
        ] {
            let told = refused(text.as_bytes());
            assert!(
                told.contains(part) && told.contains("boot --json"),
                "{told}"
            );
        }
        up["phases"] = serde_json::json!([{"name": "x", "start_ns": -1, "end_ns": 1}]);
        let told = refused(up.to_string().as_bytes());
        assert!(told.contains("-1"), "{told}");
    }
}
