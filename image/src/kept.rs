//! Events kept for firmware's variables, where there may be no serial port: [`Kept`].

use firstlight_wire::Event;
use firstlight_wire::parts::{DID_NOT_FIT, RESULT_BYTES};

use crate::json::{self, Outgoing};

/// Space that only events of a summary use, so that a long memory map does not crowd them out.
const SUMMARY_BYTES: usize = 11 << 8;

/// Space for why a run failed.
const FAILURE_BYTES: usize = 1 << 10;
/// Space for the end, and for the note about what is lost.
const END_BYTES: usize = 256;

/// The events so far, one a line, as many as firmware keeps.
#[derive(Debug)]
pub struct Kept {
    bytes: [u8; RESULT_BYTES],
    used: usize,
    lost: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether an event is of the summary: size, clock, times, results and the end.
const fn is_summary(event: &Outgoing<'_>) -> bool {
    !matches!(
        event,
        Event::Region { .. }
            | Event::Node { .. }
            | Event::Zone { .. }
            | Event::Correction { .. }
            | Event::Note { .. }
            | Event::Bench { .. }
            | Event::Sweep { .. }
    )
}

impl Kept {
    /// None yet.
    pub const fn new() -> Self {
        Self {
            bytes: [0; RESULT_BYTES],
            used: 0,
            lost: 0,
        }
    }

    /// Forgets all of them.
    pub const fn clear(&mut self) {
        (self.used, self.lost) = (0, 0);
    }

    /// Keeps `event`, whose line is `line`, if there is space; counts it if not.
    pub fn push(&mut self, event: &Outgoing<'_>, line: &[u8]) {
        let end = match event {
            Event::End { .. } => RESULT_BYTES,
            Event::Failure { .. } => RESULT_BYTES - END_BYTES,
            _ if is_summary(event) => RESULT_BYTES - END_BYTES - FAILURE_BYTES,
            _ => RESULT_BYTES - END_BYTES - FAILURE_BYTES - SUMMARY_BYTES,
        };
        if self.lost > 0 && matches!(event, Event::End { .. }) {
            let mut buffer = [0; 160];
            let mut text = [0; 80];
            let text =
                crate::record::Cut::text(&mut text, format_args!("{} {DID_NOT_FIT}", self.lost));
            if let Some(note) = json::line(&Event::Note { text }, &mut buffer) {
                self.put(note, end);
            }
        }
        if !self.put(line, end) {
            self.lost += 1;
        }
    }

    fn put(&mut self, line: &[u8], end: usize) -> bool {
        let space = self.bytes.get_mut(self.used..end).unwrap_or_default();
        let slot = space.get_mut(..line.len());
        let fits = slot.is_some();
        if let Some(slot) = slot {
            slot.copy_from_slice(line);
            self.used += line.len();
        }
        fits
    }

    /// All that was kept.
    pub fn text(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }

    /// Lines of a summary in `buffer`, as many as fit: without memory map, nodes, zones and
    /// words, which are long. `firstlight up --result` reads them like the whole.
    pub fn summary<'b>(&self, buffer: &'b mut [u8]) -> &'b [u8] {
        let lines = self.text().split_inclusive(|byte| *byte == b'\n');
        let mut is_in = [false; MOST_LINES];
        let mut left = buffer.len();
        for place in 0..PLACES {
            for (line, is_in) in lines.clone().zip(&mut is_in) {
                if self::place(line) == Some(place)
                    && let Some(rest) = left.checked_sub(line.len())
                {
                    (*is_in, left) = (true, rest);
                }
            }
        }
        let mut used = 0;
        for (line, _) in lines.zip(is_in).filter(|(_, is_in)| *is_in) {
            if let Some(slot) = buffer.get_mut(used..used + line.len()) {
                slot.copy_from_slice(line);
                used += line.len();
            }
        }
        buffer.get(..used).unwrap_or_default()
    }
}

/// More lines than are kept: none is shorter.
const MOST_LINES: usize = RESULT_BYTES / b"{\"event\":\"end\"}\n".len();

/// Places in a summary.
const PLACES: usize = 3;

/// An event's place in a summary: how the run ended and why, then sizes, milestones and results, then
/// phases, which are many. None for those it is without.
fn place(line: &[u8]) -> Option<usize> {
    const OTHERS: usize = 1;
    const BY_NAME: [(&[u8], Option<usize>); 10] = [
        (b"end", Some(0)),
        (b"failure", Some(0)),
        (b"phase", Some(2)),
        (b"region", None),
        (b"node", None),
        (b"zone", None),
        (b"correction", None),
        (b"note", None),
        (b"bench", None),
        (b"sweep", None),
    ];
    let name = line.strip_prefix(b"{\"event\":\"").unwrap_or_default();
    let is_it = |known: &[u8]| {
        name.strip_prefix(known)
            .is_some_and(|rest| rest.starts_with(b"\""))
    };
    let known = BY_NAME.into_iter().find(|(known, _)| is_it(known));
    known.map_or(Some(OTHERS), |(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstlight_wire::Outcome;
    extern crate std;
    use std::string::String;

    fn push(kept: &mut Kept, event: &Outgoing<'_>) {
        let mut buffer = [0; json::EVENT_BYTES];
        kept.push(event, json::line(event, &mut buffer).unwrap());
    }

    fn region(at: u64) -> Outgoing<'static> {
        Event::Region {
            start: at << 32,
            end: (at + 1) << 32,
            kind: "usable",
            more_reliable: false,
            special_purpose: false,
        }
    }

    const CLOCK: Outgoing<'static> = Event::Clock {
        hz: 2_000_000_000,
        source: "cpuid",
    };
    const END: Outgoing<'static> = Event::End {
        outcome: Outcome::Ok,
    };

    #[test]
    fn a_long_map_does_not_crowd_out_the_end() {
        let mut kept = Kept::new();
        (0..500).for_each(|at| push(&mut kept, &region(at)));
        (0..500).for_each(|_| push(&mut kept, &CLOCK));
        let reason = std::format!("panic at {}", "\"".repeat(440));
        push(&mut kept, &Event::Failure { text: &reason });
        push(&mut kept, &END);
        let text = String::from_utf8(kept.text().to_vec()).unwrap();
        assert!(text.contains("\"failure\",\"text\":\"panic at"), "{text}");
        assert!(text.len() <= RESULT_BYTES);
        assert!(
            text.lines()
                .all(|line| line.starts_with("{\"event\":") && line.ends_with('}'))
        );
        let count = |name: &str| text.lines().filter(|line| line.contains(name)).count();
        assert!(count("region") > 30 && count("clock") > 40, "{text}");
        let lost = 1000 - count("region") - count("clock");
        let note = std::format!("\"{lost} events did not fit");
        let last: std::vec::Vec<&str> = text.lines().rev().take(2).collect();
        assert!(
            last[0].contains("\"end\"") && last[1].contains(&note),
            "{last:?}"
        );
    }

    #[test]
    fn many_failures_do_not_crowd_out_the_end() {
        let mut kept = Kept::new();
        (0..1000).for_each(|_| push(&mut kept, &Event::Failure { text: "why" }));
        push(&mut kept, &END);
        let text = String::from_utf8(kept.text().to_vec()).unwrap();
        let mut last = text.lines().rev();
        assert!(last.next().is_some_and(|line| line.contains("\"end\"")));
        assert!(last.next().is_some_and(|line| line.contains("did not fit")));

        // After a restart nothing of the previous kernel is left, and nothing is lost.
        kept.clear();
        push(&mut kept, &END);
        assert_eq!(kept.text(), b"{\"event\":\"end\",\"outcome\":\"ok\"}\n");
    }

    #[test]
    fn a_summary_has_whole_lines_and_no_map() {
        let mut kept = Kept::new();
        push(&mut kept, &CLOCK);
        (0..9).for_each(|at| push(&mut kept, &region(at)));
        push(&mut kept, &END);
        let mut buffer = [0; 200];
        let summary = String::from_utf8(kept.summary(&mut buffer).to_vec()).unwrap();
        assert_eq!(
            summary,
            "{\"event\":\"clock\",\"hz\":2000000000,\"source\":\"cpuid\"}\n{\"event\":\"end\",\"outcome\":\"ok\"}\n"
        );
        assert_eq!(
            kept.summary(&mut [0; 40]),
            b"{\"event\":\"end\",\"outcome\":\"ok\"}\n"
        );
    }

    #[test]
    fn phases_do_not_crowd_out_of_a_summary_what_comes_after_them() {
        let phase = |ticks| Event::Phase {
            name: "memory map",
            start_ticks: ticks,
            end_ticks: ticks,
        };
        let mut kept = Kept::new();
        (0..90).for_each(|ticks| push(&mut kept, &phase(ticks)));
        push(&mut kept, &CLOCK);
        push(&mut kept, &phase(90));
        push(&mut kept, &Event::Failure { text: "why" });
        push(&mut kept, &END);
        for bytes in 0..3000 {
            let mut buffer = std::vec![0; bytes];
            let summary = String::from_utf8(kept.summary(&mut buffer).to_vec()).unwrap();
            let at = |name: &str| summary.find(&std::format!("{{\"event\":\"{name}\""));
            let order = ["phase", "clock", "failure", "end"].map(at);
            let there = order.map(|at| at.is_some());
            // In the order of events; phases need the others, those the end.
            assert!(order.into_iter().flatten().is_sorted(), "{summary}");
            assert!(bytes < 73 || (there[2] && there[3]), "{bytes}: {summary}");
            assert!(bytes < 126 || there[1], "{bytes}: {summary}");
            assert!(!there[0] || there[1..] == [true; 3], "{bytes}: {summary}");
            assert!(bytes < 200 || there[0], "{bytes}: {summary}");
        }
        let mut buffer = [0; 2000];
        assert!(kept.summary(&mut buffer).len() > 1900);
    }
}
