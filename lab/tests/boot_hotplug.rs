//! Memory hotplug of QEMU, driven through its monitor, in our image.
#![expect(
    clippy::unwrap_used,
    reason = "a test may stop on what it did not expect"
)]

#[path = "common/qemu.rs"]
mod qemu;

use std::fmt::Write;
use std::sync::atomic::AtomicUsize;

use firstlight_lab::boot::hotplug::Script;
use firstlight_lab::boot::{
    self, Accelerator, Board, Clock, Machine, Request, Slots, Unwatched, Wish,
};
use firstlight_lab::record::{Hotplugged, Record};
use qemu::qemu_is_here;

/// What came of a script on a machine of so many MiB, with slots and most memory in GiB.
fn drive(machine: Machine, slots: u32, most_gib: u64, script: &str, append: &str) -> Record {
    let request = Request {
        machine: Machine {
            hotplug: Some(Slots {
                slots,
                max_memory_mib: most_gib << 10,
            }),
            ..machine
        },
        script: Some(script.parse::<Script>().unwrap()),
        append: append.into(),
        wish: Wish::This(Accelerator::Tcg),
        ..Request::default()
    };
    let record = boot::run(&request, &AtomicUsize::new(0), &mut Unwatched);
    let record = record.unwrap_or_else(|error| panic!("{script}: {error}: {error:?}"));
    assert_eq!(record.notes, Vec::<String>::new(), "{script}");
    record
}

fn machine(memory_mib: u64, nodes: u32) -> Machine {
    Machine {
        memory_mib,
        nodes,
        cpus: nodes,
        ..Machine::default()
    }
}

/// Whether each row was refused, and with which words.
fn outcomes(record: &Record, expected: &[Option<&str>]) {
    let rows: &[Hotplugged] = &record.hotplug;
    assert_eq!(rows.len(), expected.len(), "{rows:#?}");
    for (row, expected) in rows.iter().zip(expected) {
        match (&row.refused, expected) {
            (None, None) => {}
            (Some(seen), Some(words)) if seen.contains(words) => {}
            _ => panic!("expected {expected:?}: {row:#?}"),
        }
        let took = match row.event.as_str() {
            "add" => row.allocatable_ns,
            _ => row.gone_ns,
        };
        assert_eq!(took.is_some(), expected.is_none(), "{row:#?}");
    }
}

#[test]
fn dimms_come_and_go_on_both_boards() {
    if !qemu_is_here() {
        return;
    }
    for board in [Board::Q35, Board::Pc] {
        let script = "at 0 add 1G\nat 20 add 512M\nat 40 remove dimm1\nat 60 add 2G node 0\n\
                      at 80 remove dimm3\nat 100 remove dimm2";
        let machine = Machine {
            board,
            ..machine(256, 1)
        };
        let record = drive(machine, 4, 8, script, "descriptors=early");
        outcomes(&record, &[None; 6]);
        let added = &record.hotplug[0];
        assert_eq!((added.bytes, added.node), (1 << 30, Some(0)));
        assert_eq!(added.zone.as_deref(), Some("Normal"));
        assert!(added.described_ns >= added.allocatable_ns);
    }
}

/// 64 GiB can be allocated 500,000 instructions after the event, on one CPU and behind descriptors.
#[test]
fn a_large_dimm_is_allocatable_at_once() {
    if !qemu_is_here() {
        return;
    }
    for append in ["", "descriptors=lazy movable_node"] {
        let machine = Machine {
            clock: Clock::Instructions,
            ..machine(2048, 1)
        };
        let record = drive(machine, 1, 66, "at 0 add 64G\nat 10 remove dimm1", append);
        outcomes(&record, &[None, None]);
        let instructions = record.hotplug[0].instructions.unwrap();
        assert!(instructions <= 500_000, "{instructions}");
        let movable = record.hotplug[0].zone.as_deref() == Some("Movable");
        assert_eq!(movable, append.contains("movable_node"));
    }
}

/// What is in use stays, with a reason, and goes once it is free; so do those that the guest could
/// not use.
#[test]
fn what_is_refused_has_a_reason() {
    if !qemu_is_here() {
        return;
    }
    // Every second DIMM has a page in use until it was to go once. At one moment the guest may see the
    // second first.
    let script = "at 0 add 256M\nat 25 add 256M\nat 50 remove dimm2\nat 100 remove dimm2\n\
                  at 150 remove dimm2\nat 200 remove dimm1";
    let record = drive(machine(256, 1), 2, 4, script, "hold_one_in=2");
    let in_use = Some("1 frames are in use");
    // QEMU has no DIMM of that name any more.
    let gone = Some("not found");
    outcomes(&record, &[None, None, in_use, None, gone, None]);

    // A size QEMU does not take, a node there is not, one slot too many.
    let script = "at 0 add 3M\nat 0 add 128M node 7\nat 0 add 128M\nat 0 add 128M";
    let record = drive(machine(256, 2), 1, 4, script, "");
    outcomes(
        &record,
        &[Some("multiple"), Some("node"), None, Some("no free slots")],
    );
    assert_eq!(record.hotplug[2].node, Some(1), "of the last node");

    // More than --max-memory has space for, and a node whose window it is not.
    let script = "at 0 add 8G\nat 0 add 128M node 0\nat 50 remove dimm2\nat 100 add 128M node 1";
    let record = drive(machine(256, 2), 2, 1, script, "");
    let words = Some("window it is in of node 1");
    assert_eq!(record.hotplug.len(), 4);
    assert!(record.hotplug[0].refused.is_some());
    outcomes_of(&record, 1, words);
    outcomes_of(&record, 3, None);
}

fn outcomes_of(record: &Record, at: usize, words: Option<&str>) {
    let seen = record.hotplug[at].refused.as_deref();
    let is_right = match words {
        None => seen.is_none(),
        Some(words) => seen.is_some_and(|seen| seen.contains(words)),
    };
    assert!(is_right, "{words:?}: {:#?}", record.hotplug[at]);
}

/// As many DIMMs as QEMU has slots for, in and out in another order.
#[test]
fn dimms_fill_all_slots_and_leave_in_another_order() {
    if !qemu_is_here() {
        return;
    }
    let mut script = String::new();
    for dimm in 0..256 {
        writeln!(script, "at {} add 128M", dimm * 2).unwrap();
    }
    for at in 0..256 {
        // 101 and 256 have no common divisor: each once.
        let dimm = at * 101 % 256 + 1;
        writeln!(script, "at {} remove dimm{dimm}", 600 + at * 2).unwrap();
    }
    let record = drive(machine(32 << 10, 1), 256, 64, &script, "");
    outcomes(&record, &[None; 512]);
}
