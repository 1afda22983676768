//! DIMMs that come and go: [`Dimms`].

use firstlight::addr::Frame;
use firstlight_image::hotplug::{Change, Dimm, MOST_SLOTS, Slots};
use firstlight_image::virtio::Registers;
use firstlight_wire::Hotplug;
use log::info;

use super::memory::{OWN, Plugged, Plugging};
use super::refused::{Reason, Refused};
use crate::arch::ticks;
use crate::lists::list_in;
use crate::machine::Machine;

/// A DIMM whose memory is used.
#[derive(Clone, Copy)]
struct Known {
    dimm: Dimm,
    memory: Plugged,
    /// A page that stays in use until the DIMM was to go once.
    held: Option<Frame>,
}

/// The DIMMs of a machine.
pub(super) struct Dimms<R> {
    slots: Slots<R>,
    /// By slot.
    known: &'static mut [Option<Known>],
    /// DIMMs that came so far.
    came: u32,
}

impl<R: Registers> Dimms<R> {
    /// `None`: there is no memory for a list of them.
    pub(super) fn new(machine: &Machine, slots: R) -> Option<Self> {
        Some(Self {
            slots: Slots::new(slots, machine.words.slots),
            known: list_in(&machine.frames, OWN, MOST_SLOTS as usize, |_| None)?,
            came: 0,
        })
    }

    /// Slots that there are.
    pub(super) const fn count(&self) -> u32 {
        self.slots.count()
    }

    /// Those that are there from the start come like all others.
    pub(super) fn take_all(&mut self, plugging: &mut Plugging<'_>) {
        for slot in 0..self.count() {
            if let Some(dimm) = self.slots.take(slot) {
                self.came(plugging, dimm, ticks());
            }
        }
    }

    /// Does what the host wants next; whether there was something.
    pub(super) fn serve(&mut self, plugging: &mut Plugging<'_>) -> bool {
        let begin = ticks();
        match self.slots.next_change() {
            Some(Change::Came(dimm)) => self.came(plugging, dimm, begin),
            Some(Change::Goes(dimm)) => self.goes(plugging, dimm, begin),
            None => return false,
        }
        true
    }

    /// A DIMM came, `begin` is when it was looked for.
    fn came(&mut self, plugging: &mut Plugging<'_>, dimm: Dimm, begin: u64) {
        let used = plugging.add(dimm.start, dimm.bytes, Some(dimm.domain));
        let done_ticks = ticks();
        self.slots.came(dimm.slot, used.is_ok());
        let mut report = report("add", dimm, begin, done_ticks);
        let reason;
        match used {
            Ok(memory) => {
                self.came += 1;
                report.described_ticks = plugging.describe().then(ticks);
                report.failures = plugging.exercise(&memory);
                let hold_one_in = plugging.machine.words.hold_one_in;
                let is_held = hold_one_in > 0 && self.came.is_multiple_of(hold_one_in);
                let held = is_held && !memory.is_offline;
                self.known[dimm.slot as usize] = Some(Known {
                    dimm,
                    memory,
                    held: held.then(|| plugging.hold(&memory)).flatten(),
                });
                of(&mut report, &memory);
                info!(
                    "hotplug: {} came, {}, zone {}, {} after {} ticks",
                    memory.segment.frames.addrs(),
                    memory.segment.node,
                    memory.segment.zone.name(),
                    if memory.is_offline {
                        "offline"
                    } else {
                        "allocatable"
                    },
                    done_ticks - begin
                );
            }
            Err(why) => {
                reason = Reason::of(&why);
                report.refused = Some(reason.text());
            }
        }
        plugging.tell(report);
    }

    /// A DIMM is to go.
    fn goes(&mut self, plugging: &mut Plugging<'_>, dimm: Dimm, begin: u64) {
        let gone = self.let_go(plugging, dimm);
        let done_ticks = ticks();
        let mut report = report("remove", dimm, begin, done_ticks);
        let reason;
        match &gone {
            Ok(None) => {}
            Ok(Some(memory)) => {
                of(&mut report, memory);
                info!(
                    "hotplug: {} is gone after {} ticks",
                    memory.segment.frames.addrs(),
                    done_ticks - begin
                );
            }
            Err(why) => {
                reason = Reason::of(why);
                report.refused = Some(reason.text());
            }
        }
        plugging.tell(report);
        self.slots.goes(dimm.slot, gone.is_ok());
    }

    /// Takes a DIMM's memory out of use, if it was used.
    fn let_go(
        &mut self,
        plugging: &mut Plugging<'_>,
        dimm: Dimm,
    ) -> Result<Option<Plugged>, Refused> {
        let Some(slot) = self.known.get_mut(dimm.slot as usize) else {
            return Ok(None);
        };
        let Some(known) = slot.as_mut().filter(|known| known.dimm == dimm) else {
            return Ok(None);
        };
        let memory = known.memory;
        if let Err(why) = plugging.remove(&memory) {
            if let Some(held) = known.held.take() {
                // The second time nothing is in use.
                plugging.let_go(held);
            }
            return Err(why);
        }
        *slot = None;
        Ok(Some(memory))
    }
}

/// Where the memory is.
fn of(report: &mut Hotplug<&str>, memory: &Plugged) {
    report.node = Some(memory.segment.node.0);
    report.zone = memory.zone();
    report.offline = memory.is_offline;
}

fn report(action: &str, dimm: Dimm, event_ticks: u64, done_ticks: u64) -> Hotplug<&str> {
    Hotplug {
        action,
        slot: dimm.slot.into(),
        start: dimm.start,
        bytes: dimm.bytes,
        event_ticks,
        done_ticks,
        ..Hotplug::default()
    }
}
