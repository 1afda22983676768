//! What is known of content: a worker borrows free memory, the device promises zeros, the kernel zeroes or not.

use super::super::machine::Machine;
use super::super::plain::FREE;
use super::{Steps, step};
use crate::addr::{FrameRange, Order};
use crate::frames::tests::kit::frames;
use crate::frames::word::geometry::HUGES;
use crate::frames::{BlockError, Content, Cpu, Statistics};
use proptest::prelude::*;

/// How a worker gives back what it borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Back {
    AsItBecame,
    As(Content),
    Dropped,
    /// Held for long before.
    Held,
    /// Kept for good, and freed later by its owner.
    Leaked,
}

pub(crate) fn backs() -> BoxedStrategy<Back> {
    let backs = prop_oneof![
        5 => Just(Back::AsItBecame),
        2 => contents().prop_map(Back::As),
        1 => Just(Back::Dropped),
        1 => Just(Back::Held),
        1 => Just(Back::Leaked),
    ];
    backs.boxed()
}

/// What a worker looks for, and what it makes of that.
pub(crate) fn contents() -> BoxedStrategy<Content> {
    let known = prop_oneof![2 => Just(Content::Zero), 1 => Just(Content::Reported)];
    prop_oneof![Just(Content::Unknown), known].boxed()
}

/// What a worker has can't be taken by others, but for a page that was freed.
fn not_taken(on: &Machine, range: FrameRange, wild: bool) {
    for at in [range.start().get() + u64::from(wild), range.end().get() - 1] {
        on.frames.allocate_range(frames(at, at + 1)).unwrap_err();
    }
}

/// A worker borrows a block of this content, makes another of that, and gives it back. Now and then another call frees
/// some of it meanwhile: it is wild.
pub(crate) fn borrow(
    orders: BoxedStrategy<u8>,
    contents: [BoxedStrategy<Content>; 2],
    backs: BoxedStrategy<Back>,
    wild: f64,
) -> Steps {
    let how = (orders, contents, backs, prop::bool::weighted(wild));
    step(
        "borrow",
        how,
        |on, (order, [content, becomes], back, wild)| {
            let order = Order::new(order).unwrap();
            // What an isolation requested of the cache it does now, not in between.
            on.cpus.iter_mut().flatten().for_each(Cpu::poll);
            let before = on.frames.statistics();
            let contents = on.content.as_mut().expect("content is modelled");
            let (cursor, most) = (&mut contents.cursors[becomes as usize], 4 * HUGES as usize);
            let words = cursor.words();
            let found = on.frames.borrow_free(cursor, order, content, most);
            assert!(cursor.words() - words <= most as u64);
            let Some(mut borrowed) = found else {
                assert_eq!(on.frames.statistics(), before);
                return;
            };
            let range = borrowed.range();
            let becomes = match back {
                Back::As(content) => content,
                Back::Dropped => Content::Unknown,
                _ => becomes,
            };
            let is_kept = wild || matches!(back, Back::Leaked);
            let said = contents.become_so(range, content, becomes, is_kept);
            assert_eq!(range.count(), order.frames());
            let was_free = on.model.are(range, FREE);
            assert!(was_free, "{range} is borrowed, but not free");
            not_taken(on, range, false);
            if wild {
                on.frames.free(range.start(), Order::PAGE).unwrap();
            }
            let result = match back {
                Back::Dropped => {
                    drop(borrowed);
                    None
                }
                Back::Leaked => {
                    assert_eq!(borrowed.leak(), range);
                    let seen = on.frames.statistics();
                    let left = before.free_frames - range.count() + u64::from(wild);
                    assert_eq!((seen.free_frames, seen.in_work_frames), (left, 0));
                    None
                }
                Back::Held => {
                    borrowed.hold();
                    assert_eq!(on.frames.statistics().in_work_frames, 0);
                    not_taken(on, range, wild);
                    Some(borrowed.back(said))
                }
                Back::As(_) | Back::AsItBecame => Some(borrowed.back(said)),
            };
            let frame = range.start();
            let freed_twice = wild.then_some(BlockError::FreedTwice { frame, order });
            let is_right = result.is_none_or(|result| result.err() == freed_twice);
            assert!(is_right, "{result:?}");
            if is_kept {
                // It is its owner's, but for what another call freed.
                let rest = frames(frame.get() + u64::from(wild), range.end().get());
                let owner = on.model.allocate(rest).expect("it was free");
                return on.held.push((rest, owner));
            }
            let now = on.frames.statistics();
            assert_eq!(now.free_frames, before.free_frames);
            let known = |seen: &Statistics| match said {
                Content::Unknown => 0,
                Content::Zero => seen.zero.frames,
                Content::Reported => seen.reported.frames,
            };
            let is_more = said != content && said != Content::Unknown;
            let more = u64::from(is_more) * range.count();
            assert_eq!(known(&now), known(&before) + more, "{range}");
        },
    )
}

/// The device promises that what is reported comes back as zeros, if it does; or no more.
pub(crate) fn promise() -> Steps {
    step("promise", any::<bool>(), |on, promised| {
        let contents = on.content.as_mut().expect("content is modelled");
        contents.promised = promised && contents.device_zeroes;
        on.frames.set_reported_is_zero(contents.promised);
    })
}

/// The kernel zeroes from now on, or does not.
pub(crate) fn zeroes(likely: f64) -> Steps {
    step("zeroes", prop::bool::weighted(likely), |on, zeroes| {
        let contents = on.content.as_ref().expect("content is modelled");
        contents.truth().zeroes = zeroes;
    })
}
