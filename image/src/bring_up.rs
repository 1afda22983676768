//! From what the loader left to a frame allocator over all memory, with a stamp
//! after each step. This is what a kernel does; everything else is the image's own.

use core::fmt;
use core::iter::repeat_with;

use firstlight::acceptance::Pending;
use firstlight::addr::{Order, PAGE_BYTES, PHYS_END, PhysAddr, PhysRange};
use firstlight::cmdline::CommandLine;
use firstlight::early::{EarlyError, EarlyFlags, EarlyMemory, EarlyRequest};
use firstlight::events::Events;
use firstlight::firmware::acpi::{Madt, Rsdp, Srat};
use firstlight::firmware::pvh::PvhError;
use firstlight::frames::{AllocError, BuildError, Frames, Metadata, NobodyAsked, Request};
use firstlight::layout::{Layout, LayoutError, LayoutPolicy};
use firstlight::map::{MapError, MemoryKind, MemoryMap, Region, ScratchEntry};
use firstlight::memmap::{MemmapError, Mode};
use firstlight::node::ZoneKind;
use firstlight::topology::{Topology, TopologyBuilder, TopologyError, TopologyStorage, Trust};
use firstlight_image::words::{self, Test, Words};
use spin::{Once, RwLock};

use crate::arch::{DirectMap, Handover, image_range, marker, ticks};
use crate::console::{correction, note};
use crate::descriptors::{self, Descriptors};
use crate::firmware::{self, Acpi, Loader};
use crate::storage::{self, Parts};

/// All memory, mapped.
static DIRECT: Once<DirectMap> = Once::new();

/// The platform, once memory is up.
pub(crate) fn platform() -> &'static DirectMap {
    DIRECT.wait()
}

/// First address that a starting CPU cannot reach.
const REAL_MODE_END: u64 = 1 << 20;

/// A machine whose memory is up.
pub(crate) struct Machine {
    pub(crate) words: Words,
    pub(crate) command_line: CommandLine<'static>,
    pub(crate) map: MemoryMap<'static>,
    pub(crate) acpi: Acpi,
    /// A page below 1 MiB where other CPUs begin; none if there is no memory there.
    pub(crate) trampoline: Option<PhysRange>,
    pub(crate) frames: Frames<'static>,
    /// Page descriptors, where the command line asks for them, and when they are written.
    pub(crate) descriptors: Option<(Mode, RwLock<Descriptors>)>,
    /// Memory that must be accepted before it is touched.
    pub(crate) pending: &'static [Pending],
    /// What the allocator had cost when all memory could be allocated.
    pub(crate) ready: Metadata,
}

/// Why a machine cannot be brought up.
pub(crate) enum Stop {
    Loader(PvhError),
    Map(MapError),
    NoMemory { mapped_bytes: u64 },
    Early(EarlyError),
    Topology(TopologyError),
    Layout(LayoutError),
    Descriptors(MemmapError),
    Frames(BuildError),
    FirstFrame(AllocError),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loader(error) => error.fmt(f),
            Self::Map(error) => write!(f, "memory map: {error}"),
            Self::NoMemory { mapped_bytes } => write!(
                f,
                "memory map: no usable memory, expected some; {mapped_bytes} bytes are of other kinds"
            ),
            Self::Early(error) => write!(f, "early memory: {error}"),
            Self::Topology(error) => write!(f, "topology: {error}"),
            Self::Layout(error) => write!(f, "layout: {error}"),
            Self::Descriptors(error) => write!(f, "page descriptors: {error}"),
            Self::Frames(error) => write!(f, "frame allocator: {error}"),
            Self::FirstFrame(error) => write!(f, "first frame: {error}"),
        }
    }
}

/// The steps, in their order.
pub(crate) fn bring_up(handover: Handover, events: &mut Events<'_>) -> Result<Machine, Stop> {
    let Parts {
        scratch,
        map,
        memory,
        reserved,
        trail,
        topology,
        distances,
        layout,
    } = storage::lend();
    let mut step = |name, code| {
        let now = ticks();
        events.end(name, now);
        marker(code);
        now
    };
    // SAFETY: what is in use is reserved in `reserve`, below, before any memory
    // is allocated, and there is one `Layout`.
    let platform = DIRECT.call_once(|| unsafe { DirectMap::new() });
    let direct = *platform;

    let mut loader = Loader::read(direct, handover.start_info).map_err(Stop::Loader)?;
    let words = Words::read(loader.command_line, &mut |misread| {
        note(format_args!("command line: {misread}"));
    });
    if words.test == Some(Test::NoMap) {
        loader.info.memory_map = None;
    }
    let map = memory_map(direct, &loader, scratch, map)?;
    step("memory map", 0x20);

    let mut early = EarlyMemory::from_map(&map, memory, reserved, trail).map_err(Stop::Early)?;
    let root = firmware::root(direct, &loader);
    let trampoline = reserve(direct, &loader, root.as_ref(), &mut early).map_err(Stop::Early)?;
    map_memory(direct, &map, words.accept_ticks, &mut early).map_err(Stop::Early)?;
    // Once more, for tables above what was mapped before.
    firmware::reserve(direct, root.as_ref(), &mut early).map_err(Stop::Early)?;
    step("page tables", 0x21);

    let acpi = firmware::tables(direct, root.as_ref());
    let mut topology = nodes(&acpi, topology, distances).map_err(Stop::Topology)?;
    topology
        .apply(&mut early, Trust::Repair, &mut |notice| correction(notice))
        .map_err(Stop::Topology)?;
    step("topology", 0x22);

    let policy = loader
        .command_line
        .layout_policy(LayoutPolicy::DEFAULT, &mut |bad| correction(bad));
    early.set_movable_node(policy.movable_node);
    let mut layout = Layout::build(early, topology, &policy, layout).map_err(Stop::Layout)?;
    let layout_ticks = step("layout", 0x23);

    let descriptors = page_descriptors(words, &mut layout, platform).map_err(Stop::Descriptors)?;
    if descriptors.is_some() {
        step("descriptors", 0x26);
    }

    let pending = pending(&mut layout).map_err(Stop::Early)?;
    let frames = Frames::build(layout, platform).map_err(Stop::Frames)?;
    step("frame allocator", 0x24);
    let request = Request::new(Order::PAGE).zone(ZoneKind::Movable);
    let first = frames.allocate(request).map_err(Stop::FirstFrame)?;
    let ready_ticks = step("first frame", 0x25);
    events.milestone("layout", layout_ticks);
    events.milestone("first_frame", ready_ticks);
    events.milestone("all_allocatable", ready_ticks);

    let ready = frames.metadata();
    if let Some((_, descriptors)) = &descriptors {
        // The first touch of a section writes its descriptors, if nobody has.
        let frame = descriptors.read().allocate(&frames, request);
        events.end("first described frame", ticks());
        let _ = frame.map(|frame| frames.free(frame, Order::PAGE));
    }
    // It was allocated a moment ago.
    let _ = frames.free(first, Order::PAGE);
    // What nobody needs before there is work: magazines for the CPUs that are listed.
    let listed = acpi.madt.iter().flat_map(|madt| madt.cpus().flatten());
    let listed = listed.filter(|cpu| cpu.enabled).count().max(1);
    let frames = frames.with_cpus(storage::cpu_slots(listed), &NobodyAsked);
    Ok(Machine {
        words,
        command_line: loader.command_line,
        map,
        acpi,
        trampoline,
        frames,
        descriptors,
        pending,
        ready,
    })
}

/// The loader's map, and what the command line changes of it.
fn memory_map(
    direct: DirectMap,
    loader: &Loader,
    scratch: &mut [ScratchEntry],
    regions: &'static mut [Region],
) -> Result<MemoryMap<'static>, Stop> {
    let entries = loader.info.map_entries(&direct).map_err(Stop::Loader)?;
    let mut map = MemoryMap::build(entries, scratch, regions, &mut |wrong| correction(wrong))
        .map_err(Stop::Map)?;
    loader
        .command_line
        .change_map(&mut map, &mut |bad| correction(bad))
        .map_err(Stop::Map)?;
    if map.memory().next().is_some() {
        return Ok(map);
    }
    let mapped_bytes = MemoryKind::ALL
        .into_iter()
        .map(|kind| map.bytes_of(kind))
        .sum();
    Err(Stop::NoMemory { mapped_bytes })
}

/// Reserves everything in use, and takes a page for starting CPUs.
fn reserve(
    direct: DirectMap,
    loader: &Loader,
    root: Option<&Rsdp>,
    early: &mut EarlyMemory<'_>,
) -> Result<Option<PhysRange>, EarlyError> {
    early.reserve(firmware::first_page(), "address zero")?;
    early.reserve(firmware::HOLE, "video memory and ROM")?;
    early.reserve(DirectMap::DEVICES, "interrupt controllers")?;
    early.reserve(image_range(), "image")?;
    loader.reserve(direct, early)?;
    firmware::reserve(direct, root, early)?;
    let page = EarlyRequest {
        max: Some(PhysAddr::new(REAL_MODE_END)),
        ..EarlyRequest::new(PAGE_BYTES, PAGE_BYTES, "other CPUs' first page")
    };
    match early.allocate(&page) {
        Ok(page) => Ok(Some(page)),
        Err(EarlyError::NoSpace { .. }) => {
            note("no memory below 1 MiB: other CPUs cannot be started");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Maps all memory and firmware's tables; what the processor cannot reach is left out.
fn map_memory(
    direct: DirectMap,
    map: &MemoryMap<'_>,
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
    let table = EarlyRequest {
        max: Some(DirectMap::TABLES_BELOW),
        ..EarlyRequest::new(PAGE_BYTES, PAGE_BYTES, "page tables")
    };
    direct.add(wanted.map(part(0, visible_end)), || early.allocate(&table))?;
    let Some(ticks_per_page) = accept_ticks else {
        return Ok(());
    };
    let hidden = PhysRange::new(border, limit).unwrap_or_default();
    early.set_flags(hidden, EarlyFlags::UNACCEPTED)?;
    let ranges = map.memory().map(part(border, limit));
    direct.add_unaccepted(ranges, ticks_per_page, || early.allocate(&table))
}

/// The memory that must be accepted, listed in memory of its own.
fn pending(layout: &mut Layout<'_>) -> Result<&'static [Pending], EarlyError> {
    let needed = match Pending::list(layout, &mut []) {
        Ok(_) => return Ok(&[]),
        Err(full) => full.needed,
    };
    let bytes = (needed * size_of::<Pending>()) as u64;
    let request = EarlyRequest::new(bytes, PAGE_BYTES, "list of unaccepted memory");
    let room = layout.allocate(&request)?;
    // SAFETY: early memory gave it to nobody else; it is mapped, like all
    // memory that has been accepted.
    let slots = unsafe { descriptors::list_at(room, repeat_with(Pending::default).take(needed)) };
    Ok(Pending::list(layout, slots).unwrap_or_default())
}

/// Room for page descriptors, where the command line asks for them; those are
/// written that its mode wants before boot goes on.
fn page_descriptors(
    words: Words,
    layout: &mut Layout<'_>,
    platform: &'static DirectMap,
) -> Result<Option<(Mode, RwLock<Descriptors>)>, MemmapError> {
    let sweep = words.mode == words::Mode::Sweep;
    let Some(mode) = words.descriptors.or(sweep.then_some(Mode::Lazy)) else {
        return Ok(None);
    };
    let descriptors = Descriptors::reserve(layout, platform, words.descriptor_bytes, sweep)?;
    if let Some(part) = mode.before_boot() {
        descriptors.describe(part);
    }
    Ok(Some((mode, RwLock::new(descriptors))))
}

/// Nodes and distances by firmware's tables; one node where they say nothing of use.
fn nodes(
    acpi: &Acpi,
    storage: TopologyStorage<'static>,
    distances: &'static mut [u8],
) -> Result<Topology<'static>, TopologyError> {
    let enabled = |madt: &Madt<'_>| madt.cpus().flatten().filter(|cpu| cpu.enabled).count();
    let cpus = acpi.madt.as_ref().map_or(1, enabled);
    let usable = |srat: &&Srat<'_>| srat.entries().flatten().next().is_some();
    let Some(srat) = acpi.srat.as_ref().filter(usable) else {
        let unread = acpi.srat.iter().flat_map(|srat| srat.entries());
        unread.filter_map(Result::err).for_each(correction);
        return Topology::single(storage.nodes, u32::try_from(cpus).unwrap_or(u32::MAX));
    };
    let mut builder = TopologyBuilder::new(storage);
    builder.add_srat(srat.entries(), &mut |notice| correction(notice))?;
    let mut topology = builder.finish(&mut |notice| correction(notice));
    if let Some(slit) = &acpi.slit {
        topology.set_slit(slit, distances, &mut |notice| correction(notice))?;
    }
    Ok(topology)
}
