//! The frame buffer that firmware leaves: [`FrameBuffer`].

use firstlight::addr::PhysRange;
use firstlight_image::screen::Pixels;
use firstlight_wire::handover::Screen;

use super::paging::{self, Access};

/// Pixels in video memory.
pub(crate) struct FrameBuffer(Screen);

impl FrameBuffer {
    /// `None` if the buffer is not mapped.
    ///
    /// # Safety
    /// No memory is there, and nothing else writes there.
    pub(crate) unsafe fn new(screen: Screen) -> Option<Self> {
        let screen = screen.checked().ok()?;
        let range = PhysRange::with_size(screen.address, screen.bytes)?;
        paging::allows(range, Access::Any).then_some(Self(screen))
    }
}

impl Pixels for FrameBuffer {
    fn size(&self) -> (u32, u32) {
        (self.0.width, self.0.height)
    }

    fn set(&mut self, x: u32, y: u32, color: u32) {
        if x < self.0.width && y < self.0.height {
            let pixel = u64::from(y) * u64::from(self.0.stride) + u64::from(x);
            let place = (self.0.address + 4 * pixel) as *mut u32;
            // SAFETY: inside of the buffer (`checked`), which is mapped and no memory
            // (`new`), at a multiple of 4.
            unsafe { place.write_volatile(color) }
        }
    }
}
