//! Firstlight's frame allocator as the global frame allocator of an ostd kernel.
#![no_std]

use core::{alloc::Layout, mem::MaybeUninit};

use firstlight_frames::addr::{FrameRange, Order};
use firstlight_frames::frames::{CpuCache, Frames, PerCpu, RangeError, Request};
use ostd::cpu::{CpuId, num_cpus};
use ostd::mm::{PAGE_SIZE, Paddr, frame::GlobalFrameAllocator};
use spin::{Mutex, MutexGuard, Once};

/// All memory lies below; a GiB costs 34 KiB in the image's `.bss`.
const GIB: u64 = if cfg!(feature = "large") { 1024 } else { 64 };
const SPAN: FrameRange = FrameRange::new(0, GIB << 18).unwrap();
const BYTES: usize = Frames::bytes_for(SPAN, 256).unwrap() as usize;
const PAGE: Request = Request::new(Order::PAGE);

static TABLES: Mutex<[MaybeUninit<u8>; BYTES]> = Mutex::new([MaybeUninit::uninit(); BYTES]);
static CPUS: [CpuCache; 64] = [const { CpuCache::new() }; 64];
static FRAMES: Once<Frames<'static>> = Once::new();

ostd::cpu_local_cell! { static CACHE: *const CpuCache = core::ptr::null(); }

/// Firstlight.
pub struct Firstlight;

// SAFETY: nothing else runs on a CPU while its interrupts are disabled.
unsafe impl PerCpu for Firstlight {
    fn with_cache<R>(&self, call: impl FnOnce(&'static CpuCache) -> R) -> R {
        let _off = ostd::irq::disable_local();
        let mut cache = CACHE.load();
        if cache.is_null() {
            cache = &raw const CPUS[u32::from(CpuId::current_racy()) as usize];
            CACHE.store(cache);
        }
        // SAFETY: this CPU's, of the static.
        call(unsafe { &*cache })
    }

    fn frames(&self) -> &'static Frames<'static> {
        FRAMES.call_once(|| {
            let tables = MutexGuard::leak(TABLES.lock());
            let frames = Frames::over(SPAN, &mut tables[..]).expect("tables are large enough");
            let provided = frames.provide_cpus(&CPUS[..num_cpus()]);
            provided.expect("once");
            frames
        })
    }
}

impl GlobalFrameAllocator for Firstlight {
    fn alloc(&self, layout: Layout) -> Option<Paddr> {
        let count = (layout.size() / PAGE_SIZE) as u64;
        let align = layout.align().div_ceil(PAGE_SIZE) as u64;
        let found = self.allocate_frames(count, align, PAGE).ok()?;
        Some(found.start().get() as Paddr * PAGE_SIZE)
    }

    fn dealloc(&self, addr: Paddr, size: usize) {
        match self.free_frames(range(addr, size)) {
            // What the kernel used before it had an allocator, such as its boot page tables.
            Err(RangeError::Reserved { range, .. }) => add(range),
            freed => freed.expect("all of it is allocated"),
        }
    }

    fn add_free_memory(&self, addr: Paddr, size: usize) {
        add(range(addr, size));
    }
}

fn add(range: FrameRange) {
    let added = Firstlight.frames().add(range.addrs());
    added.expect("memory comes once");
}

fn range(addr: Paddr, size: usize) -> FrameRange {
    let [first, count] = [addr, size].map(|bytes| (bytes / PAGE_SIZE) as u64);
    FrameRange::new(first, first + count).unwrap_or_default()
}
