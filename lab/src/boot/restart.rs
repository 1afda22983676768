//! What a restarted image said: [`tell`].

use super::events::Event;
use super::moments::{Time, reach};
use crate::record::{FreeFrames, Phase, Record, Restart};

/// The events of the first kernel, and those of the next.
pub(super) fn split(events: &[Event]) -> (&[Event], &[Event]) {
    let is_last = |event: &Event| matches!(event, Event::HandedOver(_));
    match events.iter().position(is_last) {
        Some(last) => events.split_at(last + 1),
        None => (events, &[]),
    }
}

/// Adds to `record`, which has all of the first kernel, what the next one said.
pub(super) fn tell(handed: &Event, next: &[Event], time: Time, record: &mut Record) {
    let Event::HandedOver(handed) = handed else {
        return;
    };
    let mut restart = Restart {
        preserved_bytes: handed.bytes,
        ranges: handed.ranges,
        table_bytes: handed.table_bytes,
        stopped_cpus: handed.stopped_cpus,
        free_frames: FreeFrames {
            before: handed.free_frames,
            after: 0,
        },
        ..Restart::default()
    };
    for event in next {
        match event {
            Event::Phase {
                name,
                start_ticks,
                end_ticks,
            } => {
                if let (Some(start_ns), Some(end_ns)) = (time.ns(*start_ticks), time.ns(*end_ticks))
                {
                    restart.phases.push(Phase {
                        name: name.clone().into(),
                        start_ns,
                        end_ns,
                    });
                }
            }
            Event::Milestone { name, ticks, .. } => {
                reach(name, time.ns(*ticks), &mut restart.milestones);
            }
            Event::Correction { text } => record.corrections.push(text.clone()),
            Event::Note { text } | Event::Failure { text } => record.notes.push(text.clone()),
            Event::Restart(seen) => {
                restart.refused.clone_from(&seen.refused);
                restart.guest_bytes = seen.guest_bytes;
                restart.checked_bytes = seen.checked_bytes;
                restart.wrong_pages = seen.wrong_pages;
                restart.released_bytes = seen.released_bytes;
                restart.other_bytes = seen.other_bytes;
                restart.free_frames.after = seen.free_frames;
                let pause = seen.usable_ticks.checked_sub(seen.left_ticks);
                restart.pause_ns = pause
                    .filter(|_| seen.refused.is_none())
                    .and_then(|ticks| time.ns(ticks));
            }
            _ => {}
        }
    }
    if record.clock == "instructions" {
        let ready = |milestones: &crate::record::Milestones| {
            milestones
                .all_allocatable_ns?
                .checked_sub(milestones.entry_ns?)
        };
        restart.pause_instructions = restart.pause_ns;
        restart.ready_instructions = ready(&restart.milestones);
        restart.cold_ready_instructions = ready(&record.milestones);
    }
    record.corrections.dedup();
    record.restart = Some(restart);
}
