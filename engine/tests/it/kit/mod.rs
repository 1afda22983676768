//! A machine for tests: ranges of memory by node, and a platform whose
//! metadata lies in ordinary, uninitialised memory.

#[cfg(feature = "content")]
pub(crate) mod real;
pub(crate) mod threads;
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) mod zero;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ptr::NonNull;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::early::{EarlyFlags, EarlyMemory};
#[cfg(feature = "content")]
use firstlight::frames::ZeroedFrames;
use firstlight::frames::{
    BuildError, CpuCache, Frames, HotplugError, OnlinePolicy, Refusal, Request,
};
use firstlight::layout::{Layout, LayoutPolicy};
use firstlight::node::{NodeId, NodeZone};
use firstlight::platform::Platform;
use firstlight::start::{BootSizes, BootSlots};
use firstlight::topology::{Topology, TopologyBuilder, Trust};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;
pub(crate) const TIB: u64 = 1 << 40;

/// 512 with pages of 4 KiB.
pub(crate) const HUGE_FRAMES: u64 = Order::HUGE.frames();
/// 2 MiB with pages of 4 KiB.
pub(crate) const HUGE_BYTES: u64 = Order::HUGE.bytes();
/// 2^18 with pages of 4 KiB.
pub(crate) const GIANT_FRAMES: u64 = Order::GIANT.frames();
/// 1 GiB with pages of 4 KiB.
pub(crate) const GIANT_BYTES: u64 = Order::GIANT.bytes();
/// Huge frames of a giant frame, 512 with pages of 4 KiB.
pub(crate) const GIANT_HUGES: u64 = GIANT_FRAMES / HUGE_FRAMES;

/// Zone DMA is 8 huge frames: 16 MiB with pages of 4 KiB, as by default.
pub(crate) const DMA_OF_HUGES: LayoutPolicy = LayoutPolicy {
    dma_end: Frame::new(8 * HUGE_FRAMES),
    ..LayoutPolicy::DEFAULT
};
/// And DMA32 ends at 2,048 of them, at 4 GiB then.
pub(crate) const ZONES_OF_HUGES: LayoutPolicy = LayoutPolicy {
    dma32_end: Frame::new(2048 * HUGE_FRAMES),
    ..DMA_OF_HUGES
};

/// Zone DMA32 ends at 4 giant frames: at 4 GiB with pages of 4 or 16 KiB, as by default.
pub(crate) const DMA32_OF_GIANTS: LayoutPolicy = LayoutPolicy {
    dma32_end: Frame::new(4 * GIANT_FRAMES),
    ..LayoutPolicy::DEFAULT
};

pub(crate) fn range(start: u64, end: u64) -> PhysRange {
    PhysRange::new(start, end).expect("a range that does not end before it starts")
}

/// The frames of a block.
pub(crate) fn block(start: Frame, order: Order) -> FrameRange {
    FrameRange::block(start, order).unwrap()
}

/// A refusal of a frame of `range`.
pub(crate) fn refused_at(range: PhysRange, frame: Frame, why: Refusal) -> HotplugError {
    HotplugError { range, frame, why }
}

/// A refusal of all of `range`.
pub(crate) fn refused(range: PhysRange, why: Refusal) -> HotplugError {
    refused_at(range, Frame::new(range.start().get() / PAGE_BYTES), why)
}

/// The nodes and zones that memory at `frame` may be of, by node and zone.
pub(crate) fn zones_at(frames: &Frames<'_>, frame: Frame) -> Vec<NodeZone> {
    let range = block(frame, Order::PAGE).addrs();
    let policies = [OnlinePolicy::OnlineKernel, OnlinePolicy::OnlineMovable];
    let all = (0..8).flat_map(|node| policies.map(|policy| (NodeId(node), policy)));
    let zones = all.filter_map(|(node, policy)| frames.zone_by_policy(range, node, policy).ok());
    zones.collect()
}

/// Whether `frame` is memory that is offline.
pub(crate) fn is_offline(frames: &Frames<'_>, frame: Frame) -> bool {
    let one = frames.present_in(block(frame, Order::PAGE));
    one.is_some_and(|present| present.is_offline)
}

/// What requests for zeros got from `node`, and what was made zero there.
#[cfg(feature = "content")]
pub(crate) fn zeroed_frames(frames: &Frames<'_>, node: NodeId) -> ZeroedFrames {
    let mut sum = ZeroedFrames::default();
    let zones = frames.zones().filter(|zone| zone.node() == node);
    zones.for_each(|zone| sum += zone.zeroed_frames());
    sum
}

pub(crate) fn page() -> Request {
    Request::new(Order::PAGE)
}

pub(crate) fn huge() -> Request {
    Request::new(Order::HUGE)
}

/// Two nodes of 4 giant frames (GiB) each; the first has the usual holes.
pub(crate) fn two_nodes() -> Machine {
    Machine {
        policy: Some(DMA32_OF_GIANTS),
        ..Machine::new(&[
            (0, range(0x1000, 0x9f000)),
            (0, range(MIB, 3 * GIANT_BYTES)),
            (0, range(4 * GIANT_BYTES, 5 * GIANT_BYTES)),
            (1, range(5 * GIANT_BYTES, 9 * GIANT_BYTES)),
        ])
    }
}

/// All of this memory free, from the fourth giant frame (4 GiB) on, added to a machine that had none.
pub(crate) fn added<'m>(bytes: u64) -> Frames<'m> {
    let memory = PhysRange::with_size(4 * GIANT_BYTES, bytes).unwrap();
    let span = memory.inner_frames();
    let tables = usize::try_from(Frames::bytes_for(span, 8).unwrap()).unwrap();
    let frames = Frames::over(span, Box::leak(Box::new_uninit_slice(tables))).unwrap();
    frames.add(memory).unwrap();
    frames
}

/// Order of 2^`by` huge frames.
pub(crate) fn above_huge(by: u8) -> Order {
    Order::new(Order::HUGE.get() + by).unwrap()
}

/// Order of 1/2^`by` of a giant frame.
pub(crate) fn below_giant(by: u8) -> Order {
    Order::new(Order::GIANT.get() - by).unwrap()
}

/// Storage that lives as long as the test.
pub(crate) fn leak<T: Clone>(empty: T, len: usize) -> &'static mut [T] {
    Box::leak(vec![empty; len].into_boxed_slice())
}

/// Storage of all steps that lives as long as the test.
pub(crate) fn boot_slots(ranges: usize, nodes: usize) -> BootSlots<'static> {
    let sizes = BootSizes::new(ranges, nodes);
    BootSlots::carve(Box::leak(Box::new_uninit_slice(sizes.bytes())), sizes).unwrap()
}

/// Memory of node 0 from `memory` without `reserved`, and windows by domain.
pub(crate) fn layout_with_windows(
    memory: PhysRange,
    reserved: &[PhysRange],
    windows: &[(u32, PhysRange)],
    policy: &LayoutPolicy,
) -> Layout<'static> {
    layout_of_nodes(1, memory, reserved, windows, policy)
}

/// [`layout_with_windows`] with so many nodes at least.
pub(crate) fn layout_of_nodes(
    nodes: u32,
    memory: PhysRange,
    reserved: &[PhysRange],
    windows: &[(u32, PhysRange)],
    policy: &LayoutPolicy,
) -> Layout<'static> {
    let slots = boot_slots(reserved.len() + 8, 8);
    let mut early = EarlyMemory::new(slots.memory, slots.reserved, slots.owners);
    early.add(memory, EarlyFlags::NONE).unwrap();
    for &range in reserved {
        early.reserve(range, "test").unwrap();
    }
    let mut builder = TopologyBuilder::new(slots.topology);
    let home = builder.node_of(0).unwrap();
    builder.add_memory(home, memory, false).unwrap();
    for domain in 1..nodes {
        builder.node_of(domain).unwrap();
    }
    for &(domain, window) in windows {
        let node = builder.node_of(domain).unwrap();
        builder.add_memory(node, window, true).unwrap();
    }
    let mut topology = builder.finish(&mut |notice| panic!("{notice}"));
    topology
        .apply(&mut early, Trust::Repair, &mut |_| {})
        .unwrap();
    Layout::build(early, topology, policy, slots.layout).unwrap()
}

/// The allocator of a layout.
pub(crate) fn built(layout: Layout<'static>) -> Frames<'static> {
    let platform: &'static Uninitialised = Box::leak(Box::default());
    Frames::build(layout, platform).unwrap()
}

/// A machine with such memory and windows, nothing of it reserved.
pub(crate) fn machine_with_windows(
    memory: PhysRange,
    windows: &[(u32, PhysRange)],
) -> Frames<'static> {
    built(layout_with_windows(
        memory,
        &[],
        windows,
        &LayoutPolicy::DEFAULT,
    ))
}

/// Caches of CPUs that live as long as the test.
pub(crate) fn caches(cpus: usize) -> &'static [CpuCache] {
    let caches: Vec<_> = (0..cpus).map(|_| CpuCache::new()).collect();
    caches.leak()
}

/// `frames` with caches for so many CPUs.
pub(crate) fn with_cpus(frames: Frames<'_>, cpus: usize) -> Frames<'_> {
    frames.provide_cpus(caches(cpus)).unwrap();
    frames
}

/// Metadata in memory of this process, never initialised.
#[derive(Debug, Default)]
pub(crate) struct Uninitialised {
    /// The ranges mapped, by start address.
    pub(crate) mapped: RefCell<BTreeMap<u64, u64>>,
    /// Refuses to map.
    pub(crate) broken: bool,
    /// Zeroes what it maps, and says so.
    pub(crate) zeroed: bool,
}

// SAFETY: every range gets memory of its own, leaked and aligned like the range.
unsafe impl Platform for Uninitialised {
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
        if self.broken {
            return None;
        }
        self.mapped
            .borrow_mut()
            .insert(range.start().get(), range.bytes());
        let bytes = usize::try_from(range.bytes()).ok()?;
        let bytes = std::alloc::Layout::from_size_align(bytes, PAGE_BYTES as usize).ok()?;
        // SAFETY: the engine maps no empty range.
        NonNull::new(unsafe {
            if self.zeroed {
                std::alloc::alloc_zeroed(bytes)
            } else {
                std::alloc::alloc(bytes)
            }
        })
    }

    fn is_zero(&self, _range: PhysRange) -> bool {
        self.zeroed
    }
}

/// A machine by its memory: node and range, ascending.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) memory: Vec<(u16, PhysRange, EarlyFlags)>,
    pub(crate) reserved: Vec<PhysRange>,
    /// Reserved for boot only.
    pub(crate) boot: Vec<PhysRange>,
    /// Row by row; empty: firmware reports none.
    pub(crate) distances: Vec<u8>,
    pub(crate) policy: Option<LayoutPolicy>,
    /// In which memory may be plugged in, by node.
    pub(crate) windows: Vec<(u16, PhysRange)>,
}

impl Machine {
    pub(crate) fn new(memory: &[(u16, PhysRange)]) -> Self {
        let memory = memory
            .iter()
            .map(|&(node, range)| (node, range, EarlyFlags::NONE));
        Self {
            memory: memory.collect(),
            ..Self::default()
        }
    }

    pub(crate) fn layout(&self) -> Layout<'static> {
        let slots = 4 * (self.memory.len() + self.reserved.len() + self.boot.len()) + 64;
        // Miri is slow to make what few tests need.
        let spare = if cfg!(miri) { 32 } else { 2048 };
        let nodes = self
            .memory
            .iter()
            .map(|row| usize::from(row.0) + 1)
            .max()
            .unwrap_or(1);
        let BootSlots {
            memory,
            reserved,
            owners,
            topology,
            distances,
            layout,
            ..
        } = boot_slots(slots + spare, nodes);
        let mut early = EarlyMemory::new(memory, reserved, owners);
        let mut builder = TopologyBuilder::new(topology);
        for node in 0..nodes {
            let id = builder.node_of(u32::try_from(node).unwrap()).unwrap();
            builder.add_cpus(id, 4);
        }
        for &(node, range, flags) in &self.memory {
            early.add(range, flags).unwrap();
            builder.add_memory(NodeId(node), range, false).unwrap();
        }
        for &(node, window) in &self.windows {
            builder.add_memory(NodeId(node), window, true).unwrap();
        }
        let mut topology: Topology<'static> = builder.finish(&mut |_| {});
        if !self.distances.is_empty() {
            let distance = |a: usize, b: usize| self.distances.get(a * nodes + b).copied();
            topology.set_distances(distances, distance).unwrap();
        }
        topology
            .apply(&mut early, Trust::Repair, &mut |_| {})
            .unwrap();
        for &range in &self.boot {
            early.reserve_freeable(range, "boot").unwrap();
        }
        for &range in &self.reserved {
            early.reserve(range, "test").unwrap();
        }
        let policy = self.policy.unwrap_or(LayoutPolicy::DEFAULT);
        Layout::build(early, topology, &policy, layout).unwrap()
    }

    pub(crate) fn build<'m>(&self) -> Result<Frames<'m>, BuildError> {
        Frames::build(self.layout(), Box::leak(Box::new(Uninitialised::default())))
    }

    pub(crate) fn frames<'m>(&self) -> Frames<'m> {
        self.build().unwrap()
    }

    /// Frames with caches for `cpus` CPUs.
    pub(crate) fn frames_with_cpus<'m>(&self, cpus: usize) -> Frames<'m> {
        with_cpus(self.frames(), cpus)
    }
}
