//! What such a kernel has of its own: a sorted list of free ranges, first fit.

use core::sync::atomic::{AtomicBool, Ordering};

use firstlight::addr::{FrameRange, PhysRange};
use firstlight::firmware::fdt::Fdt;

use crate::{log, memory_of};

const RANGES: usize = 512;

struct List {
    free: [(u64, u64); RANGES],
    count: usize,
}

static mut LIST: List = List {
    free: [(0, 0); RANGES],
    count: 0,
};
static LOCKED: AtomicBool = AtomicBool::new(false);

fn with_list<R>(call: impl FnOnce(&mut List) -> R) -> R {
    while LOCKED.swap(true, Ordering::Acquire) {
        core::hint::spin_loop();
    }
    // SAFETY: the lock is held.
    let result = call(unsafe { &mut *(&raw mut LIST) });
    LOCKED.store(false, Ordering::Release);
    result
}

impl List {
    fn remove(&mut self, at: usize) {
        self.free.copy_within(at + 1..self.count, at);
        self.count -= 1;
    }

    fn insert(&mut self, at: usize, range: (u64, u64)) -> Option<()> {
        if self.count == RANGES {
            return None;
        }
        self.free.copy_within(at..self.count, at + 1);
        *self.free.get_mut(at)? = range;
        self.count += 1;
        Some(())
    }

    fn allocate(&mut self, frames: u64, align: u64) -> Option<FrameRange> {
        for at in 0..self.count {
            let (start, end) = *self.free.get(at)?;
            let first = start.checked_next_multiple_of(align)?;
            let last = first.checked_add(frames)?;
            if last > end {
                continue;
            }
            match (first > start, last < end) {
                (false, false) => self.remove(at),
                (false, true) => *self.free.get_mut(at)? = (last, end),
                (true, false) => *self.free.get_mut(at)? = (start, first),
                (true, true) => {
                    self.insert(at + 1, (last, end))?;
                    *self.free.get_mut(at)? = (start, first);
                }
            }
            return FrameRange::new(first, last);
        }
        None
    }

    fn give(&mut self, start: u64, end: u64) -> Option<()> {
        let at = self
            .free
            .get(..self.count)?
            .partition_point(|free| free.0 < start);
        let below = at.checked_sub(1).and_then(|at| self.free.get(at)).copied();
        let above = self.free.get(..self.count)?.get(at).copied();
        if below.is_some_and(|below| below.1 > start) || above.is_some_and(|above| above.0 < end) {
            return None;
        }
        let joins_below = below.filter(|below| below.1 == start);
        let joins_above = above.filter(|above| above.0 == end);
        match (joins_below, joins_above) {
            (None, None) => return self.insert(at, (start, end)),
            (Some(_), None) => self.free.get_mut(at - 1)?.1 = end,
            (None, Some(_)) => self.free.get_mut(at)?.0 = start,
            (Some(_), Some(above)) => {
                self.free.get_mut(at - 1)?.1 = above.1;
                self.remove(at);
            }
        }
        Some(())
    }
}

pub(crate) fn start(tree: &Fdt<'_>, kernel: PhysRange) -> Option<()> {
    memory_of(tree).try_for_each(|memory| {
        let start = memory.start().max(kernel.end()).align_up(4096)?;
        let (start, end) = (start.get() >> 12, memory.end().get() >> 12);
        if start < end {
            with_list(|list| list.give(start, end))?;
        }
        Some(())
    })
}

pub(crate) fn allocate(frames: u64, align: u64) -> Option<FrameRange> {
    if frames == 0 || !align.is_power_of_two() {
        log(&"no frames, or a wrong alignment");
        return None;
    }
    with_list(|list| list.allocate(frames, align))
}

pub(crate) fn free(row: FrameRange) -> Option<()> {
    with_list(|list| list.give(row.start().get(), row.end().get()))
}

pub(crate) fn free_frames() -> u64 {
    with_list(|list| {
        let free = list.free.iter().take(list.count);
        free.map(|(start, end)| end - start).sum()
    })
}
