//! From a [`LayoutInput`] to the engine's [`Layout`], and what kernels do
//! differently on the way.

use firstlight::addr::{Frame, PhysRange};
use firstlight::cmdline::CommandLine;
use firstlight::early::EarlyMemory;
use firstlight::layout::{Layout, LayoutPolicy};
use firstlight::map::{MemoryKind, MemoryMap, Region, ScratchEntry};
use firstlight::node::NodeId;
use firstlight::start::{BootSizes, BootSlots, StartError};
use firstlight::topology::{Topology, TopologyBuilder, TopologyStorage, Trust};

use super::pages::Pages;
use super::{Flavour, LayoutInput};
use crate::log::Processor;
use crate::notices::Notices;

/// What an x86 kernel keeps of its command line. Every change of the map costs a
/// pass over it, so a log must not be able to ask for any number.
const COMMAND_LINE_BYTES: usize = 2047;

/// A machine laid out; lives as long as the call of [`with_layout`].
#[derive(Debug)]
pub struct Prepared<'s> {
    /// The layout.
    pub layout: Layout<'s>,
    /// First frame past usable memory in the memory map.
    pub max_frame: Frame,
    /// What was corrected or ignored on the way, for a person.
    pub notices: Vec<String>,
}

/// Lays `input` out as `flavour` does and hands the layout to `then`.
///
/// # Errors
/// [`StartError`]: as a rule, that there is no memory.
pub fn with_layout<R>(
    input: &LayoutInput,
    flavour: Flavour,
    then: impl FnOnce(Prepared<'_>) -> R,
) -> Result<R, StartError> {
    let mut notices = input.notices.clone();
    let text = input.command_line.as_bytes();
    if text.len() > COMMAND_LINE_BYTES {
        notices.push(format_args!(
            "the command line is cut at {COMMAND_LINE_BYTES} bytes, as a kernel cuts it"
        ));
    }
    let line = CommandLine::new(text.get(..COMMAND_LINE_BYTES).unwrap_or(text));
    // Every change of the map adds two boundaries at most, Linux makes two more, and every row
    // of nodes has two ends.
    let changes = line.memory_changes().count() + 2;
    let ranges = 5 * input.map.len() + 4 * changes + 2 * input.memory.len() + 8;
    let sizes = BootSizes::new(ranges, node_count(input)).without_distances();
    let mut storage = Vec::with_capacity(sizes.bytes());
    let slots = BootSlots::carve(storage.spare_capacity_mut(), sizes)?;
    let (scratch, regions) = (slots.scratch, slots.map);
    let map = memory_map(input, line, flavour, (scratch, regions), &mut notices)?;
    let max_frame = map.end().frame();

    let mut early = EarlyMemory::from_map(&map, slots.memory, slots.reserved, slots.owners)?;
    if is_linux_on_x86(input, flavour) {
        // Reserved before Linux looks at nodes, so its node cannot be unplugged.
        let low = PhysRange::new(0, 0x10_0000).unwrap_or_default();
        early.reserve(low, "low memory")?;
    }

    let policy = policy(input, &line, flavour, &mut notices);
    let mut topology = topology(input, line, flavour, slots.topology, &mut notices)?;
    topology.apply(&mut early, trust(input, flavour), &mut |notice| {
        notices.push(notice)
    })?;

    let layout = Layout::build(early, topology, &policy, slots.layout)?;
    Ok(then(Prepared {
        layout,
        max_frame,
        notices: notices.into_list(),
    }))
}

/// Whether what Linux keeps for a PC's firmware is taken out.
fn is_linux_on_x86(input: &LayoutInput, flavour: Flavour) -> bool {
    flavour.is_linux() && input.processor == Processor::X86_64
}

fn policy(
    input: &LayoutInput,
    line: &CommandLine<'_>,
    flavour: Flavour,
    notices: &mut Notices,
) -> LayoutPolicy {
    // Linux before 6.6 obeys kernelcore=mirror where nothing is mirrored.
    let base = LayoutPolicy {
        mirror_must_exist: flavour != Flavour::Linux6_1,
        ..Pages::of(input, flavour).policy(input.policy)
    };
    let base = match flavour {
        Flavour::Linux6_12 => base,
        Flavour::Firstlight | Flavour::Linux6_1 => with_dma(base, input),
    };
    line.layout_policy(base, &mut |bad| notices.push(bad))
}

/// Where devices reach no memory below 4 GiB, Linux 6.12 on arm64 has no DMA zone, and 6.1 has all of it in one.
fn with_dma(policy: LayoutPolicy, input: &LayoutInput) -> LayoutPolicy {
    let first = input.map.iter().map(|entry| entry.start).min();
    let reaches = first.is_some_and(|first| policy.dma_end.addr().get() > first);
    match (input.processor, reaches) {
        (Processor::Arm64, false) => LayoutPolicy {
            dma_end: policy.dma32_end,
            ..policy
        },
        _ => policy,
    }
}

/// Linux gives all nodes up for 1 MiB of memory on none of them; on arm64 for any.
fn trust(input: &LayoutInput, flavour: Flavour) -> Trust {
    match (flavour.is_linux(), input.processor) {
        (true, Processor::X86_64) => Trust::AllOrNothing {
            unclaimed_bytes: 1 << 20,
        },
        (true, Processor::Arm64) => Trust::AllOrNothing { unclaimed_bytes: 1 },
        (false, _) => Trust::Repair,
    }
}

/// Nodes up to the highest number that is named; at least one.
fn node_count(input: &LayoutInput) -> usize {
    let memory = input.memory.iter().map(|row| row.node);
    let highest = memory.chain(input.cpus.keys().copied()).max();
    highest.map_or(1, |node| usize::from(node) + 1)
}

/// The memory map after the command line, and after what Linux takes out of it.
fn memory_map<'s>(
    input: &LayoutInput,
    line: CommandLine<'_>,
    flavour: Flavour,
    (scratch, regions): (&mut [ScratchEntry], &'s mut [Region]),
    notices: &mut Notices,
) -> Result<MemoryMap<'s>, StartError> {
    let mut note = |correction| notices.push(correction);
    let pages = Pages::of(input, flavour);
    let entries = input.map.iter().map(|entry| pages.whole(*entry));
    let mut map = MemoryMap::build(entries, scratch, regions, &mut note)?;
    if !input.map_is_changed {
        line.change_map(&mut map, &mut |notice| notices.push(notice))?;
    }
    if is_linux_on_x86(input, flavour) {
        // Firmware may write to its first page, whatever it says.
        let first_page = PhysRange::new(0, 0x1000).unwrap_or_default();
        map.set(
            first_page,
            Some(MemoryKind::Usable),
            MemoryKind::Reserved,
            &mut |_| {},
        )?;
        let window = PhysRange::new(0xa_0000, 0x10_0000).unwrap_or_default();
        map.remove(window, Some(MemoryKind::Usable), &mut |_| {})?;
    }
    Ok(map)
}

fn topology<'s>(
    input: &LayoutInput,
    line: CommandLine<'_>,
    flavour: Flavour,
    storage: TopologyStorage<'s>,
    notices: &mut Notices,
) -> Result<Topology<'s>, StartError> {
    let ignored = |value: Option<&[u8]>| matches!(value, Some(b"off" | b"noacpi"));
    let numa_off = line
        .words()
        .any(|word| word.is("numa") && ignored(word.value));
    if input.memory.is_empty() || (flavour.is_linux() && numa_off) {
        let counts = input.cpus.values().map(|row| row.cpus);
        let cpus = counts.fold(0, u32::saturating_add);
        return Ok(Topology::single(storage.nodes, cpus.max(input.cpu_count))?);
    }
    let mut builder = TopologyBuilder::new(storage);
    for (node, row) in &input.cpus {
        builder.pin(NodeId(*node), row.domain)?;
        builder.add_cpus(NodeId(*node), row.cpus);
    }
    for row in &input.memory {
        builder.pin(NodeId(row.node), row.domain)?;
        match PhysRange::new(row.start, row.last.saturating_add(1)) {
            Some(range) => builder.add_memory(NodeId(row.node), range, row.hotplug)?,
            None => notices.push(format_args!(
                "node {}: range {:#x}-{:#x} ends before it starts; left out",
                row.node, row.start, row.last
            )),
        }
    }
    Ok(builder.finish(&mut |notice| notices.push(notice)))
}
