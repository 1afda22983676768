//! DIMMs that come and go while a guest runs: [`Script`] says which and when, QEMU's monitor
//! does it, and what the guest reports of it becomes part of the record.
//!
//! | file | concept |
//! |---|---|
//! | `script` | the lines of a script, [`Script`] |
//! | `drive` | the thread that does what it says |

mod drive;
mod script;

pub(super) use drive::{Driven, drive};
pub use script::{Action, MOST_STEPS, Misstep, Script, ScriptError, Step};

use super::events::{Event, Events};
use crate::record::{Hotplugged, Record};
use firstlight_wire::Hotplug;

/// Most slots QEMU has.
pub const MOST_SLOTS: u32 = 256;

/// Puts what was done, and what the guest reports of it, into `record`: the lines of the script in
/// order, then what came otherwise. Ticks are `tick_ns` each where their rate is known.
pub(super) fn fill(events: &Events, driven: Driven, record: &mut Record) {
    let hz = events.list.iter().find_map(|event| match event {
        Event::Clock { hz, .. } => Some(*hz),
        _ => None,
    });
    record.notes.extend(driven.notes);
    let mut told: Vec<&Hotplug<String>> = events.list.iter().filter_map(told).collect();
    let counted = record.clock == "instructions";
    for done in driven.done {
        let (event, id, bytes, node) = match done.step.action {
            Action::Add { dimm, bytes, node } => ("add", dimm, Some(bytes), node),
            Action::Remove { dimm } => ("remove", dimm, None, None),
        };
        let is_it = |told: &&Hotplug<String>| {
            told.action == event && Some(told.start) == done.start && done.refused.is_none()
        };
        let at = told.iter().position(is_it);
        let heard = at.map(|at| told.remove(at));
        let mut row = match heard {
            Some(heard) => row(heard, hz, counted),
            None => Hotplugged {
                event: event.to_owned(),
                refused: done
                    .refused
                    .or_else(|| Some("the guest reports nothing of it".into())),
                ..Hotplugged::default()
            },
        };
        row.id = Some(format!("dimm{id}"));
        row.at_ms = u64::try_from(done.step.at.as_millis()).ok();
        row.bytes = bytes.unwrap_or(row.bytes);
        row.node = row.node.or(node);
        if event == "remove" && row.refused.is_some() {
            still_there(&mut row, &record.hotplug);
        }
        record.hotplug.push(row);
    }
    let rest = told.into_iter().map(|told| row(told, hz, counted));
    record.hotplug.extend(rest);
}

/// A DIMM that stays is where it came to; the guest does not repeat that when it refuses.
fn still_there(row: &mut Hotplugged, before: &[Hotplugged]) {
    let mut done = before.iter().rev().filter(|one| one.refused.is_none());
    let last = done.find(|one| one.id == row.id);
    let Some(came) = last.filter(|last| last.event == "add") else {
        return;
    };
    if row.bytes == 0 {
        row.bytes = came.bytes;
    }
    row.node = row.node.or(came.node);
    row.zone = row.zone.take().or_else(|| came.zone.clone());
    row.offline |= came.offline;
}

fn told(event: &Event) -> Option<&Hotplug<String>> {
    match event {
        Event::Hotplug(hotplug) => Some(hotplug),
        _ => None,
    }
}

/// What the guest reports of one event.
fn row(told: &Hotplug<String>, hz: Option<u64>, counted: bool) -> Hotplugged {
    let ticks = told.done_ticks.saturating_sub(told.event_ticks);
    let ns = |ticks: u64| {
        let ns = u128::from(ticks) * 1_000_000_000;
        let ns = ns.checked_div(hz?.into())?;
        u64::try_from(ns).ok()
    };
    let is_done = told.refused.is_none();
    let is_add = told.action == "add";
    Hotplugged {
        event: told.action.clone(),
        id: None,
        at_ms: None,
        bytes: told.bytes,
        node: told.node.map(u32::from),
        zone: told.zone.clone(),
        offline: told.offline,
        allocatable_ns: ns(ticks).filter(|_| is_done && is_add && !told.offline),
        gone_ns: ns(ticks).filter(|_| is_done && !is_add),
        instructions: Some(ticks).filter(|_| is_done && counted),
        described_ns: told
            .described_ticks
            .and_then(|at| ns(at.saturating_sub(told.event_ticks))),
        free_frames: Some(told.free_frames).filter(|frames| *frames > 0),
        refused: told.refused.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drive::Done;
    use std::time::Duration;

    #[test]
    fn lines_of_a_script_find_what_the_guest_reports() {
        let lines = br#"{"event":"clock","hz":1000000000,"source":"x"}
{"event":"hotplug","action":"add","slot":0,"start":4294967296,"bytes":1073741824,"node":0,"zone":"Movable","offline":false,"event_ticks":1000,"done_ticks":21000,"described_ticks":31000,"free_frames":77,"refused":null,"failures":0}
{"event":"hotplug","action":"remove","slot":0,"start":4294967296,"bytes":1073741824,"node":null,"zone":null,"offline":false,"event_ticks":50000,"done_ticks":60000,"described_ticks":null,"refused":"in use","failures":0}
{"event":"hotplug","action":"add","slot":9,"start":1,"bytes":2,"node":null,"zone":null,"offline":true,"event_ticks":5,"done_ticks":6,"described_ticks":null,"refused":null,"failures":0}"#;
        let events = Events::read(lines, b"");
        assert_eq!(events.rubbish, None);
        let step = |ms, action| Step {
            at: Duration::from_millis(ms),
            action,
        };
        let done = |step, start, refused: Option<&str>| Done {
            step,
            start,
            refused: refused.map(str::to_owned),
        };
        let add = |dimm| Action::Add {
            dimm,
            bytes: 1 << 30,
            node: Some(7),
        };
        let start = Some(1 << 32);
        let driven = Driven {
            done: vec![
                done(step(1, add(1)), start, None),
                done(step(2, add(2)), None, Some("no slot")),
                done(step(3, Action::Remove { dimm: 1 }), start, None),
                done(step(4, Action::Remove { dimm: 2 }), None, Some("not found")),
            ],
            notes: vec!["a note".into()],
        };
        let mut record = Record::new("boot", "instructions");
        fill(&events, driven, &mut record);
        assert_eq!(record.notes, ["a note"]);
        let [added, refused, stays, never, other] = &record.hotplug[..] else {
            panic!("{:?}", record.hotplug);
        };
        assert_eq!(
            (added.allocatable_ns, added.instructions),
            (Some(20_000), Some(20_000))
        );
        assert_eq!((added.described_ns, added.node), (Some(30_000), Some(0)));
        assert_eq!((added.free_frames, stays.free_frames), (Some(77), None));
        assert_eq!(
            (refused.refused.as_deref(), refused.node),
            (Some("no slot"), Some(7))
        );
        assert_eq!(
            (stays.refused.as_deref(), stays.gone_ns),
            (Some("in use"), None)
        );
        // It stays where it came to; the other never came.
        assert_eq!(
            (stays.node, stays.zone.as_deref()),
            (Some(0), Some("Movable"))
        );
        assert_eq!((never.node, &never.zone, never.bytes), (None, &None, 0));
        assert_eq!((other.id.as_deref(), other.bytes), (None, 2));
        assert_eq!((other.offline, other.allocatable_ns), (true, None));
    }
}
