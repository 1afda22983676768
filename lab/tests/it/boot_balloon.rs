//! The image's balloon driver on QEMU's balloon: free memory goes back to the host, by the
//! host's own figures.

use crate::common::qemu;

use firstlight_lab::boot::{
    self, Accelerator, Board, BootError, Clock, Machine, Request, Unwatched, Wish,
};
use firstlight_lab::record::{Balloon, Record};
use qemu::qemu_is_here;
use std::sync::atomic::AtomicUsize;

const MIB: u64 = 1 << 20;

fn request(board: Board, balloon: bool, append: &str) -> Request {
    Request {
        machine: Machine {
            board,
            memory_mib: 1024,
            clock: Clock::Instructions,
            balloon,
            ..Machine::default()
        },
        wish: Wish::This(Accelerator::Tcg),
        append: append.into(),
        ..Request::default()
    }
}

fn run(request: &Request) -> Result<Record, BootError> {
    boot::run(request, &AtomicUsize::new(0), &mut Unwatched)
}

/// The boot's balloon, and what holds of all of them.
fn balloon(board: Board, append: &str) -> Balloon {
    let record = run(&request(board, true, append)).unwrap_or_else(|error| panic!("{error}"));
    let what = format!("{board} {append}: {:?}", record.notes);
    let balloon = record.balloon.unwrap();
    assert_eq!(record.notes, [""; 0], "{what}");
    let whole = 1024 * MIB;
    // The host inflated by an eighth, and QEMU saw it, down and up again.
    let sizes = || balloon.host_balloon_bytes.iter().map(|sample| sample.bytes);
    assert_eq!(sizes().min(), Some(whole - whole / 8), "{what}");
    assert_eq!(sizes().next(), Some(whole), "{what}");
    // On a busy host the machine is gone before QEMU is asked once more.
    assert!(sizes().next_back() > sizes().min(), "{what}");
    assert_eq!(balloon.inflated_bytes, whole / 8, "{what}");
    // What QEMU knows of the guest's memory is what the guest has.
    let statistics = balloon.host_statistics.unwrap();
    assert_eq!(
        statistics.total_bytes, record.machine.memory_bytes,
        "{what}"
    );
    assert!(statistics.free_bytes.unwrap() > whole / 10 * 9, "{what}");
    // The guest's memory was really there.
    assert!(balloon.freed_bytes >= 500 * MIB, "{what}");
    assert!(
        balloon.host_peak_bytes.unwrap() >= balloon.freed_bytes,
        "{what}"
    );
    balloon
}

#[test]
fn free_memory_goes_back_to_the_host() {
    if !qemu_is_here() {
        return;
    }
    for (board, transport) in [
        (Board::Q35, "pci"),
        (Board::Pc, "pci"),
        (Board::Microvm, "mmio"),
    ] {
        let append = "reporting=on reporting.budget_one_in=0 reporting.delay_ms=1";
        let balloon = balloon(board, append);
        assert_eq!(balloon.transport, transport);
        let percent = balloon.returned_percent.unwrap();
        assert!(percent >= 95.0, "{board}: {balloon:?}");
        assert!(balloon.reported_bytes >= balloon.freed_bytes, "{board}");
        assert!(balloon.instructions_per_gib.unwrap() > 0, "{board}");
    }
}

#[test]
fn without_reports_the_host_has_nothing_back() {
    if !qemu_is_here() {
        return;
    }
    let balloon = balloon(Board::Microvm, "");
    assert!(balloon.returned_percent.unwrap() < 5.0, "{balloon:?}");
    assert_eq!((balloon.reports, balloon.reported_bytes), (0, 0));
}

#[test]
fn a_device_that_cannot_be_used_has_a_reason() {
    if !qemu_is_here() {
        return;
    }
    let modern = "-global=virtio-mmio.force-legacy=off";
    let device = "-device=virtio-balloon-device,bus=virtio-mmio-bus.0";
    let named = "balloon reporting=on virtio_mmio.device=512@0xfeb00000:5";
    let other = "balloon virtio_mmio.device=512@0xfeb00200:5";
    let memory = "balloon virtio_mmio.device=512@0x1000000:5";
    for (extra, append, words) in [
        (&[][..], "balloon", "there is no balloon on PCI"),
        (&[device], named, "a virtio device of version 1: expected 2"),
        (&[device, modern], named, "does not offer features 0x20"),
        (
            &[device, modern],
            other,
            "a virtio device of kind 0, expected 5",
        ),
        (&[device, modern], memory, "are where memory is"),
    ] {
        let extra = extra.iter().flat_map(|word| word.splitn(2, '='));
        let request = Request {
            extra: extra.map(str::to_owned).collect(),
            ..request(Board::Microvm, false, append)
        };
        match run(&request) {
            Err(BootError::Machine(fault)) => {
                let log = fault.tail.join("\n");
                assert!(
                    log.contains(words),
                    "{append}: {words:?} is missing in\n{log}"
                );
            }
            other => panic!("{append}: {other:?}"),
        }
    }
    // One that cannot be used does not keep the next.
    let both = format!("{memory} virtio_mmio.device=512@0xfeb00000:5");
    let extra = [device, modern].into_iter();
    let extra = extra.flat_map(|word| word.splitn(2, '='));
    let request = Request {
        extra: extra.map(str::to_owned).collect(),
        ..request(Board::Microvm, false, &both)
    };
    run(&request).unwrap_or_else(|error| panic!("{both}: {error}"));
}
