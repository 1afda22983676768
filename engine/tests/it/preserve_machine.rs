//! Preserved memory through the whole way up: never allocated, never written, on its node, and
//! freed only by its owner.

use crate::kit;

use std::num::NonZeroU64;

use firstlight::addr::{PAGE_BYTES, PhysAddr, PhysRange};
use firstlight::frames::Frames;
use firstlight::map::{MapEntry, MemoryKind};
use firstlight::node::NodeId;
use firstlight::preserve::PreserveError;
use firstlight::preserve::{Draft, Preserved, PreservedRange};
use firstlight::start::{Boot, BootMemory};
use kit::{GIB, HUGE_BYTES, MIB, Uninitialised, boot_slots, huge, page, range};

const NONCE: NonZeroU64 = NonZeroU64::new(7).unwrap();
const PLACE: PhysRange = PhysRange::new(16 * MIB, 17 * MIB).unwrap();
const GUESTS: [(u64, u64); 3] = [
    (GIB, 2 * GIB),
    (2 * GIB + PAGE_BYTES, 2 * GIB + 5 * MIB),
    (3 * GIB - HUGE_BYTES, 3 * GIB),
];

/// The table of the previous kernel, where the ranges were on `node`.
fn table(node: Option<NodeId>) -> Vec<u8> {
    let mut place = vec![0; 4096];
    let mut draft = Draft::new(&mut place, PLACE.start(), NONCE).unwrap();
    for ((start, end), owner) in GUESTS.into_iter().zip(1..) {
        draft
            .add(PreservedRange {
                range: range(start, end),
                owner,
                tag: 0,
                node,
            })
            .unwrap();
    }
    draft.finish();
    place
}

/// A machine of 3 GiB, with what is preserved or, without a table, as after a cold start.
fn started<'t>(
    table: Option<&'t mut [u8]>,
) -> (
    Frames<'static>,
    Option<Preserved<'t>>,
    &'static Uninitialised,
) {
    let boot = Boot {
        reserved: &[(PLACE, "hand-over table")],
        ..Boot::new([MapEntry::new(0, 3 * GIB, MemoryKind::Usable)])
    };
    let mut memory: BootMemory<'_, '_> = boot.early(boot_slots(64, 1), &mut |_| {}).unwrap();
    let at = PLACE.start();
    let preserved =
        table.map(|table| Preserved::accept(table, at, Some(NONCE), &mut memory.early).unwrap());
    let platform: &Uninitialised = Box::leak(Box::default());
    let layout = memory.layout(&mut |_| {}).unwrap();
    (
        Frames::build(layout, platform).unwrap(),
        preserved,
        platform,
    )
}

fn overlaps_guest(start: PhysAddr, bytes: u64) -> bool {
    let block = range(start.get(), start.get() + bytes);
    GUESTS
        .iter()
        .any(|(start, end)| block.overlaps(range(*start, *end)))
}

#[test]
fn preserved_memory_is_neither_allocated_nor_written_until_its_owner_frees_it() {
    let (cold, _, _) = started(None);
    let all_free = cold.statistics().free_frames;
    let mut table = table(Some(NodeId(0)));
    let (frames, preserved, platform) = started(Some(&mut table));
    let mut preserved = preserved.unwrap();
    assert_eq!(preserved.check_nodes(frames.layout()), Ok(()));
    let guests: u64 = GUESTS
        .iter()
        .map(|(start, end)| (end - start) / PAGE_BYTES)
        .sum();
    assert_eq!(frames.statistics().free_frames, all_free - guests);
    assert_eq!(
        frames.statistics().managed_frames,
        cold.statistics().managed_frames
    );
    frames.validate().unwrap();
    // The engine's own tables.
    for (start, bytes) in platform.mapped.borrow().iter() {
        assert!(!overlaps_guest(PhysAddr::new(*start), *bytes));
    }
    let mut taken = Vec::new();
    for (request, bytes) in [(huge(), HUGE_BYTES), (page(), PAGE_BYTES)] {
        while let Ok(frame) = frames.allocate(request) {
            assert!(!overlaps_guest(frame.addr(), bytes));
            taken.push((frame, request));
        }
    }
    for (frame, request) in taken {
        frames.free(frame, request.order()).unwrap();
    }
    // The first owner frees a part of what it takes, then the rest.
    let first: Vec<_> = preserved.take(1).collect();
    let [first] = first.as_slice() else {
        panic!("{first:?}")
    };
    let whole = first.range.inner_frames();
    let (low, high) = (whole.start().get(), whole.end().get());
    for (from, to) in [(low + 3, low + 700), (low, low + 3), (low + 700, high)] {
        frames
            .free_frames(firstlight::addr::FrameRange::new(from, to).unwrap())
            .unwrap();
    }
    frames.free_frames(whole).unwrap_err();
    // Nothing is known of what they hold: a request for zeros zeroes it.
    assert_eq!(frames.statistics().zero.frames, 0);
    // The second is forgotten, the third takes nothing.
    preserved.release(|range| frames.free_frames(range.range.inner_frames()).unwrap());
    assert_eq!(frames.statistics().free_frames, all_free);
    frames.validate().unwrap();
}

/// The node in the table is the old kernel's: a machine that numbers its nodes in another way is another machine.
#[test]
fn preserved_memory_that_is_on_another_node_is_refused_and_can_be_released() {
    let (cold, _, _) = started(None);
    let mut table = table(Some(NodeId(1)));
    let (frames, preserved, _) = started(Some(&mut table));
    let mut preserved = preserved.unwrap();
    let (start, end) = GUESTS[0];
    let error = PreserveError::Node {
        index: 0,
        range: range(start, end),
        seen: NodeId(1),
        expected: NodeId(0),
    };
    assert_eq!(preserved.check_nodes(frames.layout()), Err(error));
    preserved.release(|range| frames.free_frames(range.range.inner_frames()).unwrap());
    assert_eq!(
        frames.statistics().free_frames,
        cold.statistics().free_frames
    );
}
