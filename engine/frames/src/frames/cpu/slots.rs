//! The slots of all CPUs: [`Slots`], provided before an allocator is shared, or later, once the CPUs are counted.

use core::fmt;
use core::ops::Deref;
use core::{ptr, slice};

use super::slot::CpuSlot;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, recheck_u64};

/// A list of slots; an empty one can be provided once.
pub(crate) struct Slots<'m> {
    /// What was provided before the allocator was shared.
    before: &'m [CpuSlot],
    /// The first of those provided later; null until then.
    first: AtomicPtr<CpuSlot>,
    /// How many these are; 0 until `first` is there. `SeqCst`: a call that hides memory from CPUs, then finds no
    /// slot to request a drain of, comes before all that is cached through them ([`Cpu::new`](super::Cpu) has the
    /// fence).
    count: AtomicU64,
}

impl<'m> Slots<'m> {
    pub(crate) fn new(before: &'m [CpuSlot]) -> Self {
        Self {
            before,
            first: AtomicPtr::new(ptr::null_mut()),
            count: AtomicU64::new(0),
        }
    }

    /// Makes these the list, if there is none.
    pub(crate) fn provide(&self, slots: &'static [CpuSlot]) -> Result<(), CpusProvided> {
        if slots.is_empty() {
            return Ok(());
        }
        let (none, first) = (ptr::null_mut(), slots.as_ptr().cast_mut());
        // Relaxed: `count` says when it is there.
        let order = Ordering::Relaxed;
        let is_first = self.before.is_empty()
            && (self.first.compare_exchange(none, first, order, order)).is_ok();
        if !is_first {
            return Err(CpusProvided { cpus: self.len() });
        }
        self.count.swap(slots.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    /// Those provided later.
    fn later(&self) -> &[CpuSlot] {
        let count = recheck_u64(&self.count);
        if count == 0 {
            return &[];
        }
        let first = self.first.load(Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "the length of a slice")]
        let count = count as usize;
        // SAFETY: the one call of `provide` that changed `first` set `count` after it; both are of one slice that
        // stays for ever, and neither changes again.
        #[expect(unsafe_code, reason = "a slice in two atomic words")]
        unsafe {
            slice::from_raw_parts(first, count)
        }
    }
}

impl Deref for Slots<'_> {
    type Target = [CpuSlot];

    #[inline]
    fn deref(&self) -> &[CpuSlot] {
        if self.before.is_empty() {
            self.later()
        } else {
            self.before
        }
    }
}

impl fmt::Debug for Slots<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// An allocator has its CPUs already: slots are provided once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpusProvided {
    /// For how many CPUs there are slots; 0 while another call provides them.
    pub cpus: usize,
}

impl fmt::Display for CpusProvided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpus } = self;
        write!(
            f,
            "slots for {cpus} CPUs were provided before: expected one list, of all CPUs, once"
        )
    }
}

impl core::error::Error for CpusProvided {}
