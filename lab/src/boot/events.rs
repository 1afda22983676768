//! What our image says: JSON, one [`Event`] a line, schema `firstlight.events/1`.
//!
//! Lines come on a port of their own, or on the log's, each behind [`MARK`]. The
//! reader trusts nothing: lines and their number are bounded, a line that is no
//! event is [`Rubbish`] and not skipped, an event nobody here knows is kept as it
//! came.

use std::fmt;

use firstlight::addr::{PAGE_BYTES, PHYS_END};
use serde::Deserialize;
use serde_json::Value;

use crate::log::clean_text;
use crate::record::{Descriptors, Selftest};

/// Stands before an event on a port that is not its own.
pub const MARK: &str = "@firstlight ";
/// Most bytes of one event.
pub const MOST_EVENT_BYTES: usize = 64 << 10;
/// Most events of a boot.
pub const MOST_EVENTS: usize = 200_000;
/// As much of a line as is quoted.
const QUOTED_CHARS: usize = 80;

/// One thing the image says. `ticks` count from the start of the virtual machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The first.
    Start {
        /// Form of the events.
        schema: String,
        /// Version of the image.
        version: String,
        /// Its command line.
        command_line: String,
    },
    /// How fast ticks are.
    Clock {
        /// A second.
        hz: u64,
        /// How that is known.
        source: String,
    },
    /// A step.
    Phase {
        /// What was done.
        name: String,
        /// When it began.
        start_ticks: u64,
        /// When it had ended.
        end_ticks: u64,
    },
    /// Something is ready.
    Milestone {
        /// `entry`, `layout`, `first_frame`, `all_allocatable` or `cpus_started`.
        name: String,
        /// Since when.
        ticks: u64,
    },
    /// The size of the machine.
    Machine {
        /// Memory that can be handed out.
        memory_bytes: u64,
        /// Nodes.
        nodes: u64,
        /// CPUs that firmware names.
        cpus: u64,
        /// CPUs that run.
        cpus_started: u64,
    },
    /// A row of the memory map.
    Region {
        /// First byte.
        start: u64,
        /// First byte after it.
        end: u64,
        /// What it is.
        kind: String,
        /// Mirrored.
        #[serde(default)]
        more_reliable: bool,
        /// Set aside for a driver.
        #[serde(default)]
        special_purpose: bool,
    },
    /// A node.
    Node {
        /// Its number.
        node: u16,
        /// Firmware's number for it.
        domain: u32,
        /// Its CPUs.
        cpus: u64,
        /// First frame it spans.
        start_frame: u64,
        /// First frame after it.
        end_frame: u64,
        /// Frames of memory.
        present_frames: u64,
        /// To each node.
        #[serde(default)]
        distances: Vec<u8>,
    },
    /// A zone.
    Zone {
        /// Its node.
        node: u16,
        /// Its name.
        zone: String,
        /// First frame it spans.
        start_frame: u64,
        /// Frames it spans.
        spanned_frames: u64,
        /// Frames of memory.
        present_frames: u64,
    },
    /// Frames and what they cost.
    Memory {
        /// Frames of memory.
        present_frames: u64,
        /// Frames that can be handed out.
        managed_frames: u64,
        /// Frames that cannot.
        reserved_frames: u64,
        /// Metadata written when all could be handed out.
        metadata_written_bytes: u64,
        /// Room for metadata.
        metadata_reserved_bytes: u64,
    },
    /// What firmware said wrongly.
    Correction {
        /// In words.
        text: String,
    },
    /// What a person should know.
    Note {
        /// In words.
        text: String,
    },
    /// What the check of the allocator came to.
    Selftest(Selftest),
    /// What was measured.
    Bench {
        /// The allocator; older images measure their own alone and do not say.
        #[serde(default)]
        contestant: Option<String>,
        /// Name of the workload.
        workload: String,
        /// Order of its blocks.
        order: u8,
        /// CPUs at the same time.
        threads: u64,
        /// Operations in all.
        operations: u64,
        /// How long they took.
        ticks: u64,
    },
    /// How far descriptors are.
    Descriptors(Descriptors),
    /// One writing of descriptors.
    Sweep {
        /// The node; `None`: all at once.
        #[serde(default)]
        node: Option<u16>,
        /// `deferred` or `whole`.
        part: String,
        /// How the work was cut.
        chunking: String,
        /// Bytes of a descriptor.
        descriptor_bytes: u64,
        /// Threads a node.
        threads: u64,
        /// CPUs there.
        cpus: u64,
        /// Frames described.
        pages: u64,
        /// Bytes of descriptors.
        bytes_written: u64,
        /// How long it took.
        ticks: u64,
    },
    /// The last.
    End {
        /// How it went.
        outcome: Outcome,
    },
    /// An event of a later image.
    #[serde(other)]
    Unknown,
}

/// How a boot of our image went, in its own words and as QEMU's exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All well.
    Ok,
    /// A check of the allocator failed.
    #[serde(rename = "check failed")]
    CheckFailed,
    /// A processor fault.
    Fault,
    /// The image gave up.
    Panic,
    /// The machine cannot be brought up.
    Machine,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Ok,
        Self::CheckFailed,
        Self::Fault,
        Self::Panic,
        Self::Machine,
    ];

    /// The status QEMU exits with: twice what the image wrote, plus one.
    #[must_use]
    pub const fn exit_status(self) -> i32 {
        let written = match self {
            Self::Ok => 0x2a,
            Self::CheckFailed => 0x2b,
            Self::Fault => 0x2c,
            Self::Panic => 0x2d,
            Self::Machine => 0x2e,
        };
        2 * written + 1
    }

    /// What an exit status says.
    #[must_use]
    pub fn of_exit_status(status: i32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.exit_status() == status)
    }

    /// Its name in events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::CheckFailed => "check failed",
            Self::Fault => "fault",
            Self::Panic => "panic",
            Self::Machine => "machine",
        }
    }
}

/// A line that is no event, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rubbish {
    /// Line number on its port, from 1.
    pub line: usize,
    /// Why it is none.
    pub why: String,
    /// Its beginning, without control characters.
    pub text: String,
}

impl fmt::Display for Rubbish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} {}: {:?}", self.line, self.why, self.text)
    }
}

/// All events of a boot, as they came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Events {
    /// Understood.
    pub list: Vec<Event>,
    /// As they were told, those nobody here knows among them.
    pub raw: Vec<Value>,
    /// The first line that is no event.
    pub rubbish: Option<Rubbish>,
}

impl Events {
    /// Reads what came on the port for events, and the marked lines of the log.
    ///
    /// ```
    /// use firstlight_lab::boot::events::{Event, Events, Outcome};
    /// let events = Events::read(b"{\"event\":\"end\",\"outcome\":\"ok\"}\n", b"[ 0.1] hello\n");
    /// assert_eq!(events.list, [Event::End { outcome: Outcome::Ok }]);
    /// let events = Events::read(b"", b"text @firstlight {\"event\":\"new\"}\n");
    /// assert_eq!((events.list.len(), events.rubbish), (1, None));
    /// ```
    #[must_use]
    pub fn read(port: &[u8], log: &[u8]) -> Self {
        let mut events = Self::default();
        for (number, line) in (1..).zip(port.split(|byte| *byte == b'\n')) {
            events.line(number, line);
        }
        for (number, line) in (1..).zip(log.split(|byte| *byte == b'\n')) {
            let mark = MARK.as_bytes();
            if let Some(at) = line.windows(mark.len()).position(|part| part == mark) {
                events.line(number, line.get(at + mark.len()..).unwrap_or_default());
            }
        }
        events
    }

    /// The outcome, if the image told one.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        match self.list.last() {
            // Nothing comes after it.
            Some(Event::End { outcome }) => Some(*outcome),
            _ => None,
        }
    }

    /// Checks that failed, as its self-tests count them.
    pub(super) fn failures(&self) -> u64 {
        let failures = self.list.iter().map(|event| match event {
            Event::Selftest(selftest) => selftest.failures,
            _ => 0,
        });
        failures.fold(0, u64::saturating_add)
    }

    fn line(&mut self, number: usize, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() || self.rubbish.is_some() {
            return;
        }
        if let Err(why) = self.event(line) {
            let start = line.get(..4 * QUOTED_CHARS).unwrap_or(line);
            self.rubbish = Some(Rubbish {
                line: number,
                why,
                text: clean_text(start).chars().take(QUOTED_CHARS).collect(),
            });
        }
    }

    fn event(&mut self, line: &[u8]) -> Result<(), String> {
        if line.len() > MOST_EVENT_BYTES {
            return Err(format!("has more than {MOST_EVENT_BYTES} bytes"));
        }
        if self.raw.len() >= MOST_EVENTS {
            return Err(format!("comes after {MOST_EVENTS} events"));
        }
        let raw: Value =
            serde_json::from_slice(line).map_err(|error| format!("is no JSON ({error})"))?;
        let event = Event::deserialize(without_control(raw.clone()))
            .map_err(|error| format!("is no event ({error})"))?;
        if !is_sane(&event) {
            return Err("has a range that ends before it starts, or where no memory is".into());
        }
        if self.outcome().is_some() {
            return Err("comes after the end".into());
        }
        self.list.push(event);
        self.raw.push(raw);
        Ok(())
    }
}

/// Ranges end where they start or behind, and frames lie below the end of physical
/// addresses.
fn is_sane(event: &Event) -> bool {
    let last = PHYS_END / PAGE_BYTES;
    match event {
        Event::Phase {
            start_ticks,
            end_ticks,
            ..
        } => start_ticks <= end_ticks,
        // The map may speak of addresses that no memory can have.
        Event::Region { start, end, .. } => start <= end,
        Event::Node {
            start_frame,
            end_frame,
            present_frames,
            ..
        } => start_frame <= end_frame && *end_frame <= last && *present_frames <= last,
        Event::Zone {
            start_frame,
            spanned_frames,
            present_frames,
            ..
        } => [start_frame, spanned_frames, present_frames]
            .into_iter()
            .all(|frames| *frames <= last),
        _ => true,
    }
}

/// The same with texts that may be shown on a terminal.
fn without_control(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(clean_text(text.as_bytes())),
        Value::Array(list) => list.into_iter().map(without_control).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, without_control(value)))
            .collect(),
        other => other,
    }
}
