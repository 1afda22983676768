//! Page descriptors in a guest: every one is checked against the layout in each
//! mode, writing them takes no more instructions than was promised, and memory
//! that must be accepted is touched by nobody before.

use crate::common::qemu;

use firstlight_lab::boot::{self, Accelerator, Clock, Machine, Misdeed, Request, Unwatched, Wish};
use firstlight_lab::record::Record;
use qemu::qemu_is_here;
use serde_json::Value;
use std::sync::atomic::AtomicUsize;

/// Instructions the first allocation from an untouched section may take more.
const MOST_FIRST_TOUCH: u64 = 150_000;

fn request(memory_gib: u64, cpus: u32, clock: Clock, append: &str) -> Request {
    Request {
        machine: Machine {
            memory_mib: memory_gib << 10,
            nodes: cpus,
            cpus,
            clock,
            ..Machine::default()
        },
        wish: Wish::This(Accelerator::Tcg),
        append: append.into(),
        ..Request::default()
    }
}

fn boot(memory_gib: u64, cpus: u32, clock: Clock, append: &str) -> Record {
    let request = request(memory_gib, cpus, clock, append);
    boot::run(&request, &AtomicUsize::new(0), &mut Unwatched).unwrap()
}

/// The guest's events of one kind.
fn events<'r>(record: &'r Record, kind: &str) -> Vec<&'r Value> {
    record
        .events
        .iter()
        .filter(|event| event["event"] == kind)
        .collect()
}

fn phase_ns(record: &Record, name: &str) -> u64 {
    let phase = record
        .phases
        .iter()
        .find(|phase| phase.name == name)
        .unwrap();
    phase.end_ns - phase.start_ns
}

#[test]
fn every_descriptor_of_64_gib_is_right_in_every_mode() {
    if !qemu_is_here() {
        return;
    }
    for mode in ["lazy", "early", "eager"] {
        let record = boot(64, 2, Clock::Wall, &format!("descriptors={mode}"));
        let told = events(&record, "descriptors");
        let told = *told.first().unwrap();
        assert_eq!(told["mode"], mode);
        assert_eq!(
            told["checked_frames"].as_u64(),
            record.memory.present_frames,
            "{mode}"
        );
        assert_eq!(told["wrong_frames"], 0, "{mode}");
        assert_eq!(told["ready_sections"], told["sections"], "{mode}");
        let touched = told["touched_sections"].as_u64().unwrap();
        // The first described frame and the memory of the other CPU, on a node each, lie beyond
        // the early part: sections that are not written when they are allocated from.
        let expected = if mode == "eager" { 0 } else { 2 };
        assert_eq!(touched, expected, "{mode}");
    }
}

#[test]
fn writing_takes_as_many_instructions_as_promised() {
    if !qemu_is_here() {
        return;
    }
    // Instructions for ten pages.
    for (bytes, most_for_ten) in [(64, 40), (8, 6)] {
        let words = format!("sweep threads=1 descriptor_bytes={bytes}");
        let record = boot(2, 1, Clock::Instructions, &words);
        let rows = events(&record, "sweep");
        assert!(!rows.is_empty());
        for row in rows {
            let number = |name: &str| row[name].as_u64().unwrap();
            assert_eq!(number("bytes_written"), number("pages") * bytes);
            assert!(
                number("ticks") * 10 <= number("pages") * most_for_ten,
                "{bytes} bytes: {row}"
            );
        }
        assert_eq!(events(&record, "descriptors")[0]["wrong_frames"], 0);
    }
    let lazy = boot(2, 1, Clock::Instructions, "descriptors=lazy");
    let first_touch = phase_ns(&lazy, "first described frame");
    assert!(
        (1..=MOST_FIRST_TOUCH).contains(&first_touch),
        "{first_touch} instructions"
    );
    // Lazy: nothing but room before all memory can be allocated.
    assert!(phase_ns(&lazy, "descriptors") < 20_000);
    let eager = boot(2, 1, Clock::Instructions, "descriptors=eager");
    assert!(
        phase_ns(&eager, "descriptors") > 1_000_000,
        "eager writes all of them"
    );
}

#[test]
fn unaccepted_memory_comes_online_and_nobody_touches_it_before() {
    if !qemu_is_here() {
        return;
    }
    let words = "accept=100 descriptors=lazy selftest";
    let record = boot(6, 2, Clock::Instructions, words);
    let told = events(&record, "acceptance");
    let told = *told.first().unwrap();
    let number = |name: &str| told[name].as_u64().unwrap();
    // QEMU puts all but 2 GiB above 4 GiB.
    assert_eq!(number("total_frames"), 4 << 18);
    assert_eq!(number("online_frames"), number("total_frames"));
    assert!(number("lazy_frames") > 0);
    assert_eq!((number("refused_frames"), number("failures")), (0, 0));
    // Each page costs what was asked for.
    assert!(number("ticks") >= number("total_frames") * 100);
    assert_eq!(events(&record, "descriptors")[0]["wrong_frames"], 0);

    // And had somebody touched it, that would have been a fault.
    let early = request(6, 1, Clock::Instructions, "accept=100 test=early-touch");
    let error = boot::run(&early, &AtomicUsize::new(0), &mut Unwatched).unwrap_err();
    let fault = error.fault().unwrap();
    assert!(matches!(fault.misdeed, Misdeed::Faulted(_)), "{fault:?}");
    assert!(
        fault
            .tail
            .iter()
            .any(|line| line.contains("reading 0x100000000, not mapped"))
    );
}
