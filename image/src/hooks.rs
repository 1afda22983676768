//! What this image adds to allocation: page descriptors of what is allocated are ready, and
//! memory is accepted when there is none left.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use firstlight::acceptance::{Acceptance, Pending};
use firstlight::addr::{Frame, FrameRange, Order};
use firstlight::frames::{Hooks, Request};
use firstlight::memmap::Mode;
use firstlight::node::NodeId;
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

/// The hooks, once and for all.
pub(crate) fn install(
    descriptors: Option<Described>,
    platform: &'static DirectMap,
    pending: &'static [Pending],
) -> &'static Kernel {
    KERNEL.call_once(|| Kernel {
        descriptors,
        acceptance: Acceptance::new(platform, pending, &describe),
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

    fn zero(&self, range: FrameRange) -> bool {
        let first = range.start().addr().get() as *mut u64;
        let Ok(words) = usize::try_from(range.bytes().bytes() / 8) else {
            return false;
        };
        // SAFETY: mapped memory of the request that is in progress: nothing else uses it.
        let memory = unsafe { core::slice::from_raw_parts_mut(first, words) };
        writer().fill(memory, &[0; 8]);
        self.zeroed_bytes.fetch_add(words as u64 * 8, Relaxed);
        true
    }

    fn exhausted(&self, request: &Request, node: Option<NodeId>) -> bool {
        // Nothing is accepted before all memory is up.
        let frames = MACHINE.get().map(|machine| &machine.frames);
        frames.is_some_and(|frames| self.acceptance.accept_for(frames, request, node))
    }
}
