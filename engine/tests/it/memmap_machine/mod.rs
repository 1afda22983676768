//! Descriptors on whole machines: every one checked against the layout, in
//! every mode, alone and by many threads, and what is refused.

mod added;
mod hook;
use crate::kit;
mod linear;
mod workers;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use firstlight::addr::{Frame, FrameRange, PhysRange};
use firstlight::early::EarlyFlags;
use firstlight::layout::{Layout, SECTION_FRAMES};
use firstlight::memmap::{
    Descriptor, Memmap, MemmapError, MemmapPolicy, Mode, PageDescriptor, Part, Progress,
    SectionPlace, SectionState,
};
use firstlight::node::NodeId;
use firstlight::parallel::{Chunking, Job, WorkRange, Worker, Workers};
use firstlight::platform::Platform;
use kit::{GIB, MIB, Machine, TIB, Uninitialised, range};

/// 8 bytes, zero at first.
#[derive(Debug)]
struct Eight(AtomicU64);
// SAFETY: an atomic integer.
unsafe impl Descriptor for Eight {
    fn template(_: SectionPlace) -> Self {
        Self(AtomicU64::new(0))
    }
}

/// 16 bytes, never zero: its place, and a count.
#[derive(Debug)]
#[repr(C)]
struct Sixteen(AtomicU64, AtomicU64);
// SAFETY: atomic integers without padding.
unsafe impl Descriptor for Sixteen {
    fn template(place: SectionPlace) -> Self {
        let SectionPlace {
            node,
            zone,
            section,
        } = place;
        let word = 1 << 63 | section << 32 | u64::from(node.0) << 8 | zone as u64;
        Self(AtomicU64::new(word), AtomicU64::new(!word))
    }
}

/// 24 bytes, a size that no line holds evenly.
#[derive(Debug)]
#[repr(C)]
struct TwentyFour([AtomicU64; 3]);
// SAFETY: atomic integers without padding.
unsafe impl Descriptor for TwentyFour {
    fn template(place: SectionPlace) -> Self {
        Self([1, 2, 3].map(|word| AtomicU64::new(word << 32 | place.section)))
    }
}

/// 16 bytes, of which only some are zero at first.
struct HalfZero([AtomicU64; 2]);
// SAFETY: atomic integers without padding.
unsafe impl Descriptor for HalfZero {
    fn template(_: SectionPlace) -> Self {
        Self([0, 1].map(AtomicU64::new))
    }
}

/// What a test can read of a descriptor.
trait Fresh: Descriptor {
    /// Whether it is as it should be at first, at this place.
    fn is_fresh(&self, place: SectionPlace) -> bool;
    /// A word to leave a mark in, and what it holds at first.
    fn mark(&self) -> (&AtomicU64, u64);
}

impl Fresh for Eight {
    fn is_fresh(&self, _: SectionPlace) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
    fn mark(&self) -> (&AtomicU64, u64) {
        (&self.0, 0)
    }
}

impl Fresh for Sixteen {
    fn is_fresh(&self, place: SectionPlace) -> bool {
        let word = Self::template(place).0.into_inner();
        let seen = [&self.0, &self.1].map(|word| word.load(Ordering::Relaxed));
        seen == [word, !word]
    }
    fn mark(&self) -> (&AtomicU64, u64) {
        (&self.1, !self.0.load(Ordering::Relaxed))
    }
}

impl Fresh for TwentyFour {
    fn is_fresh(&self, place: SectionPlace) -> bool {
        let seen = self.0.each_ref().map(|word| word.load(Ordering::Relaxed));
        seen == [1, 2, 3].map(|word| word << 32 | place.section)
    }
    fn mark(&self) -> (&AtomicU64, u64) {
        (&self.0[1], self.0[0].load(Ordering::Relaxed) + (1 << 32))
    }
}

impl Fresh for PageDescriptor {
    fn is_fresh(&self, place: SectionPlace) -> bool {
        let words = [&self.owner, &self.index, &self.private, &self.account];
        self.place() == place
            && self.flags() == 0
            && [&self.references, &self.maps]
                .iter()
                .all(|count| count.load(Ordering::Relaxed) == 0)
            && words
                .into_iter()
                .chain(&self.links)
                .all(|word| word.load(Ordering::Relaxed) == 0)
    }
    fn mark(&self) -> (&AtomicU64, u64) {
        (&self.private, 0)
    }
}

/// Threads of this process; one that panics is gone and no more.
struct Threads;

impl Workers for Threads {
    fn run(&self, workers: &[Worker], work: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..workers.len())
                .map(|index| scope.spawn(move || work(index)))
                .collect();
            for thread in threads {
                let _ = thread.join();
            }
        });
    }
}

fn platform(zeroed: bool) -> &'static Uninitialised {
    Box::leak(Box::new(Uninitialised {
        zeroed,
        ..Uninitialised::default()
    }))
}

fn reserve<T: Descriptor>(layout: &mut Layout<'_>) -> Memmap<'static, T> {
    Memmap::reserve(layout, platform(false), MemmapPolicy::default()).unwrap()
}

/// Two nodes with the usual holes, and a hole inside a section.
fn machine() -> Machine {
    if cfg!(miri) {
        return Machine::new(&[
            (0, range(0x1000, 0x9000)),
            (0, range(2 * MIB, 2 * MIB + 0x1_0000)),
            (1, range(GIB, GIB + 0x1_0000)),
        ]);
    }
    Machine::new(&[
        (0, range(0x1000, 0x9f000)),
        (0, range(MIB, 500 * MIB)),
        (0, range(510 * MIB + 0x3000, 700 * MIB)),
        (0, range(4 * GIB, 5 * GIB)),
        (1, range(5 * GIB + 0x7000, 6 * GIB)),
        (0, range(6 * GIB, 7 * GIB)),
    ])
}

/// Checks the descriptor of every frame, of memory and of none, against the layout.
fn check_all<T: Fresh>(layout: &Layout<'_>, memmap: &Memmap<'_, T>) {
    let mut checked = 0;
    for extent in layout.segments() {
        let (start, end) = (extent.frames.start().get(), extent.frames.end().get());
        for number in start..end {
            let place = SectionPlace {
                node: extent.node,
                zone: extent.zone,
                section: number / SECTION_FRAMES,
            };
            let descriptor = memmap.peek(Frame::new(number)).unwrap();
            assert!(
                descriptor.is_fresh(place),
                "frame {number:#x}: {place:?}, got {:?}",
                memmap.place(Frame::new(number))
            );
            // No other frame has it.
            let (word, before) = descriptor.mark();
            assert_eq!(word.swap(number ^ 0xa5a5, Ordering::Relaxed), before);
            checked += 1;
        }
    }
    assert_eq!(checked, layout.present_frames());
    for hole in layout.holes() {
        for frame in [hole.start(), Frame::new(hole.end().get() - 1)] {
            assert!(memmap.of(frame).is_none() && memmap.state(frame).is_none());
        }
    }
    assert!(memmap.of(layout.end()).is_none());
    // The marks are where they were left: no two frames share a descriptor.
    for extent in layout.segments() {
        for number in extent.frames.start().get()..extent.frames.end().get() {
            let (word, _) = memmap.of(Frame::new(number)).unwrap().mark();
            assert_eq!(word.load(Ordering::Relaxed), number ^ 0xa5a5);
        }
    }
}

fn every_mode<T: Fresh>() {
    for mode in Mode::ALL {
        let mut layout = machine().layout();
        let memmap = reserve::<T>(&mut layout);
        if let Some(part) = mode.before_boot() {
            memmap.describe(part);
        }
        let mut ranges: Vec<_> = (0..memmap.ranges_needed())
            .map(|_| WorkRange::new(NodeId(0), FrameRange::EMPTY))
            .collect();
        let mut workers = [0, 0, 1].map(|node| Worker::new(NodeId(node)));
        if let Some(part) = mode.behind_boot() {
            let job = Job::sections(Chunking::Stealing);
            let report = memmap.describe_with(part, &job, &mut ranges, &mut workers, &Threads);
            assert_eq!(report.unwrap().redone_chunks, 0);
        }
        let progress = memmap.progress();
        assert_eq!(progress.ready_sections, progress.sections, "{mode:?}");
        assert_eq!(progress.worked_sections, progress.sections, "{mode:?}");
        let bytes = layout.present_frames() * size_of::<T>() as u64;
        assert_eq!(progress.written_bytes, bytes, "{mode:?}");
        check_all(&layout, &memmap);
    }
}

#[test]
fn every_descriptor_of_8_bytes_in_every_mode() {
    every_mode::<Eight>();
}

#[test]
fn every_descriptor_of_16_bytes_in_every_mode() {
    every_mode::<Sixteen>();
}

#[test]
fn every_descriptor_of_24_bytes_in_every_mode() {
    every_mode::<TwentyFour>();
}

#[test]
fn every_descriptor_of_64_bytes_in_every_mode() {
    every_mode::<PageDescriptor>();
}

#[test]
fn a_touch_makes_one_section_ready_and_no_other() {
    let mut layout = machine().layout();
    let memmap = reserve::<Sixteen>(&mut layout);
    let frame = layout.segments().last().unwrap().frames.start();
    assert_eq!(memmap.state(frame), Some(SectionState::Untouched));
    assert!(memmap.peek(frame).is_none());
    assert_eq!(memmap.progress().written_bytes, 0);
    let place = memmap.place(frame).unwrap();
    assert!(memmap.of(frame).unwrap().is_fresh(place));
    let progress = memmap.progress();
    assert_eq!((progress.ready_sections, progress.touched_sections), (1, 1));
    assert!(progress.written_bytes <= SECTION_FRAMES * 16);
    assert_eq!(memmap.first_untouched(Frame::new(0)), Some(Frame::new(1)));
    let next = Frame::new(frame.get() + SECTION_FRAMES);
    if layout.segments().last().unwrap().frames.contains(next) {
        assert_eq!(memmap.first_untouched(frame), Some(next));
        assert_eq!(memmap.state(next), Some(SectionState::Untouched));
    }
}

#[test]
fn memory_that_is_zero_is_written_only_on_request() {
    for (always_write, written) in [(false, 0), (true, 8)] {
        let policy = MemmapPolicy {
            always_write,
            ..MemmapPolicy::default()
        };
        let mut layout = machine().layout();
        let memmap = Memmap::<Eight>::reserve(&mut layout, platform(true), policy).unwrap();
        memmap.describe(Part::Whole);
        assert_eq!(
            memmap.progress().written_bytes,
            written * layout.present_frames()
        );
        check_all(&layout, &memmap);
    }
}

#[derive(Clone)]
#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "read as descriptors")] [u64; 512]);

/// Memory that is said to be zero, and is full of ones: what is written of it can be seen.
struct SaidToBeZero;

// SAFETY: every range gets memory of its own, leaked and on a border of pages; nothing reads what
// would have to be zero but the test.
unsafe impl Platform for SaidToBeZero {
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
        let bytes = usize::try_from(range.bytes()).ok()?;
        let pages = vec![Page([!0; 512]); bytes / 4096].leak();
        NonNull::new(pages.as_mut_ptr().cast())
    }

    fn is_zero(&self, _: PhysRange) -> bool {
        true
    }
}

#[test]
fn of_templates_only_words_that_are_not_zero_are_written_on_zeros() {
    fn described<T: Descriptor>(
        platform: &'static impl Platform,
    ) -> (Memmap<'static, T>, [u64; 3]) {
        let mut layout = machine().layout();
        let memmap = Memmap::<T>::reserve(&mut layout, platform, MemmapPolicy::default());
        let memmap = memmap.unwrap();
        memmap.describe(Part::Whole);
        let Progress {
            written_bytes,
            zeroed_bytes,
            ..
        } = memmap.progress();
        (
            memmap,
            [layout.present_frames(), written_bytes, zeroed_bytes],
        )
    }
    // On other memory all of it is, and the zeros are counted.
    let (_, [frames, written, zeroed]) = described::<HalfZero>(platform(false));
    assert_eq!((written, zeroed), (16 * frames, 8 * frames));
    let (_, [frames, written, zeroed]) = described::<Sixteen>(&SaidToBeZero);
    assert_eq!((written, zeroed), (16 * frames, 0));
    let (memmap, [frames, written, zeroed]) = described::<HalfZero>(&SaidToBeZero);
    assert_eq!((written, zeroed), (8 * frames, 0));
    let mut seen = 0;
    for range in memmap.ranges(Part::Whole) {
        for frame in range.start().get()..range.end().get() {
            let words = &memmap.peek(Frame::new(frame)).unwrap().0;
            let words = words.each_ref().map(|word| word.load(Ordering::Relaxed));
            // The word that is zero in the template was left as it was.
            assert_eq!(words, [!0, 1]);
            seen += 1;
        }
    }
    assert_eq!(seen, frames);
    // In memory that is zero they come out right.
    let mut layout = machine().layout();
    let memmap =
        Memmap::<PageDescriptor>::reserve(&mut layout, platform(true), MemmapPolicy::default());
    let memmap = memmap.unwrap();
    memmap.describe(Part::Whole);
    assert_eq!(memmap.progress().zeroed_bytes, 0);
    // Of node 0, zone DMA and section 0 nothing at all.
    assert!(memmap.progress().written_bytes <= 8 * layout.present_frames());
    check_all(&layout, &memmap);
}

#[test]
fn no_space_and_no_reach_are_errors() {
    // 1 MiB of memory, all but 4 pages of it reserved: 256 x 64 bytes do not fit.
    let mut small = Machine::new(&[(0, range(MIB, 2 * MIB))]);
    small.reserved.push(range(MIB, 2 * MIB - 0x4000));
    let mut layout = small.layout();
    let error =
        Memmap::<PageDescriptor>::reserve(&mut layout, platform(false), MemmapPolicy::default());
    let error = error.unwrap_err();
    assert!(matches!(error, MemmapError::NoSpace { needed_bytes, .. } if needed_bytes >= 256 * 64));
    let broken = Box::leak(Box::new(Uninitialised {
        broken: true,
        ..Uninitialised::default()
    }));
    let error = Memmap::<Eight>::reserve(&mut machine().layout(), broken, MemmapPolicy::default());
    assert!(matches!(error.unwrap_err(), MemmapError::NotMapped { .. }));
}

#[test]
#[cfg_attr(miri, ignore = "allocates by the gigabyte")]
fn a_node_in_pieces_smaller_than_its_descriptors_has_them_in_pieces() {
    // 40 pieces of 128 MiB, 256 MiB apart: 20 MiB of descriptors in all...
    let pieces: Vec<_> = (0..40)
        .map(|at| (0, range((256 * at + 128) * MIB, (256 * at + 256) * MIB)))
        .collect();
    // ...where no more than 3 MiB lie free in a row.
    let mut machine = Machine::new(&pieces);
    for (_, piece, _) in &machine.memory {
        for at in 0..32 {
            let start = piece.start().get() + at * 4 * MIB;
            machine
                .reserved
                .push(range(start + 3 * MIB, start + 4 * MIB));
        }
    }
    let mut layout = machine.layout();
    let memmap = reserve::<Sixteen>(&mut layout);
    memmap.describe(Part::Whole);
    check_all(&layout, &memmap);
}

#[test]
#[cfg_attr(miri, ignore = "allocates by the gigabyte")]
fn a_sparse_machine_pays_for_its_memory_not_for_its_span() {
    // 64 GiB in 8 pieces over 32 TiB.
    let pieces: Vec<_> = (0..8u16)
        .map(|at| {
            let start = u64::from(at) * 4 * TIB;
            (at, range(start + 4 * GIB, start + 12 * GIB))
        })
        .collect();
    let mut layout = Machine::new(&pieces).layout();
    let memmap = reserve::<PageDescriptor>(&mut layout);
    let progress = memmap.progress();
    let descriptors = layout.present_frames() * 64;
    assert!(progress.reserved_bytes <= descriptors + 8 * 4 * MIB + MIB);
    assert!(progress.directory_bytes <= 16 * 64 + 8 * 200);
    assert_eq!(progress.written_bytes, 0);
    assert_eq!(progress.sections, 8 * 64);
}

/// The machine of the report of Linux 5.8's slower boots: 1 TiB, whose last
/// node lies around the 12 GiB below 1 TiB that the processor keeps. Its
/// Normal zone spans 92,536,832 frames and has 89,391,104.
fn reporting_machine() -> Machine {
    let frames = |start: u64, count: u64| range(start << 12, (start + count) << 12);
    let below = ((1012 * GIB) >> 12) - 86_016_000;
    Machine::new(&[
        (0, range(0x1000, 0x9f000)),
        (0, range(MIB, 3 * GIB)),
        (0, range(4 * GIB, 342 * GIB)),
        (1, range(342 * GIB, below << 12)),
        (2, frames(below, 86_016_000)),
        (2, frames(TIB >> 12, 89_391_104 - 86_016_000)),
    ])
}

#[test]
#[cfg_attr(miri, ignore = "allocates by the gigabyte")]
#[cfg_attr(
    any(feature = "page-16k", feature = "page-64k"),
    ignore = "frames of 4 KiB, as the report has them"
)]
fn model_the_end_of_a_region_is_not_the_end_of_its_zone() {
    let mut layout = reporting_machine().layout();
    let zone = layout.zones().last().unwrap();
    assert_eq!(
        (zone.span.count(), zone.present_frames),
        (92_536_832, 89_391_104)
    );
    assert_eq!((zone.span.count() * 64).div_ceil(4096), 1_445_888);
    let memmap = reserve::<Eight>(&mut layout);
    memmap.describe(Part::Early);
    let described = |node: u16| -> u64 {
        let ranges = memmap.ranges(Part::Early);
        let own = ranges.filter(|frames| {
            !frames.is_empty() && memmap.place(frames.start()).unwrap().node == NodeId(node)
        });
        own.map(FrameRange::count).sum()
    };
    // 86,016,000 with the mistake.
    assert_eq!(described(2), 32_768);
    assert_eq!(described(1), 32_768);
    let low = layout.zones_of(NodeId(0));
    let low: u64 = low[..2].iter().map(|zone| zone.present_frames).sum();
    assert_eq!(described(0), low + 32_768);
    let total = low + 3 * 32_768;
    assert_eq!(memmap.progress().written_bytes, 8 * total);
    let last = Frame::new(((1012 * GIB) >> 12) - 1);
    assert_eq!(memmap.state(last), Some(SectionState::Untouched));
    let deferred: u64 = memmap.ranges(Part::Deferred).map(FrameRange::count).sum();
    assert_eq!(deferred + total, layout.present_frames());
}

#[test]
#[cfg(debug_assertions)]
fn touching_what_is_not_ready_stops_with_frame_section_and_state() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    let mut layout = machine().layout();
    let memmap = reserve::<Sixteen>(&mut layout);
    let frame = layout.segments().last().unwrap().frames.start();
    // SAFETY: not kept on purpose; a debug build stops before it reads.
    let panic = catch_unwind(AssertUnwindSafe(|| unsafe { memmap.assume_ready(frame) }));
    let text = *panic.unwrap_err().downcast::<String>().unwrap();
    let section = frame.get() / SECTION_FRAMES;
    assert!(text.contains(&format!("{frame}")), "{text}");
    assert!(text.contains(&format!("section {section} ")), "{text}");
    assert!(text.contains("untouched"), "{text}");
    memmap.of(frame).unwrap();
    // SAFETY: just made ready.
    assert!(unsafe { memmap.assume_ready(frame) }.is_some());
}

#[test]
fn unaccepted_memory_is_described_but_never_holds_descriptors() {
    let mut machine = machine();
    let last = machine.memory.len() - 1;
    machine.memory[last].2 = EarlyFlags::UNACCEPTED;
    let unaccepted = machine.memory[last].1;
    let mut layout = machine.layout();
    let platform = platform(false);
    let memmap = Memmap::<Sixteen>::reserve(&mut layout, platform, MemmapPolicy::default());
    let memmap = memmap.unwrap();
    for (&start, &bytes) in platform.mapped.borrow().iter() {
        assert!(!range(start, start + bytes).overlaps(unaccepted));
    }
    assert!(memmap.of(unaccepted.start().frame()).is_some());
}
