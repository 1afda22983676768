//! The memory of descriptors: [`Space`], and where in it they begin.

use core::mem::size_of;
use core::ptr::NonNull;

use super::MemmapError;
use super::descriptor::{bytes_for, divides_line};
use super::writer::LINE_BYTES;
use crate::addr::{FrameRange, Order, PAGE_BYTES, PhysRange};
use crate::carver::Carver;
use crate::platform::Platform;

/// From this size on descriptors lie as their frames do modulo 2 MiB, so that those
/// of a section can be mapped, and given back, as whole huge frames.
const HUGE_FROM_BYTES: u64 = 64 << 20;
/// From this size on, modulo a page.
const PAGE_FROM_BYTES: u64 = 64 << 10;

/// The memory that holds the descriptors of a range.
#[derive(Debug)]
pub(super) struct Space<T> {
    /// The descriptor of the range's first frame; nothing there is initialised.
    pub(super) first: NonNull<T>,
    /// All its bytes are zero.
    pub(super) is_zero: bool,
}

impl<T> Space<T> {
    /// None yet.
    pub(super) const NONE: Self = Self {
        first: NonNull::dangling(),
        is_zero: false,
    };

    /// Bytes from which [`Self::carve`] succeeds.
    pub(super) fn bytes_for(frames: FrameRange) -> Option<u64> {
        bytes_for::<T>(frames.count())?.checked_add(step_bytes::<T>(frames))
    }

    /// Carves the space for the descriptors of `frames`.
    pub(super) fn carve(
        carver: &mut Carver<'_>,
        frames: FrameRange,
        is_zero: bool,
    ) -> Option<Self> {
        let step = step_bytes::<T>(frames);
        // Sizes that don't divide a line keep no step; they begin on the border.
        let phase = if divides_line::<T>() {
            frames.start().get() % step * size_of::<T>() as u64 % step
        } else {
            0
        };
        let bytes = usize::try_from(bytes_for::<T>(frames.count())?).ok()?;
        let (step, phase) = (usize::try_from(step).ok()?, usize::try_from(phase).ok()?);
        let first = carver.aligned_space(bytes, step, phase)?.cast();
        Some(Self { first, is_zero })
    }
}

/// The border on which the descriptors of `frames` keep step with their frames.
fn step_bytes<T>(frames: FrameRange) -> u64 {
    match bytes_for::<T>(frames.count()) {
        Some(bytes) if bytes < PAGE_FROM_BYTES => LINE_BYTES as u64,
        Some(bytes) if bytes < HUGE_FROM_BYTES => PAGE_BYTES,
        _ => Order::HUGE.bytes(),
    }
}

/// Makes `range`, just taken for descriptors, reachable; also whether it is known to
/// be zero.
pub(super) fn map<'m, P: Platform>(
    platform: &'m P,
    range: PhysRange,
) -> Result<(Carver<'m>, bool), MemmapError> {
    let bytes = range.bytes();
    match (platform.map(range), usize::try_from(bytes)) {
        (Some(start), Ok(len)) => {
            // SAFETY: the range was just taken for this and is never given back, so no
            // other code has it; the platform keeps it reachable while borrowed for 'm.
            let carver = unsafe { Carver::new(start, len) };
            Ok((carver, platform.is_zero(range)))
        }
        _ => Err(MemmapError::NotMapped {
            start: range.start(),
            bytes,
        }),
    }
}
