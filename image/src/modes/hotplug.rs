//! `hotplug`: DIMMs come and go while the machine runs, until the power button is pressed.
//!
//! Memory of a DIMM is free as soon as its ranges are in the allocator's list; its descriptors lie in
//! its own first frames and are written behind, by all CPUs. A DIMM goes once nothing of it is in
//! use; else the host gets the reason, and all stays as it was.

use core::fmt::{self, Write};
use core::mem::MaybeUninit;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::blocks::{BlockSize, Blocks};
use firstlight::frames::{Content, HotplugError, NewMemory, OnlinePolicy, Refusal, Request};
use firstlight::layout::ZoneSegment;
use firstlight::memmap::MemmapError;
use firstlight::node::{NodeId, ZoneKind};
use firstlight::parallel::{Chunking, Job, WorkRange, Worker};
use firstlight_image::hotplug::{Change, Dimm, MOST_SLOTS, Slots};
use firstlight_wire::{Event, Hotplug, Outcome, marker};
use log::{error, info};

use crate::arch::hotplug::{SlotPorts, open};
use crate::arch::{DirectMap, marker, relax, ticks};
use crate::console::event;
use crate::lists::list_in;
use crate::machine::Machine;
use crate::processors::{Processors, StartedCpus};

/// Serves it.
pub(super) fn run(machine: &Machine, processors: &mut Processors) -> Outcome {
    // SAFETY: nothing else in this image uses the ports of slots and of the power button.
    let Some((slots, mut button)) = (unsafe { open(&machine.tables) }) else {
        error!(
            "hotplug: this machine has no slots of DIMMs or no power button, which would end it; \
             expected pc or q35 of x86_64"
        );
        return Outcome::Machine;
    };
    let known = list_in(&machine.frames, OWN, MOST_SLOTS as usize, |_| None);
    let (Some(lists), Some(known)) = (Lists::new(machine, processors), known) else {
        error!("hotplug: no memory for lists of DIMMs and of work on descriptors");
        return Outcome::Machine;
    };
    let mut serve = Serve {
        machine,
        processors,
        direct: machine.direct,
        lists,
        slots: Slots::new(slots, machine.words.slots),
        known,
        came: 0,
        failures: 0,
    };
    for slot in 0..machine.words.slots {
        // Those that are there from the start come like all others.
        if let Some(dimm) = serve.slots.take(slot) {
            serve.came(dimm, ticks());
        }
    }
    serve.list_blocks();
    info!(
        "hotplug: {} slots, until the power button is pressed",
        machine.words.slots
    );
    marker(marker::HOTPLUG);
    loop {
        let begin = ticks();
        match serve.slots.next_change() {
            Some(Change::Came(dimm)) => serve.came(dimm, begin),
            Some(Change::Goes(dimm)) => serve.goes(dimm, begin),
            None if button.is_pressed() => break,
            None => relax(),
        }
    }
    let valid = machine.frames.validate();
    if let Err(violation) = valid {
        error!("hotplug: {violation}");
    }
    match serve.failures + u64::from(valid.is_err()) {
        0 => Outcome::Ok,
        _ => Outcome::CheckFailed,
    }
}

/// Memory of a DIMM that is used.
#[derive(Clone, Copy)]
struct Known {
    dimm: Dimm,
    /// All of it, with its node and zone.
    segment: ZoneSegment,
    /// Without the frames of its own descriptors.
    usable: PhysRange,
    /// It waits offline.
    is_offline: bool,
    /// A page that stays in use until the DIMM was to go once.
    held: Option<Frame>,
}

impl Known {
    /// The zone it is used in.
    fn zone(&self) -> Option<&'static str> {
        (!self.is_offline).then(|| self.segment.zone.name())
    }
}

/// Why a DIMM's memory is not used, or does not go.
enum Refused {
    /// It has no range that memory may have.
    NoRange(Dimm),
    /// Firmware has no such node.
    NoSuchNode(u32),
    /// Its descriptors would take all of it.
    AllDescriptors(PhysRange),
    /// Beyond the processor's addresses, or no memory for page tables.
    NotMapped,
    Descriptors(MemmapError),
    Hotplug(HotplugError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRange(dimm) => write!(
                f,
                "a DIMM of {:#x} bytes at {:#x}: expected whole huge frames of 2 MiB",
                dimm.bytes, dimm.start
            ),
            Self::NoSuchNode(domain) => {
                write!(
                    f,
                    "its node, {domain} in firmware's numbers, does not exist"
                )
            }
            Self::Hotplug(HotplugError {
                frame,
                why: Refusal::OutsideSpan,
                ..
            }) => {
                write!(
                    f,
                    "{frame} is in no window that firmware announces for hotplug"
                )
            }
            Self::Hotplug(HotplugError {
                frame,
                why: Refusal::NoTables { needed_bytes, .. },
                ..
            }) => write!(
                f,
                "firmware announces {frame} for hotplug, but the window has no tables for it: \
                 {needed_bytes} bytes of tables would be needed"
            ),
            Self::AllDescriptors(range) => write!(
                f,
                "its descriptors would take all of {range}, as the rest of a huge frame of 2 MiB is not used; \
                 expected 4 MiB or more, or no descriptors="
            ),
            Self::NotMapped => {
                f.write_str("it is beyond this processor's addresses, or cannot be mapped")
            }
            Self::Descriptors(error) => write!(f, "its descriptors: {error}"),
            Self::Hotplug(error) => error.fmt(f),
        }
    }
}

struct Serve<'m> {
    machine: &'m Machine,
    processors: &'m mut Processors,
    direct: &'static DirectMap,
    lists: Lists,
    slots: Slots<SlotPorts>,
    /// By slot.
    known: &'static mut [Option<Known>],
    /// DIMMs that came so far.
    came: u32,
    failures: u64,
}

/// Lists for writing descriptors, in memory of the start.
struct Lists {
    workers: &'static mut [Worker],
    ranges: &'static mut [WorkRange],
}

/// The zone of the image's own memory: no DIMM holds any, as none is below 4 GiB.
const OWN: ZoneKind = ZoneKind::Dma32;

impl Lists {
    fn new(machine: &Machine, processors: &Processors) -> Option<Self> {
        let frames = &machine.frames;
        let described = machine.hooks.descriptors.as_ref();
        let ranges = described.map_or(0, |(_, descriptors)| descriptors.read().work_ranges());
        let mut nodes = processors.nodes();
        let cpus = processors.started();
        Some(Self {
            workers: list_in(frames, OWN, cpus, |_| {
                Worker::new(nodes.next().map_or_else(NodeId::default, |(_, node)| node))
            })?,
            ranges: list_in(frames, OWN, ranges + MOST_SLOTS as usize, |_| {
                WorkRange::new(NodeId::default(), FrameRange::EMPTY)
            })?,
        })
    }
}

impl Serve<'_> {
    /// A DIMM came, `begin` is when it was looked for.
    fn came(&mut self, dimm: Dimm, begin: u64) {
        let used = self.use_it(dimm);
        let done_ticks = ticks();
        self.slots.came(dimm.slot, used.is_ok());
        let mut report = report("add", dimm, begin, done_ticks);
        let mut reason = Reason::default();
        match used {
            Ok(mut known) => {
                self.came += 1;
                report.described_ticks = self.describe().then(ticks);
                report.failures = self.exercise(&mut known);
                self.known[dimm.slot as usize] = Some(known);
                report.node = Some(known.segment.node.0);
                report.zone = known.zone();
                report.offline = known.is_offline;
                info!(
                    "hotplug: {} came, {}, zone {}, {} after {} ticks",
                    known.segment.frames.addrs(),
                    known.segment.node,
                    known.segment.zone.name(),
                    if known.is_offline {
                        "offline"
                    } else {
                        "allocatable"
                    },
                    done_ticks - begin
                );
            }
            Err(why) => report.refused = Some(reason.of(&why)),
        }
        self.tell(report);
    }

    /// Makes a DIMM's memory allocatable.
    fn use_it(&self, dimm: Dimm) -> Result<Known, Refused> {
        let frames = &self.machine.frames;
        let range = dimm.range().ok_or(Refused::NoRange(dimm))?;
        let is_whole = |at: u64| at.is_multiple_of(Order::HUGE.bytes());
        if !is_whole(dimm.start) || !is_whole(dimm.bytes) {
            return Err(Refused::NoRange(dimm));
        }
        let node = frames.layout().topology().node_of(dimm.domain);
        let node = node.ok_or(Refused::NoSuchNode(dimm.domain))?;
        let all = range.inner_frames();
        let policy = self.machine.words.online;
        let of = frames.zone_by_policy(range, node, policy);
        let of = of.map_err(Refused::Hotplug)?;
        if range.end() > DirectMap::limit() {
            return Err(Refused::NotMapped);
        }
        let table = || {
            let page = frames
                .allocate(Request::new(Order::PAGE).zone(OWN))
                .map_err(|_| Refused::NotMapped)?;
            PhysRange::with_size(page.addr().get(), PAGE_BYTES).ok_or(Refused::NotMapped)
        };
        self.direct.add(core::iter::once(range), table)?;
        let segment = ZoneSegment {
            frames: all,
            node,
            zone: of.zone,
        };
        let mut usable = range;
        if let Some((_, descriptors)) = &self.machine.hooks.descriptors {
            let descriptors = descriptors.read();
            let own_frames = descriptors
                .add(segment, self.direct, |bytes| self.directory(bytes))
                .map_err(Refused::Descriptors)?;
            let from = own_frames
                .end()
                .addr()
                .get()
                .next_multiple_of(Order::HUGE.bytes());
            usable = PhysRange::new(from, range.end().get()).unwrap_or_default();
            if usable.is_empty() {
                self.forget(all);
                return Err(Refused::AllDescriptors(range));
            }
        }
        let content = match self.machine.words.fresh {
            true => Content::Zero,
            false => Content::Unknown,
        };
        let is_offline = policy == OnlinePolicy::Offline;
        let memory = NewMemory::new(usable).of(of).holds(content);
        let added = frames.add(memory.policy(policy));
        added.map_err(|error| {
            self.forget(all);
            Refused::Hotplug(error)
        })?;
        Ok(Known {
            dimm,
            segment,
            usable,
            is_offline,
            held: None,
        })
    }

    /// Memory for the directory of a DIMM's descriptors.
    fn directory(&self, bytes: u64) -> Option<&'static mut [MaybeUninit<u8>]> {
        let bytes = usize::try_from(bytes).ok()?;
        list_in(&self.machine.frames, OWN, bytes, |_| MaybeUninit::uninit())
    }

    /// A DIMM's descriptors are no more.
    fn forget(&self, frames: FrameRange) {
        if let Some((_, descriptors)) = &self.machine.hooks.descriptors {
            // SAFETY: its frames are offline, and this CPU, which alone works now, reads none.
            let _ = unsafe { descriptors.read().remove(frames) };
        }
    }

    /// Writes the descriptors that the mode leaves to workers; whether there are some.
    fn describe(&mut self) -> bool {
        let Some((mode, descriptors)) = &self.machine.hooks.descriptors else {
            return false;
        };
        let Some(part) = mode.behind_boot() else {
            return false;
        };
        let Lists { workers, ranges } = &mut self.lists;
        let job = Job::sections(Chunking::Stealing);
        let cpus = StartedCpus::new(self.processors);
        let lists = &mut (&mut **ranges, &mut **workers);
        let done = descriptors
            .read()
            .describe_with(part, |_| true, &job, lists, &cpus);
        if let Err(why) = &done {
            error!("hotplug: descriptors are written when touched: {why}");
        }
        done.is_ok()
    }

    /// Uses the first and the last huge frame of a DIMM; how many checks failed.
    fn exercise(&self, known: &mut Known) -> u64 {
        if known.is_offline {
            return 0;
        }
        let frames = &self.machine.frames;
        let all = known.usable.inner_frames();
        let last = all.end().get() - Order::HUGE.frames();
        let mut failures = 0;
        for start in [all.start().get(), last] {
            let start = Frame::new(start);
            let huge = FrameRange::block(start, Order::HUGE).unwrap_or_default();
            if frames.allocate_range(huge).is_err() {
                failures += 1;
                continue;
            }
            failures += u64::from(!keeps(start));
            failures += u64::from(frames.free(start, Order::HUGE).is_err());
        }
        // What is there does not come again, nor what overlaps it.
        let beyond = known.usable.end().get() + Order::HUGE.bytes();
        let overlapping = PhysRange::new(known.usable.start().get(), beyond).unwrap_or_default();
        for again in [known.usable, overlapping] {
            failures += u64::from(frames.add(again).is_ok());
        }
        let hold_one_in = self.machine.words.hold_one_in;
        if hold_one_in > 0 && self.came.is_multiple_of(hold_one_in) {
            let held = Frame::new(last + 7);
            let page = FrameRange::block(held, Order::PAGE).unwrap_or_default();
            known.held = frames.allocate_range(page).ok().map(|()| held);
        }
        failures
    }

    /// A DIMM is to go.
    fn goes(&mut self, dimm: Dimm, begin: u64) {
        let gone = self.let_go(dimm);
        let done_ticks = ticks();
        let mut report = report("remove", dimm, begin, done_ticks);
        let mut reason = Reason::default();
        match &gone {
            Ok(None) => {}
            Ok(Some(known)) => {
                report.node = Some(known.segment.node.0);
                report.zone = known.zone();
                report.offline = known.is_offline;
                info!(
                    "hotplug: {} is gone after {} ticks",
                    known.segment.frames.addrs(),
                    done_ticks - begin
                );
            }
            Err(why) => report.refused = Some(reason.of(why)),
        }
        self.tell(report);
        self.slots.goes(dimm.slot, gone.is_ok());
    }

    /// Takes a DIMM's memory out of use, if it was used.
    fn let_go(&mut self, dimm: Dimm) -> Result<Option<Known>, Refused> {
        let slot = dimm.slot as usize;
        let known = self.known.get(slot).copied().flatten();
        let Some(known) = known.filter(|known| known.dimm == dimm) else {
            return Ok(None);
        };
        let frames = &self.machine.frames;
        if !known.is_offline
            && let Err(error) = frames.offline(known.usable)
        {
            if let Some(held) = self.known[slot]
                .as_mut()
                .and_then(|known| known.held.take())
            {
                // The second time nothing is in use.
                self.failures += u64::from(frames.free(held, Order::PAGE).is_err());
            }
            return Err(Refused::Hotplug(error));
        }
        self.forget(known.segment.frames);
        frames.remove(known.usable).map_err(Refused::Hotplug)?;
        self.known[slot] = None;
        Ok(Some(known))
    }

    fn tell(&mut self, report: Hotplug<&str>) {
        self.failures += report.failures;
        let report = Hotplug {
            free_frames: self.machine.frames.statistics().free_frames,
            ..report
        };
        if let Some(refused) = report.refused {
            info!(
                "hotplug: {} of {:#x} bytes at {:#x} refused: {refused}",
                report.action, report.bytes, report.start
            );
        }
        event(&Event::Hotplug(report));
        self.list_blocks();
    }

    /// Lists memory blocks in runs, if that is requested.
    fn list_blocks(&self) {
        if !self.machine.words.lists_blocks {
            return;
        }
        for run in Blocks::new(&self.machine.frames, BlockSize::SMALLEST).runs() {
            let mut nodes = run.nodes();
            let node = nodes.next().unwrap_or_default();
            let others = if nodes.next().is_some() {
                " and others"
            } else {
                ""
            };
            info!(
                "hotplug: blocks {} to {}: {}, {}, {node}{others}",
                run.first.0,
                run.last.0,
                run.state(),
                run.zones()
            );
        }
    }
}

/// Whether an allocated huge frame keeps what is written at its ends.
fn keeps(start: Frame) -> bool {
    let first = start.addr().get() as *mut u64;
    const WORDS: usize = (2 << 20) / size_of::<u64>();
    const _: () = assert!(WORDS as u64 * 8 == Order::HUGE.bytes());
    let ends = || [(0, 0x5a5a), (WORDS - 1, 0xa5a5)].into_iter();
    for (at, word) in ends() {
        // SAFETY: mapped memory that was just allocated.
        unsafe { first.add(at).write_volatile(start.get() ^ word) };
    }
    // SAFETY: as above.
    ends().all(|(at, word)| unsafe { first.add(at).read_volatile() } == start.get() ^ word)
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

/// A reason in words, cut where it does not fit.
struct Reason {
    text: [u8; 240],
    len: usize,
}

impl Default for Reason {
    fn default() -> Self {
        Self {
            text: [0; 240],
            len: 0,
        }
    }
}

impl Reason {
    fn of(&mut self, why: &Refused) -> &str {
        // An error: it is cut.
        let _ = write!(self, "{why}");
        let text = self.text.get(..self.len).unwrap_or_default();
        core::str::from_utf8(text).unwrap_or_default()
    }
}

impl Write for Reason {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let slot = self.text.get_mut(self.len).ok_or(fmt::Error)?;
            *slot = byte;
            self.len += 1;
        }
        Ok(())
    }
}
