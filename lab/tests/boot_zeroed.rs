//! Memory that the image allocates as zeros: of the untouched memory of a new virtual machine
//! nothing is zeroed, of other memory all of it, once.

#![expect(clippy::unwrap_used, reason = "a test that cannot run has failed")]

#[path = "common/qemu.rs"]
mod qemu;

use firstlight_lab::boot::{
    self, Accelerator, Board, BootError, Clock, Machine, Request, Unwatched, Wish,
};
use firstlight_lab::record::Record;
use qemu::qemu_is_here;
use std::sync::atomic::AtomicUsize;

const MIB: u64 = 1 << 20;

fn run(board: Board, append: &str) -> Result<Record, BootError> {
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
