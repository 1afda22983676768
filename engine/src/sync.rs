//! The atomics the allocator is written against: the processor's, or those of
//! the model checker when the crate is built with `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// A hint to the processor (or the model) that this CPU waits for another one.
#[inline]
pub(crate) fn pause() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Orders all that comes before, the last of it an atomic read-modify-write,
/// before all that comes after, for all CPUs that do the same.
#[inline]
pub(crate) fn fence_after_rmw() {
    // On x86 the locked instruction has done it already.
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
    fence(Ordering::SeqCst);
}
