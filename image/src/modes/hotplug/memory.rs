//! Memory that comes while the machine runs, and goes: [`Plugging`].
//!
//! It is free as soon as its range is in the allocator's list; its descriptors lie in its own first
//! frames and are written behind, by all CPUs. It goes once nothing of it is in use; else the host gets
//! the reason, and all stays as it was.

use core::mem::MaybeUninit;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PAGE_SHIFT, PhysRange};
use firstlight::blocks::{BlockSize, Blocks};
use firstlight::frames::{Content, NewMemory, OnlinePolicy, Request};
use firstlight::layout::ZoneSegment;
use firstlight::node::{NodeId, ZoneKind};
use firstlight::parallel::{Chunking, Job, WorkRange, Worker};
use firstlight_image::hotplug::MOST_SLOTS;
use firstlight_wire::{Event, Hotplug};
use log::{error, info};

use super::refused::Refused;
use crate::arch::DirectMap;
use crate::console::event;
use crate::lists::list_in;
use crate::machine::Machine;
use crate::processors::{Processors, StartedCpus};

/// The zone of the image's own memory. Memory that comes is above it; on aarch64 some may come below 4 GiB, and is
/// taken when none of the start's is left there.
pub(super) const OWN: ZoneKind = ZoneKind::Dma32;

/// Memory that is used.
#[derive(Clone, Copy)]
pub(super) struct Plugged {
    /// All of it, with its node and zone.
    pub(super) segment: ZoneSegment,
    /// Without the frames of its own descriptors.
    pub(super) usable: PhysRange,
    /// It waits offline.
    pub(super) is_offline: bool,
}

impl Plugged {
    /// The zone it is used in.
    pub(super) fn zone(&self) -> Option<&'static str> {
        (!self.is_offline).then(|| self.segment.zone.name())
    }
}

/// What memory comes to.
pub(super) struct Plugging<'m> {
    pub(super) machine: &'m Machine,
    processors: &'m mut Processors,
    direct: &'static DirectMap,
    lists: Lists,
    pub(super) failures: u64,
}

/// Lists for writing descriptors, in memory of the start.
struct Lists {
    workers: &'static mut [Worker],
    ranges: &'static mut [WorkRange],
}

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

impl<'m> Plugging<'m> {
    /// `None`: there is no memory for lists.
    pub(super) fn new(machine: &'m Machine, processors: &'m mut Processors) -> Option<Self> {
        Some(Self {
            lists: Lists::new(machine, processors)?,
            machine,
            processors,
            direct: machine.direct,
            failures: 0,
        })
    }

    /// Makes memory of a node, in firmware's numbers, allocatable; without one it is of the node that
    /// firmware announces there.
    pub(super) fn add(
        &self,
        start: u64,
        bytes: u64,
        domain: Option<u32>,
    ) -> Result<Plugged, Refused> {
        let frames = &self.machine.frames;
        let no_range = Refused::NoRange { start, bytes };
        let range = PhysRange::with_size(start, bytes).ok_or(no_range)?;
        let is_whole = |at: u64| at.is_multiple_of(Order::HUGE.bytes());
        if range.is_empty() || !is_whole(start) || !is_whole(bytes) {
            return Err(no_range);
        }
        let all = range.inner_frames();
        let node = match domain {
            Some(domain) => {
                let node = frames.layout().topology().node_of(domain);
                node.ok_or(Refused::NoSuchNode(domain))?
            }
            None => {
                let mut windows = frames.layout().windows();
                let window = windows.find(|window| window.frames.contains(all.start()));
                window.map_or_else(NodeId::default, |window| window.node)
            }
        };
        let policy = self.machine.words.online;
        let by = |policy| frames.zone_by_policy(range, node, policy);
        // Memory that is of two zones by its addresses can only be Movable as a whole.
        let of = by(policy).or_else(|error| match policy {
            OnlinePolicy::OnlineKernel => Err(error),
            _ => by(OnlinePolicy::OnlineMovable).map_err(|_| error),
        });
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
        self.direct.plug(range, table)?;
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
        Ok(Plugged {
            segment,
            usable,
            is_offline,
        })
    }

    /// Memory for the directory of descriptors.
    fn directory(&self, bytes: u64) -> Option<&'static mut [MaybeUninit<u8>]> {
        let bytes = usize::try_from(bytes).ok()?;
        list_in(&self.machine.frames, OWN, bytes, |_| MaybeUninit::uninit())
    }

    /// Takes memory out of use: all stays as it was if some of it is in use.
    pub(super) fn remove(&self, plugged: &Plugged) -> Result<(), Refused> {
        let frames = &self.machine.frames;
        if !plugged.is_offline {
            frames.offline(plugged.usable).map_err(Refused::Hotplug)?;
        }
        self.forget(plugged.segment.frames);
        frames.remove(plugged.usable).map_err(Refused::Hotplug)
    }

    /// Descriptors are no more.
    fn forget(&self, frames: FrameRange) {
        if let Some((_, descriptors)) = &self.machine.hooks.descriptors {
            // SAFETY: its frames are offline, and this CPU, which alone works now, reads none.
            let _ = unsafe { descriptors.read().remove(frames) };
        }
    }

    /// Writes the descriptors that the mode leaves to workers; whether there are some.
    pub(super) fn describe(&mut self) -> bool {
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

    /// Uses the first and the last huge frame of memory, with the word `touch` a word of each of its
    /// pages; how many checks failed.
    pub(super) fn exercise(&self, plugged: &Plugged) -> u64 {
        if plugged.is_offline {
            return 0;
        }
        let frames = &self.machine.frames;
        let all = plugged.usable.inner_frames();
        let mut failures = 0;
        let huges = all.count() / Order::HUGE.frames();
        let touches = self.machine.words.touch;
        let used = (0..huges).filter(|huge| touches || *huge == 0 || *huge == huges - 1);
        for huge in used {
            let start = Frame::new(all.start().get() + huge * Order::HUGE.frames());
            let huge = FrameRange::block(start, Order::HUGE).unwrap_or_default();
            if frames.allocate_range(huge).is_err() {
                failures += 1;
                continue;
            }
            failures += u64::from(!keeps(start, touches));
            failures += u64::from(frames.free(start, Order::HUGE).is_err());
        }
        // What is there does not come again, nor what overlaps it.
        let beyond = plugged.usable.end().get() + Order::HUGE.bytes();
        let overlapping = PhysRange::new(plugged.usable.start().get(), beyond).unwrap_or_default();
        for again in [plugged.usable, overlapping] {
            failures += u64::from(frames.add(again).is_ok());
        }
        failures
    }

    /// Keeps the eighth page of the last huge frame in use.
    pub(super) fn hold(&self, plugged: &Plugged) -> Option<Frame> {
        let end = plugged.usable.inner_frames().end().get();
        let held = Frame::new(end.checked_sub(Order::HUGE.frames())? + 7);
        let page = FrameRange::block(held, Order::PAGE).unwrap_or_default();
        let taken = self.machine.frames.allocate_range(page);
        taken.ok().map(|()| held)
    }

    /// Frees it.
    pub(super) fn let_go(&mut self, held: Frame) {
        let freed = self.machine.frames.free(held, Order::PAGE);
        self.failures += u64::from(freed.is_err());
    }

    /// Reports what came of an event.
    pub(super) fn tell(&mut self, report: Hotplug<&str>) {
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
    pub(super) fn list_blocks(&self) {
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

/// Whether an allocated huge frame keeps what is written at its ends, or to each of its pages.
fn keeps(start: Frame, every_page: bool) -> bool {
    let first = start.addr().get() as *mut u64;
    const PAGE_WORDS: usize = (1 << PAGE_SHIFT) / size_of::<u64>();
    const WORDS: usize = PAGE_WORDS << Order::HUGE.get();
    let step = if every_page { PAGE_WORDS } else { WORDS };
    let places = || (0..WORDS).step_by(step).chain([WORDS - 1]);
    let word = |at: usize| start.get() ^ (at as u64 + 0x5a5a);
    for at in places() {
        // SAFETY: mapped memory that was just allocated.
        unsafe { first.add(at).write_volatile(word(at)) };
    }
    // SAFETY: as above.
    places().all(|at| unsafe { first.add(at).read_volatile() } == word(at))
}
