//! Memory that goes, beside requests, frees, refills, and readers that looked before.

use super::*;
use crate::frames::search::batch::{self, Batch};
use crate::frames::segment::window::Window;
use crate::frames::word::geometry::{GIANT_FRAMES, HUGE_ORDER};
use crate::frames::{HotplugError, Refusal};

pub(super) const HUGE: u64 = 1 << HUGE_ORDER;

/// The first huge frame.
pub(super) fn block() -> PhysRange {
    bytes(0, HUGE)
}

/// A machine that is one huge frame, all of it free.
fn one_huge() -> &'static Machine {
    one_huge_and(&NoDrain)
}

/// A machine of one huge frame that came, with these hooks.
fn one_huge_and(hooks: &'static dyn Hooks) -> &'static Machine {
    let machine = with_absent_and(frames(0, GIANT_FRAMES), None, hooks);
    machine.shared.add(block()).unwrap();
    machine.segment();
    machine
}

impl Machine {
    /// The segment, its tables written.
    fn segment(&self) -> &crate::frames::segment::Segment<'static> {
        first(&self.shared.nodes.segments)
    }

    /// Nothing of the first huge frame can be had, and nothing of it freed.
    fn must_be_gone(&self) {
        assert!(self.segment().take_any(0).is_err());
        for order in [0, HUGE_ORDER] {
            let freed = self.shared.free(Frame::new(0), Order::new(order).unwrap());
            assert!(freed.is_err());
        }
        assert_eq!(self.shared.statistics().managed_frames, 0);
        assert_eq!(self.free_frames(), 0);
    }
}

/// Checks all interleavings, of which some must end in each way: `test` says whether one did.
fn both_ends(test: impl Fn() -> bool + Sync + Send + 'static) {
    let seen: &'static [std::sync::atomic::AtomicU64; 2] = Box::leak(Box::default());
    check(2, move || {
        let end = usize::from(test());
        seen[end].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    for end in seen {
        assert!(
            end.load(std::sync::atomic::Ordering::Relaxed) > 0,
            "{seen:?}"
        );
    }
}

#[test]
fn memory_goes_offline_beside_a_request() {
    for order in [0, HUGE_ORDER] {
        check(2, move || {
            let machine = one_huge();
            let (offline, found) = both(
                || machine.shared.offline(block()),
                move || machine.segment().take_any(order).ok(),
            );
            match found {
                Some(start) => {
                    assert!(matches!(
                        offline,
                        Err(HotplugError {
                            why: Refusal::InUse { .. },
                            ..
                        })
                    ));
                    let order = Order::new(order).unwrap();
                    machine.shared.free(start, order).unwrap();
                    assert_eq!(machine.free_frames(), HUGE);
                }
                None => {
                    // The request may have been there for a moment.
                    if offline.is_ok() {
                        machine.must_be_gone();
                        machine.shared.online(block()).unwrap();
                    }
                    assert_eq!(machine.free_frames(), HUGE);
                }
            }
        });
    }
}

#[test]
fn memory_goes_offline_beside_the_free_of_its_last_page() {
    check(2, || {
        let machine = one_huge();
        let page = machine.segment().take_any(0).unwrap();
        let (offline, freed) = both(
            || machine.shared.offline(block()),
            move || machine.shared.free(page, Order::PAGE),
        );
        assert_eq!(freed, Ok(()));
        if offline.is_ok() {
            machine.must_be_gone();
            machine.shared.online(block()).unwrap();
        }
        assert_eq!(machine.free_frames(), HUGE);
    });
}

/// A call that frees what it does not have, at any moment of the way out, and back.
#[test]
fn memory_goes_offline_beside_a_wild_free() {
    for order in [0, HUGE_ORDER] {
        check(2, move || {
            let machine = one_huge();
            let order = Order::new(order).unwrap();
            let (offline, freed) = both(
                || machine.shared.offline(block()),
                move || machine.shared.free(Frame::new(0), order),
            );
            // Taken for a moment, it looked like the caller's own.
            if offline.is_ok() {
                assert!(freed.is_err());
                machine.must_be_gone();
                machine.shared.online(block()).unwrap();
            }
            assert_eq!(machine.free_frames(), HUGE);
        });
    }
}

/// Of pages of a huge frame that is split, and of one that is free, as refills take them.
#[test]
fn memory_goes_offline_beside_a_refill() {
    for order in [0, HUGE_ORDER] {
        both_ends(move || {
            let machine = one_huge();
            // Splits it, until the other CPU is done.
            let held = (order == 0).then(|| machine.segment().take_any(0).unwrap());
            let (offline, taken) = both(
                || machine.shared.offline(block()),
                move || {
                    let mut space = [Frame::new(0)];
                    let mut batch = Batch::new(&mut space);
                    let (segment, hint) = (machine.segment(), &mut 0);
                    if order == 0 {
                        batch::take_pages(segment, Unmovable, hint, &mut batch);
                    } else {
                        batch::take_huges(segment, Unmovable, hint, |_| false, &mut batch);
                    }
                    let taken = (batch.count() > 0).then_some(space[0]);
                    if let Some(held) = held {
                        machine.shared.free(held, Order::PAGE).unwrap();
                    }
                    taken
                },
            );
            if let Some(start) = taken {
                assert!(offline.is_err());
                let order = Order::new(order).unwrap();
                machine.shared.free(start, order).unwrap();
            } else if offline.is_ok() {
                machine.must_be_gone();
                machine.shared.online(block()).unwrap();
            }
            assert_eq!(machine.free_frames(), HUGE);
            offline.is_ok()
        });
    }
}

/// A CPU whose window reached there believes nothing of what is gone, however late it looks.
#[test]
fn memory_goes_beside_a_reader_that_looked_before() {
    check(2, || {
        let machine = one_huge();
        let window = Window::around(machine.segment(), Frame::new(0));
        assert!(window.frames().contains(Frame::new(0)));
        let looks = move || {
            let page = window.allocated_page(Frame::new(0));
            (page, window.allocated_huge(Frame::new(0)))
        };
        let (gone, seen) = both(
            || {
                machine.shared.offline(block())?;
                machine.shared.remove(block())
            },
            looks,
        );
        assert_eq!((gone, seen), (Ok(()), (None, None)));
        assert_eq!(looks(), (None, None));
        machine.must_be_gone();
        machine.shared.add(block()).unwrap();
        assert_eq!(machine.free_frames(), HUGE);
    });
}

/// A giant frame that is removed becomes one block beside a wild free, and comes back whole.
#[test]
fn memory_is_removed_beside_a_wild_free() {
    for order in [0, HUGE_ORDER] {
        check(2, move || {
            let machine = with_absent(frames(0, GIANT_FRAMES), None);
            let all = bytes(0, GIANT_FRAMES);
            machine.shared.add(all).unwrap();
            machine.shared.offline(all).unwrap();
            let (removed, freed) = both(
                move || machine.shared.remove(all),
                move || {
                    machine
                        .shared
                        .free(Frame::new(0), Order::new(order).unwrap())
                },
            );
            assert_eq!(removed, Ok(()));
            assert!(freed.is_err());
            machine.must_be_gone();
            machine.shared.add(all).unwrap();
            assert_eq!(machine.free_frames(), GIANT_FRAMES);
        });
    }
}

#[test]
fn of_two_that_take_memory_offline_one_does() {
    check(2, || {
        let machine = one_huge();
        let (one, other) = both(
            || machine.shared.offline(block()),
            || machine.shared.offline(block()),
        );
        assert!(one.is_ok() != other.is_ok(), "{one:?}, {other:?}");
        let refused = one.err().or(other.err()).unwrap();
        let is_right = matches!(
            refused,
            HotplugError {
                why: Refusal::Busy,
                ..
            } | HotplugError {
                why: Refusal::Offline,
                ..
            }
        );
        assert!(is_right, "{refused:?}");
        machine.must_be_gone();
    });
}

/// Memory that is there does not come again, at no moment of its way out.
#[test]
fn memory_goes_offline_beside_its_addition() {
    check(2, || {
        let machine = one_huge();
        let (offline, added) = both(
            || machine.shared.offline(block()),
            || machine.shared.add(block()),
        );
        assert_eq!(offline, Ok(()));
        assert!(
            matches!(
                added,
                Err(HotplugError {
                    why: Refusal::Present,
                    ..
                })
            ),
            "{added:?}"
        );
        machine.must_be_gone();
        machine.shared.online(block()).unwrap();
        assert_eq!(machine.free_frames(), HUGE);
    });
}

/// An offline that fails puts the list back, also if another call filled it: the other CPU frees what
/// is not its own, and adds memory where that takes the last range the list has space for.
#[test]
fn an_offline_that_fails_leaves_the_list_as_it_was() {
    check(2, || {
        // The second huge frame is all there is; the list has the first, and what follows.
        let machine = with_absent(frames(0, GIANT_FRAMES), None);
        let second = frames(HUGE, 2 * HUGE);
        machine.shared.add(second.addrs()).unwrap();
        machine.segment();
        let (offline, (freed, added)) = both(
            move || machine.shared.offline(second.addrs()),
            || {
                let huge = Order::new(HUGE_ORDER).unwrap();
                let freed = machine.shared.free(Frame::new(HUGE), huge);
                (freed, machine.shared.add(bytes(1, 2)))
            },
        );
        let pinned = machine.shared.nodes.pinned;
        if offline.is_ok() {
            assert!(freed.is_err());
            assert_eq!(pinned.frames_in(second), HUGE);
        } else {
            assert_eq!(pinned.first_in(second), None);
            let came = u64::from(added.is_ok());
            assert_eq!(machine.free_frames(), HUGE + came);
        }
    });
}

// ---- A CPU's lists -----------------------------------------------------------------

/// A CPU that caches two pages of the machine; a third is the caller's if `has_page`.
fn cpu_with_pages(
    machine: &'static Machine,
    has_page: bool,
) -> (Cpu<'static, 'static>, Option<Frame>) {
    let mut cpu = machine.cpu(0);
    let page = cpu.allocate(PAGE).unwrap();
    if has_page {
        return (cpu, Some(page));
    }
    cpu.free(page, Order::PAGE).unwrap();
    assert!(cpu.cached_frames() > 0);
    (cpu, None)
}

/// What must hold after an offline beside a call of a CPU: all of the memory went, and the CPU has
/// none of it; or it stayed, what is not free is the CPU's, and it goes when that is free. Whether it
/// went.
fn went_or_stayed(
    machine: &'static Machine,
    mut cpu: Cpu<'static, 'static>,
    offline: Result<(), HotplugError>,
    frees: bool,
) -> bool {
    let went = offline.is_ok();
    if went {
        assert_eq!(cpu.cached_frames(), 0);
        assert!(cpu.free(Frame::new(0), Order::PAGE).is_err());
        machine.must_be_gone();
    } else {
        assert_eq!(machine.free_frames() + cpu.cached_frames(), HUGE);
        // The CPU's next call drains: isolating requested it. What a call freed that drained before
        // may be cached.
        cpu.poll();
        assert!(cpu.cached_frames() <= u64::from(frees));
        cpu.drain().unwrap();
        assert_eq!(machine.shared.offline(block()), Ok(()));
    }
    core::mem::forget(cpu);
    went
}

/// A CPU drains what it caches when it sees the request, and then the memory goes.
#[test]
fn memory_goes_offline_once_a_cpu_drained_what_it_caches() {
    check(2, || {
        let machine = one_huge_and(&Wait);
        let (mut cpu, _) = cpu_with_pages(machine, false);
        let (offline, cpu) = both(
            || machine.shared.offline(block()),
            move || {
                while !machine.slot().is_drain_requested() {
                    thread::yield_now();
                }
                cpu.poll();
                cpu
            },
        );
        assert!(went_or_stayed(machine, cpu, offline, false));
    });
}

/// What a CPU still caches keeps the memory, and its next call drains.
#[test]
fn memory_goes_offline_beside_a_cpu_that_caches_some_of_it() {
    check(2, || {
        let machine = one_huge();
        let (mut cpu, _) = cpu_with_pages(machine, false);
        let (offline, cpu) = both(
            || machine.shared.offline(block()),
            move || {
                cpu.poll();
                cpu
            },
        );
        went_or_stayed(machine, cpu, offline, false);
    });
}

/// A CPU frees its last page into a list.
#[test]
fn memory_goes_offline_beside_a_cpu_that_frees_into_its_list() {
    both_ends(|| {
        let machine = one_huge();
        let (mut cpu, page) = cpu_with_pages(machine, true);
        let page = page.unwrap();
        let (offline, cpu) = both(
            || machine.shared.offline(block()),
            move || {
                cpu.free(page, Order::PAGE).unwrap();
                cpu
            },
        );
        went_or_stayed(machine, cpu, offline, true)
    });
}

/// A CPU whose window reached there frees what it does not have, however late it looks.
#[test]
fn memory_goes_offline_beside_a_wild_free_by_a_cpu_that_looked_before() {
    both_ends(|| {
        let machine = one_huge();
        let (mut cpu, _) = cpu_with_pages(machine, false);
        cpu.drain().unwrap();
        let (offline, (cpu, freed)) = both(
            || machine.shared.offline(block()),
            move || {
                let freed = cpu.free(Frame::new(0), Order::PAGE).is_ok();
                (cpu, freed)
            },
        );
        // Taken for a moment, it looked like the CPU's own: then it did not go.
        assert!(!(freed && offline.is_ok()));
        went_or_stayed(machine, cpu, offline, true);
        freed
    });
}
