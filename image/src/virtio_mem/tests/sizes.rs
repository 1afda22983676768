//! Memory follows the size that the host wants, as far as the kernel has use for it.

use super::*;

#[test]
fn the_size_follows_the_host() {
    for (block, least) in [
        (2 * MIB, 2 * MIB),
        (MIB, 2 * MIB),
        (8 * MIB, 2 * MIB),
        (2 * MIB, 16 * MIB),
    ] {
        let shared = SharedMemory::new();
        let host = Host::new(&shared, block);
        let (mut device, mut kernel) = (host.resizable(least), Kernel::default());
        let unit = block.max(least) / MIB;
        for units in [0, 1, 4, 2, 3, 0, 4] {
            host.want(units * unit);
            let said = step(&mut device, &host, &mut kernel);
            assert_eq!(said, std::format!("{} MiB", units * unit));
            assert_eq!(host.plugged(), units * unit * MIB);
            assert_eq!(kernel.bytes(), host.plugged());
        }
        // What is no whole unit is left to the host.
        if least > block {
            host.set(48, 3 * unit * MIB + block);
            step(&mut device, &host, &mut kernel);
            assert_eq!(host.plugged(), 3 * unit * MIB);
        }
        let requests = host.board.borrow().requests.len();
        step(&mut device, &host, &mut kernel);
        assert_eq!(
            host.board.borrow().requests.len(),
            requests,
            "nothing to do"
        );
    }
}

#[test]
fn the_lowest_come_first_and_the_highest_that_are_free_go() {
    let shared = SharedMemory::new();
    let host = Host::new(&shared, PIECE);
    let (mut device, mut kernel) = (host.resizable(PIECE), Kernel::default());
    host.want(32);
    step(&mut device, &host, &mut kernel);
    // Blocks 13 and 9 of 16 stay.
    kernel.in_use.extend([13, 9].map(|at| START + at * PIECE));
    host.want(16);
    assert_eq!(step(&mut device, &host, &mut kernel), "16 MiB");
    let left: Vec<u64> = kernel.used.iter().map(|at| (at - START) / PIECE).collect();
    assert_eq!(left, [0, 1, 2, 3, 4, 5, 9, 13]);
    host.want(0);
    let said = step(&mut device, &host, &mut kernel);
    assert_eq!(said, "0x400000 of 0x1000000 bytes are in use: in use");
    assert_eq!(kernel.bytes(), 2 * PIECE);
    // Once they are free they go, and the lowest come again.
    kernel.in_use.clear();
    assert_eq!(step(&mut device, &host, &mut kernel), "0 MiB");
    host.want(6);
    step(&mut device, &host, &mut kernel);
    let left: Vec<u64> = kernel.used.iter().map(|at| (at - START) / PIECE).collect();
    assert_eq!(left, [0, 1, 2]);
}

#[test]
fn requests_have_at_most_so_many_blocks() {
    let shared = SharedMemory::new();
    let host = Host::new(&shared, 4096);
    // 2^17 blocks of 4 KiB, 512 a unit.
    host.set(24, 512 * MIB);
    host.set(32, 512 * MIB);
    let (mut device, mut kernel) = (host.resizable(PIECE), Kernel::default());
    host.want(512);
    assert_eq!(step(&mut device, &host, &mut kernel), "512 MiB");
    let board = host.board.borrow();
    let plugs: Vec<u64> = board
        .requests
        .iter()
        .filter(|words| words[0] == 0)
        .map(|words| words[2])
        .collect();
    assert_eq!(plugs, [127 * 512, 127 * 512, 2 * 512]);
}

#[test]
fn memory_that_the_kernel_refuses_is_unplugged() {
    let shared = SharedMemory::new();
    let host = Host::new(&shared, PIECE);
    let (mut device, mut kernel) = (host.resizable(PIECE), Kernel::default());
    host.want(8);
    kernel.limit = Some(0);
    assert_eq!(step(&mut device, &host, &mut kernel), "outside");
    assert_eq!(host.plugged(), 0);
    // It is not tried again before the host wants something else.
    let requests = host.board.borrow().requests.len();
    assert_eq!(step(&mut device, &host, &mut kernel), "0 MiB");
    assert_eq!(host.board.borrow().requests.len(), requests);
    // Neither wants it: it waits until the device takes it.
    host.want(10);
    host.habit(Habit::Answers(1, 2));
    assert!(step(&mut device, &host, &mut kernel).contains("BUSY"));
    assert_eq!(host.plugged(), 10 * MIB);
    host.habit(Habit::Honest);
    kernel.limit = None;
    assert_eq!(step(&mut device, &host, &mut kernel), "10 MiB");
}

#[test]
fn of_memory_that_the_kernel_refuses_the_first_part_is_used() {
    let shared = SharedMemory::new();
    let host = Host::new(&shared, PIECE);
    let (mut device, mut kernel) = (host.resizable(PIECE), Kernel::default());
    kernel.limit = Some(START + 11 * PIECE);
    host.want(100);
    assert_eq!(step(&mut device, &host, &mut kernel), "outside");
    assert_eq!((kernel.bytes(), host.plugged()), (11 * PIECE, 11 * PIECE));
    assert_eq!(step(&mut device, &host, &mut kernel), "22 MiB");
    assert_eq!(kernel.unplugged, [], "nothing that was used is gone");
    host.want(20);
    assert_eq!(step(&mut device, &host, &mut kernel), "20 MiB");
    assert_eq!(kernel.unplugged, [(START + 10 * PIECE, PIECE)]);
}

#[test]
fn what_a_kernel_before_plugged_is_unplugged_first() {
    let shared = SharedMemory::new();
    let host = Host::new(&shared, PIECE);
    host.want(8);
    let (mut before, mut kernel) = (host.resizable(PIECE), Kernel::default());
    step(&mut before, &host, &mut kernel);
    drop(before);
    // Refused, it is tried again, and block by block.
    host.habit(Habit::Answers(2, 2));
    let mut busy = host.resizable(PIECE);
    assert_eq!((host.plugged(), busy.used_bytes()), (8 * MIB, 0));
    assert_eq!(step(&mut busy, &host, &mut Kernel::default()), "8 MiB");
    host.habit(Habit::Honest);
    let mut after = host.resizable(PIECE);
    assert_eq!((host.plugged(), after.used_bytes()), (0, 0));
    assert_eq!(step(&mut after, &host, &mut Kernel::default()), "8 MiB");
}

#[test]
fn the_node_is_told_by_devices_that_know_it() {
    let shared = SharedMemory::new();
    let host = Host::new(&shared, PIECE);
    assert_eq!(host.device().config().unwrap().domain, Some(1));
    host.fake.seen.borrow_mut().offered &= !1;
    assert_eq!(host.device().config().unwrap().domain, None);
}
