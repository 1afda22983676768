//! A descriptor for every frame, written when it is needed: [`Memmap`].
//!
//! Kernels keep something for each page frame: flags, a reference count, list
//! links. Writing all of it at boot takes seconds on a large machine; here
//! nobody waits for it. Room is taken from early memory between the layout and
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
//! Who asks for a descriptor by [`Memmap::of`] gets one that is ready;
//! [`Memmap::allocate`] takes a block from the frame allocator together with
//! its descriptor. The descriptor of a frame that is not memory does not
//! exist, also where the section holds other memory: there is neither room for
//! it nor time spent on it.
//!
//! | file | what it is |
//! |---|---|
//! | `descriptor` | [`Descriptor`]: what a kernel's type promises; the writing of many |
//! | `page` | [`PageDescriptor`]: 64 bytes with what kernels commonly keep |
//! | `states` | the state of each section, atomic |
//! | `bank` | the descriptors of one extent: arithmetic |
//! | `reserve` | where they lie |
//! | `describe` | modes, parts, and the writing of a part |
//! | `writer` | [`Writer`]: stores at the speed of the memory bus |

mod bank;
mod describe;
mod descriptor;
mod error;
mod page;
mod reserve;
mod states;
pub mod writer;

#[cfg(all(test, loom))]
mod loom_tests;

pub use describe::{Mode, Part};
pub use descriptor::{Descriptor, SectionPlace};
pub use error::MemmapError;
pub use page::{FLAG_BITS, PageDescriptor};
pub use states::SectionState;
pub use writer::Writer;

use core::fmt;

use crate::addr::{Frame, Order};
use crate::frames::{AllocError, Frames, Request};
use crate::sync::{AtomicU64, Ordering};
use bank::Bank;

/// What a kernel may choose.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemmapPolicy {
    /// How descriptors are written.
    pub writer: Writer,
    /// Write also where the memory is known to hold what would be written; for
    /// measurements.
    pub always_write: bool,
}

/// A descriptor of type `T` for every frame of memory.
///
/// ```
/// use std::mem::MaybeUninit;
/// use std::sync::atomic::Ordering;
///
/// use firstlight::addr::{Frame, FrameRange};
/// use firstlight::layout::ZoneSegment;
/// use firstlight::memmap::{Memmap, MemmapPolicy, PageDescriptor, SectionState};
/// use firstlight::node::{NodeId, ZoneKind};
///
/// // 256 MiB from 4 GiB on, described in memory lent for it.
/// let frames = FrameRange::new(1 << 20, (1 << 20) + 65_536).unwrap();
/// let extents = [ZoneSegment { frames, node: NodeId(0), zone: ZoneKind::Normal }];
/// let (directory, bytes) = Memmap::<PageDescriptor>::bytes_for(&extents)?;
/// let mut directory = vec![MaybeUninit::uninit(); directory as usize];
/// let mut memory = vec![MaybeUninit::uninit(); bytes as usize];
/// let memmap = Memmap::<PageDescriptor>::in_memory(
///     &extents, &mut directory, &mut memory, MemmapPolicy::default())?;
///
/// let frame = Frame::new((1 << 20) + 7);
/// assert_eq!(memmap.state(frame), Some(SectionState::Untouched));
/// let page = memmap.of(frame).unwrap(); // writes the section it is in
/// page.references.fetch_add(1, Ordering::Relaxed);
/// assert_eq!(page.place().zone, ZoneKind::Normal);
/// assert_eq!(memmap.state(Frame::new((1 << 20) + 40_000)), Some(SectionState::Untouched));
/// assert!(memmap.of(Frame::new(0)).is_none()); // not memory
/// # Ok::<(), firstlight::memmap::MemmapError>(())
/// ```
#[derive(Debug)]
pub struct Memmap<'m, T> {
    /// By ascending address.
    banks: &'m [Bank<'m, T>],
    policy: MemmapPolicy,
    tally: Tally,
    reserved_bytes: u64,
    directory_bytes: u64,
}

/// What was done so far.
#[derive(Debug)]
struct Tally {
    touched_sections: AtomicU64,
    worked_sections: AtomicU64,
    written_bytes: AtomicU64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            touched_sections: AtomicU64::new(0),
            worked_sections: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        }
    }
}

/// Who makes a section ready.
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
    /// Bytes of the directory, written when room was taken.
    pub directory_bytes: u64,
    /// Bytes taken for directory and descriptors.
    pub reserved_bytes: u64,
}

/// An allocation whose frame should come with a descriptor failed; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescribedError {
    /// There was no block.
    Alloc(AllocError),
    /// The block is memory these descriptors were not made for.
    NotDescribed {
        /// Its first frame.
        frame: Frame,
    },
}

impl fmt::Display for DescribedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alloc(error) => error.fmt(f),
            Self::NotDescribed { frame } => write!(
                f,
                "{frame} was allocated but has no descriptor: expected descriptors made from the same layout"
            ),
        }
    }
}

impl core::error::Error for DescribedError {}

impl<'m, T: Descriptor> Memmap<'m, T> {
    /// The descriptor of `frame`, ready; `None` if there is no memory.
    ///
    /// The first touch of a section writes it, or waits for who does. So an
    /// interrupt handler that may have interrupted one on its own CPU asks
    /// [`Self::peek`], which never waits.
    #[inline]
    pub fn of(&self, frame: Frame) -> Option<&'m T> {
        let bank = self.bank(frame)?;
        if !bank.is_ready(frame) {
            self.make_ready(bank, frame, Made::ByTouch);
        }
        // SAFETY: the frame is the bank's, and its section is ready.
        Some(unsafe { bank.get(frame) })
    }

    /// The descriptor of `frame` if it is ready already.
    #[inline]
    pub fn peek(&self, frame: Frame) -> Option<&'m T> {
        let bank = self.bank(frame).filter(|bank| bank.is_ready(frame))?;
        // SAFETY: the frame is the bank's, and its section is ready.
        Some(unsafe { bank.get(frame) })
    }

    /// The descriptor of a frame whose section is known to be ready, without
    /// looking; `None` if there is no memory.
    ///
    /// # Safety
    /// The section of `frame` is ready, and this CPU knows it from one that saw it.
    ///
    /// # Panics
    /// In debug builds, if it is not: with the frame, its section and its state.
    #[inline]
    pub unsafe fn assume_ready(&self, frame: Frame) -> Option<&'m T> {
        let bank = self.bank(frame)?;
        #[cfg(debug_assertions)]
        if !bank.is_ready(frame) {
            let (place, state) = (bank.place(frame), bank.state(frame));
            panic!(
                "descriptor of {frame} touched before it is ready: section {} of {} is {state}",
                place.section, place.node
            );
        }
        // SAFETY: the frame is the bank's; that its section is ready, the caller promised.
        Some(unsafe { bank.get(frame) })
    }

    /// How far the section of `frame` is; `None` if there is no memory.
    pub fn state(&self, frame: Frame) -> Option<SectionState> {
        self.bank(frame).map(|bank| bank.state(frame))
    }

    /// What the first content of the frame's descriptor depends on.
    pub fn place(&self, frame: Frame) -> Option<SectionPlace> {
        self.bank(frame).map(|bank| bank.place(frame))
    }

    /// Takes a block from `frames`, and makes the descriptor of its first frame
    /// ready; those of its other frames are when they are asked for.
    ///
    /// # Errors
    /// [`DescribedError`]; no frame is taken then.
    pub fn allocate(
        &self,
        frames: &Frames<'_>,
        request: Request,
    ) -> Result<(Frame, &'m T), DescribedError> {
        let frame = frames.allocate(request).map_err(DescribedError::Alloc)?;
        self.of(frame)
            .map(|descriptor| (frame, descriptor))
            .ok_or_else(|| {
                give_back(frames, frame, request.order());
                DescribedError::NotDescribed { frame }
            })
    }

    /// How far it all is. Counts that change meanwhile are counted before or after.
    pub fn progress(&self) -> Progress {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let banks = self.banks.iter();
        Progress {
            sections: banks
                .clone()
                .map(|bank| bank::sections_of(bank.extent.frames))
                .sum(),
            ready_sections: banks.map(Bank::count_ready).sum(),
            touched_sections: load(&self.tally.touched_sections),
            worked_sections: load(&self.tally.worked_sections),
            written_bytes: load(&self.tally.written_bytes),
            directory_bytes: self.directory_bytes,
            reserved_bytes: self.reserved_bytes,
        }
    }

    /// Spoils all descriptors, so that they can be written, and checked, again:
    /// their memory holds `filler`, and all sections are untouched. For
    /// measurements, which is why [`MemmapPolicy::always_write`] must be set.
    ///
    /// # Safety
    /// No reference to a descriptor is in use.
    ///
    /// # Panics
    /// Without [`MemmapPolicy::always_write`].
    pub unsafe fn spoil(&mut self, filler: u64) {
        assert!(
            self.policy.always_write,
            "what is known to be zero would not be written again"
        );
        for bank in self.banks {
            // SAFETY: the caller's promise; `&mut self` keeps other calls out.
            unsafe { bank.spoil(filler, &self.policy) };
        }
        self.tally = Tally::default();
    }

    /// The bank whose extent `frame` is in.
    #[inline]
    fn bank(&self, frame: Frame) -> Option<&'m Bank<'m, T>> {
        let after = self
            .banks
            .partition_point(|bank| bank.extent.frames.start() <= frame);
        let bank = self.banks.get(after.checked_sub(1)?)?;
        bank.extent.frames.contains(frame).then_some(bank)
    }

    #[cold]
    fn make_ready(&self, bank: &Bank<'_, T>, frame: Frame, made: Made) {
        let Some(written_bytes) = bank.make_ready(frame, &self.policy) else {
            return;
        };
        let count = match made {
            Made::ByTouch => &self.tally.touched_sections,
            Made::ByWorker => &self.tally.worked_sections,
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.tally
            .written_bytes
            .fetch_add(written_bytes, Ordering::Relaxed);
    }
}

/// Frees a block that was just allocated.
fn give_back(frames: &Frames<'_>, frame: Frame, order: Order) {
    let freed = frames.free(frame, order);
    debug_assert!(freed.is_ok(), "a block just allocated can be freed");
}
