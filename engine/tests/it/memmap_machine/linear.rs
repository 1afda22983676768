//! Descriptors in an array at a fixed address.

use crate::kit::leak;
use crate::memmap_machine::{Eight, Fresh as _, Sixteen, TwentyFour};
use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PHYS_END};
use firstlight::layout::SECTION_FRAMES;
use firstlight::memmap::{
    Descriptor, Memmap, MemmapError, MemmapPolicy, Part, SectionPlace, SectionState,
};
use firstlight::node::{NodeId, ZoneKind};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

fn frames(start: u64, end: u64) -> FrameRange {
    FrameRange::new(start, end).unwrap()
}

/// Uninitialised space for `count` descriptors, and an array in which it belongs to the frames
/// from `start` on.
pub(crate) fn array<T>(start: u64, count: u64) -> *mut T {
    let bytes = usize::try_from(count).unwrap() * size_of::<T>();
    let bytes = std::alloc::Layout::from_size_align(bytes, 64).unwrap();
    // SAFETY: no test has an empty array.
    let first = unsafe { std::alloc::alloc(bytes) }.cast::<T>();
    first.wrapping_sub(usize::try_from(start).unwrap())
}

fn directory<T: Descriptor>(frames: FrameRange) -> &'static mut [MaybeUninit<u8>] {
    leak(MaybeUninit::uninit(), Memmap::<T>::directory_bytes(frames))
}

/// Descriptors of `frames`, and the array they are in.
fn linear<T: Descriptor>(frames: FrameRange) -> (Memmap<'static, T>, *mut T) {
    let base = array::<T>(frames.start().get(), frames.count());
    let policy = MemmapPolicy::default();
    // SAFETY: there is space for these frames, leaked, which no other code uses.
    let memmap = unsafe { Memmap::linear(base, frames, directory::<T>(frames), policy) };
    (memmap.unwrap(), base)
}

/// Miri writes what lies around a section's border; others write whole sections.
fn around_a_border() -> FrameRange {
    let border = 3 * SECTION_FRAMES;
    let count = if cfg!(miri) { 100 } else { SECTION_FRAMES };
    frames(border - count, border + count)
}

fn place(frame: Frame) -> SectionPlace {
    SectionPlace {
        node: NodeId(0),
        zone: ZoneKind::Normal,
        section: frame.get() / SECTION_FRAMES,
    }
}

#[test]
fn the_descriptor_of_a_frame_is_that_element_of_the_array() {
    let frames = around_a_border();
    let (memmap, base) = linear::<Sixteen>(frames);
    let (first, last) = (frames.start(), Frame::new(frames.end().get() - 1));
    assert!(!memmap.is_ready(first) && memmap.peek(first).is_none());
    assert_eq!(memmap.progress().written_bytes, 0);
    assert!(memmap.of(last).is_some());
    // The section of the last frame is ready, and no other.
    let progress = memmap.progress();
    assert_eq!((progress.sections, progress.ready_sections), (2, 1));
    assert_eq!(progress.written_bytes, frames.count() / 2 * 16);
    assert!(memmap.is_ready(last) && !memmap.is_ready(first));
    assert_eq!(memmap.state(first), Some(SectionState::Untouched));
    for number in first.get()..frames.end().get() {
        let descriptor = memmap.of(Frame::new(number)).unwrap();
        let element = base.wrapping_add(usize::try_from(number).unwrap());
        assert!(std::ptr::eq(descriptor, element));
        assert!(descriptor.is_fresh(place(Frame::new(number))));
    }
    for beyond in [first.get() - 1, frames.end().get(), u64::MAX] {
        let beyond = Frame::new(beyond);
        assert!(memmap.of(beyond).is_none() && !memmap.is_ready(beyond));
        assert_eq!(memmap.state(beyond), None);
    }
}

#[test]
fn a_size_that_no_line_holds_lies_in_an_array_as_well() {
    let frames = around_a_border();
    let (memmap, base) = linear::<TwentyFour>(frames);
    memmap.describe(Part::Whole);
    for number in frames.start().get()..frames.end().get() {
        // SAFETY: inside the array, and just written.
        let element = unsafe { &*base.wrapping_add(usize::try_from(number).unwrap()) };
        assert!(element.is_fresh(place(Frame::new(number))));
    }
}

#[test]
fn what_is_prepared_is_read_in_the_array_without_a_look() {
    let frames = around_a_border();
    let (memmap, base) = linear::<Sixteen>(frames);
    let is_fresh = |frame: Frame| {
        // SAFETY: inside the array, and prepared.
        let element = unsafe { &*base.wrapping_add(usize::try_from(frame.get()).unwrap()) };
        element.is_fresh(place(frame))
    };
    let (first, last) = (frames.start(), Frame::new(frames.end().get() - 1));
    let next = Frame::new(first.get() + 1);
    // The second is of the same section; the third is no memory.
    memmap.prepare(&[first, next, Frame::new(7)], Order::PAGE);
    assert!(is_fresh(first) && is_fresh(next) && !memmap.is_ready(last));
    assert_eq!(memmap.progress().touched_sections, 1);
    // A block of both sections, of which not all is there.
    let (memmap, base) = linear::<Sixteen>(frames);
    memmap.prepare(&[Frame::new(0)], Order::GIANT);
    assert_eq!(memmap.progress().touched_sections, 2);
    for frame in [first, last] {
        // SAFETY: inside the array, and prepared.
        let element = unsafe { &*base.wrapping_add(usize::try_from(frame.get()).unwrap()) };
        assert!(element.is_fresh(place(frame)));
    }
    memmap.prepare(&[], Order::PAGE);
    memmap.prepare(&[Frame::new(u64::MAX)], Order::GIANT);
}

/// Counts how often its template is made, section by section.
struct Counted(AtomicU64);
static MADE: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
// SAFETY: an atomic integer.
unsafe impl Descriptor for Counted {
    fn template(place: SectionPlace) -> Self {
        MADE[usize::try_from(place.section).unwrap()].fetch_add(1, Ordering::Relaxed);
        Self(AtomicU64::new(1 << 32))
    }
}

#[test]
fn threads_that_race_write_each_descriptor_once() {
    let frames = around_a_border();
    let (memmap, base) = linear::<Counted>(frames);
    let base = AtomicPtr::new(base);
    let touches = if cfg!(miri) { 60 } else { 20_000 };
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (memmap, base) = (&memmap, &base);
            scope.spawn(move || {
                let base = base.load(Ordering::Relaxed);
                for touch in 0..touches {
                    let number = (touch * 7919 + thread * 31) % frames.count();
                    let frame = Frame::new(frames.start().get() + number);
                    let descriptor = match touch % 3 {
                        0 => memmap.of(frame).unwrap(),
                        1 if memmap.is_ready(frame) => memmap.peek(frame).unwrap(),
                        _ => {
                            memmap.prepare(&[frame], Order::PAGE);
                            let index = usize::try_from(frame.get()).unwrap();
                            // SAFETY: inside the array, and prepared.
                            unsafe { &*base.wrapping_add(index) }
                        }
                    };
                    let before = descriptor.0.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(before >> 32, 1, "used before it was written");
                }
            });
        }
    });
    // Nothing was written over what the touches left.
    let numbers = frames.start().get()..frames.end().get();
    let count = |number| {
        memmap
            .of(Frame::new(number))
            .unwrap()
            .0
            .load(Ordering::Relaxed)
    };
    let left: u64 = numbers.map(|number| count(number) - (1 << 32)).sum();
    assert_eq!(left, 3 * touches);
    let made = MADE.each_ref().map(|made| made.load(Ordering::Relaxed));
    assert_eq!(made, [0, 0, 1, 1, 0, 0, 0, 0]);
}

#[test]
fn arrays_and_directories_that_do_not_fit_are_refused() {
    let try_linear = |base: *mut Eight, frames: FrameRange, bytes: usize| {
        let directory = leak(MaybeUninit::uninit(), bytes);
        // SAFETY: refused before anything is touched.
        unsafe { Memmap::linear(base, frames, directory, MemmapPolicy::default()) }.unwrap_err()
    };
    let four = frames(4, 8);
    let bytes = Memmap::<Eight>::directory_bytes(four);
    let base = array::<Eight>(4, 4);
    for (base, address) in [
        (base.wrapping_byte_add(4), base.addr() as u64 + 4 * 8 + 4),
        (std::ptr::null_mut::<Eight>().wrapping_sub(4), 0),
    ] {
        let align = 8;
        let error = try_linear(base, four, bytes);
        assert_eq!(error, MemmapError::Misplaced { address, align });
    }
    let end = PHYS_END / PAGE_BYTES;
    for frames in [frames(end - 1, end + 1), frames(0, u64::MAX)] {
        let error = try_linear(base, frames, bytes);
        assert_eq!(error, MemmapError::NoSuchMemory { frames });
    }
    let empty = frames(4, 4);
    let error = try_linear(base, empty, bytes);
    assert_eq!(error, MemmapError::Unordered { frames: empty });
    // The array would end past the address space.
    let last = std::ptr::without_provenance_mut::<Eight>(usize::MAX - 0xfff);
    let error = try_linear(last, frames(0, 1024), bytes);
    assert_eq!(error, MemmapError::TooLarge { frames: 1024 });
    // Where the directory begins is not known, so the last bytes may be for its alignment.
    for bytes in [0, bytes - 24] {
        let error = try_linear(base, four, bytes);
        assert!(
            matches!(error, MemmapError::TooLittleStorage { bytes: given, .. } if given == bytes),
            "{error}"
        );
    }
}

#[test]
fn the_directory_of_a_machine_is_bits_a_section() {
    // In a constant, as for a static.
    const TERABYTE: usize =
        Memmap::<Eight>::directory_bytes(FrameRange::new(0, (1 << 40) / PAGE_BYTES).unwrap());
    assert!((2048..2048 + 200).contains(&TERABYTE), "{TERABYTE}");
    let absurd = frames(0, u64::MAX);
    assert!(Memmap::<Eight>::directory_bytes(absurd) >= 1 << 47);
}
