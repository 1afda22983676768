//! A unikernel's memory, from its loader's device tree to pages and huge frames: what it links more with the engine than
//! with a list of free ranges (`own`). With the engine its memory comes range by range (`ranges`), or by the whole way up
//! (`start`). Never run.
#![no_std]
#![no_main]

use core::fmt::{Display, Write};
use core::sync::atomic::{AtomicU8, Ordering};

use firstlight::addr::PhysRange;
use firstlight::firmware::fdt::Fdt;

#[cfg(not(feature = "own"))]
mod engine;
#[cfg(feature = "own")]
mod own;
#[cfg(not(any(feature = "own", feature = "start")))]
mod ranges;
#[cfg(feature = "start")]
mod start;

#[cfg(not(feature = "own"))]
use engine as memory;
#[cfg(feature = "own")]
use own as memory;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

struct Console;

static PORT: AtomicU8 = AtomicU8::new(0);

impl Write for Console {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes() {
            PORT.store(byte, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// What the kernel logs, numbers among it.
fn log(seen: &dyn Display) {
    let _ = writeln!(Console, "memory: {seen}");
}

/// Ranges of memory, as the loader's tree has them.
#[cfg(not(feature = "start"))]
fn memory_of(tree: &Fdt<'_>) -> impl Iterator<Item = PhysRange> {
    let all = tree
        .memory()
        .filter_map(|memory| memory.map_err(|why| log(&why)).ok());
    all.filter_map(|memory| PhysRange::with_size(memory.start, memory.bytes))
}

/// The loader's arguments are unknown to the compiler: nothing is computed at compile time.
#[unsafe(no_mangle)]
extern "C" fn _start(tree: *const u8, bytes: usize, kernel: u64, frames: u64, align: u64) -> u64 {
    let work = || {
        // SAFETY: never run.
        let tree = unsafe { core::slice::from_raw_parts(tree, bytes) };
        let tree = Fdt::parse(tree).map_err(|why| log(&why)).ok()?;
        memory::start(&tree, PhysRange::new(0, kernel)?)?;
        // Stacks, page tables, the heap's huge frames, buffers: one call serves all.
        let row = memory::allocate(frames, align)?;
        memory::free(row)?;
        log(&memory::free_frames());
        Some(row.start().get())
    };
    work().unwrap_or(u64::MAX)
}
