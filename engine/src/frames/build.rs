//! From a [`Layout`] to [`Frames`]: how much metadata each node needs, where
//! it comes from, and the first writing of it.

use super::Frames;
use super::directory::{Directory, Heads};
use super::error::BuildError;
use super::place::Place;
use super::row::Row;
use super::segment::Segment;
use super::table::Carver;
use crate::addr::FrameRange;
use crate::layout::{ExtentKind, Layout, NoSpace, ZoneSegment};
use crate::node::NodeId;
use crate::platform::Platform;
use crate::sync::{AtomicU32, AtomicU64};

/// What the allocator's own tables cost, and what is left to allocate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Bytes taken from early memory for tables.
    pub reserved_bytes: u64,
    /// Bytes of them written so far before any block was split: the lists of
    /// segments and nodes, and the tables of every segment that was asked for memory.
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

/// Takes memory for tables and makes it reachable.
fn carver<'m, P: Platform>(
    layout: &mut Layout<'_>,
    platform: &'m P,
    node: NodeId,
    bytes: u64,
    metadata: &mut Metadata,
) -> Result<Carver<'m>, BuildError> {
    let range = layout
        .allocate_table(node, bytes, "frame allocator tables")
        .map_err(
            |NoSpace {
                 needed_bytes,
                 cause,
             }| BuildError::NoRoom {
                needed_bytes,
                node,
                cause,
            },
        )?;
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
fn place<'m>(
    extent: ZoneSegment,
    nodes: &mut [NodeTables<'m>],
    withheld: &'m [FrameRange],
) -> Option<Place<'m>> {
    let tables = nodes.get_mut(usize::from(extent.node.0))?.carver.as_mut()?;
    let giants = usize::try_from(Segment::giants_for(extent.frames)).ok()?;
    let huges = usize::try_from(Segment::huges_for(extent.frames)).ok()?;
    let (giants, words) = (tables.table(giants)?, tables.table(huges)?);
    let segment = Segment::new(extent.frames, giants, words, tables.table(huges)?);
    Some(Place::new(segment, extent.node, extent.zone, withheld))
}

impl<'m> Frames<'m> {
    /// Takes room for the allocator's tables from early memory, node by node,
    /// and hands all frames that are not reserved over to it. The cost follows
    /// the number of ranges and nodes; tables are written when a segment is
    /// first asked for memory.
    ///
    /// # Errors
    /// [`BuildError`]: no memory at all, no room for the tables, or tables out
    /// of the platform's reach.
    pub fn build<P: Platform>(mut layout: Layout<'m>, platform: &'m P) -> Result<Self, BuildError> {
        let mut metadata = Metadata::default();
        let first = layout.segments().next().ok_or(BuildError::NoMemory)?.node;
        let segments = layout.segments().count();
        let nodes = layout.nodes().len();
        // Room for the tables of each node and for this list is withheld as well.
        let most_withheld = layout.most_reserved_runs() + nodes + 1;

        let too_large = BuildError::TooLarge { segments, nodes };
        let bytes = directory_bytes(segments, nodes, most_withheld).ok_or(too_large)?;
        let mut directory = carver(&mut layout, platform, first, bytes, &mut metadata)?;
        metadata.written_bytes += bytes;

        let tables = take_tables(&mut layout, platform, &mut directory, nodes, &mut metadata)?;
        let tables = tables.ok_or(too_large)?;
        let (mut ranges, mut used) = (withheld(&layout), 0);
        let list = directory.slice(most_withheld, |_| {
            let next = ranges.next();
            used += usize::from(next.is_some());
            Some(next.unwrap_or_default())
        });
        let list: &'m [FrameRange] = list.ok_or(too_large)?;
        let list = list.get(..used).unwrap_or_default();
        let mut extents = layout.segments();
        let next = |_| {
            extents
                .next()
                .and_then(|extent| place(extent, tables, list))
        };
        let places = directory.slice(segments, next).ok_or(too_large)?;
        let heads = directory.slice(nodes, |_| Some(Heads::default()));
        let heads = heads.ok_or(too_large)?;
        drop((extents, ranges));

        metadata.managed_frames = places.iter().map(Place::managed_frames).sum();
        Ok(Self {
            directory: Directory::new(places, heads),
            layout,
            metadata,
            cpus: super::Cpus::NONE,
            marks: super::Marks::NONE,
        })
    }
}

/// Takes room for the tables of each node; `None` if they exceed all bounds.
fn take_tables<'m, P: Platform>(
    layout: &mut Layout<'_>,
    platform: &'m P,
    directory: &mut Carver<'m>,
    nodes: usize,
    metadata: &mut Metadata,
) -> Result<Option<&'m mut [NodeTables<'m>]>, BuildError> {
    let unknown = |_| {
        Some(NodeTables {
            bytes: 0,
            carver: None,
        })
    };
    let Some(tables) = directory.slice(nodes, unknown) else {
        return Ok(None);
    };
    for extent in layout.segments() {
        let sum = &mut tables[usize::from(extent.node.0)].bytes;
        match table_bytes(extent.frames).and_then(|bytes| sum.checked_add(bytes)) {
            Some(bytes) => *sum = bytes,
            None => return Ok(None),
        }
    }
    for (id, tables) in (0..=u16::MAX).zip(tables.iter_mut()) {
        if tables.bytes > 0 {
            let carver = carver(layout, platform, NodeId(id), tables.bytes, metadata)?;
            tables.carver = Some(carver);
        }
    }
    Ok(Some(tables))
}

/// Frames that are not free at start, ascending and disjoint.
fn withheld<'a>(layout: &'a Layout<'_>) -> impl Iterator<Item = FrameRange> + 'a {
    let mut taken = layout
        .extents()
        .filter(|extent| extent.kind != ExtentKind::Usable)
        .map(|extent| extent.frames)
        .peekable();
    core::iter::from_fn(move || {
        let mut joined = taken.next()?;
        while let Some(next) = taken.next_if(|next| next.start() == joined.end()) {
            joined = FrameRange::new(joined.start().get(), next.end().get())?;
        }
        Some(joined)
    })
}

/// Bytes of the lists of segments, nodes and withheld ranges.
fn directory_bytes(segments: usize, nodes: usize, withheld: usize) -> Option<u64> {
    let [segments, nodes, withheld] = [segments, nodes, withheld].map(|len| len as u64);
    Carver::bytes_for::<Place<'_>>(segments)?
        .checked_add(Carver::bytes_for::<Heads>(nodes)?)?
        .checked_add(Carver::bytes_for::<NodeTables<'_>>(nodes)?)?
        .checked_add(Carver::bytes_for::<FrameRange>(withheld)?)
}
