//! Virtio memory devices, whose size the host changes: [`Resized`].

use firstlight::addr::{Frame, Order, PhysRange};
use firstlight::frames::OnlinePolicy;
use firstlight::layout::ZoneSegment;
use firstlight_image::hotplug::MOST_SLOTS;
use firstlight_image::virtio::{PciTransport, VirtioError};
use firstlight_image::virtio_mem::{
    Fault, KIND, MemDevice, MemError, Memory, Resizable, SharedMemory,
};
use firstlight_wire::Hotplug;
use log::{error, info};

use super::memory::{OWN, Plugged, Plugging};
use super::refused::{Reason, Refused};
use crate::arch::device::Window;
use crate::arch::ticks;
use crate::devices::{self, NoDevice, PATIENCE};
use crate::lists::{list_in, zeroed_list};
use crate::machine::Machine;
use crate::time;

/// Most devices.
const MOST: usize = 8;
/// After a refusal the next try is so much later.
const RETRY_NS: u64 = 1_000_000_000;
/// Memory that has descriptors comes and goes in pieces of this size, of which a part is theirs, as
/// Linux's does.
const DESCRIBED_BYTES: u64 = 128 << 20;

type Device = Resizable<'static, PciTransport<Window>>;

/// The memory devices of a machine.
pub(super) struct Resized(&'static mut [Option<One>]);

/// A device.
struct One {
    /// Its number in reports: those of DIMMs are below.
    slot: u64,
    device: Device,
    /// Bytes at the beginning of each unit that are its descriptors'.
    own_bytes: u64,
    /// Ranges that came so far.
    came: u32,
    /// A page that stays in use until it was to go once.
    held: Option<Frame>,
    /// What it last refused, and when it is tried again.
    refused: Option<(Reason, u64)>,
    /// It works no more.
    is_out: bool,
}

impl Resized {
    /// Finds all of them, with none of their blocks plugged; `None`: there is no memory for a list of them.
    pub(super) fn find(machine: &Machine) -> Option<Self> {
        let one = |number| match One::find(machine, number)? {
            Ok(one) => {
                let config = one.device.config();
                info!(
                    "hotplug: memory device {number}: {:#x} bytes from {:#x} on, in units of {:#x}",
                    config.bytes,
                    config.start,
                    one.device.unit_bytes()
                );
                Some(one)
            }
            Err(why) => {
                error!("hotplug: memory device {number} is not used: {why}");
                None
            }
        };
        list_in(&machine.frames, OWN, MOST, one).map(Self)
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Does what the host wants; whether there was something.
    pub(super) fn serve(&mut self, plugging: &mut Plugging<'_>) -> bool {
        let mut has_changed = false;
        for one in self.0.iter_mut().flatten() {
            has_changed |= one.serve(plugging);
        }
        has_changed
    }
}

impl One {
    /// The device after `number` others, if there is one.
    fn find(machine: &Machine, number: usize) -> Option<Result<Self, NoDevice>> {
        let transport = devices::on_pci(machine, KIND, number)?;
        let one = transport
            .and_then(|transport| Self::new(machine, number, transport).map_err(NoDevice::Memory));
        Some(one)
    }

    fn new(
        machine: &Machine,
        number: usize,
        transport: PciTransport<Window>,
    ) -> Result<Self, MemError> {
        let frames = &machine.frames;
        let no_memory = VirtioError::Missing {
            what: "memory for a queue",
        };
        // SAFETY: zeroes are a ring that was not used, and an empty request and answer.
        let shared = unsafe { zeroed_list::<SharedMemory>(frames, 1) };
        let shared: &'static SharedMemory =
            shared.and_then(|list| list.first()).ok_or(no_memory)?;
        let at = core::ptr::from_ref(shared) as u64;
        let device = MemDevice::new(transport, PATIENCE, shared, at)?;
        let least = match machine.hooks.descriptors {
            Some(_) => DESCRIBED_BYTES,
            None => Order::HUGE.bytes(),
        };
        let list = |count| list_in(frames, OWN, count, |_| Default::default());
        Ok(Self {
            slot: u64::from(MOST_SLOTS) + number as u64,
            device: Resizable::new(device, least, list)?,
            own_bytes: 0,
            came: 0,
            held: None,
            refused: None,
            is_out: false,
        })
    }

    fn serve(&mut self, plugging: &mut Plugging<'_>) -> bool {
        let is_time = match &self.refused {
            Some((_, again_ns)) => time::now_ns() >= *again_ns,
            None => true,
        };
        if self.is_out || !is_time {
            return false;
        }
        let begin = ticks();
        let mut uses = Uses {
            plugging,
            domain: self.device.config().domain,
            slot: self.slot,
            unit_bytes: self.device.unit_bytes(),
            own_bytes: &mut self.own_bytes,
            came: &mut self.came,
            held: &mut self.held,
            begin,
            changes: 0,
        };
        let done = self.device.follow(&mut uses);
        let has_changed = uses.changes > 0;
        let Err(fault) = done else {
            self.refused = None;
            return has_changed;
        };
        self.is_out = matches!(fault, Fault::Device(error) if error.is_final());
        let reason = Reason::of(&fault);
        let is_same = self
            .refused
            .as_ref()
            .is_some_and(|(last, _)| last.text() == reason.text());
        if !is_same {
            let config = self.device.config();
            plugging.tell(Hotplug {
                action: "resize",
                slot: self.slot,
                start: config.start,
                bytes: self.device.used_bytes(),
                event_ticks: begin,
                done_ticks: ticks(),
                refused: Some(reason.text()),
                ..Hotplug::default()
            });
        }
        self.refused = Some((reason, time::now_ns().saturating_add(RETRY_NS)));
        has_changed
    }
}

/// The allocator, as a device's memory.
struct Uses<'u, 'm> {
    plugging: &'u mut Plugging<'m>,
    domain: Option<u32>,
    slot: u64,
    unit_bytes: u64,
    own_bytes: &'u mut u64,
    came: &'u mut u32,
    held: &'u mut Option<Frame>,
    begin: u64,
    changes: u32,
}

impl Uses<'_, '_> {
    /// The pieces in which memory comes and goes: all of it at once, but each unit with its own
    /// descriptors.
    fn pieces(&self, range: PhysRange) -> impl Iterator<Item = PhysRange> + use<> {
        let bytes = match self.plugging.machine.hooks.descriptors {
            Some(_) => self.unit_bytes,
            None => range.bytes(),
        };
        let count = range.bytes() / bytes.max(1);
        (0..count)
            .filter_map(move |at| PhysRange::with_size(range.start().get() + at * bytes, bytes))
    }

    fn report(&self, action: &'static str, range: PhysRange) -> Hotplug<&'static str> {
        Hotplug {
            action,
            slot: self.slot,
            start: range.start().get(),
            bytes: range.bytes(),
            event_ticks: self.begin,
            done_ticks: ticks(),
            ..Hotplug::default()
        }
    }

    /// Undoes what was done to the pieces of `range` before `piece`; how many failed.
    fn undo(&self, range: PhysRange, piece: PhysRange, undo: impl Fn(&Plugged) -> bool) -> u64 {
        let before = PhysRange::new(range.start().get(), piece.start().get());
        let pieces = self.pieces(before.unwrap_or_default());
        let undone = |piece: &PhysRange| self.plugged(*piece).is_some_and(|plugged| undo(&plugged));
        pieces.filter(|piece| !undone(piece)).count() as u64
    }

    /// What memory in a piece is, by what it was when it came.
    fn plugged(&self, piece: PhysRange) -> Option<Plugged> {
        let usable = PhysRange::new(piece.start().get() + *self.own_bytes, piece.end().get())?;
        let frames = &self.plugging.machine.frames;
        let of = frames.zone_of(usable.inner_frames().start())?;
        Some(Plugged {
            segment: ZoneSegment {
                frames: piece.inner_frames(),
                node: of.node,
                zone: of.zone,
            },
            usable,
            is_offline: self.plugging.machine.words.online == OnlinePolicy::Offline,
        })
    }
}

impl Memory for Uses<'_, '_> {
    type Why = Refused;

    fn add(&mut self, range: PhysRange) -> Result<(), Refused> {
        let mut report = self.report("add", range);
        let mut last = None;
        for piece in self.pieces(range) {
            let added = self
                .plugging
                .add(piece.start().get(), piece.bytes(), self.domain);
            match added {
                Ok(plugged) => {
                    *self.own_bytes = plugged.usable.start().get() - piece.start().get();
                    last = Some(plugged);
                }
                Err(why) => {
                    // All or none.
                    let failures =
                        self.undo(range, piece, |before| self.plugging.remove(before).is_ok());
                    self.plugging.failures += failures;
                    return Err(why);
                }
            }
        }
        let Some(last) = last else { return Ok(()) };
        report.done_ticks = ticks();
        self.changes += 1;
        *self.came += 1;
        report.described_ticks = self.plugging.describe().then(ticks);
        for piece in self.pieces(range) {
            let plugged = self.plugged(piece);
            let failures = plugged.map_or(1, |plugged| self.plugging.exercise(&plugged));
            report.failures += failures;
        }
        let hold_one_in = self.plugging.machine.words.hold_one_in;
        if hold_one_in > 0 && self.came.is_multiple_of(hold_one_in) && !last.is_offline {
            let held = self.plugging.hold(&last);
            if let Some(before) = core::mem::replace(self.held, held) {
                self.plugging.let_go(before);
            }
        }
        report.node = Some(last.segment.node.0);
        report.zone = last.zone();
        report.offline = last.is_offline;
        info!(
            "hotplug: {range} was plugged, {}, zone {}, after {} ticks",
            last.segment.node,
            last.segment.zone.name(),
            report.done_ticks - self.begin
        );
        self.plugging.tell(report);
        Ok(())
    }

    fn remove(&mut self, range: PhysRange) -> Result<(), Refused> {
        let frames = &self.plugging.machine.frames;
        let is_offline = self.plugging.machine.words.online == OnlinePolicy::Offline;
        // All of it offline, or none; with descriptors between, not in one call.
        for piece in self.pieces(range).filter(|_| !is_offline) {
            let Some(plugged) = self.plugged(piece) else {
                continue;
            };
            if let Err(error) = frames.offline(plugged.usable) {
                let failures =
                    self.undo(range, piece, |before| frames.online(before.usable).is_ok());
                self.plugging.failures += failures;
                if let Some(held) = self.held.take_if(|held| {
                    range.inner_frames().contains(*held) && range.bytes() == self.unit_bytes
                }) {
                    // The next time nothing is in use.
                    self.plugging.let_go(held);
                }
                return Err(Refused::Hotplug(error));
            }
        }
        for piece in self.pieces(range) {
            let plugged = self.plugged(piece).map(|plugged| Plugged {
                is_offline: true,
                ..plugged
            });
            if let Some(plugged) = plugged {
                self.plugging.remove(&plugged)?;
            }
        }
        Ok(())
    }

    fn is_in_use(why: &Refused) -> bool {
        why.is_in_use()
    }

    fn unplugged(&mut self, range: PhysRange) {
        self.changes += 1;
        info!(
            "hotplug: {range} was unplugged after {} ticks",
            ticks() - self.begin
        );
        let report = self.report("remove", range);
        self.plugging.tell(report);
    }
}
