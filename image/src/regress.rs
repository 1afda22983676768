//! Regressions that Linux had, brought back by `regress=` so that the lab's gate and
//! bisection are tested against real causes. Off, each is a branch.
//!
//! | word | cause | seen in |
//! |---|---|---|
//! | `eager-zones` | 5.8 to 5.10: of a node's last zone only the last range was deferred | phase `descriptors` |
//! | `node-ranges` | the node of every page looked up, instead of every range's | phase `topology` |
//! | `hash-buckets` | a large hash table's buckets initialised one by one | phase `hash tables` |
//! | `small-blocks` | memory blocks of 128 MiB, each looked for in the list of those before it | phase `memory blocks` |
//! | `one-thread` | deferred descriptors written by one CPU ([`deferred`](crate::deferred)) | each CPU's part |

use core::hint::black_box;

use firstlight::addr::{Frame, PAGE_BYTES, PhysAddr};
use firstlight::early::EarlyMemory;
use firstlight::events::Events;
use firstlight::layout::Layout;
use firstlight_image::words::{Regression, Words};
use firstlight_wire::phase;

use crate::arch::ticks;
use crate::console::note;
use crate::descriptors::Descriptors;
use crate::lists::list;
use crate::machine::Machine;

/// Bytes of a small memory block.
const BLOCK_BYTES: u64 = 128 << 20;
/// Memory for each bucket of the hash table, as of Linux's dentries.
const BYTES_PER_BUCKET: u64 = 8192;

/// `node-ranges`: walks all pages to find where nodes begin and end.
#[inline(never)]
pub(crate) fn walk_pages(early: &EarlyMemory<'_>) {
    let mut borders = 0;
    for region in early.memory() {
        let mut last = None;
        let (mut at, end) = (region.range.start().get(), region.range.end().get());
        while at < end {
            let node = early
                .region_at(PhysAddr::new(at))
                .and_then(|found| found.node);
            borders += u64::from(node != last);
            last = node;
            at += PAGE_BYTES;
        }
    }
    black_box(borders);
}

/// `eager-zones`: writes the descriptors of all ranges but the last of each node's last zone.
#[inline(never)]
pub(crate) fn describe_all_but_the_last(layout: &Layout<'_>, descriptors: &Descriptors) {
    for node in layout.nodes() {
        let Some(zone) = layout.zones_of(node.id).last() else {
            continue;
        };
        let ranges = layout.ranges_of(node.id);
        let mut before = None;
        for range in ranges.map(|range| range.frames.intersect(zone.span)) {
            if range.is_empty() {
                continue;
            }
            if let Some(range) = before.replace(range) {
                descriptors.make_range_ready(range);
            }
        }
    }
}

/// `hash-buckets` and `small-blocks`: work that Linux does once memory is up, each a phase.
#[inline(never)]
pub(crate) fn after_memory(words: Words, machine: &Machine, events: &mut Events<'_>) {
    if words.regress(Regression::HashBuckets) {
        hash_buckets(machine);
        events.end(phase::HASH_TABLES, ticks());
    }
    if words.regress(Regression::SmallBlocks) {
        small_blocks(machine);
        events.end(phase::MEMORY_BLOCKS, ticks());
    }
}

fn hash_buckets(machine: &Machine) {
    let bytes = machine.frames.layout().present_frames() * PAGE_BYTES;
    let buckets = (bytes / BYTES_PER_BUCKET).next_power_of_two();
    let buckets = usize::try_from(buckets).unwrap_or_default();
    // An empty bucket is not zero, so that each has to be written.
    match list(&machine.frames, buckets, |bucket| {
        black_box(bucket as u64 | 1)
    }) {
        Some(table) => drop(black_box(table)),
        None => note("regress=hash-buckets: no memory for the table"),
    }
}

fn small_blocks(machine: &Machine) {
    let layout = machine.frames.layout();
    let end = layout.end().get() * PAGE_BYTES;
    let most = usize::try_from(end / BLOCK_BYTES + 1).unwrap_or_default();
    let Some(blocks) = list(&machine.frames, most, |_| u64::MAX) else {
        return note("regress=small-blocks: no memory for the list");
    };
    let mut count = 0;
    for range in layout.ranges() {
        let block = |frame: Frame| frame.get() * PAGE_BYTES / BLOCK_BYTES;
        let (first, end) = (range.frames.start(), range.frames.end());
        for id in block(first)..=block(Frame::new(end.get() - 1)) {
            let known = blocks.iter().take(count);
            let known = known.into_iter().any(|known| *black_box(known) == id);
            if let Some(slot) = blocks.get_mut(count).filter(|_| !known) {
                *slot = id;
                count += 1;
            }
        }
    }
    black_box(count);
}
