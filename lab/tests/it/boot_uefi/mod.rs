//! Our image started by UEFI (OVMF, and EDK2 for Arm) from a stick, as on a real machine: the result comes back
//! onto the stick, and what goes wrong on the way is said. Skipped with a line where there is
//! no QEMU or no OVMF.

use crate::common::qemu;
mod arm;
pub(crate) mod started;
mod sticks;
mod variables;

use firstlight_lab::boot::{
    self, Accelerator, BootError, Clock, Firmware, Machine, Misdeed, Processor, Request, Unwatched,
    Wish, record_of_result,
};
use firstlight_lab::record::Record;
use qemu::{ovmf_is_here, real_qemu};
use started::power_on_machine;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// No boot here takes longer, however slow the host.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

/// A boot whose result, read from the stick, is what came by the serial port.
fn run(machine: Machine, append: &str, extra: &[&str]) -> Result<Record, BootError> {
    boot::run(
        &request(machine, append, extra),
        &AtomicUsize::new(0),
        &mut Unwatched,
    )
}

fn request(machine: Machine, append: &str, extra: &[&str]) -> Request {
    Request {
        machine: Machine {
            firmware: Firmware::Uefi,
            ..machine
        },
        wish: Wish::This(Accelerator::Tcg),
        append: append.into(),
        silence: DEADLINE,
        extra: extra.iter().map(|word| (*word).to_owned()).collect(),
        ..Request::default()
    }
}

/// One that has to go well.
fn record(machine: Machine, append: &str, extra: &[&str]) -> Record {
    run(machine, append, extra).unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

fn says(record: &Record, words: &str) -> bool {
    record.log.iter().any(|line| line.contains(words))
}

/// From firmware's first instruction; `make test` resumes the others where firmware first reads the stick.
#[test]
fn a_stick_brings_its_result_back() {
    if !ovmf_is_here() {
        return;
    }
    let machine = Machine {
        memory_mib: 600,
        nodes: 2,
        cpus: 2,
        ..Machine::default()
    };
    let request = Request {
        qemu: Some(real_qemu(Processor::X86_64)),
        ..request(machine, "selftest", &["-device", "VGA"])
    };
    let record = boot::run(&request, &AtomicUsize::new(0), &mut Unwatched);
    let record = record.unwrap_or_else(|error| panic!("{error}: {error:?}"));
    let selftest = record.selftest.as_ref().unwrap();
    assert_eq!((selftest.failures, selftest.cpus), (0, 2));
    assert_eq!(
        (record.machine.nodes, record.machine.cpus),
        (Some(2), Some(2))
    );
    assert_eq!(record.source.command_line, "selftest");
    // Without memory of boot services, which firmware may use where it is called to keep the result: 39 MiB.
    let present = record.memory.present_frames.unwrap();
    assert!((540 << 8..570 << 8).contains(&present), "{present}");
    assert!(says(&record, "image at 0x200000, "), "{:?}", record.log);
    assert!(says(
        &record,
        "is in \\firstlight\\result.jsonl on the stick"
    ));
    assert!(
        !record
            .notes
            .iter()
            .any(|note| note.contains("frame buffer")),
        "{:?}",
        record.notes
    );
    // Time before the entry, by the counter that starts with the machine.
    let milestone = |name: &str| {
        let mut events = record.events.iter();
        let of = events.find(|event| event["event"] == "milestone" && event["name"] == name);
        of.unwrap()
    };
    let before = [
        "loader_entered",
        "loader_read",
        "boot_services_ended",
        "entry",
    ]
    .map(milestone);
    let ticks = before.map(|milestone| milestone["ticks"].as_u64().unwrap());
    assert!(ticks.is_sorted() && ticks[0] > 0, "{ticks:?}");
    let milestones = &record.milestones;
    let times = [
        milestones.loader_entered_ns,
        milestones.loader_read_ns,
        milestones.boot_services_ended_ns,
        milestones.entry_ns,
    ];
    assert!(
        times.iter().all(Option::is_some) && times.is_sorted(),
        "{times:?}"
    );
    let by_tsc = before.map(|milestone| milestone["source"] == "tsc");
    assert_eq!(by_tsc, [true, true, true, false]);
}

#[test]
fn the_image_runs_elsewhere_if_its_place_is_taken() {
    if !ovmf_is_here() {
        return;
    }
    let machine = Machine {
        memory_mib: 300,
        cpus: 2,
        ..Machine::default()
    };
    // A screen that only copies blocks.
    let extra = ["-device", "virtio-gpu-pci"];
    let record = record(machine, "test=occupied selftest", &extra);
    assert!(!says(&record, "image at 0x200000, ") && says(&record, "image at 0x"));
    assert_eq!(record.selftest.as_ref().unwrap().failures, 0);
    assert_eq!(record.selftest.as_ref().unwrap().cpus, 2);
    let none = "firmware has no frame buffer: the screen shows nothing";
    assert!(record.notes.contains(&none.into()), "{:?}", record.notes);
}

#[test]
fn from_the_entry_on_it_takes_at_most_36_000_instructions_more() {
    if !ovmf_is_here() {
        return;
    }
    let machine = Machine {
        memory_mib: 16 << 10,
        clock: Clock::Instructions,
        ..Machine::default()
    };
    let instructions = |record: &Record| {
        let milestones = &record.milestones;
        milestones.all_allocatable_ns.unwrap() - milestones.entry_ns.unwrap()
    };
    let by_loader = Request {
        machine: machine.clone(),
        wish: Wish::This(Accelerator::Tcg),
        ..Request::default()
    };
    let by_loader = boot::run(&by_loader, &AtomicUsize::new(0), &mut Unwatched).unwrap();
    let by_loader = instructions(&by_loader);
    // Until the image ends: what firmware does with the result, and when, is others' matter here.
    let mut started = power_on_machine(machine, "tsc_hz=1000000000", |_| {}, "", &[]);
    let _ = started.until("end: ok");
    let by_uefi = record_of_result("events", started.events().as_bytes()).unwrap();
    let by_uefi = instructions(&by_uefi);
    println!("{by_uefi} instructions by UEFI, {by_loader} by QEMU's loader");
    // A longer map, with memory of boot services between free memory, and tables that firmware made: no part of it depends on what the loader's way takes.
    assert!(
        by_uefi <= by_loader + 36_000,
        "{by_uefi} by UEFI, {by_loader} by QEMU's loader"
    );
}

fn small(cpus: u32) -> Machine {
    Machine {
        memory_mib: 400,
        cpus,
        ..Machine::default()
    }
}

#[test]
fn a_panic_on_another_cpu_reaches_the_stick() {
    if !ovmf_is_here() {
        return;
    }
    let error = run(small(4), "test=panic-other", &[]).unwrap_err();
    let BootError::Guest(fault) = &error else {
        panic!("{error:?}");
    };
    // As the stick has it: a result that differs is another misdeed.
    let Misdeed::Panicked(words) = &fault.misdeed else {
        panic!("{error:?}");
    };
    assert!(
        words.ends_with("requested by the command line, on CPU 3"),
        "{words}"
    );
    let tail = fault.tail.join("\n");
    assert!(
        tail.contains("is in \\firstlight\\result.jsonl on the stick"),
        "{tail}"
    );
}

#[test]
fn memory_outlives_a_restart_without_firmware() {
    if !ovmf_is_here() {
        return;
    }
    let words = "restart=warm preserve_bytes=64M preserve_every=2M";
    let record = record(small(2), words, &[]);
    let restart = record.restart.as_ref().unwrap();
    assert_eq!((restart.refused.as_deref(), restart.wrong_pages), (None, 0));
    assert_eq!((restart.guest_bytes, restart.stopped_cpus), (64 << 20, 1));
    assert_eq!(restart.free_frames.before, restart.free_frames.after);
    // There is a line of each kernel, and of firmware only before the first and after the second.
    let kernels = record
        .log
        .iter()
        .filter(|line| line.contains("a memory engine on bare metal"));
    assert_eq!(kernels.count(), 2, "{:?}", record.log);
}

#[test]
fn a_restart_that_is_refused_says_why_on_the_stick() {
    if !ovmf_is_here() {
        return;
    }
    let error = run(small(2), "restart=warm preserve_bytes=1G", &[]).unwrap_err();
    let BootError::CheckFailed(fault) = &error else {
        panic!("{error:?}");
    };
    let tail = fault.tail.join("\n");
    assert!(
        tail.contains("restart: refused: memory for a guest on node 0: "),
        "{tail}"
    );
    assert_eq!(fault.misdeed, Misdeed::Panicked("end: check failed".into()));
}

#[test]
fn the_allocator_is_timed() {
    if !ovmf_is_here() {
        return;
    }
    let record = record(small(2), "bench=alloc", &[]);
    for contestant in ["firstlight", "spin-lifo", "lifo"] {
        let rows = record
            .bench
            .iter()
            .filter(|row| row.contestant == contestant);
        assert!(rows.clone().any(|row| row.threads == 2), "{contestant}");
        assert!(rows.clone().all(|row| row.operations > 0), "{contestant}");
    }
}
