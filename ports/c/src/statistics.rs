//! What is free: [`fl_statistics`].

use engine::frames::Statistics;

use crate::check;
use crate::error::code;
use crate::error::fl_error::{self, *};
use crate::frames::{created, fl_frames};
use crate::request::{node, zone};

/// How much memory there is, and what of it is free. Exact while no other call is being made; then
/// managed_frames = free_frames + cached_frames + what is allocated.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fl_statistics {
    /// Frames that were added or adopted.
    pub managed_frames: u64,
    /// Frames that CPUs cache; 0 in the count of a zone, which counts them as allocated.
    pub cached_frames: u64,
    /// Frames that can be allocated now by every CPU.
    pub free_frames: u64,
    /// Blocks of 1 GiB that are free as a whole.
    pub free_giants: u64,
    /// Blocks of 2 MiB that are free as a whole, those in free blocks of 1 GiB among them.
    pub free_huges: u64,
    /// Blocks of 2 MiB of which some frames are free.
    pub partial_huges: u64,
}

impl From<Statistics> for fl_statistics {
    fn from(counted: Statistics) -> Self {
        Self {
            managed_frames: counted.managed_frames,
            cached_frames: counted.cached_frames,
            free_frames: counted.free_frames,
            free_giants: counted.free_giants,
            free_huges: counted.free_huges,
            partial_huges: counted.partial_huges,
        }
    }
}

/// Stores what is free of all memory in `statistics`.
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED. Callers as of fl_allocate.
///
/// # Safety
/// `frames` is null, misaligned, or points to an fl_frames; `statistics` is, or points to an
/// fl_statistics of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_count(
    frames: *const fl_frames,
    statistics: *mut fl_statistics,
) -> fl_error {
    code((|| {
        let statistics = check::pointer(statistics)?;
        // SAFETY: by the contract; `statistics` is not null, and aligned.
        unsafe { statistics.write(created(frames)?.statistics().into()) };
        Ok(())
    })())
}

/// Stores what is free of zone `zone_number` of node `node_number` in `statistics`.
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_NO_SUCH_NODE, FL_NO_SUCH_ZONE. Callers as of
/// fl_allocate.
///
/// # Safety
/// As of fl_count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_count_zone(
    frames: *const fl_frames,
    node_number: u32,
    zone_number: u32,
    statistics: *mut fl_statistics,
) -> fl_error {
    code((|| {
        let statistics = check::pointer(statistics)?;
        // SAFETY: by the contract.
        let frames = unsafe { created(frames) }?;
        let (node, zone) = (node(node_number)?, zone(zone_number)?);
        let counted = frames.zone(node, zone).statistics();
        // SAFETY: not null, aligned, the caller's.
        unsafe { statistics.write(counted.into()) };
        Ok(())
    })())
}

/// Recounts all that is kept twice: for tests and diagnosis. FL_CORRUPT if it differs.
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_CORRUPT. Any CPU, while no other call is being made:
/// it would find faults that do not exist.
///
/// # Safety
/// `frames` is null, misaligned, or points to an fl_frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_validate(frames: *const fl_frames) -> fl_error {
    code((|| {
        // SAFETY: by the contract.
        let frames = unsafe { created(frames) }?;
        frames.validate().map_err(|_| FL_CORRUPT)
    })())
}
