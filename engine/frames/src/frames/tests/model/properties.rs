//! The properties: which machine takes which steps, and how often.

extern crate std;

use core::fmt::Debug;
use core::ops::Range;
use std::vec;

use super::machine::Machine;
use super::machines::{CONTENT, all_borders, any_rows, large, sliver, small, span, window};
use super::plain::HUGE;
use super::steps::blocks::{Part, Said, allocate, free, wild};
use super::steps::borrow::{Back, backs, borrow, contents, promise, zeroes};
use super::steps::cpus::{drain, leave, poll, twice};
use super::steps::hotplug::{
    Change, add, adopt, change, going, huges, online_to, parts, zones_of_window,
};
use super::steps::isolation::{briefly, end, isolate};
use super::steps::ranges::{at, row, search};
use super::steps::{AnyStep, Steps, Via, blocks_at, lens, orders, ranges_at, requests, via};
use crate::addr::Order;
use crate::frames::tests::kit::{MANY_STEPS, RECOUNT_EVERY, RECOUNT_SOON, cases, long_cases};
use crate::frames::word::geometry::{GIANT_ORDER, HUGE_ORDER};
use crate::frames::{Content, Request};
use crate::node::ZoneKind;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Whether steps are summed up, and recounted, after every so many.
type Every = (usize, usize);

/// Takes the steps, and checks what comes of them.
fn run(mut machine: Machine, steps: &[AnyStep], (sum, recount): Every) {
    machine.check(true);
    for (count, step) in (1..).zip(steps) {
        step.take(&mut machine);
        if count % sum == 0 {
            machine.check(count % recount == 0);
        }
    }
    machine.end();
}

/// So many steps, on machines that are made of what is drawn for them.
fn agree<T: Debug>(
    config: ProptestConfig,
    given: impl Strategy<Value = T>,
    make: fn(T) -> Machine,
    (steps, count): (Steps, Range<usize>),
    every: Every,
) {
    let steps = prop::collection::vec(steps, count);
    proptest!(config, |(given in given, steps in steps)| run(make(given), &steps, every));
}

/// Up to so many, fewer under Miri.
const fn few(most: usize, under_miri: usize) -> Range<usize> {
    1..if cfg!(miri) { under_miri } else { most }
}

const SOON: Every = (RECOUNT_SOON, RECOUNT_SOON);
const LATE: Every = (RECOUNT_EVERY, RECOUNT_EVERY);

/// Always this.
fn only<T: Clone + Debug + 'static>(this: T) -> BoxedStrategy<T> {
    Just(this).boxed()
}

fn pages(nodes: u16) -> BoxedStrategy<Request> {
    requests(only(0), nodes, &ZoneKind::ALL)
}

/// An aligned block of what is held.
fn blocks(orders: BoxedStrategy<u8>) -> BoxedStrategy<Part> {
    let block = |(order, pick)| Part::Block(order, pick);
    (orders, any::<u64>()).prop_map(block).boxed()
}

// ---- Blocks, past all caches ------------------------------------------------------------------

fn steps_of_blocks() -> Steps {
    let orders = || orders(GIANT_ORDER);
    let steps = prop_oneof![
        6 => allocate(via(0), requests(orders(), 2, &ZoneKind::ALL), 1),
        2 => at(blocks_at(orders())),
        5 => free(via(0), blocks(orders()), only(Said::Nothing), 1),
        1 => wild(via(0), blocks_at(orders())),
    ];
    steps.boxed()
}

fn of_blocks((): ()) -> Machine {
    Machine::of_rows(&if cfg!(miri) { sliver() } else { all_borders() }, &[])
}

#[test]
fn blocks_agree_with_the_model() {
    let steps = (steps_of_blocks(), few(120, 8));
    agree(cases(200), Just(()), of_blocks, steps, SOON);
}

#[test]
#[cfg_attr(miri, ignore = "takes hours there")]
fn blocks_agree_with_the_model_over_many_steps() {
    let steps = (steps_of_blocks(), MANY_STEPS);
    agree(long_cases(2), Just(()), of_blocks, steps, LATE);
}

// ---- Ranges, past all caches --------------------------------------------------------------------

fn steps_of_ranges() -> Steps {
    let (huge, giant) = (u32::from(HUGE_ORDER), u32::from(GIANT_ORDER));
    // Beyond that of two giant frames, too.
    let bits = prop_oneof![3 => Just(0), 2 => 1..=huge, 1 => huge + 1..=giant + 2];
    let from = prop_oneof![3 => Just(0), 1 => any::<u64>()];
    let some = (from, prop_oneof![2 => Just(u64::MAX), 1 => lens()]);
    let parts = some.prop_map(|(from, count)| Part::Frames(from, count));
    let steps = prop_oneof![
        2 => allocate(via(0), requests(orders(GIANT_ORDER), 3, &ZoneKind::ALL), 1),
        2 => row(via(0), ((1..=HUGE).boxed(), only(0), pages(3))),
        3 => at(ranges_at()),
        4 => free(via(0), parts.boxed(), only(Said::Nothing), 1),
        1 => wild(via(0), ranges_at()),
        5 => search((lens(), bits.boxed(), pages(3))),
    ];
    steps.boxed()
}

#[test]
fn ranges_agree_with_the_model() {
    let steps = (steps_of_ranges(), few(60, 8));
    let make = |rows| Machine::of_rows(&rows, &[]);
    agree(cases(200), any_rows(3), make, steps, SOON);
}

#[test]
#[cfg_attr(miri, ignore = "takes hours there")]
fn ranges_agree_with_the_model_over_many_steps() {
    let steps = (steps_of_ranges(), MANY_STEPS);
    let make = |rows| Machine::of_rows(&rows, &[]);
    agree(long_cases(16), any_rows(3), make, steps, LATE);
}

// ---- Through the caches of three CPUs -----------------------------------------------------------

fn steps_of_cpus() -> Steps {
    let most = if cfg!(miri) { 40 } else { 700 };
    let any_order = || orders(HUGE_ORDER + 4);
    let cached = prop_oneof![2 => Just(0), 1 => Just(HUGE_ORDER)].boxed();
    let nothing = || only(Said::Nothing);
    let steps = prop_oneof![
        6 => allocate(via(3), requests(any_order(), 2, &ZoneKind::ALL), 1),
        4 => allocate(via(3), requests(cached, 2, &ZoneKind::ALL), most),
        5 => free(via(3), blocks(any_order()), nothing(), 1),
        4 => free(via(3), blocks(only(GIANT_ORDER)), nothing(), most),
        1 => at(blocks_at(any_order())),
        1 => wild(via(3), blocks_at(any_order())),
        1 => twice(via(3)),
        1 => drain(3),
        1 => poll(3),
        1 => leave(3, 2),
    ];
    steps.boxed()
}

#[test]
fn small_caches_agree_with_the_model() {
    let steps = (steps_of_cpus(), few(80, 8));
    let rows = if cfg!(miri) { sliver } else { small };
    let make = |rows: fn() -> _| Machine::of_rows(&rows(), &[0, 1, 0]);
    agree(cases(100), Just(rows as fn() -> _), make, steps, (1, 8));
}

#[test]
#[cfg_attr(miri, ignore = "as with small caches")]
fn large_caches_agree_with_the_model() {
    let make = |()| Machine::of_rows(&large(), &[0, 1, 0]);
    let steps = (steps_of_cpus(), few(80, 8));
    agree(cases(100), Just(()), make, steps, (1, 8));
}

// ---- Memory that comes and goes -----------------------------------------------------------------

#[test]
fn memory_that_comes_and_goes_agrees_with_the_model() {
    let (part, going) = (|| parts(span()), || going(span()));
    let changes = prop_oneof![
        4 => Just(Change::Offline), 2 => Just(Change::Online), 3 => Just(Change::Remove)
    ];
    let steps = prop_oneof![
        3 => add(part(), only(None), 0.0),
        2 => adopt(part()),
        4 => free(via(1), blocks(only(GIANT_ORDER)), only(Said::Nothing), 1),
        3 => wild(via(1), ranges_at()),
        6 => row(via(1), ((1..600u64).boxed(), (0..8u32).boxed(), pages(1))),
        1 => drain(1),
        9 => change(going(), changes.boxed()),
        3 => isolate(going()),
        3 => end(),
    ];
    let make = |()| Machine::of_span(span(), None);
    agree(
        cases(2000),
        Just(()),
        make,
        (steps.boxed(), few(60, 12)),
        (1, 1),
    );
}

// ---- Memory that comes to windows, in any zone --------------------------------------------------

#[test]
#[cfg_attr(miri, ignore = "a large map, slow there")]
fn memory_that_comes_to_windows_agrees_with_the_model() {
    let huges = || huges(window(), 4);
    let orders = prop::sample::select(&[0, 0, 0, 3, HUGE_ORDER, HUGE_ORDER + 1][..]).boxed();
    let wanted = requests(orders, 2, &[ZoneKind::Movable]);
    let changes = prop_oneof![
        5 => Just(Change::Offline), 2 => Just(Change::Online), 4 => online_to(),
        4 => Just(Change::Remove)
    ];
    let steps = prop_oneof![
        7 => add(huges(), zones_of_window(), 0.3),
        15 => change(huges(), changes.boxed()),
        12 => allocate(via(1), wanted.clone(), 1),
        2 => row(via(0), ((1..1600u64).boxed(), only(0), wanted)),
        12 => free(via(1), only(Part::Whole), only(Said::Nothing), 1),
        2 => drain(1),
        4 => isolate(huges()),
        3 => end(),
    ];
    let make = |()| Machine::of_window(window());
    agree(
        cases(1000),
        Just(()),
        make,
        (steps.boxed(), few(120, 16)),
        (1, 4),
    );
}

// ---- What free memory holds ---------------------------------------------------------------------

#[test]
#[cfg_attr(miri, ignore = "a large map, slow there")]
fn content_agrees_with_the_model() {
    let orders = || orders(GIANT_ORDER);
    let wanted = |orders| {
        let made = (requests(orders, 1, &[ZoneKind::Normal]), any::<bool>());
        made.prop_map(|(request, zeroed)| if zeroed { request.zeroed() } else { request })
    };
    let said =
        prop_oneof![1 => Just(Said::Zero), 1 => Just(Said::ZeroIfSo), 2 => Just(Said::Nothing)];
    let Range { start, end } = CONTENT;
    let frames = prop_oneof![CONTENT, start..start + 600, end - 100..end];
    let steps = prop_oneof![
        6 => allocate(via(1), wanted(orders()).boxed(), 1),
        1 => row(via(0), ((1..3000u64).boxed(), only(0), wanted(only(0)).boxed())),
        1 => at(blocks_at(orders())),
        7 => free(via(1), blocks(orders()), said.boxed(), 1),
        5 => borrow((HUGE_ORDER..=GIANT_ORDER).boxed(), [contents(), contents()], backs(), 0.1),
        1 => briefly(frames.boxed()),
        1 => drain(1),
        1 => promise(),
        1 => zeroes(0.7),
    ];
    let content = prop_oneof![Just(Content::Zero), Just(Content::Unknown)];
    let make = |(content, device_zeroes)| Machine::of_content(content, device_zeroes);
    let steps = (steps.boxed(), few(150, 12));
    agree(cases(100), (content, any::<bool>()), make, steps, (1, 1));
}

/// A row for a kernel that zeroes nothing, of which the first part lies in a huge frame that is zero.
#[test]
#[cfg_attr(miri, ignore = "a large map, slow there")]
fn a_refused_row_leaves_what_is_known_of_the_huge_frames_at_its_ends() {
    let request = |order| only(Request::new(Order::new(order).unwrap()).zeroed());
    let zeros = |via, order| allocate(only(via), request(order), 1);
    let zeroed = |order, back| {
        let contents = [Content::Unknown, Content::Zero].map(only);
        borrow(only(order), contents, only(back), 0.0)
    };
    let steps = vec![
        zeroed(HUGE_ORDER + 3, Back::AsItBecame),
        zeroed(HUGE_ORDER, Back::As(Content::Reported)),
        zeros(Via::Cpu(0), 0),
        zeros(Via::Shared, HUGE_ORDER),
        zeros(Via::Shared, HUGE_ORDER),
        zeros(Via::Shared, HUGE_ORDER),
        zeroes(0.0),
        zeros(Via::Shared, 0),
        zeros(Via::Shared, 0),
        row(via(0), (only(2 * HUGE + 1), only(0), request(0))),
    ];
    let steps = steps.new_tree(&mut TestRunner::deterministic()).unwrap();
    run(
        Machine::of_content(Content::Unknown, false),
        &steps.current(),
        SOON,
    );
}
