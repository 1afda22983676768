//! The atomics the allocator is written against: the processor's, or those of
//! the model checker when the crate is built with `--cfg firstlight_loom`.
//!
//! Two calls that each change one word and then look at the other's ([`recheck_u32`],
//! [`recheck_u64`]) rely on the total order of `SeqCst` operations: at least one of them sees
//! the other. Changes are read-modify-writes, which cost the same with any ordering on x86
//! and nearly so elsewhere; the look is a load. The model checker treats `SeqCst` operations
//! as `AcqRel`, so there, and only there, a `SeqCst` fence before the load stands for it.

#[cfg(not(firstlight_loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(firstlight_loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// A hint to the processor (or the model) that this CPU waits for another one.
#[inline]
pub(crate) fn pause() {
    #[cfg(not(firstlight_loom))]
    core::hint::spin_loop();
    #[cfg(firstlight_loom)]
    loom::thread::yield_now();
}

/// Changes a word in a loop until no other CPU was faster: the old value and the new
/// one, or the value that `change` refused.
#[inline]
pub(crate) fn update_u64(
    word: &AtomicU64,
    change: impl Fn(u64) -> Option<u64>,
) -> Result<(u64, u64), u64> {
    let mut old = word.load(Ordering::Acquire);
    while let Some(new) = change(old) {
        match word.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Acquire) {
            Ok(_) => return Ok((old, new)),
            Err(now) => old = now,
        }
    }
    Err(old)
}

/// Changes a word that is still `from`; whether it was.
#[inline]
pub(crate) fn swap_u32(word: &AtomicU32, from: u32, to: u32) -> bool {
    let swapped = word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed);
    swapped.is_ok()
}

/// [`swap_u32`] of a larger word.
#[inline]
pub(crate) fn swap_u64(word: &AtomicU64, from: u64, to: u64) -> bool {
    let swapped = word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed);
    swapped.is_ok()
}

/// Looks at a word after a change of another one, both in the order of all such changes and
/// looks.
#[inline]
pub(crate) fn recheck_u32(word: &AtomicU32) -> u32 {
    #[cfg(firstlight_loom)]
    fence(Ordering::SeqCst);
    word.load(Ordering::SeqCst)
}

/// [`recheck_u32`] of a larger word.
#[inline]
pub(crate) fn recheck_u64(word: &AtomicU64) -> u64 {
    #[cfg(firstlight_loom)]
    fence(Ordering::SeqCst);
    word.load(Ordering::SeqCst)
}
