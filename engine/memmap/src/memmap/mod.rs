//! A descriptor for every frame, written when it is needed: [`Memmap`].
//!
//! Kernels keep something for each page frame: flags, a reference count, list
//! links. Writing all of it at boot takes seconds on a large machine; here boot
//! does not wait for it. Space is taken from early memory between the layout and
//! the frame allocator:
//!
//! ```text
//! Layout -> Memmap::reserve(&mut layout, ..) -> Frames::build(layout, ..)
//! ```
//!
//! and a section's descriptors (128 MiB of memory) are written when the first
//! of its frames is touched, or by workers behind the boot, whichever comes
//! first, exactly once.
//!
//! [`Memmap::of`] returns a descriptor that is ready. Where a kernel's
//! [`Hooks::prepare`](firstlight_frames::frames::Hooks::prepare) calls [`Memmap::prepare`], those of
//! allocated frames are ready without a look. A frame that is not memory has no descriptor, also
//! where its section holds other memory: neither space nor time is spent on it.
//!
//! # In a kernel
//!
//! Space is reserved of the kernel's own type or the 64-byte [`PageDescriptor`]; workers write the rest after the boot.
//!
//! ```
//! use firstlight_frames::acceptance::Acceptance;
//! use firstlight_frames::addr::{Frame, Order};
//! use firstlight_frames::frames::{Exhausted, Frames, Hooks, Request};
//! use firstlight_frames::layout::Layout;
//! use firstlight_memmap::memmap::{Memmap, MemmapError, MemmapPolicy, Mode, PageDescriptor, Part};
//! use firstlight_frames::node::NodeId;
//! use firstlight_memmap::parallel::{Chunking, Job, JobError, WorkRange, Worker, Workers};
//! use firstlight_frames::platform::Platform;
//!
//! /// After `Layout::build`, before `Frames::build`.
//! pub fn descriptors<'m, P: Platform>(
//!     layout: &mut Layout<'_>,
//!     platform: &'m P,
//!     mode: Mode,
//! ) -> Result<Memmap<'m, PageDescriptor>, MemmapError> {
//!     let memmap = Memmap::reserve(layout, platform, MemmapPolicy::default())?;
//!     if let Some(part) = mode.before_boot() {
//!         memmap.describe(part); // nothing in mode lazy
//!     }
//!     Ok(memmap)
//! }
//!
//! /// What this kernel adds to every allocation, for `Frames::with_hooks`.
//! pub struct Kernel<P: 'static> {
//!     /// The allocator, once it is in its static.
//!     pub frames: fn() -> Option<&'static Frames<'static>>,
//!     pub memmap: Memmap<'static, PageDescriptor>,
//!     pub acceptance: Acceptance<'static, P>,
//! }
//!
//! impl<P: Platform + Sync> Hooks for Kernel<P> {
//!     fn prepare(&self, blocks: &[Frame], order: Order) {
//!         self.memmap.prepare(blocks, order);
//!     }
//!
//!     /// In a confidential guest more memory is accepted.
//!     fn exhausted(&self, request: &Request, what: Exhausted) -> bool {
//!         (self.frames)().is_some_and(|frames| self.acceptance.accept_for(frames, request, what))
//!     }
//! }
//!
//! /// Once other CPUs run; `threads` starts one for each of `workers`.
//! pub fn behind_boot(
//!     memmap: &Memmap<'_, PageDescriptor>,
//!     ranges: &mut [WorkRange],
//!     workers: &mut [Worker],
//!     threads: &dyn Workers,
//! ) -> Result<(), JobError> {
//!     let job = Job::sections(Chunking::Stealing);
//!     memmap.describe_with(Part::Whole, &job, ranges, workers, threads).map(drop)
//! }
//! ```
//!
//! `Memmap::of` finds the descriptor of a frame and writes its section if needed; so a kernel that always uses it
//! needs no hook. `prepare` makes all sections of a block ready, eight of a giant frame: a kernel that wants these
//! at the first touch returns from the hook above `Order::HUGE`.
//!
//! A kernel whose descriptors are an array at a fixed address (a vmemmap) uses `Memmap::linear`: the descriptor
//! of frame `f` is element `f`, holes have one too, and the array need not be written, only mapped. Code that
//! indexes the array itself may do so for every frame that was allocated; for others it calls `Memmap::of`, or
//! `Memmap::is_ready` first (30 instructions).
//!
//! ```
//! use core::mem::MaybeUninit;
//! use firstlight_frames::addr::FrameRange;
//! use firstlight_memmap::memmap::{Descriptor, Memmap, MemmapError, MemmapPolicy, SectionPlace};
//! use core::sync::atomic::AtomicU64;
//!
//! /// This kernel's record of a frame: users, and its owner.
//! #[repr(C)]
//! pub struct Record(AtomicU64, AtomicU64);
//!
//! // SAFETY: atomic integers without padding; a template has no uninitialised byte and no pointer.
//! unsafe impl Descriptor for Record {
//!     fn template(_: SectionPlace) -> Self {
//!         Self(AtomicU64::new(u64::MAX), AtomicU64::new(0)) // in no use
//!     }
//! }
//!
//! /// 512 GiB.
//! const FRAMES: FrameRange = FrameRange::new(0, 1 << 27).unwrap();
//! /// For a static: some kilobytes.
//! pub const DIRECTORY_BYTES: usize = Memmap::<Record>::directory_bytes(FRAMES);
//!
//! /// # Safety
//! /// Called once, with an array mapped for the records of `FRAMES`.
//! pub unsafe fn records(
//!     array: *mut Record,
//!     directory: &'static mut [MaybeUninit<u8>; DIRECTORY_BYTES],
//! ) -> Result<Memmap<'static, Record>, MemmapError> {
//!     // SAFETY: the caller's promise; nothing else uses the array.
//!     unsafe { Memmap::linear(array, FRAMES, directory, MemmapPolicy::default()) }
//! }
//! ```
//!
//! The default writer uses general registers only; `memmap::writer::x86_64` has wider ones for a kernel that has
//! enabled vector registers, on every CPU that may touch memory first. A touch of a section that another CPU is
//! writing waits for it (25 us for 64 bytes a frame), so an interrupt handler must not touch sections that may
//! be untouched: it uses `Memmap::peek`. With the hook an allocation touches, so code that calls `Memmap::of` for
//! frames it did not allocate does so with the interrupts off whose handlers allocate.
//!
//! Memory that is added later can hold its own descriptors (`Memmap::add`, unsafe because it names memory by
//! number). Unaccepted memory of a confidential guest comes online through `acceptance::Acceptance`, whose
//! `Platform::accept` the kernel implements: a chunk of 2 MiB at a time from the hook `exhausted`, before the
//! request falls back to another node and again before it fails, or by workers behind the boot
//! (`Acceptance::accept_all`).
//!
//! # Files
//!
//! | file | what it is |
//! |---|---|
//! | `descriptor` | [`Descriptor`]: the kernel's type; the writing of many |
//! | `place` | [`SectionPlace`]: what the first content depends on |
//! | `page` | [`PageDescriptor`]: 64 bytes with what kernels commonly record |
//! | `states` | the state of each section, atomic |
//! | `range` | the descriptors of one segment: arithmetic |
//! | `space` | their memory |
//! | `directory` | the lists of ranges and states |
//! | `reserve` | a memory map in early memory |
//! | `provided` | a memory map in caller-provided memory |
//! | `linear` | a memory map over an array at a fixed address |
//! | `add` | descriptors of memory that comes later |
//! | `list` | all ranges, found by frame |
//! | `describe` | modes, parts, and the writing of a part |
//! | `writer` | [`Writer`]: stores at the speed of the memory bus |

mod add;
mod describe;
mod descriptor;
mod directory;
mod error;
mod linear;
mod list;
mod page;
mod place;
mod policy;
mod provided;
mod range;
mod reserve;
mod space;
mod states;
pub mod writer;

#[cfg(all(test, firstlight_loom))]
mod loom_tests;

pub use describe::{Mode, Part};
pub use descriptor::Descriptor;
pub use error::MemmapError;
pub use page::{FLAG_BITS, PageDescriptor};
pub use place::SectionPlace;
pub use policy::MemmapPolicy;
pub use states::SectionState;
pub use writer::Writer;

use crate::addr::Frame;
use crate::sync::{AtomicU64, Ordering};
use list::Ranges;
use range::DescriptorRange;

/// A descriptor of type `T` for every frame of memory.
///
/// ```
/// use std::mem::MaybeUninit;
/// use std::sync::atomic::Ordering;
///
/// use firstlight_frames::addr::{Frame, FrameRange};
/// use firstlight_frames::layout::ZoneSegment;
/// use firstlight_memmap::memmap::{Memmap, MemmapPolicy, PageDescriptor, SectionState};
/// use firstlight_frames::node::{NodeId, ZoneKind};
///
/// // 256 MiB from 4 GiB on, described in memory provided for it.
/// let frames = FrameRange::new(1 << 20, (1 << 20) + 65_536).unwrap();
/// let segments = [ZoneSegment { frames, node: NodeId(0), zone: ZoneKind::Normal }];
/// let (directory, bytes) = Memmap::<PageDescriptor>::bytes_for(&segments)?;
/// let mut directory = vec![MaybeUninit::uninit(); directory as usize];
/// let mut memory = vec![MaybeUninit::uninit(); bytes as usize];
/// let memmap = Memmap::<PageDescriptor>::in_memory(
///     &segments, &mut directory, &mut memory, MemmapPolicy::default())?;
///
/// let frame = Frame::new((1 << 20) + 7);
/// assert_eq!(memmap.state(frame), Some(SectionState::Untouched));
/// let page = memmap.of(frame).unwrap(); // writes the section it is in
/// page.references.fetch_add(1, Ordering::Relaxed);
/// assert_eq!(page.place().zone, ZoneKind::Normal);
/// assert_eq!(memmap.state(Frame::new((1 << 20) + 40_000)), Some(SectionState::Untouched));
/// assert!(memmap.of(Frame::new(0)).is_none()); // not memory
/// # Ok::<(), firstlight_memmap::memmap::MemmapError>(())
/// ```
#[derive(Debug)]
pub struct Memmap<'m, T> {
    ranges: Ranges<'m, T>,
    policy: MemmapPolicy,
    tally: Tally,
    reserved_bytes: u64,
    directory_bytes: u64,
}

/// Work done so far.
#[derive(Debug)]
struct Tally {
    touched_sections: AtomicU64,
    worked_sections: AtomicU64,
    written_bytes: AtomicU64,
    zeroed_bytes: AtomicU64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            touched_sections: AtomicU64::new(0),
            worked_sections: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            zeroed_bytes: AtomicU64::new(0),
        }
    }
}

/// What makes a section ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    ByTouch,
    ByWorker,
}

/// How far the descriptors are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Sections, or parts of them, that hold memory of one node and zone.
    pub sections: u64,
    /// Those that are ready.
    pub ready_sections: u64,
    /// Those made ready because a frame of theirs was touched.
    pub touched_sections: u64,
    /// Those made ready by [`Memmap::describe`] and its like.
    pub worked_sections: u64,
    /// Bytes of descriptors written.
    pub written_bytes: u64,
    /// Of these, zeros: none where memory is known to be zero.
    pub zeroed_bytes: u64,
    /// Bytes of the directory, written at the start.
    pub directory_bytes: u64,
    /// Bytes taken for directory and descriptors.
    pub reserved_bytes: u64,
}

impl<'m, T: Descriptor> Memmap<'m, T> {
    /// The descriptor of `frame`, ready; `None` if there is no memory.
    ///
    /// The first touch of a section writes it, or waits for the CPU that does. So an
    /// interrupt handler that may have interrupted one on its own CPU calls
    /// [`Self::peek`], which never waits.
    #[inline]
    pub fn of(&self, frame: Frame) -> Option<&'m T> {
        match self.ranges.find_first(frame) {
            // SAFETY: the frame is the range's, and its section is ready.
            Some(range) if range.is_ready(frame) => Some(unsafe { range.get(frame) }),
            _ => self.of_slowly(frame),
        }
    }

    /// The descriptor of `frame`, also of memory that was added.
    #[cold]
    fn of_slowly(&self, frame: Frame) -> Option<&'m T> {
        let range = self.ranges.find(frame)?;
        if !range.is_ready(frame) {
            self.make_ready(range, frame, Made::ByTouch);
        }
        // SAFETY: the frame is the range's, and its section is ready.
        Some(unsafe { range.get(frame) })
    }

    /// Whether the descriptor of `frame` is ready.
    #[inline]
    pub fn is_ready(&self, frame: Frame) -> bool {
        match self.ranges.find_first(frame) {
            Some(range) => range.is_ready(frame),
            None => self.is_ready_slowly(frame),
        }
    }

    /// Whether the descriptor of `frame` is ready, of memory that was added.
    #[cold]
    fn is_ready_slowly(&self, frame: Frame) -> bool {
        let range = self.ranges.find(frame);
        range.is_some_and(|range| range.is_ready(frame))
    }

    /// The descriptor of `frame` if it is ready already.
    #[inline]
    pub fn peek(&self, frame: Frame) -> Option<&'m T> {
        let range = self
            .ranges
            .find(frame)
            .filter(|range| range.is_ready(frame))?;
        // SAFETY: the frame is the range's, and its section is ready.
        Some(unsafe { range.get(frame) })
    }

    /// The descriptor of a frame whose section is known to be ready, without
    /// looking; `None` if there is no memory.
    ///
    /// # Safety
    /// The section of `frame` is ready, and a CPU that saw it synchronised with this one.
    ///
    /// # Panics
    /// In debug builds, if it is not: with the frame, its section and its state.
    #[inline]
    pub unsafe fn assume_ready(&self, frame: Frame) -> Option<&'m T> {
        let range = self.ranges.find(frame)?;
        #[cfg(debug_assertions)]
        if !range.is_ready(frame) {
            let (place, state) = (range.place(frame), range.state(frame));
            panic!(
                "descriptor of {frame} touched before it is ready: section {} of {} is {state}",
                place.section, place.node
            );
        }
        // SAFETY: the frame is the range's; that its section is ready, the caller promised.
        Some(unsafe { range.get(frame) })
    }

    /// How far the section of `frame` is; `None` if there is no memory.
    pub fn state(&self, frame: Frame) -> Option<SectionState> {
        self.ranges.find(frame).map(|range| range.state(frame))
    }

    /// What the first content of the frame's descriptor depends on.
    pub fn place(&self, frame: Frame) -> Option<SectionPlace> {
        self.ranges.find(frame).map(|range| range.place(frame))
    }

    /// How far it all is; counts that change meanwhile may be included or not.
    pub fn progress(&self) -> Progress {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (ranges, added) = (self.ranges.iter(), self.ranges.added());
        Progress {
            sections: ranges
                .clone()
                .map(|range| range::sections_of(range.segment.frames))
                .sum(),
            ready_sections: ranges.map(DescriptorRange::count_ready).sum(),
            touched_sections: load(&self.tally.touched_sections),
            worked_sections: load(&self.tally.worked_sections),
            written_bytes: load(&self.tally.written_bytes),
            zeroed_bytes: load(&self.tally.zeroed_bytes),
            directory_bytes: self.directory_bytes
                + added
                    .clone()
                    .map(|added| added.directory_bytes)
                    .sum::<u64>(),
            reserved_bytes: self.reserved_bytes
                + added.map(|added| added.reserved_bytes).sum::<u64>(),
        }
    }

    /// Poisons all descriptors, so that they can be written, and checked, again:
    /// their memory holds `filler`, and all sections are untouched. For
    /// measurements, which is why [`MemmapPolicy::always_write`] must be set.
    ///
    /// # Safety
    /// No reference to a descriptor is in use.
    ///
    /// # Panics
    /// Without [`MemmapPolicy::always_write`].
    pub unsafe fn poison(&mut self, filler: u64) {
        assert!(
            self.policy.always_write,
            "what is known to be zero would not be written again"
        );
        for range in self.ranges.iter() {
            // SAFETY: the caller's promise; `&mut self` keeps other calls out.
            unsafe { range.poison(filler, &self.policy) };
        }
        self.tally = Tally::default();
    }

    #[cold]
    fn make_ready(&self, range: &DescriptorRange<'_, T>, frame: Frame, made: Made) {
        let Some(written) = range.make_ready(frame, &self.policy) else {
            return;
        };
        let count = match made {
            Made::ByTouch => &self.tally.touched_sections,
            Made::ByWorker => &self.tally.worked_sections,
        };
        count.fetch_add(1, Ordering::Relaxed);
        for (sum, bytes) in [
            (&self.tally.written_bytes, written.bytes),
            (&self.tally.zeroed_bytes, written.zero_bytes),
        ] {
            sum.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}
