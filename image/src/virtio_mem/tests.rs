//! A device that plugs and unplugs, refuses and lies, and a kernel that does so.

extern crate std;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use super::*;
use crate::virtio::fake::{Fake, Manner, patience};
use crate::virtio::{QueueAddresses, VirtioError};

const AT: u64 = 0x5000;
const MIB: u64 = 1 << 20;
const START: u64 = 0x1_4000_0000;

/// What a device does with its next requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Habit {
    #[default]
    Honest,
    /// Answers every request of this number with this kind.
    Answers(u64, u16),
    /// Says yes to requests of this number and does nothing.
    Idles(u64),
    /// Writes so many bytes.
    Short(u32),
    /// Says this of the state of anything.
    State(u16),
    /// Does not unplug the block there.
    Stays(u64),
}

/// The state of the memory device.
#[derive(Default)]
struct Board {
    habit: Habit,
    plugged: BTreeSet<u64>,
    /// Kind, first block and blocks.
    requests: Vec<[u64; 3]>,
}

#[derive(Clone)]
struct Host<'s> {
    fake: Fake<'s>,
    shared: &'s SharedMemory,
    block: u64,
    board: Rc<RefCell<Board>>,
}

impl<'s> Host<'s> {
    /// 64 blocks of `block` bytes, with none plugged.
    fn new(shared: &'s SharedMemory, block: u64) -> Self {
        let fake = Fake::new(3, vec![&shared.ring]);
        fake.seen.borrow_mut().kind = KIND;
        fake.seen.borrow_mut().written = 10;
        let host = Self {
            fake,
            shared,
            block,
            board: Rc::default(),
        };
        host.set(0, block);
        host.set(8, 1);
        host.set(16, START);
        host.set(24, 64 * block);
        host.set(32, 64 * block);
        host
    }

    fn set(&self, at: usize, value: u64) {
        let [low, high] = [value, value >> 32].map(|half| (half & 0xffff_ffff) as u32);
        let config = &mut self.fake.seen.borrow_mut().config;
        (config[at / 4], config[at / 4 + 1]) = (low, high);
    }

    fn want(&self, mib: u64) {
        self.set(48, mib * MIB);
    }

    fn habit(&self, habit: Habit) {
        self.board.borrow_mut().habit = habit;
    }

    fn plugged(&self) -> u64 {
        self.board.borrow().plugged.len() as u64 * self.block
    }

    fn device(&self) -> MemDevice<'s, Self> {
        MemDevice::new(self.clone(), patience(), self.shared, AT).unwrap()
    }

    fn resizable(&self, least: u64) -> Resizable<'s, Self> {
        Resizable::new(self.device(), least, list).unwrap()
    }

    /// Does what the driver requested.
    fn serve(&self) {
        let mut board = self.board.borrow_mut();
        let words: Vec<u64> = self
            .shared
            .request
            .iter()
            .map(|at| at.load(Relaxed))
            .collect();
        let [kind, start, count] = words[..] else {
            panic!()
        };
        let block = self.block;
        let blocks: Vec<u64> = (0..count).map(|at| start + at * block).collect();
        let first = start.saturating_sub(START) / block;
        board.requests.push([kind, first, count]);
        let has = |at: &&u64| board.plugged.contains(at);
        let there = blocks.iter().filter(has).count() as u64;
        let state = match there {
            0 => 1,
            _ if there == count => 0,
            _ => 2,
        };
        let habit = board.habit;
        let mut answer = match kind {
            0 if there == 0 => 0,
            1 if blocks.iter().any(|at| board.habit == Habit::Stays(*at)) => 3,
            1 if there == count => 0,
            2 | 3 => 0,
            _ => 3,
        };
        if let Habit::Answers(of, with) = habit
            && of == kind
        {
            answer = with;
        }
        if answer == 0 && habit != Habit::Idles(kind) {
            match kind {
                0 => board.plugged.extend(blocks),
                1 => board.plugged.retain(|at| !blocks.contains(at)),
                2 => board.plugged.clear(),
                _ => {}
            }
        }
        let state = match habit {
            Habit::State(state) => state,
            _ => state,
        };
        self.shared.answer[0].store(answer.into(), Relaxed);
        self.shared.answer[1].store(state.into(), Relaxed);
        let written = if let Habit::Short(bytes) = habit {
            bytes
        } else {
            10
        };
        self.fake.seen.borrow_mut().written = written;
        drop(board);
        self.set(40, self.plugged());
    }
}

impl Transport for Host<'_> {
    fn kind(&self) -> u32 {
        self.fake.kind()
    }
    fn status(&self) -> u8 {
        self.fake.status()
    }
    fn set_status(&mut self, status: u8) {
        self.fake.set_status(status);
    }
    fn offered(&mut self) -> u64 {
        self.fake.offered()
    }
    fn choose(&mut self, features: u64) {
        self.fake.choose(features);
    }
    fn capacity(&mut self, queue: u16) -> u16 {
        self.fake.capacity(queue)
    }
    fn set_queue(&mut self, queue: u16, size: u16, at: QueueAddresses) -> Result<(), VirtioError> {
        self.fake.set_queue(queue, size, at)
    }
    fn notify(&mut self, queue: u16) {
        self.serve();
        self.fake.notify(queue);
    }
    fn generation(&self) -> u32 {
        self.fake.generation()
    }
    fn config(&self, at: u32) -> Option<u32> {
        self.fake.config(at)
    }
    fn set_config(&mut self, at: u32, value: u32) {
        self.fake.set_config(at, value);
    }
}

fn list<'l>(count: usize) -> Option<&'l mut [Unit]> {
    Some(vec![Unit::Used; count].leak())
}

/// Why there is nothing to follow.
fn refused(host: &Host<'_>, least: u64) -> MemError {
    Resizable::new(host.device(), least, list).err().unwrap()
}

/// A kernel: the blocks of 2 MiB that it uses, and some of them that are in use.
#[derive(Default)]
struct Kernel {
    used: BTreeSet<u64>,
    in_use: BTreeSet<u64>,
    /// It has use for what is below this alone.
    limit: Option<u64>,
    unplugged: Vec<(u64, u64)>,
}

const PIECE: u64 = 2 * MIB;

fn pieces(range: PhysRange) -> impl Iterator<Item = u64> {
    let count = range.bytes() / PIECE;
    (0..count).map(move |at| range.start().get() + at * PIECE)
}

impl Memory for Kernel {
    type Why = &'static str;

    fn add(&mut self, range: PhysRange) -> Result<(), &'static str> {
        if self.limit.is_some_and(|limit| range.end().get() > limit) {
            return Err("outside");
        }
        for piece in pieces(range) {
            assert!(self.used.insert(piece), "{piece:#x} twice");
        }
        Ok(())
    }

    fn remove(&mut self, range: PhysRange) -> Result<(), &'static str> {
        if pieces(range).any(|piece| self.in_use.contains(&piece)) {
            return Err("in use");
        }
        for piece in pieces(range) {
            assert!(self.used.remove(&piece), "{piece:#x} was not added");
        }
        Ok(())
    }

    fn is_in_use(why: &&'static str) -> bool {
        *why == "in use"
    }

    fn unplugged(&mut self, range: PhysRange) {
        assert!(pieces(range).all(|piece| !self.used.contains(&piece)));
        self.unplugged.push((range.start().get(), range.bytes()));
    }
}

impl Kernel {
    fn bytes(&self) -> u64 {
        self.used.len() as u64 * PIECE
    }
}

/// What a step of `device` says, and that nothing is used that is not plugged.
fn step(device: &mut Resizable<'_, Host<'_>>, host: &Host<'_>, kernel: &mut Kernel) -> String {
    let said = match device.follow(kernel) {
        Ok(bytes) => std::format!("{} MiB", bytes / MIB),
        Err(fault) => fault.to_string(),
    };
    let board = host.board.borrow();
    let is_plugged = |at: &u64| {
        board
            .plugged
            .range(..=at)
            .next_back()
            .is_some_and(|from| at - from < host.block)
    };
    assert!(kernel.used.iter().all(is_plugged), "{said}");
    assert_eq!(kernel.bytes(), device.used_bytes(), "{said}");
    said
}

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

#[test]
fn the_node_is_told_by_devices_that_know_it() {
    let shared = SharedMemory::new();
    let host = Host::new(&shared, PIECE);
    assert_eq!(host.device().config().unwrap().domain, Some(1));
    host.fake.seen.borrow_mut().offered &= !1;
    assert_eq!(host.device().config().unwrap().domain, None);
}
