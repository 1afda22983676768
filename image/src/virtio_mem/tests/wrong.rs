//! Devices that refuse, lie, describe themselves wrongly or fail: nothing is lost, nothing is used that is not there.

use super::*;

#[test]
fn refusals_lose_nothing_and_are_tried_again() {
    for (habit, grows, expected) in [
        (
            Habit::Answers(0, 1),
            true,
            "it answers PLUG of [0x0000000140000000-0x00000001407fffff] with NACK",
        ),
        (Habit::Answers(0, 2), true, "with BUSY"),
        (Habit::Answers(0, 3), true, "with ERROR"),
        (
            Habit::Answers(0, 9),
            true,
            "answers PLUG with kind 0x9 in 10 bytes; expected ACK, NACK, BUSY or ERROR",
        ),
        (
            Habit::Short(4),
            true,
            "answers PLUG with kind 0x0 in 4 bytes",
        ),
        (
            Habit::Short(8),
            true,
            "answers STATE with kind 0x0 in 8 bytes",
        ),
        (
            Habit::Idles(0),
            true,
            "answers ACK, and then says that [0x0000000140000000-0x00000001407fffff] is Unplugged",
        ),
        (Habit::State(7), true, "in state 0x7"),
        (
            Habit::Answers(1, 1),
            false,
            "answers UNPLUG of [0x0000000140400000-0x00000001407fffff] with NACK",
        ),
        (Habit::Answers(1, 2), false, "with BUSY"),
        (Habit::Answers(1, 3), false, "with ERROR"),
        (
            Habit::Answers(1, 0xffff),
            false,
            "answers UNPLUG with kind 0xffff",
        ),
        (Habit::Idles(1), false, "is Plugged"),
        (Habit::State(2), false, "is Mixed"),
    ] {
        let shared = SharedMemory::new();
        let host = Host::new(&shared, PIECE);
        let (mut device, mut kernel) = (host.resizable(PIECE), Kernel::default());
        host.want(8);
        if !grows {
            assert_eq!(step(&mut device, &host, &mut kernel), "8 MiB");
            host.want(4);
        }
        host.habit(habit);
        let said = step(&mut device, &host, &mut kernel);
        assert!(said.contains(expected), "{habit:?}: {said}");
        let again = step(&mut device, &host, &mut kernel);
        assert!(!again.ends_with(" MiB"), "{habit:?}: {again}");
        // Refused politely, memory that was to go is used again.
        if matches!(habit, Habit::Answers(1, 1..=3)) {
            assert_eq!(kernel.bytes(), 8 * MIB, "{habit:?}");
        }
        host.habit(Habit::Honest);
        let said = step(&mut device, &host, &mut kernel);
        assert_eq!(said, if grows { "8 MiB" } else { "4 MiB" }, "{habit:?}");
        assert_eq!(host.plugged(), kernel.bytes(), "{habit:?}");
    }
}

#[test]
fn a_block_that_stays_does_not_keep_the_others() {
    let shared = SharedMemory::new();
    let host = Host::new(&shared, PIECE);
    let (mut device, mut kernel) = (host.resizable(PIECE), Kernel::default());
    host.want(8);
    step(&mut device, &host, &mut kernel);
    // The kernel has no use for the fifth, and the device keeps it.
    kernel.limit = Some(START + 4 * PIECE);
    host.want(10);
    host.habit(Habit::Answers(1, 3));
    let kept = "it answers UNPLUG of [0x0000000140800000-0x00000001409fffff] with ERROR";
    assert_eq!(step(&mut device, &host, &mut kernel), kept);
    kernel.limit = None;
    host.want(16);
    assert_eq!(step(&mut device, &host, &mut kernel), kept);
    assert_eq!((kernel.bytes(), host.plugged()), (14 * MIB, 16 * MIB));
    host.habit(Habit::Stays(START + 4 * PIECE));
    host.want(4);
    assert_eq!(step(&mut device, &host, &mut kernel), kept);
    assert_eq!((kernel.bytes(), host.plugged()), (4 * MIB, 6 * MIB));
    host.habit(Habit::Honest);
    assert_eq!(step(&mut device, &host, &mut kernel), "4 MiB");
}

#[test]
fn configurations_that_cannot_be_are_errors() {
    for (at, value, expected) in [
        (0, 0, "its blocks have 0x0 bytes; expected a power of two"),
        (0, 3 * MIB, "its blocks have 0x300000 bytes"),
        (0, 512, "its blocks have 0x200 bytes"),
        (
            16,
            START + 4096,
            "its region has 0x8000000 bytes from 0x140001000 on; expected one or more whole blocks",
        ),
        (16, u64::MAX << 21, "its region"),
        (24, 0, "its region has 0x0 bytes"),
        (24, 3 * MIB, "its region has 0x300000 bytes"),
        (
            32,
            256 * MIB,
            "its usable size is 0x10000000; expected whole blocks of 0x200000 bytes, at most 0x8000000",
        ),
        (40, 3 * MIB, "its plugged size is 0x300000"),
        (48, 3 * MIB, "its requested size is 0x300000"),
        (48, u64::MAX, "its requested size"),
    ] {
        let shared = SharedMemory::new();
        let host = Host::new(&shared, PIECE);
        let (mut device, mut kernel) = (host.resizable(PIECE), Kernel::default());
        host.want(4);
        step(&mut device, &host, &mut kernel);
        host.set(at, value);
        let said = step(&mut device, &host, &mut kernel);
        assert!(said.contains(expected), "{at} {value:#x}: {said}");
        assert_eq!(kernel.bytes(), 4 * MIB, "it stays in use");
        let new = refused(&host, PIECE);
        assert_eq!(new.to_string(), said);
    }
    // Each alone would do.
    let shared = SharedMemory::new();
    let host = Host::new(&shared, PIECE);
    let mut device = host.resizable(PIECE);
    host.set(16, START + PIECE);
    let said = step(&mut device, &host, &mut Kernel::default());
    assert!(
        said.contains("from 0x140000000 on, became another, from 0x140200000 on"),
        "{said}"
    );
    // No whole unit.
    host.set(24, PIECE);
    host.set(32, PIECE);
    let none = refused(&host, 128 * MIB);
    assert!(
        none.to_string()
            .contains("expected one or more whole blocks of 0x8000000 bytes")
    );
    // It says that more is plugged than it said yes to.
    host.set(16, START);
    host.set(24, 64 * PIECE);
    host.set(32, 64 * PIECE);
    let mut device = host.resizable(PIECE);
    host.board.borrow_mut().plugged.insert(START + 40 * PIECE);
    host.want(4);
    let said = step(&mut device, &host, &mut Kernel::default());
    assert_eq!(
        said,
        "it says that 0x600000 bytes are plugged; expected 0x400000 by its answers"
    );
}

#[test]
fn a_device_that_fails_is_reset_and_its_memory_stays() {
    for manner in [
        Manner::Silent,
        Manner::NeedsReset,
        Manner::Vanishes,
        Manner::Lies,
        Manner::Dead,
        Manner::Changes,
    ] {
        let shared = SharedMemory::new();
        let host = Host::new(&shared, PIECE);
        let (mut device, mut kernel) = (host.resizable(PIECE), Kernel::default());
        host.want(8);
        step(&mut device, &host, &mut kernel);
        let resets = host.fake.seen.borrow().resets;
        host.fake.seen.borrow_mut().manner = manner;
        host.want(16);
        let fault = device.follow(&mut kernel).unwrap_err();
        assert!(
            matches!(fault, Fault::Device(error) if error.is_final()),
            "{manner:?}: {fault}"
        );
        assert_eq!(
            (kernel.bytes(), device.used_bytes()),
            (8 * MIB, 8 * MIB),
            "{manner:?}"
        );
        assert_eq!(host.fake.seen.borrow().resets, resets + 1, "{manner:?}");
    }
}
