//! Memory that the image allocates as zeros: of the untouched memory of a new virtual machine
//! nothing is zeroed, of other memory all of it, once.

use crate::common::qemu;

use firstlight_lab::boot::{
    self, Accelerator, Board, BootError, Clock, Machine, Request, Unwatched, Wish,
};
use firstlight_lab::record::Record;
use qemu::qemu_is_here;
use std::io::Write;
use std::sync::atomic::AtomicUsize;

const MIB: u64 = 1 << 20;

fn run(board: Board, append: &str) -> Result<Record, BootError> {
    run_with(board, append, &[])
}

fn run_with(board: Board, append: &str, extra: &[&str]) -> Result<Record, BootError> {
    let request = Request {
        machine: Machine {
            board,
            // A GiB and more lie above 4 GiB.
            memory_mib: 5 << 10,
            clock: Clock::Instructions,
            ..Machine::default()
        },
        wish: Wish::This(Accelerator::Tcg),
        append: append.into(),
        extra: extra.iter().copied().map(str::to_owned).collect(),
        ..Request::default()
    };
    boot::run(&request, &AtomicUsize::new(0), &mut Unwatched)
}

#[test]
fn of_a_new_machine_nothing_is_zeroed() {
    if !qemu_is_here() {
        return;
    }
    for board in [Board::Q35, Board::Microvm] {
        let record = run(board, "fresh zeroed=1G").unwrap();
        let zeroed = record.zeroed.unwrap();
        assert_eq!(zeroed.allocated_bytes, 1024 * MIB, "{board}");
        assert_eq!(zeroed.zeroed_bytes, 0, "{board}");
        assert!(zeroed.known_zero_bytes >= 1024 * MIB, "{board}: {zeroed:?}");
        // The rest of the way up is what it is without.
        let written = record.memory.metadata_written_bytes.unwrap();
        assert!(written < 16 << 10, "{board}: {written} bytes of tables");
    }
}

/// Descriptors of 64 bytes, all of them written before boot goes on: a word each, and no zeros.
#[test]
fn of_a_new_machine_descriptors_are_written_and_nothing_is_zeroed() {
    if !qemu_is_here() {
        return;
    }
    // The first section's descriptors in zone DMA have no word that is not zero.
    const ZERO_FRAMES: u64 = 4096;
    for (words, is_fresh) in [
        ("fresh zeroed=1G descriptors=eager", true),
        ("descriptors=eager", false),
    ] {
        let record = run(Board::Q35, words).unwrap();
        let descriptors = record.descriptors.unwrap();
        let frames = record.memory.present_frames.unwrap();
        assert_eq!(descriptors.checked_frames, frames);
        assert_eq!(descriptors.wrong_frames, 0);
        let (written, zeros) = (descriptors.written_bytes, descriptors.zeroed_bytes.unwrap());
        let places = written - zeros;
        assert!(
            places <= 8 * frames && places > 8 * (frames - ZERO_FRAMES),
            "{places}"
        );
        let expected = if is_fresh {
            (places, 0)
        } else {
            (64 * frames, 64 * frames - places)
        };
        assert_eq!((written, zeros), expected, "{words}");
        let zeroed = record.zeroed.map_or(0, |zeroed| zeroed.zeroed_bytes);
        assert_eq!(zeroed, 0, "{words}");
    }
}

#[test]
fn without_the_promise_all_of_it_is_zeroed_once() {
    if !qemu_is_here() {
        return;
    }
    let zeroed = run(Board::Microvm, "zeroed=64M").unwrap().zeroed.unwrap();
    assert_eq!(zeroed.allocated_bytes, 64 * MIB);
    assert_eq!(zeroed.zeroed_bytes, 64 * MIB);
    assert_eq!(zeroed.known_zero_bytes, 0);
}

/// QEMU loads two huge frames of ones above 4 GiB.
#[test]
fn a_machine_that_is_not_as_promised_is_found_out() {
    if !qemu_is_here() {
        return;
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![0xff; 4 << 20]).unwrap();
    let path = file.path().display();
    let loader = format!("loader,file={path},addr=0x150000000,force-raw=on");
    let extra = ["-device", &*loader];
    let words = "fresh zeroed=1G check_one_in=1";
    let zeroed = run_with(Board::Microvm, words, &extra).unwrap().zeroed;
    let zeroed = zeroed.unwrap();
    assert_eq!((zeroed.wrong_blocks, zeroed.zeroed_bytes), (2, 4 * MIB));
    // Without the check the image sees it, too late.
    match run_with(Board::Microvm, "fresh zeroed=1G", &extra) {
        Err(BootError::CheckFailed(fault)) => {
            let log = fault.tail.join("\n");
            assert!(log.contains("is not zero"), "{log}");
        }
        other => panic!("{other:?}"),
    }
}
