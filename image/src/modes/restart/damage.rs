//! What goes wrong on purpose.

use firstlight::addr::{Frame, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{Frames, Request};
use firstlight::preserve::{Draft, PreserveError, PreservedRange};
use firstlight_image::damage::Damage;

use crate::arch::image_range;
use crate::preserve::FORGOTTEN;

/// Ranges of [`Damage::Many`]: every second page of some huge frames.
const MANY: u64 = 3 * 256;
/// Where no machine has memory.
const ABSENT: u64 = 1 << 45;

/// A page that nothing takes back.
fn page(at: u64) -> PreservedRange {
    PreservedRange {
        range: PhysRange::with_size(at, PAGE_BYTES).unwrap_or_default(),
        owner: FORGOTTEN,
        tag: 0,
        node: None,
    }
}

/// Adds ranges that the next kernel must refuse.
///
/// # Errors
/// [`PreserveError::Full`].
pub(super) fn add(
    damage: Option<Damage>,
    draft: &mut Draft<'_>,
    frames: &Frames<'_>,
) -> Result<(), PreserveError> {
    match damage {
        Some(Damage::Kernel) => draft.add(page(image_range().start().get())),
        Some(Damage::Absent) => draft.add(page(ABSENT)),
        Some(Damage::Many) => {
            let mut block = Frame::new(0);
            for number in 0..MANY {
                let at = number % 256;
                if at == 0 {
                    // Without memory it is one range more, of the first page.
                    block = frames.allocate(Request::new(Order::HUGE)).unwrap_or(block);
                }
                draft.add(page(block.addr().get() + 2 * at * PAGE_BYTES))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Damages the table, or the guest's memory at `guest`.
pub(super) fn apply(damage: Option<Damage>, table: &mut [u8], guest: Option<PhysRange>) {
    match damage {
        Some(Damage::Bit(bit)) => {
            let bit = bit as usize % (8 * table.len());
            table[bit / 8] ^= 1 << (bit % 8);
        }
        Some(Damage::Foreign) => table[..8].copy_from_slice(b"ANOTHER!"),
        Some(Damage::Guest) => {
            if let Some(guest) = guest {
                let first = guest.start().get() as *mut u64;
                // SAFETY: a guest's memory, which is mapped and in use by nothing else now.
                unsafe { first.write_volatile(first.read_volatile() ^ 1 << 40) }
            }
        }
        _ => {}
    }
}
