//! Firstlight's frame allocator as the global frame allocator of an ostd kernel.
#![no_std]
#![deny(unsafe_code)]

macro_rules! __log_prefix {
    () => {
        "firstlight: "
    };
}

use core::alloc::Layout;
use core::cell::RefCell;
use core::mem::MaybeUninit;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{AllocError, Cpu, CpuCache, CpuSlot, Frames, Request};
use firstlight::node::NodeId;
use ostd::cpu::{PinCurrentCpu, num_cpus};
use ostd::mm::{PAGE_SIZE, Paddr, frame::GlobalFrameAllocator};
use ostd::util::id_set::Id;
use ostd::{cpu_local, irq};

/// Where memory may be: below so many GiB. Each costs 34 KiB of tables in the image's `.bss`.
const GIB: u64 = match option_env!("FIRSTLIGHT_GIB") {
    Some(gib) => match u64::from_str_radix(gib, 10) {
        Ok(gib) => gib,
        Err(_) => panic!("FIRSTLIGHT_GIB is not a number"),
    },
    None => 64,
};
const SPAN: FrameRange = FrameRange::new(0, GIB << 18).unwrap();
const BYTES: usize = Frames::bytes_for(SPAN, 256).unwrap() as usize;
/// CPUs that may have a cache.
const CPUS: usize = 64;

static TABLES: spin::Mutex<[MaybeUninit<u8>; BYTES]> =
    spin::Mutex::new([MaybeUninit::uninit(); BYTES]);
static SLOTS: [CpuSlot; CPUS] = [const { CpuSlot::new() }; CPUS];
static FRAMES: spin::Once<Frames<'static>> = spin::Once::new();

cpu_local! {
    static CACHE: spin::Mutex<CpuCache> = spin::Mutex::new(CpuCache::new());
    static CPU: RefCell<Option<Cpu<'static, 'static>>> = RefCell::new(None);
}

/// All frames.
pub fn frames() -> &'static Frames<'static> {
    FRAMES.call_once(|| {
        let tables = spin::MutexGuard::leak(TABLES.lock());
        let frames = Frames::over(SPAN, tables).expect("tables are large enough");
        frames.with_cpus(&SLOTS[..num_cpus()])
    })
}

/// With the cache of this CPU, interrupts off.
pub fn with_cpu<R>(call: impl FnOnce(&mut Cpu<'static, 'static>) -> R) -> R {
    let guard = irq::disable_local();
    let cell = CPU.get_with(&guard);
    let mut cpu = cell.borrow_mut();
    let cpu = cpu.get_or_insert_with(|| {
        let id = guard.current_cpu();
        let cache = spin::MutexGuard::leak(CACHE.get_on_cpu(id).lock());
        let cpu = frames().cpu(id.as_usize(), NodeId(0), cache);
        cpu.expect("a slot for each CPU, and memory")
    });
    call(cpu)
}

/// Firstlight.
pub struct Firstlight;

impl GlobalFrameAllocator for Firstlight {
    fn alloc(&self, layout: Layout) -> Option<Paddr> {
        let found = match (layout.size(), layout.align()) {
            (PAGE_SIZE, ..=PAGE_SIZE) => with_cpu(|cpu| cpu.allocate(Request::new(Order::PAGE))),
            (bytes, align) => allocate(bytes, align),
        };
        Some(found.ok()?.addr().get() as Paddr)
    }

    fn dealloc(&self, addr: Paddr, size: usize) {
        let first = Frame::new(addr as u64 / PAGE_BYTES);
        if size != PAGE_SIZE || with_cpu(|cpu| cpu.free(first, Order::PAGE)).is_err() {
            free(addr, size);
        }
    }

    fn add_free_memory(&self, addr: Paddr, size: usize) {
        let range = PhysRange::with_size(addr as u64, size as u64).unwrap_or_default();
        if let Err(error) = frames().add(range) {
            ostd::error!("{}", error);
        }
    }
}

/// Frames in a row.
#[inline(never)]
fn allocate(bytes: usize, align: usize) -> Result<Frame, AllocError> {
    let (frames, align) = (bytes.div_ceil(PAGE_SIZE) as u64, align.div_ceil(PAGE_SIZE) as u64);
    let request = Request::new(Order::PAGE);
    with_cpu(|cpu| cpu.allocate_frames(frames, align, request)).map(FrameRange::start)
}

/// Frees frames in a row; what was the kernel's own before it had an allocator, such as its boot
/// page tables, was never added.
#[inline(never)]
fn free(addr: Paddr, bytes: usize) {
    let bytes = PhysRange::with_size(addr as u64, bytes as u64).unwrap_or_default();
    let free = || with_cpu(|cpu| cpu.free_frames(bytes.inner_frames()));
    let freed = free().or_else(|error| frames().adopt(bytes).map_or(Err(error), |()| free()));
    if let Err(error) = freed {
        ostd::error!("{}", error);
    }
}
