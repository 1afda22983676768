//! What the previous kernel handed over: its table, found where the command line says; its
//! ranges, reserved before the first allocation; guests, that take theirs once all memory can be
//! allocated.

use firstlight::addr::{Frame, Order, PAGE_BYTES, PhysRange};
use firstlight::early::{EarlyError, EarlyMemory};
use firstlight::frames::{Frames, Request};
use firstlight::preserve::{PreserveError, Preserved, PreservedRange, checksum};
use log::{error, info};

use crate::arch::{DirectMap, restart, ticks};
use crate::console::note;
use crate::lists::list_at;

/// The owner of a node's guest: this and the node's number.
pub(crate) const GUESTS: u32 = 1;
/// The owner of memory that nothing takes back.
pub(crate) const FORGOTTEN: u32 = u32::MAX;

/// What there is to take over, reserved.
pub(crate) struct Left {
    place: Option<PhysRange>,
    table: Result<Preserved<'static>, PreserveError>,
    /// Whether checksums of content are wanted.
    verified: bool,
}

impl Left {
    /// Reads the table at `place`, if the command line has one. Everything else in use is
    /// reserved, nothing has been allocated.
    pub(crate) fn find(
        place: Option<PhysRange>,
        verified: bool,
        early: &mut EarlyMemory<'_>,
    ) -> Result<Self, EarlyError> {
        let nothing = Self {
            place: None,
            table: Err(PreserveError::Absent),
            verified,
        };
        let Some(place) = place else {
            return Ok(nothing);
        };
        let region = early.region_at(place.start());
        let is_memory = region.is_some_and(|region| place.end() <= region.range.end());
        let mut reserved = early.reserved().iter();
        let in_use = reserved.any(|region| region.range.overlaps(place));
        // SAFETY: memory that nothing uses; it is reserved at once.
        let bytes = (is_memory && !in_use).then(|| unsafe { DirectMap::place(place) });
        let Some(bytes) = bytes.flatten() else {
            note(format_args!(
                "preserve= is ignored: {place} is not all memory below 4 GiB, or is in use"
            ));
            return Ok(nothing);
        };
        early.reserve(place, "hand-over table")?;
        Ok(Self {
            place: Some(place),
            table: Preserved::accept(bytes, place.start(), restart::nonce(), early),
            verified,
        })
    }

    /// Guests take their memory.
    pub(crate) fn take(self, frames: &Frames<'_>) -> TakenOver {
        let Self {
            place,
            table,
            verified,
        } = self;
        let mut taken = TakenOver {
            place,
            ..TakenOver::default()
        };
        let table = table.and_then(|table| checked(table, frames, verified));
        match table {
            Ok(table) => {
                let bytes: u64 = table.left().map(|range| range.range.bytes()).sum();
                info!(
                    "preserve: {} MiB of the previous kernel in {} ranges stay allocated for their owners",
                    bytes >> 20,
                    table.left().count()
                );
                taken.guests(table, frames);
            }
            Err(error) if error.is_absent() && restart::count() == 0 => {}
            Err(error) => {
                note(format_args!(
                    "{error}: memory comes up as after a cold start"
                ));
                taken.refused = Some(error);
            }
        }
        taken
    }
}

/// `table`, if it fits the nodes and what it holds has not changed; else its memory is free.
fn checked(
    mut table: Preserved<'static>,
    frames: &Frames<'_>,
    verified: bool,
) -> Result<Preserved<'static>, PreserveError> {
    let right = table.check_nodes(frames.layout());
    let right = right.and_then(|()| match verified {
        true => table.check_content(content),
        false => Ok(()),
    });
    let Err(error) = right else {
        return Ok(table);
    };
    table.release(|range| {
        if let Err(why) = frames.free_frames(range.range.inner_frames()) {
            error!("preserve: {range}: {why}");
        }
    });
    Err(error)
}

/// The checksum of what memory holds that was handed over, or will be.
pub(crate) fn content(range: PhysRange) -> u64 {
    let bytes = usize::try_from(range.bytes()).unwrap_or_default();
    // SAFETY: mapped memory at its own address, which nothing writes to while kernels change.
    checksum(unsafe { core::slice::from_raw_parts(range.start().get() as *const u8, bytes) })
}

/// What was taken over.
#[derive(Default)]
pub(crate) struct TakenOver {
    /// Where tables lie; none without a word for it.
    pub(crate) place: Option<PhysRange>,
    /// Why the previous kernel's table was refused.
    pub(crate) refused: Option<PreserveError>,
    /// Memory of guests.
    pub(crate) guests: &'static [PreservedRange],
    /// Where that list lies.
    pub(crate) list: Option<(Frame, Order)>,
    /// What no guest took.
    pub(crate) rest: Option<Preserved<'static>>,
    /// When guests' memory could be used.
    pub(crate) usable_ticks: u64,
}

impl TakenOver {
    fn guests(&mut self, mut table: Preserved<'static>, frames: &Frames<'_>) {
        let bytes = size_of::<PreservedRange>() * table.left().count();
        let pages = (bytes as u64).div_ceil(PAGE_BYTES).next_power_of_two();
        let order = u8::try_from(pages.ilog2()).ok().and_then(Order::new);
        let order = order.unwrap_or(Order::PAGE);
        match frames.allocate(Request::new(order)) {
            Ok(list) => {
                let space = PhysRange::with_size(list.addr().get(), order.bytes());
                let ranges = table.take_if(|range| range.owner != FORGOTTEN);
                // SAFETY: mapped memory that was just allocated.
                self.guests = unsafe { list_at(space.unwrap_or_default(), ranges) };
                self.list = Some((list, order));
            }
            Err(why) => note(format_args!("guests cannot take their memory: {why}")),
        }
        self.usable_ticks = ticks();
        self.rest = Some(table);
    }
}
