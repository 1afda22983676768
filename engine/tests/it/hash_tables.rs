//! Hash tables on the allocator's memory: what is zeroed, what is not, what is refused, what is found.

use crate::kit;
use crate::kit::real;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

use firstlight::addr::{FrameRange, Order, PAGE_BYTES};
use firstlight::frames::{Content, Frames, Hooks, NewMemory};
use firstlight::node::NodeId;
use firstlight::platform::DirectMap;
use firstlight::tables::{
    self, Chunk, Growth, NoSpace, OpenTable, ShapeError, Slot, TableError, TableSize, TableSpec,
};
use kit::{GIANT_BYTES, GIB, HUGE_BYTES, HUGE_FRAMES, MIB, Machine, TIB, added, range};
use proptest::prelude::*;
use real::{Kernel, RealMemory};

const CONNECTIONS: TableSpec = TableSpec {
    name: "connections",
    bucket_bytes: 16,
    scale: 17,
    least: 256,
    most: None,
};

fn size(buckets: u64) -> TableSize {
    let bytes = 16 * buckets;
    TableSize { buckets, bytes }
}

fn list<const N: usize>() -> [Option<Chunk>; N] {
    [const { None }; N]
}

/// A kernel that counts what it is to zero, and zeroes nothing real.
#[derive(Default)]
struct Counting(Cell<(u64, u64)>);

// SAFETY: each test has one thread.
unsafe impl Sync for Counting {}

impl Hooks for Counting {
    unsafe fn zero(&self, range: FrameRange) -> bool {
        let (calls, frames) = self.0.get();
        self.0.set((calls + 1, frames + range.count()));
        true
    }
}

#[test]
fn known_zeros_are_not_written_and_the_rest_a_chunk_at_a_time() {
    let hooks = Counting::default();
    let at = |huge| 4 * GIANT_BYTES + huge * HUGE_BYTES;
    let (span, other) = (range(at(0), at(32)), range(at(32), at(64)));
    let all = range(at(0), at(64)).inner_frames();
    let mut memory =
        vec![std::mem::MaybeUninit::uninit(); Frames::bytes_for(all, 8).unwrap() as usize];
    let frames = Frames::over(all, &mut memory).unwrap().with_hooks(&hooks);
    frames
        .add(NewMemory::new(span).holds(Content::Zero))
        .unwrap();
    let before = frames.statistics().free_frames;

    // Eight huge frames in one block: zero already.
    let mut first = list::<1>();
    let huges = size(8 * HUGE_BYTES / 16);
    let table = tables::allocate(&frames, huges, &[NodeId(0)], &mut first).unwrap();
    let count = table[0].as_ref().unwrap().frames().count();
    assert_eq!(count, 8 * HUGE_FRAMES);
    assert_eq!(hooks.0.get(), (0, 0));
    let used = table[0].as_ref().unwrap().frames();

    // What is freed is unknown, what was never touched is taken first.
    tables::free(&frames, &mut first);
    assert_eq!(frames.statistics().free_frames, before);
    frames
        .allocate_range(FrameRange::new(used.end().get(), span.inner_frames().end().get()).unwrap())
        .unwrap();
    let mut second = list::<1>();
    tables::allocate(&frames, huges, &[NodeId(0)], &mut second).unwrap();
    let (calls, zeroed) = hooks.0.get();
    assert_eq!(zeroed, 8 * HUGE_FRAMES);
    assert!(calls <= 8, "{calls} calls for eight huge frames");
    tables::free(&frames, &mut second);
    frames.add(other).unwrap();
    frames.validate().unwrap();
}

/// Why `map` is unsafe beyond its zeros: each call here is safe, and mapped these would be one slice twice.
#[test]
fn a_free_that_breaks_the_rule_of_frees_hands_out_a_chunk_twice() {
    let hooks = Counting::default();
    let frames = added(4 * HUGE_BYTES).with_hooks(&hooks);
    let (mut first, mut second) = (list::<1>(), list::<1>());
    tables::allocate(&frames, size(256), &[NodeId(0)], &mut first).unwrap();
    let mapped = first[0].as_ref().unwrap().frames();
    // Not the caller's.
    frames.free_frames_with(mapped, Content::Zero).unwrap();
    tables::allocate(&frames, size(256), &[NodeId(0)], &mut second).unwrap();
    assert_eq!(first, second);
}

#[test]
fn chunks_are_spread_over_nodes_and_an_error_changes_nothing() {
    let hooks = Counting::default();
    let machine = Machine::new(&[
        (0, range(4 * GIB, 5 * GIB)),
        (1, range(5 * GIB, 6 * GIB)),
        (2, range(6 * GIB, 7 * GIB)),
    ]);
    let frames = machine.frames().with_hooks(&hooks);
    let nodes = [NodeId(0), NodeId(1), NodeId(2)];
    let mut chunks = list::<64>();
    let table = tables::allocate(&frames, size(1 << 22), &nodes, &mut chunks).unwrap();
    assert_eq!(table.len(), 16);
    let mut share = [0u64; 3];
    for chunk in table.iter().flatten() {
        let gib = chunk.frames().start().addr().get() / GIB;
        share[usize::try_from(gib - 4).unwrap()] += chunk.frames().count();
    }
    assert_eq!(share, [6, 5, 5].map(|chunks| chunks * 4 * MIB / PAGE_BYTES));
    assert_eq!(hooks.0.get().0, 16);
    tables::free(&frames, table);

    let before = frames.statistics();
    // Larger than memory.
    let mut chunks = list::<64>();
    let error = tables::allocate(&frames, size(1 << 28), &nodes, &mut chunks).unwrap_err();
    assert!(
        matches!(error, TableError::OutOfMemory { done_bytes, .. } if done_bytes > 0),
        "{error}"
    );
    assert!(chunks.iter().all(Option::is_none));
    assert_eq!(frames.statistics().free_frames, before.free_frames);
    let error = tables::allocate(&frames, size(1 << 22), &nodes, &mut list::<15>()).unwrap_err();
    assert_eq!(
        error,
        TableError::List {
            capacity: 15,
            needed: 16
        }
    );
    let error = tables::allocate(&frames, size(1 << 22), &[], &mut list::<64>()).unwrap_err();
    assert_eq!(error, TableError::NoNode);
    assert_eq!(frames.statistics().free_frames, before.free_frames);
    frames.validate().unwrap();
}

#[test]
fn a_size_that_was_given_is_refused_with_the_most_there_can_be() {
    let error = CONNECTIONS.given(1 << 40, GIB / PAGE_BYTES).unwrap_err();
    assert!(error.to_string().contains("at most 4194304"), "{error}");
    assert_eq!(
        CONNECTIONS
            .size(GIB / PAGE_BYTES, Growth::SquareRoot)
            .buckets,
        8192
    );
    assert_eq!(tables::chunk_order(size(1 << 40), 1), Order::GIANT);
    assert_eq!(tables::chunks(size(1 << 40), 1), 16 * TIB / GIANT_BYTES);
    // A table of less than a page has one.
    assert_eq!(tables::chunks(size(1), 8), 1);
}

#[test]
fn a_table_on_the_allocator_s_memory_keeps_what_it_is_given() {
    // Miri is slow.
    let (buckets, keys) = if cfg!(miri) {
        (1 << 12, 300)
    } else {
        (1 << 16, 50_000)
    };
    let memory = RealMemory::new(4);
    let kernel = Kernel::new(&memory);
    let frames = memory.frames().with_hooks(&kernel);
    let mut chunks = list::<4>();
    let table = tables::allocate(&frames, size(buckets), &[NodeId(0), NodeId(0)], &mut chunks);
    // Four chunks a node: eight, of which the list has four.
    assert_eq!(
        table.unwrap_err(),
        TableError::List {
            capacity: 4,
            needed: 8
        }
    );
    let mut chunks = list::<8>();
    let table =
        tables::allocate(&frames, size(buckets), &[NodeId(0), NodeId(0)], &mut chunks).unwrap();
    let blocks: Vec<_> = table.iter_mut().filter_map(Option::take).collect();
    let start = blocks[0].frames().start();
    let first = memory.block(start, Order::PAGE).as_mut_ptr();
    let offset = first
        .expose_provenance()
        .wrapping_sub(start.addr().get() as usize);
    // SAFETY: the memory of `frames`, of which only the chunks are used.
    let platform = unsafe { DirectMap::new(offset) };
    let mut slices: Vec<&mut [Slot]> = Vec::new();
    for chunk in blocks {
        // SAFETY: the kernel's hook zeroed them, through the same memory.
        let slots = unsafe { tables::map(&platform, chunk) }.unwrap();
        // The memory held another byte before.
        assert!(slots.iter().all(|slot| *slot == Slot::FREE));
        slices.push(slots);
    }
    let mut open = OpenTable::new(&mut slices).unwrap();
    assert_eq!(open.slots(), buckets);
    for key in (1..keys).filter_map(NonZeroU64::new) {
        assert_eq!(open.insert(key, key.get() * 3), Ok(None));
    }
    for key in (1..keys).filter_map(NonZeroU64::new) {
        assert_eq!(open.get(key), Some(key.get() * 3));
    }
    assert_eq!(open.len(), keys - 1);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64),
    Remove(u64),
    Get(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Few keys, so that they meet; some that begin at the last slots.
    let key = prop_oneof![
        1..60u64,
        Just(u64::MAX),
        (0..8u64).prop_map(|at| at << 60 | 1)
    ];
    prop_oneof![
        4 => (key.clone(), any::<u64>()).prop_map(|(key, value)| Step::Insert(key, value)),
        3 => key.clone().prop_map(Step::Remove),
        2 => key.prop_map(Step::Get),
    ]
}

proptest! {
    #[test]
    fn an_open_table_is_a_map(steps in prop::collection::vec(step(), 1..300), chunk_shift in 0..6u32) {
        let mut slots = vec![Slot::FREE; 32];
        let mut chunks: Vec<&mut [Slot]> = slots.chunks_mut(1 << chunk_shift.min(5)).collect();
        let mut table = OpenTable::new(&mut chunks).unwrap();
        let mut model = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert(key, value) => {
                    let full = model.len() >= 28 && !model.contains_key(&key);
                    let got = table.insert(NonZeroU64::new(key).unwrap(), value);
                    if full {
                        prop_assert_eq!(got, Err(NoSpace { keys: 28 }));
                    } else {
                        prop_assert_eq!(got, Ok(model.insert(key, value)));
                    }
                }
                Step::Remove(key) => prop_assert_eq!(table.remove(NonZeroU64::new(key).unwrap()), model.remove(&key)),
                Step::Get(key) => prop_assert_eq!(table.get(NonZeroU64::new(key).unwrap()), model.get(&key).copied()),
            }
            prop_assert_eq!(table.len(), model.len() as u64);
        }
        for (key, value) in model {
            prop_assert_eq!(table.get(NonZeroU64::new(key).unwrap()), Some(value));
        }
    }
}

#[test]
fn chunks_that_are_no_table_are_refused() {
    let refused = |sizes: &[usize]| {
        let mut slots: Vec<Vec<Slot>> = sizes.iter().map(|size| vec![Slot::FREE; *size]).collect();
        let mut chunks: Vec<&mut [Slot]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
        OpenTable::new(&mut chunks).err()
    };
    assert_eq!(
        refused(&[]),
        Some(ShapeError {
            chunks: 0,
            slots: 0
        })
    );
    assert_eq!(
        refused(&[3]),
        Some(ShapeError {
            chunks: 1,
            slots: 3
        })
    );
    assert_eq!(
        refused(&[1]),
        Some(ShapeError {
            chunks: 1,
            slots: 1
        })
    );
    assert_eq!(
        refused(&[4, 4, 4]),
        Some(ShapeError {
            chunks: 3,
            slots: 4
        })
    );
    assert_eq!(
        refused(&[4, 8]),
        Some(ShapeError {
            chunks: 2,
            slots: 4
        })
    );
    assert_eq!(refused(&[4, 4]), None);
}
