//! What a kernel adds to allocation: [`Hooks`].

use core::fmt;

use crate::addr::{Frame, FrameRange, Order};
use crate::frames::cpu::drain::DrainRequest;
use crate::frames::request::Request;
use crate::node::{NodeId, ZoneKind};

/// Where a request found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exhausted {
    /// On this node, where it begins; others were not searched yet.
    Node(NodeId),
    /// On all nodes that it may have, and all caches are drained, unless the request is
    /// [`no_drain`](Request::no_drain). The search began on this node: what is freed or added near it is found first.
    All(NodeId),
}

impl Exhausted {
    /// The node where the request begins.
    pub const fn first(self) -> NodeId {
        match self {
            Self::Node(first) | Self::All(first) => first,
        }
    }

    /// Whether all nodes were searched.
    pub const fn is_all(self) -> bool {
        matches!(self, Self::All(_))
    }
}

/// What a kernel adds to allocation, set by
/// [`Frames::with_hooks`](crate::frames::Frames::with_hooks). Each method has a default that
/// adds nothing.
///
/// All of them are called in the middle of a call, on its CPU. None may panic, allocate, or use
/// a [`Cpu`](crate::frames::Cpu); only [`Hooks::exhausted`] may free, and add memory.
///
/// ```
/// use firstlight_frames::addr::{Frame, Order};
/// use firstlight_frames::frames::{Exhausted, Hooks, Request};
///
/// /// Descriptors that are ready when a frame is allocated, and pages that can be reclaimed.
/// struct Kernel {
///     prepare: fn(&[Frame], Order), // of `firstlight-memmap`, or its own
///     shrink: fn() -> bool,
/// }
///
/// impl Hooks for Kernel {
///     fn prepare(&self, blocks: &[Frame], order: Order) {
///         (self.prepare)(blocks, order);
///     }
///
///     fn exhausted(&self, _: &Request, what: Exhausted) -> bool {
///         // Other nodes first.
///         what.is_all() && (self.shrink)()
///     }
/// }
/// ```
pub trait Hooks: Sync {
    /// The node of the CPU that calls: where a request begins that names none.
    fn node(&self) -> NodeId {
        NodeId(0)
    }

    /// Blocks of `order` leave what all CPUs share: they are allocated, or a CPU caches them, once
    /// this returns. Not called for what a layout reserved for boot: a kernel prepares that when
    /// it frees it.
    fn prepare(&self, blocks: &[Frame], order: Order) {
        let _ = (blocks, order);
    }

    /// Nothing that would do for `request` is free there. Whether some was freed or added: then
    /// the search is repeated. Called again as long as that finds nothing. A request fails after
    /// a last search: other CPUs may have freed or added some meanwhile.
    fn exhausted(&self, request: &Request, what: Exhausted) -> bool {
        let _ = (request, what);
        false
    }

    /// Writes zeros to `range`, for a [request for zeros](crate::frames::Request::zeroed) that found
    /// memory of unknown content. Whether it did; the default does not, so such requests find only
    /// what is known to be zero. Other CPUs may help.
    ///
    /// ```compile_fail,E0133
    /// # use firstlight_frames::{addr::FrameRange, frames::Hooks};
    /// fn writes_to_memory_in_use(hooks: &dyn Hooks, in_use: FrameRange) -> bool {
    ///     hooks.zero(in_use) // safe code can't
    /// }
    /// ```
    ///
    /// # Safety
    /// The frames were free, and were just taken for a request that has not got them yet. That no
    /// other code uses them follows from the [rule of frees](crate::frames#the-rule-of-frees), which
    /// the implementation relies on.
    unsafe fn zero(&self, range: FrameRange) -> bool {
        let _ = range;
        false
    }

    /// Whether `range`, which is known to be zero and was taken for a [request for
    /// zeros](crate::frames::Request::zeroed), may be handed out as it is; else it goes to
    /// [`Hooks::zero`]. The default trusts what is known. A kernel that reads some of them, or all
    /// under test, finds a host that lies, and its own writes to memory it has freed: see
    /// `ZeroCheck`.
    ///
    /// # Safety
    /// As for [`Hooks::zero`].
    unsafe fn is_zero(&self, range: FrameRange) -> bool {
        let _ = range;
        true
    }

    /// Reaches the CPUs of the request, so that they drain their caches, inside the call of
    /// the CPU that needs memory, isolates some, or allocates a range in use. Returns when all
    /// drains are complete, or when it makes no sense to wait any longer: the allocation fails
    /// then and says how much they cache.
    ///
    /// A wait must have an end: CPUs can request drains of each other at the same time, with
    /// interrupts off; and a call that does not go through the caller's
    /// [`Cpu`](crate::frames::Cpu) requests a drain of that, too. A kernel that must not wait
    /// there calls [`Frames::request_drain`](crate::frames::Frames::request_drain) afterwards.
    fn drain(&self, request: &DrainRequest<'_>) {
        let _ = request;
    }

    /// A zone's free memory crossed a water mark, by the call that is in progress; what that
    /// allocated or freed is done. It may wake a thread that frees.
    fn crossed(&self, crossing: Crossing) {
        let _ = crossing;
    }
}

/// One of the three [`WaterMarks`](crate::frames::WaterMarks).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaterMark {
    /// The reserve.
    Min,
    /// Reclaim begins below it.
    Low,
    /// Reclaim stops above it.
    High,
}

impl fmt::Display for WaterMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Min => "min",
            Self::Low => "low",
            Self::High => "high",
        })
    }
}

/// A water mark was crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The zone's node.
    pub node: NodeId,
    /// The zone.
    pub zone: ZoneKind,
    /// Which mark.
    pub mark: WaterMark,
    /// Fewer frames than the mark are free now; else as many or more.
    pub below: bool,
    /// Frames free right after.
    pub free_frames: u64,
}
