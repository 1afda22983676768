//! Addresses and frames: the newtypes every other module speaks in.
//!
//! A [`PhysAddr`] counts bytes, a [`Frame`] counts page frames, of 4 KiB
//! unless a feature says 16 or 64, an [`Order`] is a power of two of frames.
//! Ranges are half open. Three orders have names because the allocator has a
//! level of words for each: [`Order::PAGE`], [`Order::HUGE`] and
//! [`Order::GIANT`].

use core::fmt;

pub use crate::levels::PAGE_SHIFT;
use crate::levels::{GIANT_ORDER, HUGE_ORDER};

/// Bytes in a page frame.
pub const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;
/// First byte no physical address reaches: x86-64 ends at 52 bits, 4 PiB.
pub const PHYS_END: u64 = 1 << 52;

/// A physical address, in bytes.
///
/// ```
/// use firstlight_memory::addr::{Frame, PhysAddr};
/// assert_eq!(PhysAddr::new(0x1fff).frame(), Frame::new(1));
/// assert_eq!(PhysAddr::new(0x1001).align_up(0x1000), Some(PhysAddr::new(0x2000)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct PhysAddr(u64);

impl PhysAddr {
    /// Address zero.
    pub const ZERO: Self = Self(0);

    /// The address `bytes` bytes from the bottom of memory.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The address in bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The frame this address lies in.
    pub const fn frame(self) -> Frame {
        Frame(self.0 >> PAGE_SHIFT)
    }

    /// The nearest multiple of `align` (a power of two) at or below.
    pub const fn align_down(self, align: u64) -> Self {
        debug_assert!(align.is_power_of_two());
        Self(self.0 & !(align - 1))
    }

    /// The nearest multiple of `align` (a power of two) at or above, if there is one.
    pub const fn align_up(self, align: u64) -> Option<Self> {
        debug_assert!(align.is_power_of_two());
        match self.0.checked_add(align - 1) {
            Some(sum) => Some(Self(sum & !(align - 1))),
            None => None,
        }
    }
}

impl fmt::Debug for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A half-open range of physical bytes; never ends before it starts.
///
/// ```
/// use firstlight_memory::addr::PhysRange;
/// let range = PhysRange::new(0x1800, 0x4800).unwrap();
/// assert_eq!(range.bytes(), 0x3000);
/// assert_eq!(range.inner_frames().count(), 2); // whole frames only
/// assert_eq!(range.outer_frames().count(), 4); // every frame touched
/// assert!(PhysRange::new(2, 1).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PhysRange {
    start: PhysAddr,
    end: PhysAddr,
}

impl PhysRange {
    /// The empty range at address zero.
    pub const EMPTY: Self = Self {
        start: PhysAddr(0),
        end: PhysAddr(0),
    };

    /// `start..end` in bytes; `None` if it ends before it starts.
    pub const fn new(start: u64, end: u64) -> Option<Self> {
        if start <= end {
            Some(Self {
                start: PhysAddr(start),
                end: PhysAddr(end),
            })
        } else {
            None
        }
    }

    /// `bytes` bytes from `start`; `None` if that runs past 2^64.
    pub const fn with_size(start: u64, bytes: u64) -> Option<Self> {
        match start.checked_add(bytes) {
            Some(end) => Some(Self {
                start: PhysAddr(start),
                end: PhysAddr(end),
            }),
            None => None,
        }
    }

    /// First byte.
    pub const fn start(self) -> PhysAddr {
        self.start
    }

    /// First byte after the range.
    pub const fn end(self) -> PhysAddr {
        self.end
    }

    /// Length in bytes.
    pub const fn bytes(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether the range holds nothing.
    pub const fn is_empty(self) -> bool {
        self.start.0 == self.end.0
    }

    /// Whether `addr` lies inside.
    pub const fn contains(self, addr: PhysAddr) -> bool {
        self.start.0 <= addr.0 && addr.0 < self.end.0
    }

    /// What both ranges share; empty when they do not meet.
    #[inline]
    pub fn intersect(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self {
            start,
            end: self.end.min(other.end).max(start),
        }
    }

    /// Whether the two ranges share a byte.
    #[inline]
    pub fn overlaps(self, other: Self) -> bool {
        !self.intersect(other).is_empty()
    }

    /// The frames that lie wholly inside: what usable memory shrinks to.
    #[inline]
    pub const fn inner_frames(self) -> FrameRange {
        let start = self.start.0.div_ceil(PAGE_BYTES);
        let end = self.end.0 >> PAGE_SHIFT;
        FrameRange {
            start: Frame(start),
            end: Frame(if end < start { start } else { end }),
        }
    }

    /// The frames that have any byte inside: what reserved memory grows to.
    #[inline]
    pub const fn outer_frames(self) -> FrameRange {
        let start = self.start.0 >> PAGE_SHIFT;
        let end = if self.is_empty() {
            start
        } else {
            self.end.0.div_ceil(PAGE_BYTES)
        };
        FrameRange {
            start: Frame(start),
            end: Frame(end),
        }
    }
}

/// As firmware and kernels print it: inclusive, `[0x1000-0x1fff]`.
impl fmt::Display for PhysRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            write!(f, "[{:#018x} empty]", self.start.0)
        } else {
            write!(f, "[{:#018x}-{:#018x}]", self.start.0, self.end.0 - 1)
        }
    }
}

impl fmt::Debug for PhysRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A page frame number.
///
/// ```
/// use firstlight_memory::addr::{Frame, Order};
/// assert_eq!(Frame::new(3).addr().get(), 0x3000);
/// assert!(Frame::new(512).is_aligned(Order::HUGE));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Frame(u64);

impl Frame {
    /// Frame number `number`.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The frame number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Address of the frame's first byte.
    ///
    /// # Panics
    /// For a frame number that no address has, from 2^52 on with pages of 4 KiB. Frames of memory are
    /// below; for a number from elsewhere there is [`Self::checked_addr`].
    pub const fn addr(self) -> PhysAddr {
        match self.checked_addr() {
            Some(addr) => addr,
            None => panic!(
                "the frame number has no address: expected one whose first byte 64 bits hold"
            ),
        }
    }

    /// Address of the frame's first byte, if 64 bits hold it.
    ///
    /// ```
    /// use firstlight_memory::addr::Frame;
    /// let last = Frame::new((1 << 52) - 1);
    /// assert_eq!(last.checked_addr(), Some(last.addr()));
    /// assert_eq!(last.addr().get(), !0xfff);
    /// assert_eq!(Frame::new(1 << 52).checked_addr(), None);
    /// ```
    pub const fn checked_addr(self) -> Option<PhysAddr> {
        if self.0 >> (u64::BITS - PAGE_SHIFT) == 0 {
            Some(PhysAddr(self.0 << PAGE_SHIFT))
        } else {
            None
        }
    }

    /// Whether a block of `order` may start here.
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0 & (order.frames() - 1) == 0
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {:#x}", self.0)
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {:#x}", self.0)
    }
}

/// A half-open range of frames; never ends before it starts.
///
/// ```
/// use firstlight_memory::addr::FrameRange;
/// let range = FrameRange::new(4, 8).unwrap();
/// assert_eq!(range.count(), 4);
/// assert_eq!(range.intersect(FrameRange::new(6, 20).unwrap()), FrameRange::new(6, 8).unwrap());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FrameRange {
    start: Frame,
    end: Frame,
}

impl FrameRange {
    /// The empty range at frame zero.
    pub const EMPTY: Self = Self {
        start: Frame(0),
        end: Frame(0),
    };

    /// Every frame there can be.
    pub const ALL: Self = Self {
        start: Frame(0),
        end: Frame(PHYS_END >> PAGE_SHIFT),
    };

    /// `start..end` in frame numbers; `None` if it ends before it starts.
    pub const fn new(start: u64, end: u64) -> Option<Self> {
        if start <= end {
            Some(Self {
                start: Frame(start),
                end: Frame(end),
            })
        } else {
            None
        }
    }

    /// The block of `order` that starts at `start`; `None` past 2^64.
    pub const fn block(start: Frame, order: Order) -> Option<Self> {
        match start.0.checked_add(order.frames()) {
            Some(end) => Some(Self {
                start,
                end: Frame(end),
            }),
            None => None,
        }
    }

    /// So many frames from `start` on; the caller knows that there are. For the engine's own crates: of
    /// wild frames the end wraps, until they are refused.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn of(start: Frame, count: u64) -> Self {
        let end = Frame(start.0.wrapping_add(count));
        Self { start, end }
    }

    /// First frame.
    pub const fn start(self) -> Frame {
        self.start
    }

    /// First frame after the range.
    pub const fn end(self) -> Frame {
        self.end
    }

    /// Number of frames.
    pub const fn count(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether the range holds nothing.
    pub const fn is_empty(self) -> bool {
        self.start.0 == self.end.0
    }

    /// Whether `frame` lies inside.
    pub const fn contains(self, frame: Frame) -> bool {
        self.start.0 <= frame.0 && frame.0 < self.end.0
    }

    /// Whether all of `other` lies inside.
    #[inline]
    pub const fn covers(self, other: Self) -> bool {
        self.start.0 <= other.start.0 && other.end.0 <= self.end.0
    }

    /// What both ranges share; empty when they do not meet.
    #[inline]
    pub fn intersect(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self {
            start,
            end: self.end.min(other.end).max(start),
        }
    }

    /// The addresses of the frames.
    ///
    /// ```
    /// use firstlight_memory::addr::{FrameRange, PhysRange};
    /// let range = FrameRange::new(1, 3).unwrap();
    /// assert_eq!(range.addrs(), PhysRange::new(0x1000, 0x3000).unwrap());
    /// assert_eq!(range.addrs().bytes(), 0x2000);
    /// ```
    ///
    /// # Panics
    /// Where it ends after frame 2^52 - 1, see [`Frame::addr`].
    pub const fn addrs(self) -> PhysRange {
        PhysRange {
            start: self.start.addr(),
            end: self.end.addr(),
        }
    }

    /// The addresses of the frames, if 64 bits hold both ends.
    ///
    /// ```
    /// use firstlight_memory::addr::{FrameRange, PhysRange};
    /// let range = FrameRange::new(1, 3).unwrap();
    /// assert_eq!(range.checked_addrs(), Some(range.addrs()));
    /// assert_eq!(FrameRange::new(1, 1 << 52).unwrap().checked_addrs(), None);
    /// ```
    pub const fn checked_addrs(self) -> Option<PhysRange> {
        match (self.start.checked_addr(), self.end.checked_addr()) {
            (Some(start), Some(end)) => Some(PhysRange { start, end }),
            _ => None,
        }
    }
}

impl fmt::Display for FrameRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frames {:#x}..{:#x}", self.start.0, self.end.0)
    }
}

impl fmt::Debug for FrameRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Size of a block: 2^order frames, 0..=18 (0..=16 with pages of 16 KiB).
///
/// ```
/// use firstlight_memory::addr::Order;
/// assert_eq!(Order::HUGE.bytes(), 2 << 20);
/// assert_eq!(Order::GIANT.bytes(), 1 << 30);
/// assert!(Order::new(19).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Order(u8);

impl Order {
    /// One frame: 4 KiB, 16 KiB with the feature `page-16k`, 64 KiB with `page-64k`.
    pub const PAGE: Self = Self(0);
    /// 512 frames, 2 MiB; 2,048, 32 MiB, with pages of 16 KiB; 512, 32 MiB, with pages of 64 KiB.
    pub const HUGE: Self = Self(HUGE_ORDER);
    /// 262,144 frames, 1 GiB; 65,536, 1 GiB, with pages of 16 KiB; 262,144, 16 GiB, with pages of
    /// 64 KiB. The largest order.
    pub const GIANT: Self = Self(GIANT_ORDER);

    /// 2^`order` frames; `None` above [`Order::GIANT`].
    pub const fn new(order: u8) -> Option<Self> {
        if order <= Self::GIANT.0 {
            Some(Self(order))
        } else {
            None
        }
    }

    /// The smallest order whose blocks hold `count` frames, a page for none; `None` above
    /// [`Order::GIANT`].
    ///
    /// ```
    /// use firstlight_memory::addr::Order;
    ///
    /// const STACK: Order = Order::of_frames(512).unwrap();
    /// assert_eq!(STACK, Order::HUGE);
    /// assert_eq!(Order::of_frames(0), Some(Order::PAGE));
    /// assert_eq!(Order::of_frames(3), Order::new(2));
    /// assert_eq!(Order::of_frames(513), Order::new(10));
    /// assert_eq!(Order::of_frames(Order::GIANT.frames()), Some(Order::GIANT));
    /// assert_eq!(Order::of_frames(Order::GIANT.frames() + 1), None);
    /// assert_eq!(Order::of_frames(u64::MAX), None);
    /// ```
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
    pub const fn of_frames(count: u64) -> Option<Self> {
        // The bits of the last frame's number in the block.
        Self::new((u64::BITS - count.saturating_sub(1).leading_zeros()) as u8)
    }

    /// The order of a block of exactly so many frames, if there is one.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most 63")]
    pub const fn of_block(frames: u64) -> Option<Self> {
        if frames.is_power_of_two() {
            Self::new(frames.trailing_zeros() as u8)
        } else {
            None
        }
    }

    /// The exponent.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Number of frames.
    pub const fn frames(self) -> u64 {
        1 << self.0
    }

    /// Number of bytes.
    pub const fn bytes(self) -> u64 {
        PAGE_BYTES << self.0
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}
