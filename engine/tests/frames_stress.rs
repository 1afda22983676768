//! Threads over all operations of the allocator, with an owner's mark on every frame.
//!
//! Every few seconds all threads meet: everything is recounted, and what is free, held and
//! in magazines must add up to the machine. A second of it runs with the other tests;
//! `make stress MINUTES=120` is the long run. To add an operation, add a row to
//! [`OPERATIONS`]; to add a machine, one to [`machines`].
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may stop on what it did not expect, and says how far it is"
)]

mod kit;

use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant, SystemTime};

use firstlight::addr::{Frame, FrameRange, Order};
use firstlight::frames::{AllocError, AskCpus, Asked, Cpu, CpuSlot, Frames, Request, Statistics};
use firstlight::node::{NodeId, ZoneKind};
use kit::{GIB, MIB, Machine, range};

type Operation = (u32, &'static str, fn(&mut Worker<'_>));

/// How often beside the others, the name it is counted by, what is done.
const OPERATIONS: &[Operation] = &[
    (300, "allocate", |worker| worker.allocate(true)),
    (250, "free", |worker| worker.free(true)),
    (60, "allocate past the magazines", |worker| {
        worker.allocate(false);
    }),
    (60, "free past the magazines", |worker| worker.free(false)),
    (20, "claim", |worker| worker.claim()),
    (20, "free a part", |worker| worker.free_part()),
    (30, "hand over", |worker| worker.hand_over()),
    (30, "free what others had", |worker| worker.take_over()),
    (4, "many at a time", |worker| worker.bulk()),
    (4, "fill and empty magazines", |worker| worker.burst()),
    (3, "claim a range", |worker| worker.claim_range()),
    (2, "find a range", |worker| worker.find_range()),
    (1, "isolate", |worker| worker.isolate()),
    (4, "poll", |worker| worker.cpu().poll()),
    (2, "drain", |worker| worker.cpu().drain().unwrap()),
    (1, "leave and come back", |worker| worker.leave()),
];

/// Blocks a thread keeps, at most.
const HELD: usize = 3000;
/// Operations between two looks at the clock.
const SLICE: u32 = 200;
/// Meetings on one machine, before all is given back and the next machine's turn.
const MEETINGS: u32 = 3;

/// Waits for answers, but not for ever: who waits for a meeting does not answer.
struct Wait;

impl AskCpus for Wait {
    fn ask(&self, asked: &Asked<'_>) {
        for _ in 0..50 {
            if asked.owed_frames() == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// A machine, and whose its frames are.
struct Yard {
    name: &'static str,
    frames: Frames<'static>,
    memory: Vec<FrameRange>,
    nodes: u16,
    /// Orders that are asked for.
    orders: &'static [u8],
    at_start: Statistics,
    owners: Vec<AtomicU32>,
    /// Blocks on their way from one thread to another.
    post: Mutex<Vec<(Frame, Order)>>,
    held_frames: AtomicU64,
    in_magazines: AtomicU64,
}

fn machines(threads: usize) -> [Yard; 2] {
    let small = [
        (0, 0x1000, 0x9f000),
        // A hole of 16 pages, in the middle of a word of a bitmap.
        (0, MIB, 40 * MIB + 0x10_0000),
        (0, 40 * MIB + 0x11_0000, 64 * MIB + 0x3000),
        (1, 65 * MIB, 130 * MIB),
    ];
    let large = [
        (0, MIB, 3 * GIB),
        (0, 4 * GIB, 6 * GIB + 0x7000),
        (1, 6 * GIB + 5 * MIB, 9 * GIB),
    ];
    let pages = &[0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 6, 7, 8, 9, 9, 10];
    let blocks = &[0, 0, 0, 0, 0, 1, 2, 4, 6, 7, 8, 9, 9, 9, 10, 11, 13, 17, 18];
    [
        Yard::new("small machine", threads, pages, &small),
        Yard::new("large machine", threads, blocks, &large),
    ]
}

impl Yard {
    fn new(
        name: &'static str,
        threads: usize,
        orders: &'static [u8],
        memory: &[(u16, u64, u64)],
    ) -> Self {
        let slots: Vec<_> = (0..threads).map(|_| CpuSlot::new()).collect();
        let rows = memory
            .iter()
            .map(|&(node, start, end)| (node, range(start, end)));
        let rows: Vec<_> = rows.collect();
        let frames = Machine::new(&rows).frames().with_cpus(slots.leak(), &Wait);
        let memory = memory.iter().map(|&(_, start, end)| {
            FrameRange::new(start / 4096, end / 4096).expect("ascending pages")
        });
        let memory: Vec<_> = memory.collect();
        let end = memory.last().unwrap().end().get();
        Self {
            name,
            at_start: frames.statistics(),
            frames,
            memory,
            nodes: rows.iter().map(|row| row.0 + 1).max().unwrap(),
            orders,
            owners: (0..end).map(|_| AtomicU32::new(0)).collect(),
            post: Mutex::default(),
            held_frames: AtomicU64::new(0),
            in_magazines: AtomicU64::new(0),
        }
    }

    /// Marks frames with another owner; of large blocks one in each word of a bitmap.
    fn mark(&self, frames: FrameRange, from: u32, to: u32) {
        let step = if is_marked_sparsely(frames.count()) {
            64
        } else {
            1
        };
        for frame in (frames.start().get()..frames.end().get()).step_by(step) {
            let old = self.owners[usize::try_from(frame).unwrap()].swap(to, Relaxed);
            assert_eq!(old, from, "frame {frame} of {frames} has another owner");
        }
    }

    /// While all threads wait: everything is recounted, and a refusal is the truth.
    fn check(&self, all_given_back: bool, order: Order) {
        self.frames.validate().unwrap();
        let now = self.frames.statistics();
        let posted = self.post.lock().unwrap();
        let posted: u64 = posted.iter().map(|block| block.1.frames()).sum();
        let held = self.held_frames.swap(0, Relaxed) + posted;
        let kept = self.in_magazines.swap(0, Relaxed);
        assert_eq!(now.free_frames + held + kept, self.at_start.free_frames);
        if all_given_back {
            assert_eq!((now, held, kept), (self.at_start, 0, 0));
        }
        let any_zone = |order| Request::new(order).zone(ZoneKind::Movable);
        match self.frames.allocate(any_zone(order).without_draining()) {
            Ok(frame) => self.frames.free(frame, order).unwrap(),
            Err(_) => assert_eq!(
                self.find_free(order),
                None,
                "refused, but free with {order}"
            ),
        }
        match self.frames.allocate(any_zone(Order::PAGE)) {
            Ok(frame) => self.frames.free(frame, Order::PAGE).unwrap(),
            Err(AllocError::OutOfMemory { held_by_cpus, .. }) => {
                assert_eq!((now.free_frames, held_by_cpus), (0, kept));
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(self.frames.statistics(), now);
    }

    /// Looks at every frame for a free block.
    fn find_free(&self, order: Order) -> Option<u64> {
        let is_free = |frame| self.frames.is_allocated(Frame::new(frame)) == Some(false);
        self.memory.iter().find_map(|memory| {
            let size = order.frames();
            let first = memory.start().get().next_multiple_of(size);
            let mut starts = (first..memory.end().get())
                .step_by(usize::try_from(size).unwrap())
                .filter(|start| start + size <= memory.end().get());
            starts.find(|&start| (start..start + size).all(is_free))
        })
    }
}

/// Until when threads run, and what then.
#[derive(Clone, Copy)]
struct Round {
    end: Instant,
    give_back_all: bool,
}

/// Where all threads meet.
struct Meeting {
    barrier: Barrier,
    round: Mutex<Round>,
    over: AtomicBool,
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The upper half: the lowest bits are the worst.
        (self.0 >> 32) % below.max(1)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let at = self.below(of.len() as u64);
        of[usize::try_from(at).unwrap()]
    }
}

/// One thread with its CPU and what it holds.
struct Worker<'y> {
    yard: &'y Yard,
    index: usize,
    name: u32,
    cpu: Option<Cpu<'y, 'static>>,
    held: Vec<(Frame, Order)>,
    random: Random,
    done: Vec<u64>,
}

const fn is_marked_sparsely(frames: u64) -> bool {
    frames > 4096
}

fn block(start: Frame, order: Order) -> FrameRange {
    FrameRange::new(start.get(), start.get() + order.frames()).unwrap()
}

impl<'y> Worker<'y> {
    fn new(yard: &'y Yard, index: usize, seed: u64) -> Self {
        let name = u32::try_from(index).unwrap() + 1;
        let seed = (seed + u64::from(name)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            yard,
            index,
            name,
            cpu: None,
            held: Vec::new(),
            random: Random(seed | 1),
            done: vec![0; OPERATIONS.len()],
        }
    }

    fn step(&mut self) {
        let all: u32 = OPERATIONS.iter().map(|operation| operation.0).sum();
        let mut at = u32::try_from(self.random.below(all.into())).unwrap();
        for (index, (often, _, operation)) in OPERATIONS.iter().enumerate() {
            if at < *often {
                self.done[index] += 1;
                return operation(self);
            }
            at -= often;
        }
    }

    fn cpu(&mut self) -> &mut Cpu<'y, 'static> {
        let (yard, index) = (self.yard, self.index);
        let node = NodeId(u16::try_from(self.random.below(yard.nodes.into())).unwrap());
        self.cpu
            .get_or_insert_with(|| yard.frames.cpu(index, node).unwrap())
    }

    fn request(&mut self) -> Request {
        let order = self.random.pick(self.yard.orders);
        let mut request = Request::new(Order::new(order).unwrap());
        if self.random.below(2) == 0 {
            request = request.movable();
        }
        match self.random.below(8) {
            0 => request = request.zone(ZoneKind::Dma32),
            1 => request = request.without_draining(),
            _ => {}
        }
        let node = NodeId(u16::try_from(self.random.below(self.yard.nodes.into())).unwrap());
        match self.random.below(8) {
            0 => request.on(node).exactly(),
            1 => request.on(node),
            _ => request,
        }
    }

    fn keep(&mut self, frame: Frame, order: Order) {
        self.yard.mark(block(frame, order), 0, self.name);
        self.held.push((frame, order));
    }

    fn some_held(&mut self) -> Option<(Frame, Order)> {
        let at = self.random.below(self.held.len() as u64);
        let at = usize::try_from(at).unwrap();
        (at < self.held.len()).then(|| self.held.swap_remove(at))
    }

    fn give(&mut self, (frame, order): (Frame, Order), owner: u32, magazines: bool) {
        self.yard.mark(block(frame, order), owner, 0);
        let freed = if magazines {
            self.cpu().free(frame, order)
        } else {
            self.yard.frames.free(frame, order)
        };
        freed.unwrap();
    }

    fn give_some(&mut self, count: usize) {
        for _ in 0..count {
            let Some(held) = self.some_held() else { return };
            self.give(held, self.name, true);
        }
    }

    fn allocate(&mut self, magazines: bool) {
        let request = self.request();
        let found = if magazines {
            self.cpu().allocate(request)
        } else {
            self.yard.frames.allocate(request)
        };
        match found {
            Ok(frame) => self.keep(frame, request.order()),
            Err(AllocError::OutOfMemory { .. }) => self.give_some(self.held.len() / 8),
            Err(error) => panic!("{error}"),
        }
        if self.held.len() > HELD {
            self.give_some(HELD / 2);
        }
    }

    fn free(&mut self, magazines: bool) {
        if let Some(held) = self.some_held() {
            self.give(held, self.name, magazines);
        }
    }

    fn some_frame(&mut self) -> u64 {
        let memory = self.random.pick(&self.yard.memory);
        memory.start().get() + self.random.below(memory.count())
    }

    fn claim(&mut self) {
        let order = Order::new(self.random.pick(self.yard.orders)).unwrap();
        let start = Frame::new(self.some_frame() & !(order.frames() - 1));
        if self.yard.frames.claim(start, order).is_ok() {
            self.keep(start, order);
        }
    }

    /// Splits a block in halves some times and frees one of them.
    fn free_part(&mut self) {
        let Some((mut frame, mut order)) = self.some_held() else {
            return;
        };
        for _ in 0..=self.random.below(4) {
            let Some(half) = order.get().checked_sub(1).and_then(Order::new) else {
                break;
            };
            // What was marked in a few places stays so.
            if is_marked_sparsely(order.frames()) != is_marked_sparsely(half.frames()) {
                break;
            }
            let other = Frame::new(frame.get() + half.frames());
            let (keep, split) = if self.random.below(2) == 0 {
                (frame, other)
            } else {
                (other, frame)
            };
            self.held.push((keep, half));
            (frame, order) = (split, half);
        }
        let magazines = self.random.below(2) == 0;
        self.give((frame, order), self.name, magazines);
    }

    fn hand_over(&mut self) {
        if let Some((frame, order)) = self.some_held() {
            let mut post = self.yard.post.lock().unwrap();
            self.yard.mark(block(frame, order), self.name, u32::MAX);
            post.push((frame, order));
        }
    }

    fn take_over(&mut self) {
        let taken = self.yard.post.lock().unwrap().pop();
        if let Some(taken) = taken {
            let magazines = self.random.below(4) > 0;
            self.give(taken, u32::MAX, magazines);
        }
    }

    fn bulk(&mut self) {
        let order = self.random.pick(&[0, 0, 0, 9, 3]);
        let order = Order::new(order).unwrap();
        let mut blocks = vec![Frame::new(0); usize::try_from(self.random.below(200)).unwrap()];
        let request = if self.random.below(2) == 0 {
            Request::new(order)
        } else {
            Request::new(order).movable()
        };
        let count = (self.yard.frames).allocate_bulk(request, &mut blocks);
        blocks.truncate(count.unwrap());
        for &frame in &blocks {
            self.yard.mark(block(frame, order), 0, self.name);
        }
        for &frame in &blocks {
            self.yard.mark(block(frame, order), self.name, 0);
        }
        if self.random.below(2) == 0 {
            blocks.sort_unstable();
        }
        self.yard.frames.free_bulk(&blocks, order).unwrap();
    }

    /// More pages than a magazine holds, freed in another order.
    fn burst(&mut self) {
        let request = Request::new(Order::PAGE);
        let mut pages = Vec::new();
        for _ in 0..self.random.below(400) {
            let Ok(page) = self.cpu().allocate(request) else {
                break;
            };
            self.yard.mark(block(page, Order::PAGE), 0, self.name);
            pages.push((page, Order::PAGE));
        }
        while !pages.is_empty() {
            let at = self.random.below(pages.len() as u64);
            let page = pages.swap_remove(usize::try_from(at).unwrap());
            self.give(page, self.name, true);
        }
    }

    fn claim_range(&mut self) {
        let start = self.some_frame();
        let frames = FrameRange::new(start, start + 1 + self.random.below(3000)).unwrap();
        if self.yard.frames.claim_range(frames).is_ok() {
            self.hold_for_a_moment(frames);
        }
    }

    fn find_range(&mut self) {
        let (count, align) = (1 + self.random.below(3000), 1 << self.random.below(11));
        let request = Request::new(Order::PAGE);
        if let Ok(frames) = (self.yard.frames).allocate_contiguous(count, align, request) {
            assert!(frames.start().get().is_multiple_of(align) && frames.count() == count);
            self.hold_for_a_moment(frames);
        }
    }

    fn hold_for_a_moment(&self, frames: FrameRange) {
        self.yard.mark(frames, 0, self.name);
        std::thread::yield_now();
        self.yard.mark(frames, self.name, 0);
        self.yard.frames.free_range(frames).unwrap();
    }

    fn isolate(&mut self) {
        let first = self.some_frame() & !511;
        let frames = FrameRange::new(first, first + 512 * (1 + self.random.below(4))).unwrap();
        // Refused at the edges of memory and where another thread isolates.
        if let Ok(isolation) = self.yard.frames.isolate(frames) {
            std::thread::yield_now();
            drop(isolation);
        }
    }

    fn leave(&mut self) {
        if let Some(mut cpu) = self.cpu.take() {
            // Nothing is freed twice here.
            cpu.drain().unwrap();
        }
    }

    /// Works until the end of the round, then says what it holds.
    fn run(&mut self, round: Round) {
        while Instant::now() < round.end {
            (0..SLICE).for_each(|_| self.step());
        }
        if round.give_back_all {
            self.give_some(self.held.len());
            while !self.yard.post.lock().unwrap().is_empty() {
                self.take_over();
            }
            self.leave();
        }
        let held = self.held.iter().map(|held| held.1.frames()).sum();
        self.yard.held_frames.fetch_add(held, Relaxed);
        let kept = self.cpu.as_ref().map_or(0, Cpu::held_frames);
        self.yard.in_magazines.fetch_add(kept, Relaxed);
    }
}

/// Ends the program when a thread stops on a failed check: the others would wait for it.
struct EndWith(u64);

impl Drop for EndWith {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!(
                "stress: FAILED; FIRSTLIGHT_STRESS_SEED={} repeats the choices",
                self.0
            );
            exit(101);
        }
    }
}

fn asked(name: &str, otherwise: u64) -> u64 {
    let asked = std::env::var(name).ok();
    asked.map_or(otherwise, |asked| asked.parse().expect("a number"))
}

/// One machine's turn: threads work and meet. Says what was done.
fn turn(yard: &Yard, threads: usize, seed: u64, each: Duration) -> Vec<u64> {
    let meeting = Meeting {
        barrier: Barrier::new(threads + 1),
        round: Mutex::new(Round {
            end: Instant::now() + each,
            give_back_all: false,
        }),
        over: AtomicBool::new(false),
    };
    let done = Mutex::new(vec![0; OPERATIONS.len()]);
    std::thread::scope(|scope| {
        for index in 0..threads {
            let (meeting, done) = (&meeting, &done);
            scope.spawn(move || {
                let _end = EndWith(seed);
                let mut worker = Worker::new(yard, index, seed);
                while !meeting.over.load(Relaxed) {
                    let round = *meeting.round.lock().unwrap();
                    worker.run(round);
                    meeting.barrier.wait();
                    meeting.barrier.wait();
                }
                let mut sum = done.lock().unwrap();
                sum.iter_mut()
                    .zip(worker.done)
                    .for_each(|(sum, done)| *sum += done);
            });
        }
        let _end = EndWith(seed);
        for count in 1..=MEETINGS {
            meeting.barrier.wait();
            let last = count == MEETINGS;
            let order = Order::new(u8::try_from((seed + u64::from(count)) % 10).unwrap()).unwrap();
            yard.check(last, order);
            *meeting.round.lock().unwrap() = Round {
                end: Instant::now() + each,
                give_back_all: count + 1 == MEETINGS,
            };
            meeting.over.store(last, Relaxed);
            meeting.barrier.wait();
        }
    });
    done.into_inner().unwrap()
}

fn stress(seconds: u64, each: Duration) {
    let threads = usize::try_from(asked("FIRSTLIGHT_STRESS_THREADS", 4)).unwrap();
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let seed = asked("FIRSTLIGHT_STRESS_SEED", now.as_secs());
    let _end = EndWith(seed);
    let (begin, yards) = (Instant::now(), machines(threads));
    let mut done = vec![0; OPERATIONS.len()];
    let mut turns = 0;
    while turns < yards.len() as u64 || begin.elapsed() < Duration::from_secs(seconds) {
        let yard = &yards[usize::try_from(turns).unwrap() % yards.len()];
        let more = turn(yard, threads, seed + turns * 1000, each);
        done.iter_mut()
            .zip(more)
            .for_each(|(sum, more)| *sum += more);
        turns += 1;
        let (all, elapsed) = (done.iter().sum::<u64>(), begin.elapsed().as_secs());
        println!(
            "stress: {elapsed:5} s, {}: {all} operations, all well",
            yard.name
        );
    }
    for ((_, name, _), count) in OPERATIONS.iter().zip(&done) {
        println!("stress: {count:12} {name}");
    }
    println!(
        "stress: {} operations of {threads} threads, {} checkpoints, {} s, seed {seed}",
        done.iter().sum::<u64>(),
        turns * u64::from(MEETINGS),
        begin.elapsed().as_secs()
    );
}

#[test]
fn a_second_of_everything_at_once() {
    stress(0, Duration::from_millis(if cfg!(miri) { 1 } else { 150 }));
}

#[test]
#[ignore = "minutes: make stress"]
fn as_long_as_asked() {
    stress(
        asked("FIRSTLIGHT_STRESS_SECONDS", 60),
        Duration::from_secs(2),
    );
}
