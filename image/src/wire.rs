//! What the image tells its host: [`Event`], one JSON object a line.
//!
//! Ticks are those of the counter that starts with the machine; the host
//! converts them with the frequency of the `clock` event. Frames are 4 KiB,
//! ranges half open.

use serde::Serialize;

/// Name and version of the events' form, in the first one.
pub const SCHEMA: &str = "firstlight.events/1";
/// What precedes an event on a port that also carries the log.
pub const MARK: &str = "@firstlight ";
/// Room for one event.
pub const EVENT_BYTES: usize = 4096;

/// One line.
///
/// ```
/// use firstlight_image::wire::{Event, line, EVENT_BYTES};
/// let event = Event::Milestone { name: "layout", ticks: 12 };
/// let mut buffer = [0; EVENT_BYTES];
/// let text = line(&event, &mut buffer).unwrap();
/// assert_eq!(text, b"{\"event\":\"milestone\",\"name\":\"layout\",\"ticks\":12}\n");
/// ```
#[derive(Serialize, Clone, Copy, Debug)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the fields are those of the run record, documented there"
)]
pub enum Event<'a> {
    /// The first one.
    Start {
        schema: &'a str,
        version: &'a str,
        command_line: &'a str,
    },
    /// How fast the ticks come, and who said so.
    Clock { hz: u64, source: &'a str },
    /// A step of the way up.
    Phase {
        name: &'a str,
        start_ticks: u64,
        end_ticks: u64,
    },
    /// A moment on the way up.
    Milestone { name: &'a str, ticks: u64 },
    /// The machine.
    Machine {
        memory_bytes: u64,
        nodes: u64,
        cpus: u64,
        cpus_started: u64,
    },
    /// A region of the memory map.
    Region {
        start: u64,
        end: u64,
        kind: &'a str,
        more_reliable: bool,
        special_purpose: bool,
    },
    /// A node, and its distances to all nodes in ascending order.
    Node {
        node: u16,
        domain: u32,
        cpus: u64,
        start_frame: u64,
        end_frame: u64,
        present_frames: u64,
        distances: &'a [u8],
    },
    /// A zone.
    Zone {
        node: u16,
        zone: &'a str,
        start_frame: u64,
        spanned_frames: u64,
        present_frames: u64,
    },
    /// What the allocator manages and costs.
    Memory {
        present_frames: u64,
        managed_frames: u64,
        reserved_frames: u64,
        metadata_written_bytes: u64,
        metadata_reserved_bytes: u64,
    },
    /// Something firmware said wrongly, and what was made of it.
    Correction { text: &'a str },
    /// Something the reader should know.
    Note { text: &'a str },
    /// What the self-test did.
    Selftest {
        cpus: u64,
        allocated_blocks: u64,
        freed_blocks: u64,
        all_frames: u64,
        failures: u64,
    },
    /// One measurement of a bench.
    Bench {
        contestant: &'a str,
        workload: &'a str,
        order: u8,
        threads: u64,
        operations: u64,
        ticks: u64,
    },
    /// How far descriptors are, and whether those that are ready hold what they should.
    Descriptors {
        mode: &'a str,
        writer: &'a str,
        descriptor_bytes: u64,
        sections: u64,
        ready_sections: u64,
        touched_sections: u64,
        worked_sections: u64,
        written_bytes: u64,
        reserved_bytes: u64,
        checked_frames: u64,
        wrong_frames: u64,
    },
    /// What became of memory that had to be accepted.
    Acceptance {
        total_frames: u64,
        online_frames: u64,
        refused_frames: u64,
        lazy_frames: u64,
        ticks: u64,
        failures: u64,
    },
    /// One writing of descriptors: of one node, or of all at once.
    Sweep {
        node: Option<u16>,
        part: &'a str,
        chunking: &'a str,
        descriptor_bytes: u64,
        threads: u64,
        cpus: u64,
        pages: u64,
        bytes_written: u64,
        ticks: u64,
    },
    /// The last one.
    End { outcome: &'a str },
}

/// The event as a line in `buffer`; `None` if it does not fit.
pub fn line<'b>(event: &Event<'_>, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let len = serde_json_core::to_slice(event, buffer).ok()?;
    *buffer.get_mut(len)? = b'\n';
    buffer.get(..=len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_events_fit() {
        let mut buffer = [0; EVENT_BYTES];
        let distances = [255; 512];
        let node = Event::Node {
            node: u16::MAX,
            domain: u32::MAX,
            cpus: u64::MAX,
            start_frame: u64::MAX,
            end_frame: u64::MAX,
            present_frames: u64::MAX,
            distances: &distances,
        };
        assert!(line(&node, &mut buffer).is_some());
        let text = core::str::from_utf8(&[b'\n'; 1500]).map(|text| Event::Note { text });
        assert!(line(&text.unwrap(), &mut buffer).is_some());
        assert!(line(&node, &mut buffer[..100]).is_none());
    }

    #[test]
    fn quotes_and_control_characters_are_escaped() {
        let mut buffer = [0; 256];
        let told = line(
            &Event::Note {
                text: "a \"b\" \\ \u{1}\n",
            },
            &mut buffer,
        )
        .unwrap();
        assert_eq!(
            told,
            b"{\"event\":\"note\",\"text\":\"a \\\"b\\\" \\\\ \\u0001\\n\"}\n"
        );
    }
}
