//! What the kernel tries once it has memory: a kernel that is copied from this has its own work here.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use firstlight_frames::addr::{Frame, Order};
use firstlight_frames::frames::{BlockError, Frames, PerCpu, Request};

use crate::cpu::{self, ThisCpu};
use crate::println;

/// Tries all of it; whether all is as it should be.
pub fn all(frames: &'static Frames<'static>) -> bool {
    println!("memory: {}", frames.statistics());
    let heap = small_objects();
    // The heap keeps its first pages.
    let begin = frames.statistics().free_frames;
    let results = [
        ("a heap of small objects", heap && small_objects()),
        ("a vector of 4 MiB", large_vector()),
        ("a huge frame", huge_frame(frames)),
        ("pages that this CPU caches", cached_pages(frames)),
        ("what is in use stays so", in_use(frames)),
        ("all memory, once", all_memory(frames)),
        (
            "nothing is lost",
            frames.validate().is_ok() && frames.statistics().free_frames == begin,
        ),
    ];
    for (name, is_well) in results {
        println!("{} {name}", if is_well { "passed" } else { "FAILED" });
    }
    let passed = results.iter().filter(|(_, is_well)| *is_well).count();
    println!("{passed} passed, {} failed", results.len() - passed);
    passed == results.len()
}

/// Strings in a tree, half of them dropped in between.
fn small_objects() -> bool {
    let mut words: BTreeMap<u32, String> = (0..5_000).map(|n| (n, n.to_string())).collect();
    words.retain(|n, _| n % 2 == 0);
    let other: Vec<String> = (5_000..8_000u32).map(|n| n.to_string()).collect();
    words.iter().all(|(n, word)| *word == n.to_string())
        && words.len() == 2_500
        && other[7] == "5007"
}

/// Grows several times: each time it is larger than what the heap has.
fn large_vector() -> bool {
    let mut numbers = Vec::new();
    (0..1u64 << 19).for_each(|n| numbers.push(n));
    numbers.iter().sum::<u64>() == ((1 << 19) - 1) << 18
}

/// Allocated, written, freed; and not freed twice.
fn huge_frame(frames: &Frames<'_>) -> bool {
    let Ok(huge) = frames.allocate(Request::new(Order::HUGE)) else {
        return false;
    };
    let is_kept = write_and_read(huge);
    let freed = frames.free(huge, Order::HUGE);
    let again = frames.free(huge, Order::HUGE);
    is_kept && freed.is_ok() && matches!(again, Err(BlockError::NotAllocated { .. }))
}

/// The CPUs are counted after memory; what this one then caches goes back when it is closed.
fn cached_pages(frames: &Frames<'_>) -> bool {
    let is_counted = cpu::counted(frames, 2).is_ok();
    let page = || {
        let page = ThisCpu.allocate(Request::new(Order::PAGE)).ok()?;
        write_and_read(page).then(|| ThisCpu.free(page, Order::PAGE).ok())?
    };
    let had = (0..1_000).filter(|_| page().is_some()).count();
    let is_cached = frames.statistics().cached_frames > 0;
    is_counted && had == 1_000 && is_cached && ThisCpu.close().is_ok()
}

/// What was reserved, each with its owner, is nobody's to free.
fn in_use(frames: &Frames<'_>) -> bool {
    let early = frames.layout().early();
    early.owners().iter().all(|taken| {
        println!("memory: in use: {} {}", taken.range, taken.owner());
        let freed = frames.free(taken.range.start().frame(), Order::PAGE);
        freed.is_err_and(|error| matches!(error, BlockError::Reserved { .. }))
    })
}

/// Every huge frame is had once and is memory, those above 4 GiB too, then all come back.
fn all_memory(frames: &Frames<'_>) -> bool {
    let request = Request::new(Order::HUGE);
    let mut held: Vec<Frame> = Vec::with_capacity(1 << 16);
    while held.len() < held.capacity() {
        match frames.allocate(request) {
            Ok(huge) => held.push(huge),
            Err(_) => break,
        }
    }
    let kept = held.iter().filter(|huge| write_and_read(**huge)).count();
    println!("memory: {} huge frames, {} MiB", held.len(), held.len() * 2);
    let freed = held
        .iter()
        .filter(|huge| frames.free(**huge, Order::HUGE).is_ok())
        .count();
    kept == held.len() && freed == held.len() && !held.is_empty()
}

/// Whether a frame that was just allocated keeps what is written: its number.
fn write_and_read(frame: Frame) -> bool {
    let Ok(address) = usize::try_from(frame.addr().get()) else {
        return false;
    };
    let first: *mut u64 = core::ptr::with_exposed_provenance_mut(address);
    // SAFETY: mapped to itself, and the caller's alone.
    unsafe {
        first.write_volatile(frame.get());
        first.read_volatile() == frame.get()
    }
}
