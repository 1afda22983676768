//! A stack of frames that one CPU keeps for itself: [`Magazine`].

use crate::addr::{Frame, FrameRange};

/// Up to `N` frames, a power of two; the last one in is the first one out.
#[derive(Debug)]
pub(super) struct Magazine<const N: usize> {
    frames: [Frame; N],
    len: usize,
    /// How many it may hold, at most `N`; even. With 0 it takes nothing.
    limit: usize,
}

impl<const N: usize> Magazine<N> {
    /// Empty; takes nothing before it is [reset](Self::reset).
    pub(super) const fn new() -> Self {
        const { assert!(N.is_power_of_two()) };
        Self {
            frames: [Frame::new(0); N],
            len: 0,
            limit: 0,
        }
    }

    /// Empties it, whatever was in it, and lets it hold up to `limit`.
    pub(super) fn reset(&mut self, limit: usize) {
        self.len = 0;
        self.limit = limit.min(N) & !1;
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Frame> {
        self.len = self.len.checked_sub(1)?;
        // The mask tells the compiler that it is in range.
        Some(self.frames[self.len & (N - 1)])
    }

    /// Puts a frame on top; `false` if there is no room.
    #[inline]
    pub(super) fn push(&mut self, frame: Frame) -> bool {
        if self.len >= self.limit {
            return false;
        }
        self.frames[self.len & (N - 1)] = frame;
        self.len += 1;
        true
    }

    /// Where up to half of the frames it may hold can be put, while it is empty.
    pub(super) fn refill(&mut self, fill: impl FnOnce(&mut [Frame]) -> usize) {
        debug_assert_eq!(self.len, 0);
        let room = &mut self.frames[..self.limit / 2];
        self.len = fill(room).min(self.limit / 2);
        // What was taken first comes out first.
        self.frames[..self.len].reverse();
    }

    /// The older half of what it may hold, or all it has, to be given back.
    pub(super) fn take_oldest(&mut self, give: impl FnOnce(&[Frame])) {
        let count = self.len.min(self.limit / 2);
        give(&self.frames[..count]);
        self.frames.copy_within(count..self.len, 0);
        self.len -= count;
    }

    /// How many a refill takes at most.
    #[expect(clippy::cast_possible_truncation, reason = "at most N")]
    pub(super) fn half(&self) -> u32 {
        self.limit as u32 / 2
    }

    #[expect(
        clippy::cast_possible_wrap,
        clippy::cast_possible_truncation,
        reason = "at most N"
    )]
    pub(super) fn len(&self) -> i32 {
        self.len as i32
    }
}

/// Pages of one huge frame that nobody has used yet, handed out one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    next: u64,
    end: u64,
}

impl Area {
    pub(super) const EMPTY: Self = Self { next: 0, end: 0 };

    pub(super) fn new(frames: FrameRange) -> Self {
        Self {
            next: frames.start().get(),
            end: frames.end().get(),
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Frame> {
        if self.next == self.end {
            return None;
        }
        self.next += 1;
        Some(Frame::new(self.next - 1))
    }

    /// What is left; none of it afterwards.
    pub(super) fn take(&mut self) -> FrameRange {
        let left = FrameRange::new(self.next, self.end).unwrap_or_default();
        self.next = self.end;
        left
    }
}
