//! What the kernels here have in common: what OSDK would generate for them, and what they do
//! with a frame allocator.
#![no_std]

extern crate alloc;

pub mod measure;
pub mod owners;
pub mod stress;

use core::alloc::Layout;
use core::panic::PanicInfo;

use osdk_heap_allocator::HeapAllocator;
use ostd::boot::{EarlyCmdline, boot_info};
use ostd::early_println;
use ostd::log::LevelFilter;
use ostd::mm::Paddr;
use ostd::mm::frame::GlobalFrameAllocator;
use ostd::mm::heap::SlotInfo;
use ostd::power::{ExitCode, poweroff};

/// A frame allocator under test, which is ostd's global one.
pub struct Subject {
    /// The allocator.
    pub allocator: &'static dyn GlobalFrameAllocator,
    /// Whether it allocated this frame.
    pub is_allocated: fn(Paddr) -> bool,
    /// Called on each CPU when it is done, and on the first one when all are.
    pub drain: fn(),
    /// Free frames after all CPUs drained; all counters are recounted.
    ///
    /// An error says what does not add up.
    pub recount: fn() -> Result<u64, &'static str>,
    /// Measures what only this one does.
    pub measure_more: fn(),
    /// Whether what goes wrong fails the run: not in the allocator ours is compared with.
    pub is_ours: bool,
}

/// Prints a line in the form of ostd's test runner; counted by `run.sh`.
pub fn report(name: &str, result: Result<(), alloc::string::String>) -> bool {
    match &result {
        Ok(()) => early_println!("test stress::{} ... ok", name),
        Err(error) => early_println!("test stress::{} ... FAILED: {}", name, error),
    }
    result.is_ok()
}

/// Does what the command line says, then ends the machine.
pub fn run(subject: &'static Subject) -> ! {
    let booted = ostd::arch::read_tsc();
    let words = &boot_info().kernel_cmdline;
    let has = |word| words.split_whitespace().any(|one| one == word);
    let mut passed = true;
    if has("measure") {
        early_println!("measured boot {}", booted);
        measure::run(subject.allocator);
        (subject.measure_more)();
    }
    if has("stress") {
        passed = stress::run(subject);
    }
    poweroff(if passed {
        ExitCode::Success
    } else {
        ExitCode::Failure
    })
}

#[ostd::early_cmdline_parser]
const fn early(_words: &str) -> EarlyCmdline {
    EarlyCmdline {
        log_level: LevelFilter::Warning,
        has_early_console: true,
    }
}

#[ostd::global_heap_allocator]
static HEAP: HeapAllocator = HeapAllocator;

#[ostd::global_heap_allocator_slot_map]
const fn slot_of(layout: Layout) -> Option<SlotInfo> {
    osdk_heap_allocator::type_from_layout(layout)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    unsafe extern "Rust" {
        safe fn __ostd_panic_handler(info: &PanicInfo<'_>) -> !;
    }
    __ostd_panic_handler(info)
}
