//! A block that gives itself back: [`Owned`], for kernels that want one.
//!
//! It holds the first frame, the order and a [`GiveBack`]. Where that is a
//! type without size, a kernel's way to its own allocator say, the handle is
//! as large as the two numbers it holds; turning it into raw numbers and back
//! costs nothing.

use core::fmt;
use core::mem::ManuallyDrop;

use super::{AllocError, Frames, Request};
use crate::addr::{Frame, FrameRange, Order};

/// Where an [`Owned`] block goes when it is dropped.
///
/// Copied into every handle, so best a type without size or a reference:
///
/// ```
/// use core::sync::atomic::{AtomicU64, Ordering};
/// use firstlight::addr::{Frame, Order};
/// use firstlight::frames::{GiveBack, Owned};
///
/// /// How many frames came back; a kernel would keep its `Frames` in the static.
/// static BACK: AtomicU64 = AtomicU64::new(0);
///
/// #[derive(Clone, Copy)]
/// struct Kernel;
///
/// impl GiveBack for Kernel {
///     fn give_back(&self, _frame: Frame, order: Order) {
///         BACK.fetch_add(order.frames(), Ordering::Relaxed);
///     }
/// }
///
/// // SAFETY: nobody else has this block.
/// let huge = unsafe { Owned::from_raw(Frame::new(512), Order::HUGE, Kernel) };
/// assert!(size_of_val(&huge) <= 16);
/// let (low, high) = huge.split().ok().unwrap();
/// assert_eq!(high.frame(), Frame::new(768));
/// drop(low);
/// assert_eq!(BACK.load(Ordering::Relaxed), 256);
/// assert_eq!(high.into_raw().0, Frame::new(768)); // nothing comes back by itself now
/// assert_eq!(BACK.load(Ordering::Relaxed), 256);
/// ```
pub trait GiveBack: Copy {
    /// Takes back a block that its owner dropped. Nobody hears of an error
    /// here: the giver decides what becomes of it. `&Frames` stops in a debug
    /// build and names the frame; in a release build the block stays as it is.
    fn give_back(&self, frame: Frame, order: Order);
}

impl GiveBack for &Frames<'_> {
    fn give_back(&self, frame: Frame, order: Order) {
        let freed = self.free(frame, order);
        debug_assert!(freed.is_ok(), "an owned block was dropped: {freed:?}");
    }
}

/// A block of frames that belongs to whoever has this; dropped, it is free.
///
/// ```
/// use firstlight::addr::Order;
/// use firstlight::frames::{AllocError, Frames, Request};
///
/// fn scratch(frames: &Frames<'_>) -> Result<(), AllocError> {
///     let page = frames.allocate_owned(Request::new(Order::PAGE))?;
///     let at = page.range().bytes(); // use it
///     # let _ = at;
///     Ok(()) // and it is free again
/// }
/// ```
#[must_use = "a block that is not kept is given back at once"]
pub struct Owned<G: GiveBack> {
    frame: Frame,
    order: Order,
    giver: G,
}

impl<G: GiveBack> Owned<G> {
    /// Takes on a block that came from [`Frames::allocate`], [`Owned::into_raw`]
    /// or any other way to own one.
    ///
    /// # Safety
    /// The block is allocated and the caller's own, whole and alone, and the
    /// caller no longer frees or uses it by its number. `giver` gives it back
    /// to where it came from.
    pub const unsafe fn from_raw(frame: Frame, order: Order, giver: G) -> Self {
        debug_assert!(frame.is_aligned(order), "a block starts at its multiple");
        Self {
            frame,
            order,
            giver,
        }
    }

    /// The block as plain numbers, which nobody gives back but the caller.
    #[must_use = "the block is lost if nobody knows its number"]
    pub fn into_raw(self) -> (Frame, Order) {
        // A giver is `Copy`, so nothing of it is left to be dropped.
        let kept = ManuallyDrop::new(self);
        (kept.frame, kept.order)
    }

    /// Its two halves; itself if it is a single page.
    ///
    /// # Errors
    /// The block, unchanged, if its order is 0.
    pub fn split(self) -> Result<(Self, Self), Self> {
        let Some(order) = self.order.get().checked_sub(1).and_then(Order::new) else {
            return Err(self);
        };
        let giver = self.giver;
        let (frame, _) = self.into_raw();
        let high = Frame::new(frame.get() + order.frames());
        let half = |frame| Self {
            frame,
            order,
            giver,
        };
        Ok((half(frame), half(high)))
    }

    /// Its first frame.
    pub const fn frame(&self) -> Frame {
        self.frame
    }

    /// Its order.
    pub const fn order(&self) -> Order {
        self.order
    }

    /// Its frames.
    pub fn range(&self) -> FrameRange {
        FrameRange::block(self.frame, self.order).unwrap_or_default()
    }
}

impl<G: GiveBack> Drop for Owned<G> {
    fn drop(&mut self) {
        self.giver.give_back(self.frame, self.order);
    }
}

impl<G: GiveBack> fmt::Debug for Owned<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "owned {} of {}", self.frame, self.order)
    }
}

impl Frames<'_> {
    /// Like [`Frames::allocate`], in a handle that gives the block back when it is dropped.
    ///
    /// # Errors
    /// As [`Frames::allocate`].
    pub fn allocate_owned(&self, request: Request) -> Result<Owned<&Self>, AllocError> {
        self.allocate(request).map(|frame| Owned {
            frame,
            order: request.order(),
            giver: self,
        })
    }
}
