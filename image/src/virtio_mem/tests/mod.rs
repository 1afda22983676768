//! A device that plugs and unplugs, refuses and lies, and a kernel that does so: [`Host`], [`Kernel`].

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

mod sizes;
mod wrong;

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
