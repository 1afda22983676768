//! Range by range: the tables lie behind the kernel, and what is free of each range is added.

use core::mem::MaybeUninit;
use core::ptr::without_provenance_mut;

use firstlight::addr::{FrameRange, PhysRange};
use firstlight::firmware::fdt::Fdt;
use firstlight::frames::Frames;

use crate::{log, memory_of};

/// Ranges of memory, at most.
const RANGES: usize = 16;

pub(crate) fn frames(tree: &Fdt<'_>, kernel: PhysRange) -> Option<Frames<'static>> {
    let mut memory = [PhysRange::default(); RANGES];
    for (place, range) in memory.iter_mut().zip(memory_of(tree)) {
        *place = range;
    }
    let end = memory.iter().map(|range| range.end()).max()?;
    let span = FrameRange::new(0, end.get() >> 12)?;
    let bytes = Frames::bytes_for(span, RANGES + 1)?;
    let start = kernel.end().align_up(4096)?;
    let in_use = PhysRange::new(0, start.get().checked_add(bytes)?)?;
    let has_tables = |range: &PhysRange| range.contains(start) && in_use.end() <= range.end();
    memory.iter().find(|range| has_tables(range))?;
    let tables = without_provenance_mut::<MaybeUninit<u8>>(usize::try_from(start.get()).ok()?);
    // SAFETY: never run.
    let tables = unsafe { core::slice::from_raw_parts_mut(tables, usize::try_from(bytes).ok()?) };
    let frames = Frames::over(span, tables).map_err(|why| log(&why)).ok()?;
    for range in memory {
        let free = PhysRange::new(range.start().max(in_use.end()).get(), range.end().get());
        if let Some(free) = free.filter(|free| !free.is_empty()) {
            frames.add(free).map_err(|why| log(&why)).ok()?;
        }
    }
    Some(frames)
}
