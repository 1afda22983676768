//! Page descriptors of this machine: [`Descriptors`], of the size that the
//! command line asks for.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{Frames, Request};
use firstlight::layout::Layout;
use firstlight::memmap::{
    Descriptor, Memmap, MemmapError, MemmapPolicy, Mode, PageDescriptor, Part, Progress,
    SectionPlace,
};
use firstlight::node::NodeId;
use firstlight::parallel::{Chunking, Job, JobError, Report, WorkRange, Worker, Workers};
use firstlight_image::wire::Event;
use firstlight_image::words::{self, DescriptorBytes};
use log::info;

use crate::arch::{DirectMap, writer};
use crate::bring_up::Machine;
use crate::console::{event, note};
use crate::processors::{Processors, Team};

/// A descriptor of which one can tell whether it holds what it should.
trait Checked: Descriptor {
    /// Whether it is as it was first written.
    fn is_fresh(&self, place: SectionPlace) -> bool;
}

/// A descriptor of `WORDS` words, its place in the first.
pub(crate) struct Words<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Words<WORDS> {
    fn first(place: SectionPlace) -> u64 {
        place.section << 24 | u64::from(place.node.0) << 8 | (place.zone as u64) << 1 | 1
    }
}

// SAFETY: atomic integers without padding; zero is a valid value of each.
unsafe impl<const WORDS: usize> Descriptor for Words<WORDS> {
    const ZERO_IS_VALID: bool = true;

    fn template(place: SectionPlace) -> Option<Self> {
        let words = Self([const { AtomicU64::new(0) }; WORDS]);
        words.0[0].store(Self::first(place), Relaxed);
        Some(words)
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

/// What there is of one size.
pub(crate) enum Descriptors {
    Eight(Memmap<'static, Words<1>>),
    Sixteen(Memmap<'static, Words<2>>),
    SixtyFour(Memmap<'static, PageDescriptor>),
}

/// The same code for each size.
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
    /// Takes room for them.
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

    /// Bytes of one.
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

    /// Writes a part of the `wanted` nodes on a crew.
    pub(crate) fn describe_with(
        &self,
        part: Part,
        wanted: impl Fn(NodeId) -> bool,
        job: &Job,
        lists: &mut (&mut [WorkRange], &mut [Worker]),
        crew: &impl Workers,
    ) -> Result<Report, JobError> {
        let (shares, seats) = lists;
        each!(self, memmap => memmap.describe_nodes(part, wanted, job, shares, seats, crew))
    }

    /// Makes the descriptors of `frames` ready.
    pub(crate) fn make_range_ready(&self, frames: FrameRange) {
        each!(self, memmap => memmap.make_range_ready(frames));
    }

    /// Shares that takes.
    pub(crate) fn ranges_needed(&self) -> usize {
        each!(self, memmap => memmap.ranges_needed())
    }

    /// Takes a block together with its first descriptor; the frame.
    pub(crate) fn allocate(&self, frames: &Frames<'_>, request: Request) -> Option<Frame> {
        each!(self, memmap => memmap.allocate(frames, request).ok().map(|(frame, _)| frame))
    }

    /// Forgets all, for another measurement.
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

    /// Looks at every descriptor that is ready: how many, and how many are wrong.
    pub(crate) fn check(&self, layout: &Layout<'_>) -> (u64, u64) {
        fn check<T: Checked>(memmap: &Memmap<'_, T>, layout: &Layout<'_>) -> (u64, u64) {
            let (mut seen, mut wrong) = (0, 0);
            for extent in layout.segments() {
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
                    seen += 1;
                    wrong += u64::from(!descriptor.is_fresh(place));
                }
            }
            (seen, wrong)
        }
        each!(self, memmap => check(memmap, layout))
    }

    /// Tells how far they are; whether those that are ready are right.
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
             ready; {checked_frames} checked, {wrong_frames} wrong"
        );
        event(&Event::Descriptors {
            mode,
            writer,
            descriptor_bytes: bytes,
            sections,
            ready_sections,
            touched_sections: progress.touched_sections,
            worked_sections: progress.worked_sections,
            written_bytes: progress.written_bytes,
            reserved_bytes: progress.reserved_bytes,
            checked_frames,
            wrong_frames,
        });
        wrong_frames == 0
    }
}

/// Has the other CPUs write what the mode leaves for behind the boot; false if that is nothing.
pub(crate) fn finish(machine: &Machine, processors: &mut Processors) -> bool {
    let Some((mode, descriptors)) = &machine.descriptors else {
        return false;
    };
    // A sweep times the writing itself.
    let sweep = machine.words.mode == words::Mode::Sweep;
    let Some(part) = mode.behind_boot().filter(|_| !sweep) else {
        return false;
    };
    let descriptors = descriptors.read();
    let frames = &machine.frames;
    let cpus = processors.started();
    let mut nodes = processors.nodes();
    let seats = list(frames, cpus, |_| {
        Worker::new(nodes.next().map_or_else(NodeId::default, |(_, node)| node))
    });
    drop(nodes);
    let (Some(shares), Some(seats)) = (shares(frames, &descriptors), seats) else {
        note("no memory for the lists of deferred descriptors: written when touched");
        return false;
    };
    let job = Job::sections(Chunking::Stealing);
    match descriptors.describe_with(
        part,
        |_| true,
        &job,
        &mut (shares, seats),
        &Team::new(processors),
    ) {
        Ok(_) => true,
        Err(error) => {
            note(format_args!(
                "deferred descriptors: {error}; written when touched"
            ));
            false
        }
    }
}

/// Room for the shares of `descriptors`.
pub(crate) fn shares(
    frames: &Frames<'_>,
    descriptors: &Descriptors,
) -> Option<&'static mut [WorkRange]> {
    list(frames, descriptors.ranges_needed(), |_| {
        WorkRange::new(NodeId::default(), FrameRange::EMPTY)
    })
}

/// A list in memory of its own, for good; `None` if there is no memory.
pub(crate) fn list<T>(
    frames: &Frames<'_>,
    len: usize,
    make: impl FnMut(usize) -> T,
) -> Option<&'static mut [T]> {
    list_of(frames, len, (0..len).map(make))
}

/// As [`list`], of the first `len` of `values`, or of as many as there are.
pub(crate) fn list_of<'l, T: 'l>(
    frames: &Frames<'_>,
    len: usize,
    values: impl Iterator<Item = T>,
) -> Option<&'l mut [T]> {
    let room = room::<T>(frames, len)?;
    // SAFETY: mapped memory which the allocator gave to nobody else and never will.
    Some(unsafe { list_at(room, values.take(len)) })
}

/// A list of zeroes in memory of its own, for good: of what is too large for a stack.
///
/// # Safety
/// Zeroes are a valid value.
pub(crate) unsafe fn zeroed_list<T>(frames: &Frames<'_>, len: usize) -> Option<&'static mut [T]> {
    let room = room::<T>(frames, len)?;
    let first = room.start().get() as *mut T;
    // SAFETY: as much room as for `list`; zeroes are valid, as the caller promised.
    Some(unsafe {
        first.write_bytes(0, len);
        core::slice::from_raw_parts_mut(first, len)
    })
}

/// Room for so many, from a page on.
fn room<T>(frames: &Frames<'_>, len: usize) -> Option<PhysRange> {
    let pages = (len.checked_mul(size_of::<T>())? as u64)
        .div_ceil(PAGE_BYTES)
        .max(1);
    let order = u8::try_from(pages.next_power_of_two().ilog2())
        .ok()
        .and_then(Order::new)?;
    let frame = frames.allocate(Request::new(order)).ok()?;
    PhysRange::with_size(frame.addr().get(), order.bytes())
}

/// A list of `values` in `room`, for good; as long as the room is, if that is less.
///
/// # Safety
/// The room is mapped, begins on a page, and is nobody else's, now and later.
pub(crate) unsafe fn list_at<'l, T: 'l>(
    room: PhysRange,
    values: impl Iterator<Item = T>,
) -> &'l mut [T] {
    let fits = usize::try_from(room.bytes()).unwrap_or_default() / size_of::<T>();
    let first = room.start().get() as *mut MaybeUninit<T>;
    // SAFETY: the caller's promise; the content may be anything.
    let slots = unsafe { core::slice::from_raw_parts_mut(first, fits) };
    let mut written = 0;
    for (slot, value) in slots.iter_mut().zip(values) {
        slot.write(value);
        written += 1;
    }
    // SAFETY: so many were just written; the same layout.
    unsafe { core::slice::from_raw_parts_mut(first.cast(), written) }
}
