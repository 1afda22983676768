//! A guest with a memory balloon, seen from the host: [`observe`] reads how much memory QEMU
//! has, and what QEMU says of the balloon, while the guest uses it; [`fill`] puts it into a
//! record.
//!
//! | file | concept |
//! |---|---|
//! | `resident` | QEMU's memory, from `/proc` |
//! | `observe` | the thread that watches, and inflates and deflates in the end |

mod observe;
mod resident;

pub(super) use observe::{Observed, observe};

use super::events::{Event, Events};
use crate::record::{Balloon, Knob, Record, Resident};

/// Puts what the guest reports and what the host saw into `record`.
pub(super) fn fill(events: &Events, observed: Observed, record: &mut Record) {
    let told = events.list.iter().find_map(|event| match event {
        Event::Balloon(balloon) => Some(balloon),
        _ => None,
    });
    let Some(told) = told else { return };
    record.notes.extend(observed.notes);
    let instructions_per_gib = (record.clock == "instructions" && told.reported_bytes > 0)
        .then(|| u128::from(told.reporting_ticks) << 30)
        .and_then(|ticks| u64::try_from(ticks / u128::from(told.reported_bytes)).ok());
    let bytes_at = |(at, bytes): (std::time::Duration, u64)| Resident {
        at_ns: u64::try_from(at.as_nanos()).unwrap_or(u64::MAX),
        bytes,
    };
    let returned_percent = observed
        .peak_bytes
        .zip(observed.after_bytes)
        .and_then(|(peak, after)| percent(peak.saturating_sub(after), told.freed_bytes));
    record.balloon = Some(Balloon {
        transport: told.transport.clone(),
        reporting: told.reporting,
        freed_bytes: told.freed_bytes,
        reported_bytes: told.reported_bytes,
        reports: told.reports,
        passes: told.passes,
        worker_zeroed_bytes: told.worker_zeroed_bytes,
        stock_bytes: told.stock_bytes,
        knobs: events.list.iter().filter_map(knob).collect(),
        returned_percent,
        instructions_per_gib,
        inflated_bytes: told.inflated_bytes,
        host_peak_bytes: observed.peak_bytes,
        host_after_bytes: observed.after_bytes,
        host_resident_bytes: observed.resident.into_iter().map(bytes_at).collect(),
        host_balloon_bytes: observed.balloon.into_iter().map(bytes_at).collect(),
        host_statistics: observed.statistics,
    });
}

fn knob(event: &Event) -> Option<Knob> {
    match event {
        Event::Knob { of, name, value } => Some(Knob {
            name: format!("{of}.{name}"),
            value: *value,
        }),
        _ => None,
    }
}

/// Parts of a hundred, to a tenth, at most all of it: firmware's memory is returned too.
fn percent(part: u64, whole: u64) -> Option<f64> {
    let tenths = (u128::from(part.min(whole)) * 1000).checked_div(whole.into())?;
    u32::try_from(tenths)
        .ok()
        .map(|tenths| f64::from(tenths) / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_returned_is_a_part_of_what_was_freed() {
        assert_eq!(percent(957, 1000), Some(95.7));
        assert_eq!(percent(2000, 1000), Some(100.0));
        assert_eq!(percent(1, 0), None);
    }

    #[test]
    fn a_record_has_it_on_both_clocks() {
        let line = br#"{"event":"knob","of":"reporting","name":"order","value":9}
{"event":"balloon","transport":"pci","reporting":true,"freed_bytes":1073741824,"reported_bytes":2147483648,"reports":3,"passes":2,"worker_zeroed_bytes":5,"stock_bytes":6,"reporting_ticks":5000,"inflated_bytes":0,"left_bytes":0,"failures":0}"#;
        let events = Events::read(line, b"");
        assert_eq!(events.rubbish, None);
        for (clock, instructions) in [("wall", None), ("instructions", Some(2500))] {
            let mut record = Record::new("boot", clock);
            let observed = Observed {
                peak_bytes: Some(1200 << 20),
                after_bytes: Some(176 << 20),
                resident: vec![(Duration::from_millis(2), 7)],
                ..Observed::default()
            };
            fill(&events, observed, &mut record);
            let balloon = record.balloon.unwrap();
            assert_eq!(balloon.instructions_per_gib, instructions);
            assert_eq!(balloon.returned_percent, Some(100.0));
            let knob = Knob {
                name: "reporting.order".into(),
                value: 9,
            };
            assert_eq!(balloon.knobs, [knob]);
            assert_eq!(balloon.host_resident_bytes[0].at_ns, 2_000_000);
        }
        let mut record = Record::new("boot", "wall");
        fill(&Events::default(), Observed::default(), &mut record);
        assert_eq!(record.balloon, None);
    }
}
