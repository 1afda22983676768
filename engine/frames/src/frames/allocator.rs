//! What a kernel calls on [`Frames`].

use super::cpu::Cpu;
use super::cpu::cache::CpuCache;
use super::cpu::cpus::CpusProvided;
use super::cpu::drain::DrainRequest;
use super::cpu::slot::{CpuEvents, CpuSlot};
use super::error::{AllocError, BlockError, CpuError, RangeError};
use super::find::Frames;
use super::hooks::Hooks;
use super::hotplug_error::HotplugError;
#[cfg(doc)]
use super::hotplug_error::Refusal;
use super::isolation::Isolation;
use super::metadata::Metadata;
use super::range;
use super::request::Request;
use super::segment::Segment;
use super::segment::occupancy::Occupancy;
use super::segment::statistics::Statistics;
use super::segment::validate::Violation;
use super::word::Content;
use super::zone::Nodes;
use super::zone::marks::ZoneMarks;
use super::zone::segment::ZoneSegment;
use crate::addr::{Frame, FrameRange, Order};
use crate::layout::Layout;
use crate::node::NodeId;
#[cfg(feature = "content")]
use crate::sync::Ordering;

impl<'m> Frames<'m> {
    /// With what a kernel adds to allocation.
    #[must_use]
    pub fn with_hooks(mut self, hooks: &'m dyn Hooks) -> Self {
        self.nodes.hooks = Some(hooks);
        self
    }

    /// Provides the caches of all CPUs, see [`Frames::cpu`] and [`PerCpu`](super::PerCpu); also on an allocator that
    /// is shared already, since kernels count their CPUs after memory. What a CPU caches follows from their number, so
    /// provide one for each that exists. When memory runs out [`Hooks::drain`] reaches them; without it they see a
    /// request at their next call. The list lies in one piece, so on a machine of several nodes each cache is on its
    /// CPU's node only if the kernel maps it so.
    ///
    /// ```
    /// use firstlight_frames::frames::{CpuCache, CpusProvided, Frames};
    ///
    /// static CPUS: [CpuCache; 64] = [const { CpuCache::new() }; 64]; // or in memory of `frames`
    ///
    /// /// Once the tables of CPUs are read.
    /// fn cpus_are_known(frames: &Frames<'_>, cpus: usize) -> Result<(), CpusProvided> {
    ///     frames.provide_cpus(CPUS.get(..cpus).unwrap_or(&CPUS))
    /// }
    /// ```
    ///
    /// The caches outlive the allocator. A hosted one that ends needs no `static`; one that does not end does:
    ///
    /// ```
    /// # use firstlight_frames::frames::{CpuCache, CpusProvided, Frames};
    /// fn of_a_test<'m>(frames: &Frames<'m>, caches: &'m [CpuCache]) -> Result<(), CpusProvided> {
    ///     frames.provide_cpus(caches)
    /// }
    /// ```
    /// ```compile_fail,E0621
    /// # use firstlight_frames::frames::{CpuCache, CpusProvided, Frames};
    /// fn too_short(frames: &Frames<'static>, caches: &[CpuCache]) -> Result<(), CpusProvided> {
    ///     frames.provide_cpus(caches)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`CpusProvided`]: it has some already; nothing is changed.
    pub fn provide_cpus(&self, caches: &'m [CpuCache]) -> Result<(), CpusProvided> {
        self.cpus.provide(caches)
    }

    /// Counts the free frames of the zones of `zones`, keeps their reserves, and reports to
    /// [`Hooks::crossed`] when they cross a mark. Of two entries for one zone the first counts.
    ///
    /// Not once CPUs have caches.
    #[must_use]
    pub fn with_water_marks(mut self, zones: &'m [ZoneMarks]) -> Self {
        for marks in zones {
            let (node, zone) = marks.zone();
            marks.set_free_frames(self.zone(node, zone).statistics().free_frames);
        }
        self.nodes.segments.zones.set_marks(zones);
        self
    }

    /// Allocates and frees for CPU number `cpu`, which is on `node`, through the lists of its
    /// [`CpuCache`].
    ///
    /// # Errors
    /// [`CpuError`]: no such CPU or node, or its cache is in use.
    pub fn cpu<'f>(&'f self, cpu: usize, node: NodeId) -> Result<Cpu<'f, 'm>, CpuError> {
        Cpu::new(self, cpu, node)
    }

    /// Requests a drain of all CPUs that cache something. Meant for after an
    /// [`AllocError`] whose [`held_by_cpus`](AllocError::held_by_cpus) is not 0, where the caller
    /// holds no lock and has interrupts on: it may interrupt those CPUs, wait for them, and try
    /// again.
    ///
    /// ```
    /// # use firstlight_frames::addr::Frame;
    /// # use firstlight_frames::frames::{AllocError, Frames};
    /// fn allocate(
    ///     frames: &Frames<'_>,
    ///     try_once: impl Fn() -> Result<Frame, AllocError>, // with this CPU's cache
    ///     interrupt: fn(cpu: usize),
    /// ) -> Result<Frame, AllocError> {
    ///     let request = match try_once() {
    ///         Err(error) if error.held_by_cpus() > 0 => frames.request_drain(),
    ///         result => return result,
    ///     };
    ///     request.cpus().for_each(interrupt);
    ///     for _ in 0..100_000 {
    ///         if request.pending_frames() == 0 {
    ///             break;
    ///         }
    ///         core::hint::spin_loop();
    ///     }
    ///     try_once()
    /// }
    /// ```
    pub fn request_drain(&self) -> DrainRequest<'_> {
        self.cpus.slots().for_each(|slot| {
            slot.request_drain_of_any();
        });
        DrainRequest::new(&self.cpus)
    }

    /// Allocates a block, from the preferred node or the nearest to it that has one.
    ///
    /// # Errors
    /// [`AllocError::OutOfMemory`] when no allowed node and zone has a block of
    /// this order; [`AllocError::NoSuchNode`]; [`AllocError::NotZeroed`] of a request for zeros.
    pub fn allocate(&self, request: Request) -> Result<Frame, AllocError> {
        self.allocate_uncached(request)
    }

    /// Frees a block. It may be any aligned part of a block that was allocated, or several
    /// smaller ones that make up an aligned whole. Frames reserved for boot are freed in the
    /// same way.
    ///
    /// # Errors
    /// [`BlockError::Misaligned`], [`BlockError::OutsideMemory`],
    /// [`BlockError::NotAllocated`], [`BlockError::Reserved`]; nothing is changed then.
    pub fn free(&self, frame: Frame, order: Order) -> Result<(), BlockError> {
        self.nodes.free(frame, order)
    }

    /// Whether [`Frames::free_frames`] would free `range`, as far as the tables say: what a CPU caches
    /// counts as allocated.
    ///
    /// # Errors
    /// As [`Frames::free_frames`].
    #[cfg(feature = "content")]
    pub fn check_free(&self, range: FrameRange) -> Result<(), RangeError> {
        range::check_free(&self.nodes.segments, range)
    }

    /// Allocates `frames` contiguous frames, any number of them, of one node and zone.
    /// The first is a multiple of `align_frames`, a power of two that may be
    /// larger than the range and than a giant frame, and of the request's order.
    /// Nothing is rounded up: the rest of a larger free block stays free.
    /// Node and zone of the request have the same meaning as for [`Frames::allocate`].
    /// [`Frames::free_frames`] frees them, whole or in parts.
    ///
    /// Up to a huge frame they are the start of the smallest block that holds them, the rest of which stays
    /// free; where there is no such block, and for zeros, frames in a row are found by a
    /// search. That takes small ranges from huge and giant frames that are broken up already
    /// for the same mobility as long as there is space in one; ranges of a huge or
    /// giant frame and more begin with a whole one if they can.
    ///
    /// # Cost
    /// Up to a huge frame that of a block.
    /// One search reads each word of a segment at most once, and no level below
    /// a giant or huge frame that is free, or used up, as a whole: for G giant
    /// frames, H huge frames in broken up giant frames and P words of 64 pages
    /// in broken up huge frames, at most G + H + P probes, and about one in
    /// every range length where memory is finely broken up. Where the alignment
    /// is a giant frame or more, one probe a giant frame the range fills (and a
    /// huge frame likewise). At most four searches a segment and pass. Then each giant frame is
    /// taken by one step, and each end by at most 17. [`Cpu::allocate_frames`] takes up to a huge
    /// frame from a CPU's cache.
    ///
    /// ```
    /// use firstlight_frames::addr::{FrameRange, Order};
    /// use firstlight_frames::frames::{AllocError, Frames, Request};
    /// use firstlight_frames::node::NodeId;
    ///
    /// /// 2.5 GiB for a guest, mapped from a multiple of 1 GiB on.
    /// fn guest(frames: &Frames<'_>) -> Result<FrameRange, AllocError> {
    ///     let request = Request::new(Order::PAGE).on(NodeId(1));
    ///     frames.allocate_frames(5 << 17, Order::GIANT.frames(), request)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`AllocError::OutOfMemory`] when no such range was seen, also after
    /// other CPUs drained their caches. A range that is free all the time, and that no other
    /// call takes some of meanwhile, is found.
    /// [`AllocError::NoFrames`], [`AllocError::BadAlignment`], [`AllocError::NoSuchNode`].
    pub fn allocate_frames(
        &self,
        frames: u64,
        align_frames: u64,
        request: Request,
    ) -> Result<FrameRange, AllocError> {
        self.allocate_frames_uncached(frames, align_frames, request)
    }

    /// Allocates the frames of `range`, all of them or none: any start and
    /// any length, also across the borders of zones and nodes, as long as all
    /// of it is memory. What lies across a border is freed by [`Frames::free_frames`], also if it
    /// is aligned as a block: a block is of one node and zone.
    ///
    /// Costs a read of the words of the range (one a giant frame where it is free as a whole) and a
    /// step for each of the largest aligned blocks it consists of: one a giant frame and at most 34
    /// at its two ends.
    ///
    /// ```
    /// use firstlight_frames::addr::FrameRange;
    /// use firstlight_frames::frames::{Frames, RangeError};
    ///
    /// /// Allocates the frames a device writes to; `false` if some of it is in use.
    /// fn keep_out(frames: &Frames<'_>, range: FrameRange) -> Result<bool, RangeError> {
    ///     match frames.allocate_range(range) {
    ///         Ok(()) => Ok(true),
    ///         Err(RangeError::InUse { .. }) => Ok(false),
    ///         Err(error) => Err(error),
    ///     }
    /// }
    /// ```
    ///
    /// Frames that CPUs cache are in use; if some of the range is, the other CPUs are
    /// requested to drain, and it is tried once more. A caller with a [`Cpu`] of its own
    /// drains that first.
    ///
    /// # Errors
    /// [`RangeError::OutsideMemory`] names the first frame that is not memory,
    /// [`RangeError::InUse`] the first that was seen in use. Frames taken up to there are
    /// freed; until then other CPUs see them as used.
    pub fn allocate_range(&self, range: FrameRange) -> Result<(), RangeError> {
        self.take_range(range)
    }

    /// Frees all frames of `range`, however they were allocated.
    ///
    /// # Errors
    /// [`RangeError::OutsideMemory`], [`RangeError::Reserved`] and
    /// [`RangeError::NotAllocated`] name the first frame that is at fault; nothing is changed
    /// then, unless another CPU frees some of it at the same moment.
    pub fn free_frames(&self, range: FrameRange) -> Result<(), RangeError> {
        range::free(&self.nodes, range)
    }

    /// Frees all frames of `range`, as [`Frames::free_frames`], and says what all of it holds: a
    /// caller that has zeroed it, or never wrote to it, saves the next owner that work. It is kept
    /// of huge frames (2 MiB) that are freed as a whole.
    ///
    /// ```
    /// # use firstlight_frames::addr::FrameRange;
    /// # use firstlight_frames::frames::{Content, Frames, RangeError};
    /// /// Memory of a guest that was never mapped writable.
    /// fn free_untouched(frames: &Frames<'_>, guest: FrameRange) -> Result<(), RangeError> {
    ///     frames.free_frames_with(guest, Content::Zero)
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Frames::free_frames`].
    pub fn free_frames_with(&self, range: FrameRange, content: Content) -> Result<(), RangeError> {
        range::free_with(&self.nodes, range, content)
    }

    /// Whether the device promises that memory it was given comes back zero; not at first. Then
    /// [`Content::Reported`] is as good as [`Content::Zero`] for a request for zeros. Any CPU, at any
    /// time: when a device is found, reset or gone.
    #[cfg(feature = "content")]
    pub fn set_reported_is_zero(&self, promised: bool) {
        let reported = &self.nodes.reported_is_zero;
        reported.store(promised, Ordering::Relaxed);
    }

    /// Isolates the memory in `range`: whole huge frames, or up to where memory ends. Holes
    /// in it are skipped; where memory may come, or is offline, the call is refused. Costs a step a
    /// huge frame.
    ///
    /// What CPUs cache counts as in use; all CPUs are requested to drain.
    /// The caller drains its own cache first.
    ///
    /// # Errors
    /// [`HotplugError`], but not [`Refusal::InUse`].
    pub fn isolate(&self, range: FrameRange) -> Result<Isolation<'_, 'm>, HotplugError> {
        Isolation::new(self, range)
    }

    /// Whether `frame` is allocated or reserved; `None` if it is not memory, or not yet.
    pub fn is_allocated(&self, frame: Frame) -> Option<bool> {
        let segment = self.nodes.segments.at(frame)?;
        let online = segment.online()?;
        let is_absent = !segment.is_memory_from_start() && online.is_reserved(frame);
        (!is_absent).then(|| online.is_allocated(frame))
    }

    /// The memory of the whole machine.
    pub fn statistics(&self) -> Statistics {
        let cached = self.cpus.slots().map(CpuSlot::cached_frames);
        Statistics {
            cached_frames: cached.map(u64::from).sum(),
            ..Nodes::sum(self.nodes.segments.iter())
        }
    }

    /// What the memory in `range`, whole huge frames, is used for: whether it could leave, or become
    /// one block. What is absent or offline has no use and does not count. Starts the segments it
    /// lies in.
    ///
    /// ```
    /// # use firstlight_frames::addr::FrameRange;
    /// # use firstlight_frames::frames::Frames;
    /// /// Whether all of it is free once what can be moved has moved.
    /// fn can_leave(frames: &Frames<'_>, range: FrameRange) -> bool {
    ///     frames.occupancy(range).fixed_frames == 0
    /// }
    /// ```
    pub fn occupancy(&self, range: FrameRange) -> Occupancy {
        let parts = self.nodes.segments.whole_parts(range);
        let occupancy = |(segment, part): (&ZoneSegment<'_>, FrameRange)| {
            let reserved = segment.is_memory_from_start();
            Some(segment.online()?.occupancy(part, reserved))
        };
        parts.filter_map(occupancy).sum()
    }

    /// What CPU number `cpu` has done since it was opened.
    pub fn cpu_events(&self, cpu: usize) -> Option<CpuEvents> {
        self.cpus.slots().nth(cpu).map(CpuSlot::events)
    }

    /// Recounts everything that is kept at two levels. Meant for tests and
    /// diagnosis: only while no other call is in flight.
    ///
    /// # Errors
    /// The first [`Violation`] found.
    pub fn validate(&self) -> Result<(), Violation> {
        let segments = self.nodes.segments.iter();
        let mut online = segments.filter_map(ZoneSegment::online);
        online.try_for_each(Segment::validate)
    }

    /// Nodes in the order of fallback of a request on `from`.
    pub fn fallback(&self, from: NodeId) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.nodes.fallback(from)
    }

    /// The cost of the allocator's own tables up to now.
    pub fn metadata(&self) -> Metadata {
        let segments = self.nodes.segments.iter();
        let started: u64 = segments.map(ZoneSegment::written_bytes).sum();
        Metadata {
            written_bytes: self.metadata.written_bytes + started,
            ..self.metadata
        }
    }

    /// The layout the allocator was built from.
    pub fn layout(&self) -> &Layout<'m> {
        &self.nodes.layout
    }
}
