//! Memory that goes, beside requests, frees, refills, and readers that looked before.

use super::*;
use crate::frames::offline::OfflineError;
use crate::frames::search::batch::{self, Batch};
use crate::frames::segment::window::Window;
use crate::frames::word::geometry::{GIANT_FRAMES, HUGE_ORDER};

const HUGE: u64 = 1 << HUGE_ORDER;

/// The first huge frame.
fn block() -> PhysRange {
    bytes(0, HUGE)
}

/// A machine that is one huge frame, all of it free.
fn one_huge() -> &'static Machine {
    let machine = with_absent(frames(0, GIANT_FRAMES), None);
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
                    assert!(matches!(offline, Err(OfflineError::InUse { .. })));
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

/// Of pages and of a huge frame, as refills take them.
#[test]
fn memory_goes_offline_beside_a_refill() {
    for order in [0, HUGE_ORDER] {
        check(2, move || {
            let machine = one_huge();
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
                    (batch.count() > 0).then_some(space[0])
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
            OfflineError::Busy { .. } | OfflineError::Offline { .. }
        );
        assert!(is_right, "{refused:?}");
        machine.must_be_gone();
    });
}
