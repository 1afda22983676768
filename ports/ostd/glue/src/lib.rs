//! Firstlight's frame allocator as the global frame allocator of an ostd kernel.
#![no_std]

macro_rules! __log_prefix {
    () => {
        "firstlight: "
    };
}

use core::alloc::Layout as Bytes;
use core::cell::RefCell;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::early::{Allocation, EarlyFlags, EarlyMemory, EarlyRegion};
use firstlight::frames::{AllocError, Cpu, CpuCache, CpuSlot, Frames, NoDrain, Request};
use firstlight::layout::{Layout, LayoutPolicy, LayoutStorage, Node, NodeRange, Zone};
use firstlight::node::NodeId;
use firstlight::platform::Platform;
use firstlight::topology::{NodeInfo, Topology};
use ostd::cpu::{PinCurrentCpu, num_cpus};
use ostd::mm::frame::GlobalFrameAllocator;
use ostd::mm::io::util::HasVmReaderWriter;
use ostd::mm::{Paddr, Segment};
use ostd::util::id_set::Id;
use ostd::{cpu_local, irq};

const REGIONS: usize = 64;
const CPUS: usize = 64;

struct Linear;

// SAFETY: each range is claimed in ostd's frame metadata first, so it has no other owner, and it
// is part of the linear mapping, on all CPUs, for ever.
unsafe impl Platform for Linear {
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
        let (start, end) = (range.start().get(), range.end().get());
        let claimed = Segment::from_unused(start as Paddr..end as Paddr, |_| ()).ok()?;
        NonNull::new(ManuallyDrop::new(claimed).writer().cursor())
    }
}

struct Storage {
    memory: [EarlyRegion; REGIONS],
    reserved: [EarlyRegion; REGIONS + 8],
    owners: [Allocation; 0],
    info: [NodeInfo; 1],
    nodes: [Node; 1],
    ranges: [NodeRange; REGIONS],
    zones: [Zone; 4],
}

static STORAGE: spin::Mutex<Storage> = spin::Mutex::new(Storage {
    memory: [EarlyRegion::EMPTY; REGIONS],
    reserved: [EarlyRegion::EMPTY; REGIONS + 8],
    owners: [],
    info: [NodeInfo::EMPTY; 1],
    nodes: [Node::EMPTY; 1],
    ranges: [NodeRange::EMPTY; REGIONS],
    zones: [Zone::EMPTY; 4],
});
static SLOTS: [CpuSlot; CPUS] = [const { CpuSlot::new() }; CPUS];
static FRAMES: spin::Once<Frames<'static>> = spin::Once::new();
static ADDED: spin::Mutex<([PhysRange; REGIONS], usize)> =
    spin::Mutex::new(([PhysRange::EMPTY; REGIONS], 0));

cpu_local! {
    static CACHE: spin::Mutex<CpuCache> = spin::Mutex::new(CpuCache::new());
    static CPU: RefCell<Option<Cpu<'static, 'static>>> = RefCell::new(None);
}

/// All frames; built at the first allocation, since ostd does not say what it adds last.
pub fn frames() -> &'static Frames<'static> {
    FRAMES.call_once(build)
}

fn build() -> Frames<'static> {
    let storage = spin::MutexGuard::leak(STORAGE.lock());
    let (memory, reserved) = (&mut storage.memory, &mut storage.reserved);
    let mut early = EarlyMemory::new(memory, reserved, &mut storage.owners);
    let added = ADDED.lock();
    let added = &added.0[..added.1];
    // ostd frees frames that it never added (the boot page table's), so all up to the highest
    // is memory, and reserved where it is not free yet.
    let end = added
        .iter()
        .map(|range| range.end().get())
        .max()
        .unwrap_or(0);
    let all = PhysRange::new(0, end).unwrap();
    early
        .add(all, EarlyFlags::NONE)
        .expect("no space for memory");
    early
        .reserve_freeable(all, "ostd")
        .expect("no space to reserve");
    for range in added {
        early.free(*range).expect("too many regions");
    }
    let topology = Topology::single(&mut storage.info, num_cpus() as u32).unwrap();
    let storage = LayoutStorage {
        nodes: &mut storage.nodes,
        ranges: &mut storage.ranges,
        zones: &mut storage.zones,
    };
    let layout =
        Layout::build(early, topology, &LayoutPolicy::DEFAULT, storage).expect("no layout");
    let frames = Frames::build(layout, &Linear).expect("no allocator");
    frames.with_cpus(&SLOTS[..num_cpus().min(CPUS)], &NoDrain)
}

/// With the cache of this CPU, interrupts off.
pub fn with_cpu<R>(call: impl FnOnce(&mut Cpu<'static, 'static>) -> R) -> R {
    let guard = irq::disable_local();
    let cell = CPU.get_with(&guard);
    let mut cpu = cell.borrow_mut();
    let cpu = cpu.get_or_insert_with(|| {
        let id = guard.current_cpu();
        let cache = spin::MutexGuard::leak(CACHE.get_on_cpu(id).lock());
        frames()
            .cpu(id.as_usize(), NodeId(0), cache)
            .expect("no slot")
    });
    call(cpu)
}

/// Whether `addr` is in a frame that was allocated from here.
pub fn is_allocated(addr: Paddr) -> bool {
    frames().is_allocated(Frame::new(addr as u64 / PAGE_BYTES)) == Some(true)
}

/// Firstlight.
pub struct Firstlight;

impl GlobalFrameAllocator for Firstlight {
    fn alloc(&self, layout: Bytes) -> Option<Paddr> {
        let frames = (layout.size() as u64).div_ceil(PAGE_BYTES);
        let align = (layout.align() as u64).div_ceil(PAGE_BYTES);
        let found: Result<_, AllocError> = with_cpu(|cpu| {
            if frames == 1 && align <= 1 {
                return cpu.allocate(Request::new(Order::PAGE));
            }
            let found = cpu.allocate_frames(frames, align, Request::new(Order::PAGE));
            found.map(FrameRange::start)
        });
        found.ok().map(|frame| frame.addr().get() as Paddr)
    }

    fn dealloc(&self, addr: Paddr, size: usize) {
        let (start, frames) = (addr as u64 / PAGE_BYTES, size as u64 / PAGE_BYTES);
        let freed = with_cpu(|cpu| match frames {
            1 => cpu.free(Frame::new(start), Order::PAGE).is_ok(),
            _ => {
                let range = FrameRange::new(start, start + frames).unwrap_or_default();
                cpu.free_frames(range).is_ok()
            }
        });
        debug_assert!(freed, "{addr:#x} {size:#x}");
    }

    fn add_free_memory(&self, addr: Paddr, size: usize) {
        if FRAMES.is_completed() {
            return self.dealloc(addr, size);
        }
        let range = PhysRange::with_size(addr as u64, size as u64).expect("past 2^64");
        let (added, count) = &mut *ADDED.lock();
        added[*count] = range;
        *count += 1;
    }
}
