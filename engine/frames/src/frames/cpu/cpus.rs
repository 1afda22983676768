//! The caches of all CPUs: [`Cpus`], provided once the CPUs are counted.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::{ptr, slice};

use super::cache::CpuCache;
use super::slot::CpuSlot;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, recheck_u64};

/// A list of caches, numbered as the CPUs are; an empty one can be provided once.
pub(crate) struct Cpus<'m> {
    /// The first; dangling until they are provided.
    first: AtomicPtr<CpuCache>,
    /// How many there are; 0 until `first` is there. `SeqCst`: a call that hides memory from CPUs, then finds none
    /// to request a drain of, comes before all that is cached through them ([`Cpu::new`](super::Cpu) has the fence).
    count: AtomicU64,
    /// Neither longer nor shorter: caches are provided through a shared reference.
    lifetime: PhantomData<fn(&'m ()) -> &'m ()>,
}

impl<'m> Cpus<'m> {
    pub(crate) fn new() -> Self {
        Self {
            first: AtomicPtr::new(ptr::dangling_mut()),
            count: AtomicU64::new(0),
            lifetime: PhantomData,
        }
    }

    /// Makes these the list, if there is none.
    pub(crate) fn provide(&self, caches: &'m [CpuCache]) -> Result<(), CpusProvided> {
        if caches.is_empty() {
            return Ok(());
        }
        let (none, first) = (ptr::dangling_mut(), caches.as_ptr().cast_mut());
        // Relaxed: `count` says when it is there.
        let order = Ordering::Relaxed;
        let is_first = (self.first.compare_exchange(none, first, order, order)).is_ok();
        if !is_first {
            return Err(CpusProvided { cpus: self.len() });
        }
        self.count.swap(caches.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    /// What other CPUs see of each.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &CpuSlot> {
        self.iter().map(|cache| &cache.slot)
    }
}

impl Deref for Cpus<'_> {
    type Target = [CpuCache];

    #[inline]
    fn deref(&self) -> &[CpuCache] {
        #[expect(clippy::cast_possible_truncation, reason = "the length of a slice")]
        let count = recheck_u64(&self.count) as usize;
        let first = self.first.load(Ordering::Relaxed);
        // SAFETY: the one call of `provide` that changed `first` set `count` after it; both are of one slice that
        // outlives this, and neither changes again. Before, it is none, at any aligned address.
        #[expect(unsafe_code, reason = "a slice in two atomic words")]
        unsafe {
            slice::from_raw_parts(first, count)
        }
    }
}

impl fmt::Debug for Cpus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slots()).finish()
    }
}

/// An allocator has its CPUs already: caches are provided once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpusProvided {
    /// For how many CPUs there are caches; 0 while another call provides them.
    pub cpus: usize,
}

impl fmt::Display for CpusProvided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpus } = self;
        write!(
            f,
            "caches for {cpus} CPUs were provided before: expected one list, of all CPUs, once"
        )
    }
}

impl core::error::Error for CpusProvided {}
