//! `test=stale-page`: a page fault by a page that is there by now is repeated, and the code that it
//! interrupted keeps every register.
//!
//! An emulator makes no such fault, so the processor's folder does: by the registers of a fault and a
//! jump to its handler. Where the processor may cache what it refused, another page is cached
//! before, so that a flush that is missing shows.

use core::sync::atomic::Ordering;

use firstlight::addr::PhysRange;

use super::direct::DirectMap;
use super::paging::{self, PRESENT};
use crate::arch::translation;
use crate::console::note;

/// A fault of a load, and what is around it.
pub(in crate::arch) struct Fault<const N: usize> {
    /// Registers before it.
    pub(in crate::arch) before: [u64; N],
    /// Which of them gets the address of the load.
    pub(in crate::arch) address: usize,
    /// Which of them has the result.
    pub(in crate::arch) result: usize,
    /// Makes the fault with these registers before; those after it.
    pub(in crate::arch) provoke: unsafe extern "C" fn(*const [u64; N], *mut [u64; N]),
}

/// Registers that are all different.
pub(in crate::arch) fn pattern<const N: usize>() -> [u64; N] {
    core::array::from_fn(|number| (number as u64 + 1) * 0x0101_0101_0101_0101)
}

/// Provokes the fault in memory that `accept=` hides, and panics if not all is as it was.
pub(in crate::arch) fn test<const N: usize>(mut fault: Fault<N>) {
    let page = DirectMap::TABLES_BELOW.get();
    let Some((entry, size)) = paging::entry(page) else {
        return ignored();
    };
    let Some((other, _)) = paging::entry(page + size) else {
        return ignored();
    };
    let values = [entry, other].map(|entry| entry.load(Ordering::Relaxed));
    if values
        .iter()
        .any(|value| *value == 0 || value & PRESENT != 0)
    {
        return ignored();
    }
    paging::reveal(PhysRange::with_size(page, 2 * size).unwrap_or_default());

    let word = page as *mut u64;
    // SAFETY: both pages are memory that is not in use before it is accepted.
    unsafe {
        word.write_volatile(1);
        word.byte_add(size as usize).write_volatile(2);
        word.read_volatile();
    }
    let own = entry.load(Ordering::Relaxed);
    let loaded = if translation::CACHES_ABSENCE {
        entry.store(other.load(Ordering::Relaxed), Ordering::Release);
        2
    } else {
        1
    };
    fault.before[fault.address] = page;
    let mut after = [0; N];
    // SAFETY: the access is allowed, so that it is repeated; the function keeps all registers.
    unsafe { (fault.provoke)(&raw const fault.before, &raw mut after) }
    entry.store(own, Ordering::Release);
    translation::flush();

    fault.before[fault.result] = loaded;
    for (number, (before, after)) in fault.before.iter().zip(after).enumerate() {
        assert_eq!(
            *before, after,
            "test=stale-page: register {number} before, and after"
        );
    }
    note("test=stale-page: a page fault was repeated, all registers are as before");
}

fn ignored() {
    note("test=stale-page is ignored: expected accept= and 4 MiB above 4 GiB");
}
