//! The memory in the balloon: [`Held`]. Nothing in it may be touched, so the list of it is
//! elsewhere.

use firstlight::addr::{Frame, Order, PAGE_SHIFT};
use firstlight::frames::{Frames, Request};
use firstlight::node::ZoneKind;
use firstlight_image::balloon::Balloon;
use firstlight_image::virtio::{Transport, VirtioError};

use crate::lists::list;

/// log2 of the bytes of a device's page, and of how many of them make a frame.
const UNIT_SHIFT: u32 = 12;
const UNITS_SHIFT: u32 = PAGE_SHIFT - UNIT_SHIFT;

/// Blocks of which the host wants a part are pages: at most so many, twice.
const MOST_PAGES: u64 = 2 * Order::HUGE.frames();

/// The blocks in the balloon, the last one on top.
pub(super) struct Held<'f> {
    frames: &'f Frames<'static>,
    blocks: &'static mut [(Frame, Order)],
    count: usize,
    /// Frames.
    pub(super) pages: u64,
    /// The most there were.
    pub(super) most: u64,
    /// Frames that the list takes.
    pub(super) list_frames: u64,
}

impl<'f> Held<'f> {
    /// An empty balloon with a list that is long enough for all memory.
    pub(super) fn new(frames: &'f Frames<'static>) -> Option<Self> {
        let before = frames.statistics().free_frames;
        let huges = frames.statistics().managed_frames / Order::HUGE.frames();
        let len = usize::try_from(huges + MOST_PAGES).ok()?;
        let blocks = list(frames, len, |_| (Frame::new(0), Order::PAGE))?;
        Some(Self {
            frames,
            blocks,
            count: 0,
            pages: 0,
            most: 0,
            list_frames: before - frames.statistics().free_frames,
        })
    }

    /// Inflates or deflates until the host has `target` of the device's pages, as far as frames make them, or there is
    /// no memory left.
    pub(super) fn follow<T: Transport>(
        &mut self,
        balloon: &mut Balloon<'_, T>,
        target: u64,
    ) -> Result<(), VirtioError> {
        let target = target >> UNITS_SHIFT;
        // Deflated first: the last block may be larger than what is too much.
        while self.pages > target
            && let Some((first, order)) = self.pop()
        {
            let deflated = balloon.deflate(number(first), count(order));
            if let Err(VirtioError::Unreleased { .. }) = deflated {
                // The device may still have them: they stay in the balloon.
                self.count += 1;
                return deflated;
            }
            self.pages -= order.frames();
            // Also the memory of a device that was reset.
            let _ = self.frames.free(first, order);
            deflated?;
        }
        while self.pages < target {
            let missing = target - self.pages;
            let order = match missing >= Order::HUGE.frames() {
                true => Order::HUGE,
                false => Order::PAGE,
            };
            // Nothing is allocated that the list has no place for.
            let Some(slot) = self.blocks.get_mut(self.count) else {
                break;
            };
            let request = Request::new(order).zone(ZoneKind::Movable);
            let Ok(first) = self.frames.allocate(request) else {
                break;
            };
            *slot = (first, order);
            self.count += 1;
            self.pages += order.frames();
            balloon.inflate(number(first), count(order))?;
        }
        self.most = self.most.max(self.pages);
        Ok(())
    }

    fn pop(&mut self) -> Option<(Frame, Order)> {
        self.count = self.count.checked_sub(1)?;
        self.blocks.get(self.count).copied()
    }
}

/// The device's number of a frame's first page.
fn number(frame: Frame) -> u64 {
    frame.addr().get() >> UNIT_SHIFT
}

/// The device's pages of a block.
fn count(order: Order) -> u32 {
    1 << (UNITS_SHIFT + u32::from(order.get()))
}
