//! The gate on the instruction clock: no pair of the same boot has a difference (a
//! few of them, or `FIRSTLIGHT_PAIRS`), and each of several changes of a hundredth is one.

use crate::common::qemu;

use firstlight_lab::boot::{self, Clock, Machine, Processor, Request, Unwatched};
use firstlight_lab::compare::compare;
use firstlight_lab::gate::{Case, Outcome, Rules, Verdict, judge};
use firstlight_lab::run::Run;
use qemu::{qemu_is_here, real_qemu};
use std::sync::atomic::AtomicUsize;

/// A boot that writes all descriptors of so much memory.
fn boot(memory_mib: u64) -> Run {
    boot_of(memory_mib, 1, "descriptors=eager")
}

fn boot_of(memory_mib: u64, cpus: u32, words: &str) -> Run {
    let request = Request {
        machine: Machine {
            memory_mib,
            cpus,
            clock: Clock::Instructions,
            ..Machine::default()
        },
        append: words.into(),
        qemu: Some(real_qemu(Processor::X86_64)),
        ..Request::default()
    };
    let record = boot::run(&request, &AtomicUsize::new(0), &mut Unwatched).unwrap();
    Run::of_record(&record).unwrap()
}

fn verdict(a: &Run, b: &Run) -> Verdict {
    let first = compare(
        ("a", std::slice::from_ref(a)),
        ("b", std::slice::from_ref(b)),
    );
    let first = first.unwrap();
    judge(&Case::of_comparison("boots", first), &Rules::default())
}

/// How many pairs are booted.
fn pairs(few: u32) -> u32 {
    std::env::var("FIRSTLIGHT_PAIRS").map_or(few, |pairs| pairs.parse().unwrap())
}

#[test]
fn no_pair_is_an_alarm() {
    if !qemu_is_here() {
        return;
    }
    let mut before = boot(128);
    for pair in 0..pairs(4) {
        let after = boot(128);
        let verdict = verdict(&before, &after);
        assert_eq!(
            (verdict.verdict, verdict.moved.len()),
            (Outcome::Pass, 0),
            "{pair}: {:?}",
            verdict.moved
        );
        before = after;
    }
}

#[test]
fn no_pair_with_four_cpus_is_an_alarm() {
    if !qemu_is_here() {
        return;
    }
    for pair in 0..pairs(2) {
        let boot = || boot_of(256, 4, "descriptors=early");
        let verdict = verdict(&boot(), &boot());
        assert_eq!(
            verdict.verdict,
            Outcome::Pass,
            "{pair}: {:?}",
            verdict.moved
        );
    }
}

#[test]
fn a_hundredth_more_is_found_with_one_boot_each() {
    if !qemu_is_here() {
        return;
    }
    for (less, more) in [(200, 202), (500, 505), (1000, 1010)] {
        let verdict = verdict(&boot(less), &boot(more));
        assert_eq!(verdict.verdict, Outcome::Regressed, "{less} to {more} MiB");
        let named = verdict
            .moved
            .iter()
            .any(|row| row.starts_with("phase \"descriptors\""));
        assert!(named, "{:?}", verdict.moved);
    }
}
