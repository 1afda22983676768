//! What goes wrong on purpose.

use firstlight::addr::{Frame, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{Frames, Request};
use firstlight::node::NodeId;
use firstlight::preserve::{Draft, PreserveError, PreservedRange};
use firstlight_image::damage::Damage;

use crate::arch::image_range;
use crate::preserve::{FORGOTTEN, content};

/// Ranges of [`Damage::Many`], each a page with one beside it that is not handed over.
const MANY: u64 = 768;
const PAIR: Order = match Order::new(1) {
    Some(order) => order,
    None => Order::PAGE,
};
/// No machine here has so many nodes.
const NO_SUCH_NODE: u16 = 1000;
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
        Some(Damage::Node) => {
            let node = Some(NodeId(NO_SUCH_NODE));
            let added = frames
                .allocate(Request::new(Order::PAGE))
                .unwrap_or_default();
            draft.add(PreservedRange {
                node,
                ..page(added.addr().get())
            })
        }
        Some(Damage::Many) => (0..MANY).try_for_each(|_| {
            // Without memory it adds what was not allocated, which is refused just so.
            let pair = frames.allocate(Request::new(PAIR)).unwrap_or_default();
            let _ = frames.free(Frame::new(pair.get() + 1), Order::PAGE);
            let added = draft.add(page(pair.addr().get()));
            if added.is_err() {
                let _ = frames.free(pair, Order::PAGE);
            }
            added
        }),
        _ => Ok(()),
    }
}

/// The checksum of a range that is handed over; of one where no memory is, nothing can be read.
pub(super) fn checksum(range: PhysRange) -> u64 {
    if range.start().get() == ABSENT {
        0
    } else {
        content(range)
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
