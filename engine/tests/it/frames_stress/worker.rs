//! One thread with its CPU: what it does.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use firstlight::addr::{Frame, FrameRange, Order};
use firstlight::frames::{AllocError, Cpu, Request};
use firstlight::node::{NodeId, ZoneKind};

use crate::frames_stress::Round;
use crate::frames_stress::yard::{Yard, is_marked_sparsely};

pub(crate) type Operation = (u32, &'static str, fn(&mut Worker<'_>));

/// How often beside the others, the name it is counted by, what is done.
pub(crate) const OPERATIONS: &[Operation] = &[
    (300, "allocate", |worker| worker.allocate(true)),
    (250, "free", |worker| worker.free(true)),
    (60, "allocate past the cache", |worker| {
        worker.allocate(false);
    }),
    (60, "free past the cache", |worker| worker.free(false)),
    (20, "allocate at", |worker| worker.allocate_at()),
    (20, "free a part", |worker| worker.free_part()),
    (30, "hand over", |worker| worker.hand_over()),
    (30, "free what others had", |worker| worker.take_over()),
    (4, "many at a time", |worker| worker.bulk()),
    (4, "fill and empty the cache", |worker| worker.burst()),
    (3, "allocate a range", |worker| worker.allocate_range()),
    (2, "find a range", |worker| worker.find_range()),
    (1, "isolate", |worker| worker.isolate()),
    (2, "memory comes or goes", |worker| worker.come_or_go()),
    (4, "poll", |worker| worker.cpu().poll()),
    (2, "drain", |worker| worker.cpu().drain().unwrap()),
    (1, "close the CPU and start again", |worker| worker.leave()),
];

/// Blocks a thread keeps, at most.
const HELD: usize = 3000;
/// Operations between two reads of the clock.
const SLICE: u32 = 200;

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The upper half: the lowest bits are the worst.
        (self.0 >> 32) % below.max(1)
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let at = self.below(of.len() as u64);
        of[usize::try_from(at).unwrap()]
    }
}

/// One thread with its CPU and what it holds.
pub(crate) struct Worker<'y> {
    pub(crate) yard: &'y Yard,
    index: usize,
    name: u32,
    cpu: Option<Cpu<'y, 'static>>,
    held: Vec<(Frame, Order)>,
    pub(crate) random: Random,
    pub(crate) done: Vec<u64>,
}

fn block(start: Frame, order: Order) -> FrameRange {
    FrameRange::new(start.get(), start.get() + order.frames()).unwrap()
}

impl<'y> Worker<'y> {
    pub(crate) fn new(yard: &'y Yard, index: usize, seed: u64) -> Self {
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

    pub(crate) fn cpu(&mut self) -> &mut Cpu<'y, 'static> {
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
            1 => request = request.no_drain(),
            2 => request = request.zone(ZoneKind::Movable),
            _ => {}
        }
        let node = NodeId(u16::try_from(self.random.below(self.yard.nodes.into())).unwrap());
        match self.random.below(8) {
            0 => request.only_on(node),
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

    fn free_block(&mut self, (frame, order): (Frame, Order), owner: u32, cached: bool) {
        self.yard.mark(block(frame, order), owner, 0);
        let freed = if cached {
            self.cpu().free(frame, order)
        } else {
            self.yard.frames.free(frame, order)
        };
        freed.unwrap();
    }

    fn free_some(&mut self, count: usize) {
        for _ in 0..count {
            let Some(held) = self.some_held() else { return };
            self.free_block(held, self.name, true);
        }
    }

    fn allocate(&mut self, cached: bool) {
        let request = self.request();
        let found = if cached {
            self.cpu().allocate(request)
        } else {
            self.yard.frames.allocate(request)
        };
        match found {
            Ok(frame) => self.keep(frame, request.order()),
            Err(AllocError::OutOfMemory { .. }) => self.free_some(self.held.len() / 8),
            Err(error) => panic!("{error}"),
        }
        if self.held.len() > HELD {
            self.free_some(HELD / 2);
        }
    }

    fn free(&mut self, cached: bool) {
        if let Some(held) = self.some_held() {
            self.free_block(held, self.name, cached);
        }
    }

    pub(crate) fn some_frame(&mut self) -> u64 {
        let memory = self.random.pick(&self.yard.memory);
        memory.start().get() + self.random.below(memory.count())
    }

    fn allocate_at(&mut self) {
        let order = Order::new(self.random.pick(self.yard.orders)).unwrap();
        let start = Frame::new(self.some_frame() & !(order.frames() - 1));
        let (frames, all) = (&self.yard.frames, block(start, order));
        if frames.allocate_range(all).is_err() {
            return;
        }
        // In a window its quarters may be of several zones, on the large machine DIMMs: no block then.
        let quarter = |number| Frame::new(start.get() + number * order.frames() / 4);
        let zones = [0, 1, 2, 3].map(|number| frames.zone_of(quarter(number)));
        if zones.iter().all(|zone| *zone == zones[0]) {
            self.keep(start, order);
        } else {
            self.hold_for_a_moment(all);
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
            // Blocks that were marked sparsely stay so.
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
        let cached = self.random.below(2) == 0;
        self.free_block((frame, order), self.name, cached);
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
            let cached = self.random.below(4) > 0;
            self.free_block(taken, u32::MAX, cached);
        }
    }

    fn bulk(&mut self) {
        let order = self.random.pick(&[0, 0, 0, Order::HUGE.get(), 3]);
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

    /// More pages than a list holds, freed in another order.
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
            self.free_block(page, self.name, true);
        }
    }

    fn allocate_range(&mut self) {
        let start = self.some_frame();
        let frames = FrameRange::new(start, start + 1 + self.random.below(3000)).unwrap();
        if self.yard.frames.allocate_range(frames).is_ok() {
            self.hold_for_a_moment(frames);
        }
    }

    fn find_range(&mut self) {
        let (count, align) = (1 + self.random.below(3000), 1 << self.random.below(11));
        let request = Request::new(Order::PAGE);
        if let Ok(frames) = (self.yard.frames).allocate_frames(count, align, request) {
            assert!(frames.start().get().is_multiple_of(align) && frames.count() == count);
            self.hold_for_a_moment(frames);
        }
    }

    pub(crate) fn hold_for_a_moment(&self, frames: FrameRange) {
        self.yard.mark(frames, 0, self.name);
        std::thread::yield_now();
        self.yard.mark(frames, self.name, 0);
        self.yard.frames.free_frames(frames).unwrap();
    }

    fn leave(&mut self) {
        if let Some(cpu) = self.cpu.take() {
            // Nothing is freed twice here.
            cpu.close().unwrap();
        }
    }

    /// Works until the end of the round, then says what it holds.
    pub(crate) fn run(&mut self, round: Round) {
        while Instant::now() < round.end {
            (0..SLICE).for_each(|_| self.step());
        }
        if round.free_all {
            self.free_some(self.held.len());
            while !self.yard.post.lock().unwrap().is_empty() {
                self.take_over();
            }
            self.leave();
        }
        let held = self.held.iter().map(|held| held.1.frames()).sum();
        self.yard.cached_frames.fetch_add(held, Relaxed);
        let kept = self.cpu.as_ref().map_or(0, Cpu::cached_frames);
        self.yard.in_caches.fetch_add(kept, Relaxed);
    }
}
