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

pub use firstlight_wire::{MARK, Outcome};

/// One thing the image says.
pub type Event = firstlight_wire::Event<String, Vec<u8>>;

/// Most bytes of one event.
pub const MOST_EVENT_BYTES: usize = 64 << 10;
/// Most events of a boot.
pub const MOST_EVENTS: usize = 200_000;
/// As much of a line as is quoted.
const QUOTED_CHARS: usize = 80;

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
            Event::Balloon(balloon) => balloon.failures,
            Event::Hotplug(hotplug) => hotplug.failures,
            Event::Zeroed(zeroed) => zeroed.failures,
            Event::Restart(restart) => restart.failures,
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

/// `value` with texts that may be shown on a terminal.
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
