//! A block that is freed when it is dropped: [`Owned`], for kernels that want one.
//!
//! It holds the first frame, the order and a [`Deallocate`]. Where that is a
//! type without size, a kernel's way to its own allocator say, the handle is
//! as large as the two numbers it holds; turning it into raw numbers and back
//! costs nothing.
//!
//! A handle owns numbers, not memory: a block can also be freed by its number, which is safe,
//! and dropping the handle afterwards is a double free like any other, refused or named as
//! such. So making a handle of raw numbers is safe too. Code that turns frames into references
//! must ensure that these are exclusive.

use core::fmt;
use core::mem::ManuallyDrop;

use super::error::AllocError;
use super::find::Frames;
use super::request::Request;
use crate::addr::{Frame, FrameRange, Order};

/// Where an [`Owned`] block goes when it is dropped.
///
/// Copied into every handle, so best a type without size or a reference:
///
/// ```
/// use core::sync::atomic::{AtomicU64, Ordering};
/// use firstlight_frames::addr::{Frame, Order};
/// use firstlight_frames::frames::{Deallocate, Owned};
///
/// /// How many frames were freed; a kernel would keep its `Frames` in the static.
/// static FREED: AtomicU64 = AtomicU64::new(0);
///
/// #[derive(Clone, Copy)]
/// struct Kernel;
///
/// impl Deallocate for Kernel {
///     fn deallocate(&self, _frame: Frame, order: Order) {
///         FREED.fetch_add(order.frames(), Ordering::Relaxed);
///     }
/// }
///
/// let huge = Owned::from_raw(Frame::new(512), Order::HUGE, Kernel);
/// assert!(size_of_val(&huge) <= 16);
/// let (low, high) = huge.split().ok().unwrap();
/// assert_eq!(high.frame(), Frame::new(768));
/// drop(low);
/// assert_eq!(FREED.load(Ordering::Relaxed), 256);
/// assert_eq!(high.into_raw().0, Frame::new(768)); // no longer freed by itself
/// assert_eq!(FREED.load(Ordering::Relaxed), 256);
/// ```
pub trait Deallocate: Copy {
    /// Frees a block whose handle was dropped. An error is handled here: `&Frames` stops in a debug
    /// build and names the frame; in a release build the block stays as it is.
    fn deallocate(&self, frame: Frame, order: Order);
}

impl Deallocate for &Frames<'_> {
    fn deallocate(&self, frame: Frame, order: Order) {
        let freed = self.free(frame, order);
        debug_assert!(freed.is_ok(), "an owned block was dropped: {freed:?}");
    }
}

/// A block of frames; dropped, it is free.
///
/// ```
/// use firstlight_frames::addr::Order;
/// use firstlight_frames::frames::{AllocError, Frames, Owned, Request};
///
/// fn scratch(frames: &Frames<'_>) -> Result<(), AllocError> {
///     let page = Owned::allocate(frames, Request::new(Order::PAGE))?;
///     let at = page.range().addrs(); // use it
///     # let _ = at;
///     Ok(()) // and it is freed
/// }
/// ```
#[must_use = "a block that is not kept is freed at once"]
pub struct Owned<G: Deallocate> {
    frame: Frame,
    order: Order,
    to: G,
}

impl<G: Deallocate> Owned<G> {
    /// The handle of a block that came from [`Frames::allocate`], [`Owned::into_raw`]
    /// or any other way to own one.
    ///
    /// The block should be the caller's own, and no longer be freed by its number: it would be
    /// freed twice.
    pub const fn from_raw(frame: Frame, order: Order, to: G) -> Self {
        debug_assert!(frame.is_aligned(order), "a block starts at its multiple");
        Self { frame, order, to }
    }

    /// The block as plain numbers, for the caller to free.
    #[must_use = "the block is lost without its number"]
    pub fn into_raw(self) -> (Frame, Order) {
        // `to` is `Copy`, so nothing of it is left to be dropped.
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
        let to = self.to;
        let (frame, _) = self.into_raw();
        let high = Frame::new(frame.get() + order.frames());
        let half = |frame| Self { frame, order, to };
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

impl<G: Deallocate> Drop for Owned<G> {
    fn drop(&mut self) {
        self.to.deallocate(self.frame, self.order);
    }
}

impl<G: Deallocate> fmt::Debug for Owned<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "owned {} of {}", self.frame, self.order)
    }
}

impl<'f, 'm> Owned<&'f Frames<'m>> {
    /// Allocates a block, as [`Frames::allocate`], that is freed when the handle is dropped.
    ///
    /// # Errors
    /// As [`Frames::allocate`].
    pub fn allocate(frames: &'f Frames<'m>, request: Request) -> Result<Self, AllocError> {
        let frame = frames.allocate(request)?;
        Ok(Self::from_raw(frame, request.order(), frames))
    }
}
