//! From the loader's hand-over to a frame allocator over all memory, with a time stamp
//! after each step. A kernel does the same; everything else is the image's own.

use core::fmt;
use core::iter::{once, repeat_with};

use firstlight::acceptance::Pending;
use firstlight::addr::{FrameRange, Order, PAGE_BYTES, PHYS_END, PhysRange};
use firstlight::early::{EarlyError, EarlyFlags, EarlyMemory, EarlyRequest};
use firstlight::events::Events;
use firstlight::frames::{AllocError, Frames, Metadata, Request};
use firstlight::layout::Layout;
use firstlight::map::{MemoryKind, MemoryMap, Region};
use firstlight::memmap::{MemmapError, Mode};
use firstlight::node::ZoneKind;
use firstlight::start::{Boot, BootMemory, NodeTables, StartError};
use firstlight::topology::Trust;
use firstlight_image::words::{self, Regression, Test, Words};
use firstlight_wire::{marker, milestone, phase};
use spin::{Mutex, Once, RwLock};

use crate::arch::cpus::FIRST_PAGE_END;
use crate::arch::{DirectMap, image_range, marker, restart, ticks};
use crate::console::{correction, note};
use crate::descriptors::Descriptors;
use crate::firmware::uefi::Uefi;
use crate::firmware::{self, Loader, LoaderError, Root};
use crate::hooks::{self, Described, Kernel};
use crate::lists::list_at;
use crate::machine::Machine;
use crate::preserve::Left;
use crate::regress;
use crate::storage;

/// All memory, mapped.
static DIRECT: Once<DirectMap> = Once::new();

/// Memory of a virtual machine that firmware and loader have not written to: both keep
/// below 4 GiB.
static UNTOUCHED: [FrameRange; 1] =
    match FrameRange::new(DirectMap::TABLES_BELOW.frame().get(), PHYS_END / PAGE_BYTES) {
        Some(range) => [range],
        None => [FrameRange::EMPTY],
    };

/// Why a machine cannot be brought up.
pub(crate) enum Stop {
    Start(StartError),
    Descriptors(MemmapError),
    FirstFrame(AllocError),
}

impl<E: Into<StartError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Start(error.into())
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::Descriptors(error) => write!(f, "page descriptors: {error}"),
            Self::FirstFrame(error) => write!(f, "first frame: {error}"),
        }
    }
}

/// The ends of steps, each an event and a marker.
struct Steps<'e, 'm>(&'e mut Events<'m>);

impl Steps<'_, '_> {
    #[inline]
    fn end(&mut self, name: &'static str, code: u8) -> u64 {
        let now = ticks();
        self.0.end(name, now);
        marker(code);
        now
    }
}

/// All steps, in order: those of [`firstlight::start()`], with page tables between them.
pub(crate) fn bring_up(
    loader: Result<Loader, LoaderError>,
    events: &mut Events<'_>,
) -> Result<Machine, Stop> {
    let log = &mut |seen: &dyn fmt::Display| correction(seen);
    let mut steps = Steps(events);
    // SAFETY: everything in use is reserved, below, before any memory is allocated, there
    // is one `Layout`, and every mode frees only what it allocated.
    let platform = DIRECT.call_once(|| unsafe { DirectMap::new() });
    let direct = *platform;

    let mut loader = loader?;
    loader.report();
    let words = Words::read(loader.command_line, &mut |misread| {
        note(format_args!("command line: {misread}"));
    });
    if words.test == Some(Test::NoMap) {
        loader.forget_map();
    }
    let start = Boot {
        command_line: loader.command_line.text(),
        reserved: &[
            firmware::FIXED,
            (DirectMap::devices(), "devices"),
            (image_range(), "image"),
        ],
        policy: loader.policy(),
        ..Boot::new(())
    };
    // SAFETY: once.
    let own = || unsafe { storage::boot() };
    let slots = match loader.uefi().and_then(|uefi| uefi.slots()) {
        Some(slots) => slots,
        None => own(),
    };
    let mut boot = loader.early(direct, start, slots, log)?;
    steps.end(phase::MEMORY_MAP, marker::MEMORY_MAP);

    let root = firmware::root(direct, &loader);
    let (trampoline, left, all_read) = reserve(
        direct,
        &loader,
        root.as_ref(),
        (words.preserve, words.preserve_verified),
        &mut boot.early,
    )?;
    let uefi = loader.uefi();
    map_memory(direct, &boot.map, uefi, words.accept_ticks, &mut boot.early)?;
    if !all_read {
        // Once more, for tables that were not mapped before.
        firmware::reserve(direct, root.as_ref(), &mut boot.early)?;
    }
    steps.end(phase::PAGE_TABLES, marker::PAGE_TABLES);

    let tables = firmware::tables(direct, &loader, root.as_ref());
    let nodes = tables.nodes();
    let BootMemory { map, mut early, .. } = boot;
    if let Some(range) = firmware::registers(&tables) {
        direct.add_registers(once(range), || early.allocate(&page_table()))?;
    }
    let mut topology = nodes.topology(boot.topology, boot.distances, log)?;
    topology.apply(&mut early, Trust::Repair, &mut |notice| correction(notice))?;
    if words.regress(Regression::NodeRanges) {
        regress::walk_pages(&early);
    }
    steps.end(phase::TOPOLOGY, marker::TOPOLOGY);

    let mut layout = Layout::build(early, topology, &boot.policy, boot.layout)?;
    if words.fresh && restart::count() > 0 {
        note("fresh is ignored: this kernel was restarted, memory was written to");
    } else if words.fresh && uefi.is_some() {
        note("fresh is ignored: UEFI firmware and its loader may have written to any memory");
    } else if words.fresh {
        DirectMap::promise_fresh();
        layout = layout.with_zero_memory(&UNTOUCHED);
    }
    let memory = memory(layout, words, platform, &mut steps)?;
    let taken = left.take(&memory.frames);
    Ok(Machine {
        taken: Mutex::new(taken),
        words,
        command_line: loader.command_line,
        map,
        direct: platform,
        frames: memory.frames,
        tables,
        #[cfg(uefi)]
        root,
        trampoline,
        hooks: memory.hooks,
        ready: memory.ready,
    })
}

/// The memory of a [`Machine`].
struct Memory {
    frames: Frames<'static>,
    hooks: &'static Kernel,
    ready: Metadata,
}

/// The steps from a layout to the first frame.
fn memory(
    mut layout: Layout<'static>,
    words: Words,
    platform: &'static DirectMap,
    steps: &mut Steps<'_, '_>,
) -> Result<Memory, Stop> {
    let layout_ticks = steps.end(phase::LAYOUT, marker::LAYOUT);
    let descriptors = page_descriptors(words, &mut layout, platform).map_err(Stop::Descriptors)?;
    if descriptors.is_some() {
        steps.end(phase::DESCRIPTORS, marker::DESCRIPTORS);
    }

    let pending = pending(&mut layout)?;
    let frames = Frames::build(layout, platform)?;
    steps.end(phase::FRAME_ALLOCATOR, marker::FRAME_ALLOCATOR);
    let request = Request::new(Order::PAGE).zone(ZoneKind::Movable);
    let first = frames.allocate(request).map_err(Stop::FirstFrame)?;
    let ready_ticks = steps.end(phase::FIRST_FRAME, marker::FIRST_FRAME);
    let Steps(events) = steps;
    events.milestone(milestone::LAYOUT, layout_ticks);
    events.milestone(milestone::FIRST_FRAME, ready_ticks);
    events.milestone(milestone::ALL_ALLOCATABLE, ready_ticks);

    let ready = frames.metadata();
    let hooks = hooks::install(descriptors, platform, pending);
    let frames = frames.with_hooks(hooks);
    if hooks.descriptors.is_some() {
        // The first allocation from a section writes its descriptors.
        let frame = frames.allocate(request);
        events.end(phase::FIRST_DESCRIBED_FRAME, ticks());
        let _ = frame.map(|frame| frames.free(frame, Order::PAGE));
    }
    // It was allocated a moment ago.
    let _ = frames.free(first, Order::PAGE);
    Ok(Memory {
        frames,
        hooks,
        ready,
    })
}

/// Reserves the loader's data, firmware's tables, and what the previous kernel left; then, the
/// first allocation of all, a page for starting CPUs.
fn reserve(
    direct: DirectMap,
    loader: &Loader,
    root: Option<&Root>,
    (place, verified): (Option<PhysRange>, bool),
    early: &mut EarlyMemory<'_>,
) -> Result<(Option<PhysRange>, Left, bool), EarlyError> {
    loader.reserve(direct, early)?;
    let all_read = firmware::reserve(direct, root, early)?;
    let left = Left::find(place, verified, early)?;
    let Some(end) = FIRST_PAGE_END else {
        return Ok((None, left, all_read));
    };
    let page = EarlyRequest {
        max: Some(end),
        ..EarlyRequest::new(PAGE_BYTES, PAGE_BYTES, "other CPUs' first page")
    };
    let page = match early.allocate(&page) {
        Ok(page) => Some(page),
        Err(EarlyError::NoSpace { .. }) => {
            note("no memory below 1 MiB: other CPUs cannot be started");
            None
        }
        Err(error) => return Err(error),
    };
    // Firmware of PCs may write there at any time, whatever its map says: when the machine sleeps, wakes, or a
    // cable is plugged in.
    let low = PhysRange::new(0, end.get()).unwrap_or_default();
    early.reserve(low, "the first MiB, left to firmware")?;
    Ok((page, left, all_read))
}

/// A page for a page table.
const fn page_table() -> EarlyRequest {
    EarlyRequest {
        max: Some(DirectMap::TABLES_BELOW),
        ..EarlyRequest::new(PAGE_BYTES, PAGE_BYTES, "page tables")
    }
}

/// Maps all memory and firmware's tables, as far as the processor's addresses reach.
fn map_memory(
    direct: DirectMap,
    map: &MemoryMap<'_>,
    uefi: Option<Uefi>,
    accept_ticks: Option<u32>,
    early: &mut EarlyMemory<'_>,
) -> Result<(), EarlyError> {
    let limit = DirectMap::limit().get();
    let beyond = PhysRange::new(limit, PHYS_END).unwrap_or_default();
    if early.end().get() > limit {
        correction(format_args!(
            "memory from {limit:#x} on is beyond this processor's addresses, left out"
        ));
        early.remove(beyond)?;
    }
    let border = DirectMap::TABLES_BELOW.get();
    let visible_end = if accept_ticks.is_some() {
        border
    } else {
        limit
    };
    let part = |start, end| {
        let part = PhysRange::new(start, end).unwrap_or_default();
        move |region: &Region| region.range.intersect(part)
    };
    let acpi = |region: &&Region| {
        matches!(
            region.kind,
            MemoryKind::AcpiReclaimable | MemoryKind::AcpiNvs
        )
    };
    let wanted = map.memory().chain(map.regions().iter().filter(acpi));
    let table = page_table();
    direct.add_first(wanted.map(part(0, visible_end)), || early.allocate(&table))?;
    if let Some(uefi) = uefi {
        let below = PhysRange::new(0, limit).unwrap_or_default();
        let used = |is_cached| {
            let used = uefi.used_later(is_cached);
            used.map(move |range| range.intersect(below))
        };
        direct.add(used(true), || early.allocate(&table))?;
        #[cfg(uefi)]
        if DirectMap::TYPES_IN_TABLES {
            direct.add_registers(used(false), || early.allocate(&table))?;
        }
    }
    let Some(ticks_per_page) = accept_ticks else {
        return Ok(());
    };
    let hidden = PhysRange::new(border, limit).unwrap_or_default();
    early.set_flags(hidden, EarlyFlags::UNACCEPTED)?;
    let ranges = map.memory().map(part(border, limit));
    direct.add_unaccepted(ranges, ticks_per_page, || early.allocate(&table))
}

/// The list of memory that must be accepted, in memory of its own.
fn pending(layout: &mut Layout<'_>) -> Result<&'static [Pending], EarlyError> {
    // Its length.
    let needed = match Pending::list(layout, &mut []) {
        Ok(_) => return Ok(&[]),
        Err(full) => full.needed,
    };
    let bytes = (needed * size_of::<Pending>()) as u64;
    let request = EarlyRequest::new(bytes, PAGE_BYTES, "list of unaccepted memory");
    let space = layout.allocate(&request)?;
    // SAFETY: early memory just allocated it; it is mapped, like all accepted memory.
    let slots = unsafe { list_at(space, repeat_with(Pending::default).take(needed)) };
    Ok(Pending::list(layout, slots).unwrap_or_default())
}

/// Space for page descriptors, if the command line has a mode for them; those that the
/// mode needs before the boot goes on are written.
fn page_descriptors(
    words: Words,
    layout: &mut Layout<'_>,
    platform: &'static DirectMap,
) -> Result<Option<Described>, MemmapError> {
    let sweep = words.mode == words::Mode::Sweep;
    let Some(mode) = words.descriptors.or(sweep.then_some(Mode::Lazy)) else {
        return Ok(None);
    };
    let descriptors = Descriptors::reserve(layout, platform, words.descriptor_bytes, sweep)?;
    if let Some(part) = mode.before_boot() {
        descriptors.describe(part);
    }
    if words.regress(Regression::EagerZones) {
        regress::describe_all_but_the_last(layout, &descriptors);
    }
    Ok(Some((mode, RwLock::new(descriptors))))
}
