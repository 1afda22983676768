//! The interleavings of a CPU's lists with requests of other CPUs that run out of memory: refill,
//! flush, drain, moves from list to list, isolation.

extern crate std;

use super::Cpu;
use super::cache::CpuCache;
use super::cpus::Cpus;
use super::drain::DrainRequest;
use super::slot::CpuSlot;
use crate::addr::{Frame, FrameRange, Order, PhysRange};
use crate::early::{Allocation, EarlyFlags, EarlyMemory, EarlyRegion};
use crate::frames::Hooks;
use crate::frames::error::AllocError;
use crate::frames::find::Frames;
use crate::frames::find::NoCache;
use crate::frames::metadata::Metadata;
use crate::frames::request::Request;
use crate::frames::segment::pinned::{Entry, Pinned};
use crate::frames::segment::table::Table;
use crate::frames::tests::kit::{
    blank_segment_with, first, frames, none_pinned, recount, segments,
};
use crate::frames::tests::loom::kit::{all_but, both, check, long, model};
use crate::frames::word::Mobility::Unmovable;
use crate::frames::word::geometry::{Block, GIANT_ORDER};
use crate::frames::zone::record::Zones;
use crate::frames::zone::segment::ZoneSegment;
use crate::frames::zone::{Nodes, Segments};
use crate::layout::{Layout, LayoutPolicy, LayoutStorage, Node, NodeRange, Zone};
use crate::node::{NodeId, ZoneKind};
use crate::sync::{AtomicU64, Ordering};
use crate::topology::{NodeInfo, Topology};
use loom::cell::UnsafeCell;
use loom::thread;
use std::boxed::Box;
use std::vec::Vec;

mod offline;
mod windows;

const PAGE: Request = Request::new(Order::PAGE);

fn leak<T>(value: T, count: usize) -> &'static mut [T]
where
    T: Clone,
{
    Box::leak(std::vec![value; count].into_boxed_slice())
}

/// One node of one giant frame.
fn layout() -> Layout<'static> {
    let mut early = EarlyMemory::new(
        leak(EarlyRegion::EMPTY, 4),
        leak(EarlyRegion::EMPTY, 4),
        leak(Allocation::EMPTY, 4),
    );
    let all = PhysRange::with_size(0, 4096 << GIANT_ORDER).unwrap();
    early.add(all, EarlyFlags::NONE).unwrap();
    let topology = Topology::single(leak(NodeInfo::EMPTY, 1), 1).unwrap();
    let storage = LayoutStorage {
        nodes: leak(Node::EMPTY, 1),
        ranges: leak(NodeRange::EMPTY, 4),
        zones: leak(Zone::EMPTY, 4),
    };
    Layout::build(early, topology, &LayoutPolicy::DEFAULT, storage).unwrap()
}

/// Returns once all CPUs have answered.
struct Wait;

/// CPUs are seen to drain at their next call.
struct NoDrain;

impl Hooks for NoDrain {}

impl Hooks for Wait {
    fn drain(&self, request: &DrainRequest<'_>) {
        while request.pending_frames() > 0 {
            thread::yield_now();
        }
    }
}

/// Caches of two CPUs.
fn two_caches() -> &'static [CpuCache] {
    let caches: Vec<_> = (0..2).map(|_| CpuCache::default()).collect();
    Box::leak(caches.into_boxed_slice())
}

/// A giant frame of which little is free, and two CPUs.
struct Machine {
    shared: Frames<'static>,
    /// The content of page 64.
    content: UnsafeCell<u32>,
}

// SAFETY: the cell is only touched by the owner of page 64; loom checks that.
#[expect(unsafe_code, reason = "a watched cell")]
unsafe impl Sync for Machine {}

impl Machine {
    fn new(free: &[(u64, u64)], hooks: &'static dyn Hooks) -> &'static Self {
        let extents = [(frames(0, 1 << GIANT_ORDER), 0, ZoneKind::Normal)];
        Self::of(segments(&extents, &all_but(free)), none_pinned(), hooks)
    }

    fn of(
        segments: Segments<'static>,
        pinned: &'static Pinned<'static>,
        hooks: &'static dyn Hooks,
    ) -> &'static mut Self {
        let nodes = Nodes {
            layout: layout(),
            pinned,
            added: AtomicU64::new(0),
            hooks: Some(hooks),
            reported_is_zero: crate::sync::AtomicBool::new(false),
            segments,
        };
        let cpus = Cpus::new();
        cpus.provide(two_caches()).unwrap();
        Box::leak(Box::new(Self {
            shared: Frames {
                nodes,
                cpus,
                metadata: Metadata::default(),
            },
            content: UnsafeCell::new(0),
        }))
    }

    /// Whose CPUs are not counted yet.
    fn without_cpus(free: &[(u64, u64)]) -> &'static mut Self {
        let extents = [(frames(0, 1 << GIANT_ORDER), 0, ZoneKind::Normal)];
        let machine = Self::of(segments(&extents, &all_but(free)), none_pinned(), &NoDrain);
        machine.shared.cpus = Cpus::new();
        machine
    }

    /// A CPU that caches nothing yet.
    fn cpu(&'static self, cpu: usize) -> Cpu<'static, 'static> {
        Cpu::new(&self.shared, cpu, NodeId(0)).unwrap()
    }

    /// A CPU that caches as many pages as its list takes: two.
    fn cpu_with_all(&'static self) -> Cpu<'static, 'static> {
        let mut cpu = self.cpu(0);
        let all = [cpu.allocate(PAGE).unwrap(), cpu.allocate(PAGE).unwrap()];
        all.iter()
            .for_each(|&page| cpu.free(page, Order::PAGE).unwrap());
        assert_eq!(cpu.cached_frames(), 2);
        cpu
    }

    fn slot(&self) -> &CpuSlot {
        &self.shared.cpus[0].slot
    }

    /// A page, past all lists; `Err` is what CPUs hold.
    fn page(&self) -> Result<Frame, u64> {
        let found = self
            .shared
            .allocate_near(Some(NodeId(0)), PAGE, &mut NoCache);
        found
            .inspect(|&page| self.touch(page))
            .map_err(|error| match error {
                AllocError::OutOfMemory { held_by_cpus, .. } => held_by_cpus,
                error => panic!("{error}"),
            })
    }

    /// What an owner does: write to the page.
    fn touch(&self, page: Frame) {
        if page.get() == 64 {
            // SAFETY: the caller holds it; loom fails the test if another CPU does too.
            #[expect(unsafe_code, reason = "a watched cell")]
            self.content.with_mut(|cell| unsafe { *cell += 1 });
        }
    }

    fn free_frames(&self) -> u64 {
        recount(&self.shared.nodes.segments)
    }
}

// ---- Drain -----------------------------------------------------------------

#[test]
fn a_request_that_drained_a_cpu_finds_what_it_cached() {
    model(|| {
        let machine = Machine::new(&[(64, 66)], &Wait);
        let mut cpu = machine.cpu_with_all();
        machine.touch(Frame::new(64));
        let (cpu, found) = both(
            move || {
                while !machine.slot().is_drain_requested() {
                    thread::yield_now();
                }
                cpu.poll();
                cpu
            },
            || machine.page(),
        );
        assert!(found.is_ok());
        assert_eq!(machine.free_frames(), 1);
        core::mem::forget(cpu);
    });
}

/// A request made while a CPU drains is answered by its next call.
#[test]
fn a_drain_requested_beside_a_drain_is_pending_or_was_seen() {
    model(|| {
        let machine = Machine::new(&[(64, 66)], &NoDrain);
        let mut cpu = machine.cpu_with_all();
        machine.touch(Frame::new(64));
        let slot = machine.slot();
        let (mut cpu, found) = both(
            move || {
                cpu.drain().unwrap();
                // Takes a page again, without looking at requests made before.
                let moving = slot.begin_move(1);
                slot.end_move(moving);
                cpu
            },
            move || {
                slot.request_drain();
                let is_pending = slot.is_pending();
                // Answered: all is given back, and seen here.
                is_pending || machine.page().is_ok()
            },
        );
        assert!(found);
        cpu.poll();
        assert_eq!(slot.cached_frames(), 0);
        core::mem::forget(cpu);
    });
}

// ---- Refill, flush, hand out ---------------------------------------------------

#[test]
fn a_request_beside_a_refill_finds_a_page_or_sees_it_cached() {
    model(|| {
        let machine = Machine::new(&[(64, 66)], &NoDrain);
        let mut cpu = machine.cpu(0);
        // It takes both, and hands out one.
        let (cpu, found) = both(
            move || {
                if let Ok(page) = cpu.allocate(PAGE) {
                    machine.touch(page);
                }
                cpu
            },
            || machine.page(),
        );
        assert!(found.is_ok() || found.is_err_and(|held| held > 0));
        core::mem::forget(cpu);
    });
}

#[test]
fn a_request_beside_a_flush_finds_a_page_or_sees_it_cached() {
    model(|| {
        let machine = Machine::new(&[(62, 65)], &NoDrain);
        let third = Frame::new(64);
        let block = Block {
            start: third,
            order: 0,
        };
        first(&machine.shared.nodes.segments)
            .take_at(block, Unmovable)
            .unwrap();
        let mut cpu = machine.cpu_with_all();
        machine.touch(third);
        let (cpu, found) = both(
            move || {
                cpu.free(third, Order::PAGE).unwrap();
                cpu
            },
            || machine.page(),
        );
        assert!(found.is_ok() || found.is_err_and(|held| held > 0));
        assert_eq!(
            machine.free_frames() + cpu.cached_frames(),
            3 - u64::from(found.is_ok())
        );
        core::mem::forget(cpu);
    });
}

/// The last page of a list may be handed out, not given back, after others went back.
#[test]
fn a_list_seen_empty_shows_what_was_given_back_before() {
    check(1, || {
        let machine = Machine::new(&[(64, 66)], &NoDrain);
        let mut cpu = machine.cpu_with_all();
        let (cpu, found) = both(
            move || {
                let page = cpu.allocate(PAGE).unwrap();
                machine.touch(page);
                machine.shared.nodes.free(page, Order::PAGE).unwrap();
                if let Ok(page) = cpu.allocate(PAGE) {
                    machine.touch(page);
                }
                cpu
            },
            || machine.page(),
        );
        // One page is free or cached at every moment.
        assert!(found.is_ok() || found.is_err_and(|held| held > 0));
        core::mem::forget(cpu);
    });
}

/// While blocks move from one list to another, neither list may have them.
#[test]
fn blocks_that_move_between_lists_are_seen() {
    model(|| {
        let slot: &'static CpuSlot = Box::leak(Box::new(CpuSlot::default()));
        slot.len(Unmovable, 0).store(1, Ordering::Release);
        let moves = move || {
            for (from, to) in [(0, 1), (1, 0)] {
                let moving = slot.begin_move(2);
                slot.len(Unmovable, from).store(0, Ordering::Release);
                slot.len(Unmovable, to).store(1, Ordering::Release);
                slot.end_move(moving);
            }
        };
        let ((), seen) = both(moves, || slot.request_drain_of_any());
        assert!(seen);
    });
}

/// Of two CPUs with lists, the one that runs out finds what the other one gives back.
#[test]
fn a_page_goes_from_one_cpu_s_list_to_the_other_s() {
    check(2, || {
        let machine = Machine::new(&[(64, 66)], &Wait);
        let mut one = machine.cpu_with_all();
        machine.touch(Frame::new(64));
        let mut other = machine.cpu(1);
        let (one, (other, found)) = both(
            move || {
                while !machine.slot().is_drain_requested() {
                    thread::yield_now();
                }
                one.poll();
                one
            },
            move || {
                let found = other.allocate(PAGE);
                found.iter().for_each(|&page| machine.touch(page));
                (other, found.is_ok())
            },
        );
        assert!(found);
        core::mem::forget((one, other));
    });
}

// ---- Isolation -------------------------------------------------------------------

/// What a call in flight caches of a range that is isolated just then, the next call of its CPU
/// gives back: a drain is pending.
fn beside_an_isolation(
    set_up: fn(&'static Machine) -> Cpu<'static, 'static>,
    call: fn(&'static Machine, &mut Cpu<'static, 'static>),
) {
    check(1, move || {
        let machine = Machine::new(&[(64, 66)], &NoDrain);
        let mut cpu = set_up(machine);
        isolated_beside(machine, move || {
            call(machine, &mut cpu);
            cpu
        });
    });
}

/// What the CPU caches in the end has a drain that is pending.
fn isolated_beside(
    machine: &'static Machine,
    acts: impl FnOnce() -> Cpu<'static, 'static> + 'static,
) {
    let (cpu, ()) = both(acts, || {
        first(&machine.shared.nodes.segments).isolate(0).unwrap();
        machine.shared.drain_all();
    });
    let slot = machine.slot();
    assert!(slot.cached_frames() == 0 || slot.is_drain_requested());
    core::mem::forget(cpu);
}

#[test]
fn pages_cached_beside_an_isolation_are_drained_by_the_next_call() {
    // A refill, and a page freed into a list.
    beside_an_isolation(
        |machine| machine.cpu(0),
        |_, cpu| assert!(cpu.allocate(PAGE).is_ok() || cpu.cached_frames() == 0),
    );
    beside_an_isolation(
        |machine| {
            let mut cpu = machine.cpu(0);
            let pages = [cpu.allocate(PAGE).unwrap(), cpu.allocate(PAGE).unwrap()];
            cpu.free(pages[1], Order::PAGE).unwrap();
            cpu.drain().unwrap();
            cpu
        },
        |_, cpu| cpu.free(Frame::new(64), Order::PAGE).unwrap(),
    );
}

/// CPUs that are counted while a range is isolated cache nothing of it that no drain is pending for.
#[test]
fn cpus_that_are_counted_beside_an_isolation_are_drained_or_see_it() {
    check(1, || {
        let machine: &'static Machine = Machine::without_cpus(&[(64, 66)]);
        let page = machine.page().unwrap();
        isolated_beside(machine, move || {
            machine.shared.provide_cpus(two_caches()).unwrap();
            let mut cpu = machine.cpu(0);
            cpu.free(page, Order::PAGE).unwrap();
            cpu
        });
    });
}

// ---- A cache from thread to thread ----------------------------------------------

/// Who finds the number of a CPU free sees all that its last user did to the lists, which are plain memory.
#[test]
fn a_cache_is_handed_on_whole() {
    model(|| {
        let machine = Machine::new(&[(64, 66)], &NoDrain);
        let last = machine.cpu_with_all();
        let (_, next) = both(
            move || drop(last),
            move || {
                let mut next = Cpu::new(&machine.shared, 0, NodeId(0)).ok()?;
                let page = next.allocate(PAGE).unwrap();
                next.free(page, Order::PAGE).unwrap();
                Some(next)
            },
        );
        drop(next);
        assert_eq!(machine.slot().cached_frames(), 0);
    });
}

// ---- Pieces ----------------------------------------------------------------------

/// A CPU that caches the block of four pages, and nothing else is free.
fn cpu_with_four(machine: &'static Machine) -> Cpu<'static, 'static> {
    let four = Order::new(2).unwrap();
    let mut cpu = machine.cpu(0);
    let block = cpu.allocate(Request::new(four)).unwrap();
    cpu.free(block, four).unwrap();
    assert_eq!(cpu.cached_frames(), 4);
    cpu
}

/// What is left of a block that was cut is cached before, meanwhile and afterwards.
#[test]
fn a_request_beside_a_cut_finds_a_page_or_sees_it_cached() {
    model(|| {
        let machine = Machine::new(&[(64, 68)], &NoDrain);
        let mut cpu = cpu_with_four(machine);
        let (cpu, found) = both(
            move || {
                cpu.allocate_frames(3, 1, PAGE).unwrap();
                cpu
            },
            || machine.page(),
        );
        assert!(found.is_ok() || found.is_err_and(|held| held > 0));
        core::mem::forget(cpu);
    });
}

/// So it is when the rest of the block comes back.
#[test]
fn a_request_beside_a_join_finds_a_page_or_sees_it_cached() {
    model(|| {
        let machine = Machine::new(&[(64, 68)], &NoDrain);
        let mut cpu = cpu_with_four(machine);
        let three = cpu.allocate_frames(3, 1, PAGE).unwrap();
        assert_eq!(cpu.cached_frames(), 1);
        let (cpu, found) = both(
            move || {
                cpu.free_frames(three).unwrap();
                cpu
            },
            || machine.page(),
        );
        assert!(found.is_ok() || found.is_err_and(|held| held > 0));
        core::mem::forget(cpu);
    });
}

/// A request beside a cut of a block that no list has; what is left of it goes to a list, or back.
#[test]
fn a_request_beside_a_cut_of_a_free_block_finds_a_page_or_sees_it_cached() {
    for (frames, align_frames) in [(3, 1), (1, 4)] {
        long(2, move || {
            let machine = Machine::new(&[(64, 68)], &NoDrain);
            let mut cpu = machine.cpu(0);
            let (cpu, found) = both(
                move || {
                    // The other CPU may have a page of it.
                    let _ = cpu.allocate_frames(frames, align_frames, PAGE);
                    cpu
                },
                || machine.page(),
            );
            assert!(found.is_ok() || found.is_err_and(|held| held > 0));
            core::mem::forget(cpu);
        });
    }
}

/// A request beside a cut past the lists: no other CPU has any, so that a page is always free.
#[test]
fn a_request_beside_a_cut_past_the_caches_finds_a_page() {
    check(2, || {
        let machine = Machine::new(&[(64, 68)], &NoDrain);
        let (row, found) = both(
            || machine.shared.allocate_frames(3, 1, PAGE).ok(),
            || machine.page(),
        );
        assert!(found.is_ok());
        let taken = row.map_or(0, |row| row.count()) + 1;
        assert_eq!(machine.free_frames(), 4 - taken);
    });
}

/// A join that fails puts back what it took off the lists.
#[test]
fn a_request_beside_a_join_that_fails_finds_a_page_or_sees_it_cached() {
    // One preemption shows a move that is not announced; two take minutes.
    check(1, || {
        let machine = Machine::new(&[(64, 72)], &NoDrain);
        let mut cpu = machine.cpu(0);
        let five = cpu.allocate_frames(5, 1, PAGE).unwrap();
        assert_eq!(cpu.cached_frames(), 3);
        let pair = cpu.allocate(Request::new(Order::new(1).unwrap())).unwrap();
        assert_eq!((pair.get(), cpu.cached_frames()), (70, 1));
        let (cpu, found) = both(
            move || {
                cpu.free_frames(five).unwrap();
                cpu
            },
            || machine.page(),
        );
        let taken = u64::from(found.is_ok());
        assert!(found.is_ok() || found.is_err_and(|held| held > 0));
        assert_eq!(machine.free_frames() + cpu.cached_frames(), 6 - taken);
        core::mem::forget(cpu);
    });
}

// ---- Memory that is added ---------------------------------------------------------

/// A machine of which pages 0 to 63 are allocated, and all else is absent.
fn without_64_and_65() -> &'static Machine {
    let machine = with_absent(frames(0, 1 << GIANT_ORDER), None);
    machine.shared.adopt(bytes(0, 64)).unwrap();
    machine
}

/// A machine of which `absent` frames are absent; `taken` as for a segment.
fn with_absent(absent: FrameRange, taken: Option<&'static [FrameRange]>) -> &'static Machine {
    with_absent_and(absent, taken, &NoDrain)
}

/// A machine with absent memory, with these hooks.
fn with_absent_and(
    absent: FrameRange,
    taken: Option<&'static [FrameRange]>,
    hooks: &'static dyn Hooks,
) -> &'static Machine {
    let entries: Vec<_> = (0..Pinned::entries_for(2))
        .map(|_| Entry::default())
        .collect();
    let pinned: &'static _ = Box::leak(Box::new(Pinned::new(Table::from_slice(entries.leak()))));
    assert!(pinned.pin(absent));
    let segment = blank_segment_with(frames(0, 1 << GIANT_ORDER), pinned);
    let segment = ZoneSegment::new(segment, NodeId(0), ZoneKind::Normal, taken);
    let zones = std::vec![Zones::default()].leak();
    let segments = Segments::new(std::vec![segment].leak(), zones);
    Machine::of(segments, pinned, hooks)
}

fn bytes(start: u64, end: u64) -> PhysRange {
    frames(start, end).addrs()
}

#[test]
fn a_search_beside_an_addition_finds_what_came_or_nothing() {
    check(2, || {
        let machine = without_64_and_65();
        let (added, found) = both(
            || machine.shared.add(bytes(64, 66)),
            || first(&machine.shared.nodes.segments).take_any(0),
        );
        assert_eq!(added, Ok(()));
        assert!(found.is_err() || found.is_ok_and(|page| (64..66).contains(&page.get())));
        assert_eq!(machine.free_frames(), if found.is_ok() { 1 } else { 2 });
        // From now on it is found.
        assert!(machine.page().is_ok());
    });
}

/// The first memory of a segment is free at start; what comes at the same moment is freed.
#[test]
fn the_first_memory_comes_beside_more_and_beside_a_search() {
    let absent = || with_absent(frames(0, 1 << GIANT_ORDER), None);
    check(2, move || {
        let machine = absent();
        let (one, other) = both(
            || machine.shared.add(bytes(64, 66)),
            || machine.shared.add(bytes(66, 67)),
        );
        assert_eq!((one, other), (Ok(()), Ok(())));
        assert_eq!(machine.free_frames(), 3);
    });
    check(2, move || {
        let machine = absent();
        let (added, found) = both(
            || machine.shared.add(bytes(64, 66)),
            || {
                let mut segments = machine.shared.nodes.segments.iter();
                segments.next()?.online()?.take_any(0).ok()
            },
        );
        assert_eq!(added, Ok(()));
        assert!(found.is_none_or(|page| (64..66).contains(&page.get())));
        assert_eq!(machine.free_frames(), if found.is_some() { 1 } else { 2 });
    });
}

#[test]
fn of_two_additions_of_a_page_one_is_refused() {
    check(2, || {
        let machine = without_64_and_65();
        let (one, other) = both(
            || machine.shared.add(bytes(64, 66)),
            || machine.shared.adopt(bytes(65, 66)),
        );
        assert!(one.is_ok() != other.is_ok(), "{one:?}, {other:?}");
        assert_eq!(machine.free_frames(), if one.is_ok() { 2 } else { 0 });
    });
}

/// A page freed before it is memory is refused; one freed while it is adopted, before or after.
#[test]
fn a_page_freed_beside_its_adoption_is_refused_or_free() {
    check(2, || {
        let machine = without_64_and_65();
        let (adopted, freed) = both(
            || machine.shared.adopt(bytes(64, 66)),
            || machine.shared.free(Frame::new(64), Order::PAGE),
        );
        assert_eq!(adopted, Ok(()));
        assert_eq!(machine.free_frames(), u64::from(freed.is_ok()));
    });
}

/// Of memory that comes while a CPU begins, the CPU learns at once or at its next call.
#[test]
fn a_cpu_that_begins_beside_an_addition_fills_its_lists_from_what_came() {
    check(2, || {
        let machine = with_absent(frames(0, 1 << GIANT_ORDER), None);
        machine.shared.add(bytes(0, 64)).unwrap();
        let (mut cpu, added) = both(|| machine.cpu(0), || machine.shared.add(bytes(64, 128)));
        assert_eq!(added, Ok(()));
        cpu.poll();
        assert_eq!(cpu.added, machine.shared.nodes.added_huges());
        drop(cpu);
        assert_eq!(machine.free_frames(), 128);
    });
}
