//! What this image adds to allocation: page descriptors of what is allocated are ready, and
//! memory is accepted when there is none left.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use firstlight::acceptance::{Acceptance, Pending};
use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES};
use firstlight::frames::{Exhausted, Hooks, Request};
use firstlight::memmap::Mode;
use firstlight::zeroing::{MappedMemory, Memory, ZeroCheck};
use spin::{Once, RwLock};

use crate::MACHINE;
use crate::arch::{DirectMap, writer};
use crate::descriptors::Descriptors;

/// Page descriptors and their mode.
pub(crate) type Described = (Mode, RwLock<Descriptors>);

/// The hooks of this image.
pub(crate) struct Kernel {
    /// If the command line has them.
    pub(crate) descriptors: Option<Described>,
    /// Memory that must be accepted before it is touched.
    pub(crate) acceptance: Acceptance<'static, DirectMap>,
    /// Reads some of what is handed out as known to be zero.
    pub(crate) check: ZeroCheck,
    /// Bytes that were zeroed for requests.
    zeroed_bytes: AtomicU64,
}

impl Kernel {
    /// Bytes that were zeroed for requests so far.
    pub(crate) fn zeroed_bytes(&self) -> u64 {
        self.zeroed_bytes.load(Relaxed)
    }
}

static KERNEL: Once<Kernel> = Once::new();

/// All memory of the allocator, for zeros.
pub(crate) fn memory() -> MappedMemory {
    // SAFETY: all of it is mapped at its own addresses on every CPU, readable and writable; every mode
    // of this image frees only what it allocated.
    unsafe { MappedMemory::new(0, writer()) }
}

/// The hooks, once and for all.
pub(crate) fn install(
    descriptors: Option<Described>,
    platform: &'static DirectMap,
    pending: &'static [Pending],
) -> &'static Kernel {
    KERNEL.call_once(|| Kernel {
        descriptors,
        acceptance: Acceptance::new(platform, pending, &describe),
        check: ZeroCheck::new(),
        zeroed_bytes: AtomicU64::new(0),
    })
}

/// Makes the descriptors of a chunk ready, in one pass with its acceptance.
fn describe(chunk: FrameRange) {
    let descriptors = KERNEL.get().and_then(|kernel| kernel.descriptors.as_ref());
    if let Some((_, descriptors)) = descriptors {
        descriptors.read().make_range_ready(chunk);
    }
}

impl Hooks for Kernel {
    fn prepare(&self, blocks: &[Frame], order: Order) {
        // Written again and again by a sweep, which has them for itself.
        if let Some((_, descriptors)) = &self.descriptors
            && let Some(descriptors) = descriptors.try_read()
        {
            descriptors.prepare(blocks, order);
        }
    }

    unsafe fn zero(&self, range: FrameRange) -> bool {
        // SAFETY: the caller's promise, and that of `memory`: nothing else uses it.
        unsafe { memory().zero(range) }
        let bytes = range.count() * PAGE_BYTES;
        self.zeroed_bytes.fetch_add(bytes, Relaxed);
        true
    }

    unsafe fn is_zero(&self, range: FrameRange) -> bool {
        // SAFETY: as above.
        unsafe { self.check.is_zero(&memory(), range) }
    }

    fn exhausted(&self, request: &Request, what: Exhausted) -> bool {
        // Nothing is accepted before all memory is up.
        let frames = MACHINE.get().map(|machine| &machine.frames);
        frames.is_some_and(|frames| self.acceptance.accept_for(frames, request, what))
    }
}
