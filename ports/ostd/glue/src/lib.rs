//! Firstlight's frame allocator as the global frame allocator of an ostd kernel.
#![no_std]

use core::alloc::Layout;
use core::mem::MaybeUninit;

use firstlight::addr::{Frame, FrameRange, Order};
use firstlight::frames::{Cpu, CpuCell, CpuGuard, CpuSlot, Frames, Request};
use firstlight::node::NodeId;
use ostd::cpu::{CpuId, PinCurrentCpu, num_cpus};
use ostd::irq::{DisabledLocalIrqGuard, disable_local};
use ostd::mm::{PAGE_SIZE, Paddr, frame::GlobalFrameAllocator};
use ostd::util::id_set::Id;
use spin::{Mutex, MutexGuard, Once};

/// All memory lies below; a GiB costs 34 KiB in the image's `.bss`.
const GIB: u64 = if cfg!(feature = "large") { 1024 } else { 64 };
const SPAN: FrameRange = FrameRange::new(0, GIB << 18).unwrap();
const BYTES: usize = Frames::bytes_for(SPAN, 256).unwrap() as usize;
const PAGE: Request = Request::new(Order::PAGE);

static TABLES: Mutex<[MaybeUninit<u8>; BYTES]> = Mutex::new([MaybeUninit::uninit(); BYTES]);
static SLOTS: [CpuSlot; 64] = [const { CpuSlot::new() }; 64];
static FRAMES: Once<Frames<'static>> = Once::new();

ostd::cpu_local! {
    static CELL: CpuCell = CpuCell::new();
}

struct Pinned(CpuId, #[expect(dead_code)] DisabledLocalIrqGuard);

// SAFETY: nothing else runs on a CPU while its interrupts are disabled.
unsafe impl CpuGuard for Pinned {
    fn cpu(&self) -> usize {
        self.0.as_usize()
    }
}

/// All frames.
pub fn frames() -> &'static Frames<'static> {
    FRAMES.call_once(|| {
        let frames = Frames::over(SPAN, &mut MutexGuard::leak(TABLES.lock())[..]);
        frames
            .expect("tables are large enough")
            .with_cpus(&SLOTS[..num_cpus()])
    })
}

/// With the cache of this CPU, interrupts disabled.
pub fn with_cpu<R>(call: impl for<'f> FnOnce(&mut Cpu<'f, 'static>) -> R) -> R {
    let guard = disable_local();
    let guard = Pinned(guard.current_cpu(), guard);
    let result = CELL
        .get_on_cpu(guard.0)
        .with(&guard, frames(), NodeId(0), call);
    result.expect("a slot for each CPU, and no call within a call")
}

/// Firstlight.
pub struct Firstlight;

impl GlobalFrameAllocator for Firstlight {
    fn alloc(&self, layout: Layout) -> Option<Paddr> {
        let first = match (layout.size(), layout.align()) {
            (PAGE_SIZE, ..=PAGE_SIZE) => with_cpu(|cpu| cpu.allocate(PAGE).ok()),
            (size, align) => allocate_many(size, align),
        };
        Some(first?.get() as Paddr * PAGE_SIZE)
    }

    fn dealloc(&self, addr: Paddr, size: usize) {
        let page = Frame::new((addr / PAGE_SIZE) as u64);
        if size != PAGE_SIZE || with_cpu(|cpu| cpu.free(page, Order::PAGE).is_err()) {
            free_many(range(addr, size));
        }
    }

    fn add_free_memory(&self, addr: Paddr, size: usize) {
        frames()
            .add(range(addr, size).bytes())
            .expect("memory of the span comes once");
    }
}

fn range(addr: Paddr, size: usize) -> FrameRange {
    let [first, count] = [addr, size].map(|bytes| (bytes / PAGE_SIZE) as u64);
    FrameRange::new(first, first + count).unwrap_or_default()
}

#[inline(never)]
fn allocate_many(size: usize, align: usize) -> Option<Frame> {
    let [count, align] = [size, align].map(|bytes| bytes.div_ceil(PAGE_SIZE) as u64);
    with_cpu(|cpu| Some(cpu.allocate_frames(count, align, PAGE).ok()?.start()))
}

#[inline(never)]
fn free_many(range: FrameRange) {
    if with_cpu(|cpu| cpu.free_frames(range).is_err()) {
        // What the kernel used before it had an allocator, such as its boot page tables.
        frames()
            .adopt(range.bytes())
            .expect("no frame is freed twice");
        free_many(range);
    }
}
