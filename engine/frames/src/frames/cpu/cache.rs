//! All that the engine keeps for one CPU: [`CpuCache`].
//!
//! *The lists are used by who has taken the slot, and by nothing else.*

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};

#[cfg(not(firstlight_loom))]
use super::cell::CpuCell;
use super::lists::CpuLists;
use super::slot::CpuSlot;

/// What one CPU caches, and what other CPUs see of it: provided to
/// [`Frames::provide_cpus`](crate::frames::Frames::provide_cpus), one for each CPU. 12,800 bytes; less without the
/// feature `movable`, or with `small-caches`.
///
/// That is too much for a kernel's stack, and it outlives the allocator: in a `static`, or in memory allocated from
/// `Frames`. One that no CPU has used is all zero: a `static` costs nothing in the kernel's image, and zeroed memory
/// of its size and alignment is one.
///
/// A kernel uses it through [`PerCpu`](crate::frames::PerCpu), a hosted thread by its index, as a [`Cpu`](crate::frames::Cpu):
///
/// ```
/// use firstlight_frames::addr::Order;
/// use firstlight_frames::frames::{CpuCache, Frames, Request};
///
/// static CPUS: [CpuCache; 2] = [const { CpuCache::new() }; 2];
///
/// fn some_pages(frames: &Frames<'_>) -> Result<(), Box<dyn std::error::Error>> {
///     frames.provide_cpus(&CPUS)?;
///     let mut cpu = frames.cpu(1, Default::default())?;
///     let page = cpu.allocate(Request::new(Order::PAGE))?;
///     cpu.free(page, Order::PAGE)?;
///     cpu.close()?;
///     Ok(())
/// }
/// ```
// CPUs that lie side by side share no cache line: the slot's alignment.
#[derive(Default)]
pub struct CpuCache {
    /// What other CPUs read and request.
    pub(super) slot: CpuSlot,
    /// The `Cpu` of a kernel's calls.
    #[cfg(not(firstlight_loom))]
    pub(super) cell: CpuCell,
    lists: ListsCell,
}

#[derive(Default)]
struct ListsCell {
    lists: UnsafeCell<CpuLists>,
    /// Loom reports two uses that nothing orders.
    #[cfg(firstlight_loom)]
    watch: loom::cell::UnsafeCell<()>,
}

// SAFETY: the lists are used through the one `OwnLists` there is.
#[expect(unsafe_code, reason = "lists in a static")]
unsafe impl Sync for ListsCell {}

impl ListsCell {
    #[inline(always)]
    fn read(&self) -> *const CpuLists {
        #[cfg(firstlight_loom)]
        self.watch.with(|_| ());
        self.lists.get()
    }

    #[inline(always)]
    fn write(&self) -> *mut CpuLists {
        #[cfg(firstlight_loom)]
        self.watch.with_mut(|_| ());
        self.lists.get()
    }
}

impl CpuCache {
    /// One that no CPU has used.
    #[cfg(not(firstlight_loom))]
    pub const fn new() -> Self {
        Self {
            slot: CpuSlot::new(),
            cell: CpuCell::new(),
            lists: ListsCell {
                lists: UnsafeCell::new(CpuLists::new()),
            },
        }
    }

    /// Makes the lists the caller's, until it releases the slot; `None` if another CPU has them.
    pub(super) fn take(&self) -> Option<OwnLists<'_>> {
        self.slot.take().then_some(OwnLists(self))
    }
}

impl fmt::Debug for CpuCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuCache")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

/// The lists of the CPU whose slot was taken for them. Not a `&mut`: another CPU may take them once the slot is
/// released, before the last user is gone.
pub(super) struct OwnLists<'f>(&'f CpuCache);

impl<'f> OwnLists<'f> {
    #[inline(always)]
    pub(super) fn slot(&self) -> &'f CpuSlot {
        &self.0.slot
    }
}

impl Deref for OwnLists<'_> {
    type Target = CpuLists;

    #[inline(always)]
    fn deref(&self) -> &CpuLists {
        // SAFETY: made once the slot was taken, which its user, the `Cpu` that it is a field of, releases last; until
        // then nothing else uses the lists.
        #[expect(unsafe_code, reason = "lists in a static")]
        unsafe {
            &*self.0.lists.read()
        }
    }
}

impl DerefMut for OwnLists<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut CpuLists {
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "lists in a static")]
        unsafe {
            &mut *self.0.lists.write()
        }
    }
}

impl fmt::Debug for OwnLists<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
