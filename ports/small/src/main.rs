//! A kernel that only adds memory, allocates and frees: what it links is the size of the allocator.
#![no_std]
#![no_main]

use core::mem::MaybeUninit;

use firstlight::addr::{FrameRange, Order, PhysRange};
use firstlight::frames::{CpuCache, Frames, PerCpu, Request};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// There is one CPU, and interrupts are off.
struct Alone(&'static Frames<'static>);

// SAFETY: nothing else runs.
unsafe impl PerCpu for Alone {
    fn with_cache<R>(&self, call: impl FnOnce(&'static CpuCache) -> R) -> R {
        call(&CPUS[0])
    }

    fn frames(&self) -> &'static Frames<'static> {
        self.0
    }
}

static CPUS: [CpuCache; 1] = [CpuCache::new()];
/// The first GiB.
const SPAN: FrameRange = FrameRange::new(0, 1 << 18).unwrap();
const TABLE_BYTES: usize = Frames::bytes_for(SPAN, 8).unwrap() as usize;
static mut TABLES: [MaybeUninit<u8>; TABLE_BYTES] = [MaybeUninit::uninit(); TABLE_BYTES];
static mut FRAMES: MaybeUninit<Frames<'static>> = MaybeUninit::uninit();

/// The loader's arguments are unknown to the compiler: nothing is computed at compile time.
#[unsafe(no_mangle)]
extern "C" fn _start(start: u64, end: u64, order: u8) -> u64 {
    let work = || {
        // SAFETY: called once.
        let (tables, place) = unsafe { (&mut *(&raw mut TABLES), &mut *(&raw mut FRAMES)) };
        let frames: &_ = place.write(Frames::over(SPAN, tables).ok()?);
        frames.provide_cpus(&CPUS).ok()?;
        frames.add(PhysRange::new(start, end)?).ok()?;
        let order = Order::new(order)?;
        let alone = Alone(frames);
        let page = alone.allocate(Request::new(order)).ok()?;
        alone.free(page, order).ok().map(|()| page.get())
    };
    work().unwrap_or(u64::MAX)
}
