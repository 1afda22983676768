//! Page descriptors of this machine: [`Descriptors`], of the size on the command line.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use firstlight::addr::{Frame, FrameRange, Order};
use firstlight::layout::{Layout, ZoneSegment};
use firstlight::memmap::{
    Descriptor, Memmap, MemmapError, MemmapPolicy, Mode, PageDescriptor, Part, Progress,
    SectionPlace,
};
use firstlight::node::NodeId;
use firstlight::parallel::{Job, JobError, Report, WorkRange, Worker, Workers};
use firstlight_image::words::DescriptorBytes;
use firstlight_wire::{self as wire, Event};
use log::info;

use crate::arch::{DirectMap, writer};
use crate::console::event;

/// A descriptor whose content can be checked.
trait Checked: Descriptor {
    /// Whether it has its first content.
    fn is_fresh(&self, place: SectionPlace) -> bool;
}

/// A descriptor of `WORDS` words, its place in the first.
pub(crate) struct Words<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Words<WORDS> {
    fn first(place: SectionPlace) -> u64 {
        place.section << 24 | u64::from(place.node.0) << 8 | (place.zone as u64) << 1 | 1
    }
}

// SAFETY: atomic integers without padding.
unsafe impl<const WORDS: usize> Descriptor for Words<WORDS> {
    fn template(place: SectionPlace) -> Self {
        let words = Self([const { AtomicU64::new(0) }; WORDS]);
        words.0[0].store(Self::first(place), Relaxed);
        words
    }
}

impl<const WORDS: usize> Checked for Words<WORDS> {
    fn is_fresh(&self, place: SectionPlace) -> bool {
        let [first, rest @ ..] = &self.0[..] else {
            return false;
        };
        first.load(Relaxed) == Self::first(place) && rest.iter().all(|word| word.load(Relaxed) == 0)
    }
}

impl Checked for PageDescriptor {
    fn is_fresh(&self, place: SectionPlace) -> bool {
        let counts = [&self.references, &self.maps].map(|count| count.load(Relaxed));
        let [after, before] = &self.links;
        let words = [
            after,
            before,
            &self.owner,
            &self.index,
            &self.private,
            &self.account,
        ];
        self.place() == place
            && self.flags() == 0
            && counts == [0; 2]
            && words.iter().all(|word| word.load(Relaxed) == 0)
    }
}

/// The descriptors, of one of three sizes.
pub(crate) enum Descriptors {
    Eight(Memmap<'static, Words<1>>),
    Sixteen(Memmap<'static, Words<2>>),
    SixtyFour(Memmap<'static, PageDescriptor>),
}

/// Runs one code for each size.
macro_rules! each {
    ($descriptors:expr, $memmap:ident => $code:expr) => {
        match $descriptors {
            Descriptors::Eight($memmap) => $code,
            Descriptors::Sixteen($memmap) => $code,
            Descriptors::SixtyFour($memmap) => $code,
        }
    };
}

impl Descriptors {
    /// Reserves space for them.
    pub(crate) fn reserve(
        layout: &mut Layout<'_>,
        platform: &'static DirectMap,
        bytes: DescriptorBytes,
        always_write: bool,
    ) -> Result<Self, MemmapError> {
        let policy = MemmapPolicy {
            writer: writer(),
            always_write,
        };
        Ok(match bytes {
            DescriptorBytes::Eight => Self::Eight(Memmap::reserve(layout, platform, policy)?),
            DescriptorBytes::Sixteen => Self::Sixteen(Memmap::reserve(layout, platform, policy)?),
            DescriptorBytes::SixtyFour => {
                Self::SixtyFour(Memmap::reserve(layout, platform, policy)?)
            }
        })
    }

    /// Adds those of memory that came, in its own first frames, which are returned. `directory`
    /// gives memory that is never freed, some bytes a section; not called if the same memory was
    /// there before.
    pub(crate) fn add(
        &self,
        segment: ZoneSegment,
        platform: &'static DirectMap,
        mut directory: impl FnMut(u64) -> Option<&'static mut [MaybeUninit<u8>]>,
    ) -> Result<FrameRange, MemmapError> {
        // SAFETY: the memory was just plugged in, and nothing else knows of it.
        each!(self, memmap => match unsafe { memmap.add(segment, &mut [], platform) } {
            Err(MemmapError::TooLittleStorage { needed_bytes, .. }) => {
                let directory = directory(needed_bytes).unwrap_or_default();
                // SAFETY: as above.
                unsafe { memmap.add(segment, directory, platform) }
            }
            added => added,
        })
    }

    /// Removes those of memory that goes, as it came.
    ///
    /// # Safety
    /// Nothing reads them, now or later.
    pub(crate) unsafe fn remove(&self, frames: FrameRange) -> bool {
        // SAFETY: the caller's promise.
        each!(self, memmap => unsafe { memmap.remove(frames) })
    }

    /// Size of one in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Eight(_) => 8,
            Self::Sixteen(_) => 16,
            Self::SixtyFour(_) => 64,
        }
    }

    /// Writes a part on this CPU.
    pub(crate) fn describe(&self, part: Part) {
        each!(self, memmap => memmap.describe(part));
    }

    /// Writes a part of the `wanted` nodes with `workers`, one for each of the list.
    pub(crate) fn describe_with(
        &self,
        part: Part,
        wanted: impl Fn(NodeId) -> bool,
        job: &Job,
        lists: &mut (&mut [WorkRange], &mut [Worker]),
        workers: &impl Workers,
    ) -> Result<Report, JobError> {
        let (ranges, list) = lists;
        each!(self, memmap => memmap.describe_nodes(part, wanted, job, ranges, list, workers))
    }

    /// Makes the descriptors of `frames` ready.
    pub(crate) fn make_range_ready(&self, frames: FrameRange) {
        each!(self, memmap => memmap.make_range_ready(frames));
    }

    /// Work ranges that [`Self::describe_with`] needs.
    pub(crate) fn work_ranges(&self) -> usize {
        each!(self, memmap => memmap.ranges_needed())
    }

    /// Makes the descriptors of blocks that are allocated ready.
    pub(crate) fn prepare(&self, blocks: &[Frame], order: Order) {
        each!(self, memmap => memmap.prepare(blocks, order));
    }

    /// Poisons all, for another measurement.
    ///
    /// # Safety
    /// No reference to a descriptor is in use.
    pub(crate) unsafe fn poison(&mut self) {
        // SAFETY: the caller's promise.
        each!(self, memmap => unsafe { memmap.poison(0xdead_beef_dead_beef) });
    }

    fn progress(&self) -> Progress {
        each!(self, memmap => memmap.progress())
    }

    /// Checks every descriptor that is ready: how many there are, and how many are wrong.
    pub(crate) fn check(&self, layout: &Layout<'_>) -> (u64, u64) {
        fn check<T: Checked>(memmap: &Memmap<'_, T>, layout: &Layout<'_>) -> (u64, u64) {
            let (mut checked, mut wrong) = (0, 0);
            for extent in layout.extents() {
                for frame in
                    (extent.frames.start().get()..extent.frames.end().get()).map(Frame::new)
                {
                    let place = SectionPlace {
                        node: extent.node,
                        zone: extent.zone,
                        section: frame.get() / firstlight::layout::SECTION_FRAMES,
                    };
                    let Some(descriptor) = memmap.peek(frame) else {
                        continue;
                    };
                    checked += 1;
                    wrong += u64::from(!descriptor.is_fresh(place));
                }
            }
            (checked, wrong)
        }
        each!(self, memmap => check(memmap, layout))
    }

    /// Reports their state; whether those that are ready are right.
    pub(crate) fn report(&self, mode: Mode, layout: &Layout<'_>) -> bool {
        let (checked_frames, wrong_frames) = self.check(layout);
        let progress = self.progress();
        let (mode, bytes, writer) = (mode.name(), self.bytes(), writer().name());
        let Progress {
            sections,
            ready_sections,
            ..
        } = progress;
        info!(
            "descriptors: {mode}, {bytes} bytes each by {writer}, {ready_sections} of {sections} sections \
             ready, {} KiB written, {} KiB of it zeros; {checked_frames} checked, {wrong_frames} wrong",
            progress.written_bytes >> 10,
            progress.zeroed_bytes >> 10,
        );
        event(&Event::Descriptors(wire::Descriptors {
            mode,
            writer,
            descriptor_bytes: bytes,
            sections,
            ready_sections,
            touched_sections: progress.touched_sections,
            worked_sections: progress.worked_sections,
            written_bytes: progress.written_bytes,
            zeroed_bytes: Some(progress.zeroed_bytes),
            reserved_bytes: progress.reserved_bytes,
            checked_frames,
            wrong_frames,
        }));
        wrong_frames == 0
    }
}
