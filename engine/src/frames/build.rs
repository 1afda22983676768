//! From a [`Layout`] to [`Frames`]: how much metadata each node needs, where
//! it comes from, and the first writing of it.

use super::Frames;
use super::directory::{Directory, Heads, NONE, Place};
use super::error::BuildError;
use super::row::Row;
use super::segment::Segment;
use super::start::{Ahead, start};
use super::table::Carver;
use crate::addr::{FrameRange, Order, PAGE_BYTES, PhysRange};
use crate::early::{EarlyFlags, EarlyRequest};
use crate::layout::{Extent, Layout, Zone};
use crate::node::{NodeId, ZoneKind};
use crate::platform::Platform;
use crate::sync::{AtomicU32, AtomicU64};

/// What the allocator's own tables cost, and what is left to allocate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Bytes taken from early memory for tables.
    pub reserved_bytes: u64,
    /// Bytes of them written before the first allocation.
    pub written_bytes: u64,
    /// Frames that can be allocated or are: present ones that were not reserved at start.
    pub managed_frames: u64,
}

/// Bytes of tables for a segment over `frames`.
fn table_bytes(frames: FrameRange) -> Option<u64> {
    let huges = Segment::huges_for(frames);
    Carver::bytes_for::<AtomicU64>(Segment::giants_for(frames))?
        .checked_add(Carver::bytes_for::<AtomicU32>(huges)?)?
        .checked_add(Carver::bytes_for::<Row>(huges)?)
}

/// Takes `bytes` for the tables of `node` from early memory. Best on the node
/// itself and below Movable zones, which are to stay free of what can't move;
/// then outside all Movable zones; then anywhere. Where it is much, best as
/// whole huge frames: they cost no bitmap and leave no rest.
fn take(layout: &mut Layout<'_>, node: NodeId, bytes: u64) -> Result<PhysRange, BuildError> {
    let movable = |zone: &&Zone| zone.kind == ZoneKind::Movable;
    let own = layout
        .zones()
        .iter()
        .filter(movable)
        .find(|zone| zone.node == node);
    let own = own.map(|zone| zone.span.start().addr());
    let lowest = layout
        .zones()
        .iter()
        .filter(movable)
        .map(|zone| zone.span.start().addr())
        .min();
    let request = EarlyRequest::new(bytes, PAGE_BYTES, "frame allocator tables").on(node);
    let places = [(true, own), (false, lowest), (true, None), (false, None)];
    let aligns = [Order::HUGE.bytes(), PAGE_BYTES];
    let mut refused = None;
    for (exact_node, max) in places {
        for align in aligns
            .into_iter()
            .filter(|&align| bytes >= align || align == PAGE_BYTES)
        {
            let bytes = bytes.next_multiple_of(align);
            match layout.early_mut().allocate(&EarlyRequest {
                bytes,
                align,
                exact_node,
                max,
                ..request
            }) {
                Ok(range) => return Ok(range),
                Err(cause) => {
                    refused = Some(BuildError::NoRoom {
                        needed_bytes: bytes,
                        node,
                        cause,
                    })
                }
            }
        }
    }
    Err(refused.unwrap_or(BuildError::NoMemory))
}

/// Takes memory for tables and makes it reachable.
fn carver<'m, P: Platform>(
    layout: &mut Layout<'_>,
    platform: &'m P,
    node: NodeId,
    bytes: u64,
    metadata: &mut Metadata,
) -> Result<Carver<'m>, BuildError> {
    let range = take(layout, node, bytes)?;
    let not_mapped = BuildError::NotMapped {
        start: range.start(),
        bytes: range.bytes(),
    };
    let (Some(start), Ok(bytes)) = (platform.map(range), usize::try_from(range.bytes())) else {
        return Err(not_mapped);
    };
    metadata.reserved_bytes += range.bytes();
    // SAFETY: the range was just taken from early memory, so nobody else has
    // it, and the platform promises that it is reachable while borrowed for 'm.
    Ok(unsafe { Carver::new(start, bytes) })
}

/// What is known of a node while its segments are laid out.
struct NodeTables<'m> {
    bytes: u64,
    carver: Option<Carver<'m>>,
}

/// Lays out one segment's tables in its node's metadata.
fn place<'m>(extent: Extent, nodes: &mut [NodeTables<'m>]) -> Option<Place<'m>> {
    let tables = nodes.get_mut(usize::from(extent.node.0))?.carver.as_mut()?;
    let giants = usize::try_from(Segment::giants_for(extent.frames)).ok()?;
    let huges = usize::try_from(Segment::huges_for(extent.frames)).ok()?;
    let (giants, words) = (tables.table(giants)?, tables.table(huges)?);
    let segment = Segment::new(extent.frames, giants, words, tables.table(huges)?);
    Some(Place {
        segment,
        node: extent.node,
        zone: extent.zone,
        next: NONE,
    })
}

impl<'m> Frames<'m> {
    /// Lays the allocator's tables into early memory, node by node, and hands
    /// all frames that are not reserved over to it. The cost follows the
    /// number of ranges, nodes and giant frames; no frame is looked at.
    ///
    /// # Errors
    /// [`BuildError`]: no memory at all, no room for the tables, or tables out
    /// of the platform's reach.
    pub fn build<P: Platform>(mut layout: Layout<'m>, platform: &'m P) -> Result<Self, BuildError> {
        let mut metadata = Metadata::default();
        let first = layout.extents().next().ok_or(BuildError::NoMemory)?.node;
        let segments = layout.extents().count();
        let nodes = layout
            .extents()
            .map(|extent| extent.node)
            .chain(layout.nodes().iter().map(|n| n.id));
        let nodes = nodes.map(|node| usize::from(node.0) + 1).max().unwrap_or(0);

        let bytes = directory_bytes(segments as u64, nodes as u64);
        let too_large = BuildError::TooLarge { segments, nodes };
        let bytes = bytes.ok_or(too_large)?;
        let mut directory = carver(&mut layout, platform, first, bytes, &mut metadata)?;
        metadata.written_bytes += bytes;

        let tables = directory.slice(nodes, |_| {
            Some(NodeTables {
                bytes: 0,
                carver: None,
            })
        });
        let tables = tables.ok_or(too_large)?;
        for extent in layout.extents() {
            let sum = &mut tables[usize::from(extent.node.0)].bytes;
            let bytes = table_bytes(extent.frames);
            *sum = bytes
                .and_then(|bytes| sum.checked_add(bytes))
                .ok_or(too_large)?;
        }
        for (id, tables) in (0..=u16::MAX)
            .zip(tables.iter_mut())
            .filter(|(_, tables)| tables.bytes > 0)
        {
            let bytes = tables.bytes;
            tables.carver = Some(carver(
                &mut layout,
                platform,
                NodeId(id),
                bytes,
                &mut metadata,
            )?);
        }
        let mut extents = layout.extents();
        let places = directory
            .slice(segments, |_| {
                extents.next().and_then(|extent| place(extent, tables))
            })
            .ok_or(too_large)?;
        let heads = directory
            .slice(nodes, |_| Some(Heads::default()))
            .ok_or(too_large)?;

        let mut reserved = Ahead::new(withheld(&layout));
        for place in places.iter() {
            let started = start(&place.segment, &mut reserved);
            metadata.written_bytes += started.written_bytes;
            metadata.managed_frames += started.free_frames;
        }
        drop((extents, reserved));
        Ok(Self {
            directory: Directory::new(places, heads),
            layout,
            metadata,
        })
    }
}

/// Frames that are not to be handed out, by ascending start: what is reserved,
/// and memory that must not be touched (yet).
fn withheld<'a>(layout: &'a Layout<'_>) -> impl Iterator<Item = FrameRange> + 'a {
    let untouchable = EarlyFlags::NOMAP
        | EarlyFlags::DRIVER_MANAGED
        | EarlyFlags::PRESERVED
        | EarlyFlags::UNACCEPTED;
    let mut reserved = layout.reserved_frames().peekable();
    let memory = layout.early().memory().iter();
    let mut flagged = memory
        .filter(move |region| region.flags.intersects(untouchable))
        .map(|region| region.range.outer_frames())
        .filter(|frames| !frames.is_empty())
        .peekable();
    core::iter::from_fn(move || match (reserved.peek(), flagged.peek()) {
        (Some(one), Some(other)) if one.start() <= other.start() => reserved.next(),
        (_, Some(_)) => flagged.next(),
        _ => reserved.next(),
    })
}

/// Bytes of the lists of segments and nodes.
fn directory_bytes(segments: u64, nodes: u64) -> Option<u64> {
    Carver::bytes_for::<Place<'_>>(segments)?
        .checked_add(Carver::bytes_for::<Heads>(nodes)?)?
        .checked_add(Carver::bytes_for::<NodeTables<'_>>(nodes)?)
}
