//! The content of every frame beside what the allocator believes of it.
//!
//! The model is one `bool` a frame: whether it holds zeros. Owners write to what they have, a
//! worker and the kernel's hook zero, unless it refuses, and a device may or may not bring back
//! zeros. Whatever is handed out to a request for zeros must hold zeros; what is known is never
//! zeroed again; a request that fails leaves what is known as it was; and at the end all that is
//! believed to be zero is taken, without a kernel that zeroes.
//!
//! Beside it, a frame each, what it was last said to hold, as far as that was said of its whole huge
//! frame, and whether the hook zeroed it for the request in progress: from that alone follow the sums
//! of hits and misses, and what was wasted.

use crate::kit;

use std::sync::Mutex;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysAddr, PhysRange};
use firstlight::frames::{
    AllocError, BlockError, Content, Cpu, Cursor, Frames, Hooks, NewMemory, Request, Statistics,
    ZeroedFrames,
};
use firstlight::node::NodeId;
use firstlight::zeroing::{Memory, Zeroing};

use proptest::prelude::*;

const GIANT: u64 = 1 << 18;
/// Frames of the machine: one giant frame whole, others cut.
const START: u64 = 5 * GIANT - 700;
const END: u64 = if cfg!(miri) {
    START + 2000
} else {
    7 * GIANT + 3
};
/// Not added.
const HOLE: (u64, u64) = (6 * GIANT + 1000, 6 * GIANT + 1536);

#[derive(Clone, Copy, Debug)]
enum Back {
    AsItBecame,
    As(Content),
    Dropped,
    /// Held for long before.
    Held,
    /// Kept for good, and freed later by its owner.
    Leaked,
}

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        order: u8,
        zeroed: bool,
        cached: bool,
    },
    Row {
        frames: u64,
        zeroed: bool,
    },
    At {
        frame: u64,
        order: u8,
    },
    /// Frees a part of what is held; as zero, if it is or is zeroed before.
    Free {
        pick: usize,
        order: u8,
        part: u64,
        how: u8,
        cached: bool,
    },
    /// A worker's step: what it looks for, what it makes of that, and what it says.
    Borrow {
        order: u8,
        content: Content,
        becomes: Content,
        back: Back,
        /// Another call frees some of it meanwhile.
        wild: bool,
    },
    Isolate {
        frame: u64,
        take: bool,
    },
    Drain,
    Promise(bool),
    /// Whether the kernel zeroes from now on.
    Zeroes(bool),
}

fn orders() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(0u8), 3 => 1u8..=8, 4 => Just(9u8), 2 => 10u8..=17, 1 => Just(18u8)]
}

/// Where memory begins and ends too.
fn places() -> impl Strategy<Value = u64> {
    prop_oneof![START..END, START..START + 600, END - 100..END]
}

fn contents() -> impl Strategy<Value = Content> {
    prop_oneof![
        3 => Just(Content::Unknown),
        2 => Just(Content::Zero),
        1 => Just(Content::Reported)
    ]
}

fn backs() -> impl Strategy<Value = Back> {
    prop_oneof![
        5 => Just(Back::AsItBecame),
        2 => contents().prop_map(Back::As),
        1 => Just(Back::Dropped),
        1 => Just(Back::Held),
        1 => Just(Back::Leaked),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (orders(), any::<bool>(), any::<bool>())
            .prop_map(|(order, zeroed, cached)| Step::Allocate { order, zeroed, cached }),
        1 => (1u64..3000, any::<bool>()).prop_map(|(frames, zeroed)| Step::Row { frames, zeroed }),
        1 => (places(), orders()).prop_map(|(frame, order)| Step::At { frame, order }),
        7 => (any::<usize>(), orders(), any::<u64>(), 0u8..4, any::<bool>()).prop_map(
            |(pick, order, part, how, cached)| Step::Free { pick, order, part, how, cached }
        ),
        5 => (9u8..=18, contents(), contents(), backs(), prop::bool::weighted(0.1)).prop_map(
            |(order, content, becomes, back, wild)| Step::Borrow { order, content, becomes, back, wild }
        ),
        1 => (places(), any::<bool>()).prop_map(|(frame, take)| Step::Isolate { frame, take }),
        1 => Just(Step::Drain),
        1 => any::<bool>().prop_map(Step::Promise),
        1 => prop::bool::weighted(0.7).prop_map(Step::Zeroes),
    ]
}

/// What each frame holds.
struct Truth {
    /// Zeros.
    zero: Vec<bool>,
    /// What it was said to hold when it became free.
    said: Vec<Content>,
    /// Frames that were said to be zero.
    said_zero: u64,
    /// Frames said to be zero that went to other owners, were zeroed again, or are of huge frames of
    /// which a part was taken or given.
    wasted: u64,
    /// The hook zeroed it for the request in progress.
    zeroed: Vec<FrameRange>,
    /// Whether the kernel zeroes.
    zeroes: bool,
}

fn index(range: FrameRange) -> core::ops::Range<usize> {
    let index = |frame: Frame| usize::try_from(frame.get() - START).unwrap();
    index(range.start())..index(range.end())
}

impl Truth {
    fn of(&mut self, range: FrameRange) -> &mut [bool] {
        &mut self.zero[index(range)]
    }

    /// It is said to hold this now; frames that were said to be zero.
    fn say(&mut self, range: FrameRange, content: Content) -> u64 {
        let said = &mut self.said[index(range)];
        let zeros = said.iter().filter(|said| **said == Content::Zero).count() as u64;
        said.fill(content);
        self.said_zero += u64::from(content == Content::Zero) * range.count();
        self.said_zero -= zeros;
        for edge in [range.start().get(), range.end().get() - 1] {
            let huge = FrameRange::new(edge >> 9 << 9, (edge >> 9 << 9) + 512).unwrap();
            if !range.covers(huge) {
                let memory = FrameRange::new(START, END).unwrap();
                let said = &mut self.said[index(huge.intersect(memory))];
                let lost = said.iter().filter(|said| **said == Content::Zero).count() as u64;
                said.fill(Content::Unknown);
                self.said_zero -= lost;
                self.wasted += lost;
            }
        }
        zeros
    }

    fn set(&mut self, range: FrameRange, zero: bool) {
        self.of(range).fill(zero);
    }

    fn is_zero(&mut self, range: FrameRange) -> bool {
        self.of(range).iter().all(|&zero| zero)
    }
}

/// Memory for the worker whose sums are compared; it zeroes nothing itself.
struct Unwritten;

// SAFETY: nothing is written or read.
unsafe impl Memory for Unwritten {
    unsafe fn zero(&self, _: FrameRange) {
        panic!("no worker runs here");
    }

    unsafe fn first_not_zero(&self, _: FrameRange) -> Option<PhysAddr> {
        None
    }
}

struct Kernel(Mutex<Truth>);

impl Hooks for Kernel {
    unsafe fn zero(&self, range: FrameRange) -> bool {
        let mut truth = self.0.lock().unwrap();
        if truth.zeroes {
            truth.zeroed.push(range);
            truth.set(range, true);
        }
        truth.zeroes
    }
}

struct State<'f> {
    frames: &'f Frames<'static>,
    kernel: &'static Kernel,
    cpu: Cpu<'f, 'static>,
    /// Of workers that make each content.
    cursors: [Cursor; 3],
    /// Blocks.
    held: Vec<(u64, u8)>,
    /// Huge frames that zero pages were cut from, and what each held: what the CPU cuts from is among them.
    cut: Vec<(FrameRange, Content)>,
    /// What the sums must be, as far as the model follows.
    sums: ZeroedFrames,
    follows: bool,
    zeroing: &'f Zeroing<'f, 'static, Unwritten>,
    /// What reported memory comes back as.
    device_zeroes: bool,
    promised: bool,
}

fn block(start: u64, order: u8) -> FrameRange {
    FrameRange::new(start, start + (1 << order)).unwrap()
}

/// The aligned blocks of a range.
fn blocks(range: FrameRange) -> Vec<(u64, u8)> {
    let (mut at, end) = (range.start().get(), range.end().get());
    let mut all = Vec::new();
    while at < end {
        let aligned = u8::try_from(at.trailing_zeros().min(18)).unwrap();
        let order = (0..=aligned).rev().find(|order| at + (1 << order) <= end);
        let order = order.unwrap();
        all.push((at, order));
        at += 1 << order;
    }
    all
}

impl State<'_> {
    fn truth(&self) -> std::sync::MutexGuard<'_, Truth> {
        self.kernel.0.lock().unwrap()
    }

    /// Frames that a request for zeros need not zero.
    fn known(&self) -> u64 {
        let seen = self.frames.statistics();
        seen.zero.frames
            + if self.promised {
                seen.reported.frames
            } else {
                0
            }
    }

    /// The owner of new memory looks, and writes.
    fn receive(&mut self, range: FrameRange, zeroed: bool, known: Option<u64>) {
        let now = self.known();
        let mut sums = ZeroedFrames::default();
        let mut truth = self.kernel.0.lock().unwrap();
        // What was zeroed for it, whatever it was said to hold.
        for zeroed in core::mem::take(&mut truth.zeroed) {
            assert!(range.covers(zeroed), "{zeroed} was zeroed for nothing");
            let zeros = truth.say(zeroed, Content::Unknown);
            truth.wasted += zeros;
            sums.missed += zeroed.count();
        }
        let by_hook = sums.missed;
        for said in &truth.said[index(range)] {
            sums.hit += u64::from(*said == Content::Zero);
            sums.reported += u64::from(*said == Content::Reported);
        }
        let hits = truth.say(range, Content::Unknown);
        if zeroed {
            assert!(truth.is_zero(range), "{range} is not zero");
            self.sums += sums;
        } else {
            assert_eq!(by_hook, 0, "{range} was zeroed for nothing");
            truth.wasted += hits;
        }
        if let (true, Some(before)) = (zeroed, known) {
            // What was known was not zeroed again.
            let more = before - now - (range.count() - by_hook);
            assert!(
                more < 1024 && (more == 0 || !range.count().is_multiple_of(512)),
                "{range}"
            );
        }
        // Every other frame.
        for zero in truth.of(range).iter_mut().step_by(2) {
            *zero = false;
        }
        drop(truth);
        self.held.extend(blocks(range));
    }

    /// The CPU has a zero page: what it cut before from the same block is not wasted.
    fn cut_zero(&mut self, page: Frame) {
        let huge = FrameRange::new(page.get() >> 9 << 9, (page.get() >> 9 << 9) + 512).unwrap();
        let mut truth = self.kernel.0.lock().unwrap();
        let one = FrameRange::new(page.get(), page.get() + 1).unwrap();
        let said = truth.said[index(one)][0];
        if said != Content::Unknown {
            self.cut.retain(|of| of.0 != huge);
            self.cut.push((huge, said));
        } else if let Some(&(_, held)) = self.cut.iter().find(|of| of.0 == huge)
            && truth.zeroed.is_empty()
        {
            truth.said[index(one)].fill(held);
            if held == Content::Zero {
                truth.said_zero += 1;
                truth.wasted -= 1;
            }
        }
    }

    /// A request failed: nothing is known better or worse.
    fn refused(&mut self, error: AllocError, request: Request, frames: u64, before: &Statistics) {
        let now = self.frames.statistics();
        // What of a row the host had brought back, before another part was not zero, is zero. Where
        // that is the model does not know.
        let brought_back = before.reported.frames - now.reported.frames;
        assert_eq!(now.zero.frames, before.zero.frames + brought_back);
        if brought_back > 0 {
            assert!(self.promised && frames > 1);
            self.follows = false;
        }
        let truth = self.truth();
        assert!(truth.zeroed.is_empty(), "zeroed for nothing");
        if let AllocError::NotZeroed { request: of } = error {
            assert_eq!(of, request);
            assert!(!truth.zeroes);
            let known = now.zero.frames + u64::from(self.promised) * now.reported.frames;
            assert!(frames > 1 || known == 0, "one of {known} was not found");
        }
    }

    /// The sums against the model's.
    fn check_sums(&self) {
        self.frames.validate().unwrap();
        if !self.follows {
            return;
        }
        assert_eq!(kit::zeroed_frames(self.frames, NodeId(0)), self.sums);
        let truth = self.truth();
        // What is said and not known was lost when it merged, or a CPU caches it.
        let lost = truth.said_zero - self.frames.statistics().zero.frames;
        let seen = self.zeroing.statistics();
        assert_eq!(seen.wasted_bytes, (truth.wasted + lost) * PAGE_BYTES);
        let bytes = [seen.hit_bytes, seen.reported_bytes, seen.missed_bytes];
        let sums = [self.sums.hit, self.sums.reported, self.sums.missed];
        assert_eq!(bytes, sums.map(|frames| frames * PAGE_BYTES));
    }

    fn step(&mut self, step: &Step) {
        let known = self.known();
        let before = self.frames.statistics();
        match *step {
            Step::Allocate {
                order,
                zeroed,
                cached,
            } => {
                let request = Request::new(Order::new(order).unwrap());
                let request = if zeroed { request.zeroed() } else { request };
                let found = if cached {
                    self.cpu.allocate(request)
                } else {
                    self.frames.allocate(request)
                };
                match found {
                    Ok(start) => {
                        // A cached request may fill lists.
                        let known = (!cached).then_some(known);
                        if cached && zeroed && order == 0 {
                            self.cut_zero(start);
                        }
                        self.receive(block(start.get(), order), zeroed, known);
                    }
                    Err(error) if !cached => {
                        let frames = request.order().frames();
                        self.refused(error, request, frames, &before);
                    }
                    Err(_) => {}
                }
            }
            Step::Row { frames, zeroed } => {
                let request = Request::new(Order::PAGE);
                let request = if zeroed { request.zeroed() } else { request };
                match self.frames.allocate_frames(frames, 1, request) {
                    Ok(row) => self.receive(row, zeroed, Some(known)),
                    Err(error) => self.refused(error, request, frames, &before),
                }
            }
            Step::At { frame, order } => {
                let start = frame >> order << order;
                let order_of = Order::new(order).unwrap();
                if self
                    .frames
                    .allocate_range(kit::block(Frame::new(start), order_of))
                    .is_ok()
                {
                    self.receive(block(start, order), false, None);
                }
            }
            Step::Free {
                pick,
                order,
                part,
                how,
                cached,
            } => self.free(pick, order, part, how, cached),
            Step::Borrow {
                order,
                content,
                becomes,
                back,
                wild,
            } => self.borrow(order, content, becomes, back, wild),
            Step::Isolate { frame, take } => {
                let start = frame >> 9 << 9;
                let range = FrameRange::new(start, start + 512).unwrap();
                if let Ok(isolation) = self.frames.isolate(range) {
                    self.cpu.poll();
                    if take && let Ok(taken) = isolation.take() {
                        // Up to where memory begins or ends.
                        let (start, end) = (taken.start().get(), taken.end().get());
                        let inside = FrameRange::new(start.max(START), end.min(END)).unwrap();
                        self.receive(inside, false, None);
                    }
                }
            }
            Step::Drain => self.cpu.drain().unwrap(),
            Step::Promise(promised) => {
                self.promised = promised && self.device_zeroes;
                self.frames.set_reported_is_zero(self.promised);
            }
            Step::Zeroes(zeroes) => self.truth().zeroes = zeroes,
        }
        self.check_sums();
    }

    fn free(&mut self, pick: usize, order: u8, part: u64, how: u8, cached: bool) {
        if self.held.is_empty() {
            return;
        }
        let (start, whole) = self.held.swap_remove(pick % self.held.len());
        let order = order.min(whole);
        let at = start + ((part % (1 << (whole - order))) << order);
        let freed = block(at, order);
        // What is left of it.
        let before = FrameRange::new(start, at).unwrap();
        let after = FrameRange::new(at + (1 << order), start + (1 << whole)).unwrap();
        self.held.extend(blocks(before));
        self.held.extend(blocks(after));
        if how == 0 {
            self.truth().set(freed, true);
        }
        let is_zero = self.truth().is_zero(freed);
        let (frame, order) = (Frame::new(at), Order::new(order).unwrap());
        match how {
            0 | 1 if is_zero => {
                self.frames
                    .free_frames_with(kit::block(frame, order), Content::Zero)
                    .unwrap();
                self.truth().say(freed, Content::Zero);
                self.sums.made += freed.count();
            }
            _ if cached => self.cpu.free(frame, order).unwrap(),
            _ => self.frames.free(frame, order).unwrap(),
        }
    }

    fn borrow(&mut self, order: u8, content: Content, becomes: Content, back: Back, wild: bool) {
        let order = Order::new(order).unwrap();
        // What an isolation requested of the cache it does now, not in between.
        self.cpu.poll();
        let before = self.frames.statistics();
        let cursor = &mut self.cursors[becomes as usize];
        let words = cursor.words();
        let found = self.frames.borrow_free(cursor, order, content, 2048);
        assert!(cursor.words() - words <= 2048);
        let Some(mut borrowed) = found else {
            assert_eq!(self.frames.statistics(), before);
            return;
        };
        let range = borrowed.range();
        assert_eq!(range.count(), order.frames());
        self.not_taken(range, false);
        let said = match back {
            Back::As(content) => content,
            Back::Dropped => Content::Unknown,
            _ => becomes,
        };
        let mut truth = self.kernel.0.lock().unwrap();
        if content == Content::Zero {
            assert!(truth.is_zero(range), "{range} is borrowed as zero");
        }
        match said {
            Content::Unknown => truth.set(range, false),
            Content::Zero => truth.set(range, true),
            Content::Reported => truth.set(range, self.device_zeroes),
        }
        let said = if wild || matches!(back, Back::Leaked) {
            Content::Unknown
        } else {
            said
        };
        let was_zero = truth.say(range, said);
        if (content, said) != (Content::Zero, Content::Zero) {
            truth.wasted += was_zero;
            self.sums.made += u64::from(said == Content::Zero) * range.count();
        }
        drop(truth);
        if wild {
            self.frames.free(range.start(), Order::PAGE).unwrap();
        }
        let result = match back {
            Back::Dropped => {
                drop(borrowed);
                None
            }
            Back::Leaked => {
                assert_eq!(borrowed.leak(), range);
                let seen = self.frames.statistics();
                let left = before.free_frames - range.count() + u64::from(wild);
                assert_eq!((seen.free_frames, seen.in_work_frames), (left, 0));
                None
            }
            Back::Held => {
                borrowed.hold();
                assert_eq!(self.frames.statistics().in_work_frames, 0);
                self.not_taken(range, wild);
                Some(borrowed.back(said))
            }
            Back::As(_) | Back::AsItBecame => Some(borrowed.back(said)),
        };
        let frame = range.start();
        let expected = if wild {
            Err(BlockError::FreedTwice { frame, order })
        } else {
            Ok(())
        };
        assert!(result.is_none_or(|result| result == expected), "{result:?}");
        if wild || matches!(back, Back::Leaked) {
            // It is its owner's, but for what another call freed.
            self.truth().set(range, false);
            let from = range.start().get() + u64::from(wild);
            self.held
                .extend(blocks(FrameRange::new(from, range.end().get()).unwrap()));
            return;
        }
        let now = self.frames.statistics();
        assert_eq!(now.free_frames, before.free_frames);
        let known = |seen: &Statistics| match said {
            Content::Unknown => 0,
            Content::Zero => seen.zero.frames,
            Content::Reported => seen.reported.frames,
        };
        let is_more = said != content && said != Content::Unknown;
        let more = u64::from(is_more) * range.count();
        assert_eq!(known(&now), known(&before) + more, "{range}");
    }

    /// What a worker has can't be taken by others, but for a page that was freed.
    fn not_taken(&self, range: FrameRange, wild: bool) {
        for at in [range.start().get() + u64::from(wild), range.end().get() - 1] {
            let taken = self
                .frames
                .allocate_range(kit::block(Frame::new(at), Order::PAGE));
            taken.unwrap_err();
        }
    }

    /// All that is believed to be zero is.
    fn take_all_zero(&mut self) {
        self.cpu.drain().unwrap();
        self.truth().zeroes = false;
        for order in [18, 17, 12, 9, 5, 1, 0] {
            let request = Request::new(Order::new(order).unwrap()).zeroed();
            loop {
                match self.frames.allocate(request) {
                    Ok(start) => self.receive(block(start.get(), order), true, None),
                    Err(AllocError::NotZeroed { .. } | AllocError::OutOfMemory { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert_eq!(self.known(), 0, "a page that is known to be zero is found");
        for (start, order) in core::mem::take(&mut self.held) {
            let order = Order::new(order).unwrap();
            self.frames.free(Frame::new(start), order).unwrap();
        }
        self.frames.validate().unwrap();
    }
}

/// A machine, some of it zero from the start.
fn run(steps: &[Step], is_zero: bool, device_zeroes: bool) {
    let span = FrameRange::new(START, END).unwrap();
    let tables = usize::try_from(Frames::bytes_for(span, 8).unwrap()).unwrap();
    let frames = Frames::over(span, Box::leak(Box::new_uninit_slice(tables))).unwrap();
    let count = usize::try_from(END - START).unwrap();
    let content = [Content::Unknown, Content::Zero][usize::from(is_zero)];
    let kernel: &'static Kernel = Box::leak(Box::new(Kernel(Mutex::new(Truth {
        zero: vec![is_zero; count],
        said: vec![content; count],
        said_zero: if is_zero { END - START } else { 0 },
        wasted: 0,
        zeroed: Vec::new(),
        zeroes: true,
    }))));
    let frames = kit::with_cpus(frames.with_hooks(kernel), 1);
    let zeroing = Zeroing::new(&frames, &Unwritten);
    let parts = if END > HOLE.1 {
        vec![(START, HOLE.0), (HOLE.1, END)]
    } else {
        vec![(START, END)]
    };
    if END > HOLE.1 {
        let hole = FrameRange::new(HOLE.0, HOLE.1).unwrap();
        kernel.0.lock().unwrap().say(hole, Content::Unknown);
    }
    for edge in [START, END - 1] {
        let frame = FrameRange::new(edge, edge + 1).unwrap();
        let mut truth = kernel.0.lock().unwrap();
        let zeros = truth.say(frame, Content::Unknown);
        truth.wasted += zeros;
    }
    for (start, end) in parts {
        let range = PhysRange::new(start * PAGE_BYTES, end * PAGE_BYTES).unwrap();
        frames.add(NewMemory::new(range).holds(content)).unwrap();
    }
    let before = frames.statistics();
    assert_eq!(before.zero.frames, kernel.0.lock().unwrap().said_zero);
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), before);
    let mut state = State {
        sums: ZeroedFrames {
            made: if is_zero { before.free_frames } else { 0 },
            ..ZeroedFrames::default()
        },
        follows: true,
        zeroing: &zeroing,
        frames: &frames,
        kernel,
        cpu: frames.cpu(0, NodeId(0)).unwrap(),
        cursors: [Content::Unknown, Content::Zero, Content::Reported]
            .map(|_| Cursor::new(NodeId(0))),
        cut: Vec::new(),
        held: Vec::new(),
        device_zeroes,
        promised: false,
    };
    steps.iter().for_each(|step| state.step(step));
    state.take_all_zero();
    drop(state);
    assert_eq!(frames.statistics().free_frames, before.free_frames);
    assert_eq!(frames.statistics().free_giants, before.free_giants);
}

fn cases() -> ProptestConfig {
    let set = std::env::var("FIRSTLIGHT_MODEL_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    ProptestConfig {
        cases: set.unwrap_or(if cfg!(miri) { 2 } else { 100 }),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn what_is_believed_to_be_zero_is(
        steps in prop::collection::vec(steps(), 1..if cfg!(miri) { 12 } else { 150 }),
        is_zero in any::<bool>(),
        device_zeroes in any::<bool>(),
    ) {
        run(&steps, is_zero, device_zeroes);
    }
}

/// A row for a kernel that zeroes nothing, of which the first part lies in a huge frame that is zero.
#[test]
fn a_refused_row_leaves_what_is_known_of_the_huge_frames_at_its_ends() {
    let allocate = |order, zeroed, cached| Step::Allocate {
        order,
        zeroed,
        cached,
    };
    let borrow = |order, back| Step::Borrow {
        order,
        content: Content::Unknown,
        becomes: Content::Zero,
        back,
        wild: false,
    };
    let zeros = allocate(9, true, false);
    let (page, row) = (allocate(0, true, false), |frames| Step::Row {
        frames,
        zeroed: true,
    });
    let steps = [
        borrow(12, Back::AsItBecame),
        borrow(9, Back::As(Content::Reported)),
        allocate(0, true, true),
        zeros.clone(),
        zeros.clone(),
        zeros,
        Step::Zeroes(false),
        page.clone(),
        page,
        row(1025),
    ];
    run(&steps, false, false);
}
