//! From a [`Layout`] to [`Frames`]: the size of each node's metadata, its memory, and the first
//! writes to it.

use super::allocator::Frames;
use super::cpu::drain::Cpus;
use super::cpu::shared::Shared;
use super::error::BuildError;
use super::metadata::Metadata;
use super::segment::Segment;
use super::segment::table::Carver;
use super::word::Bitmap;
use super::zone::marks::Marks;
use super::zone::segment::ZoneSegment;
use super::zone::{Heads, Nodes, Segments};
use crate::addr::{FrameRange, PAGE_BYTES};
use crate::layout::{self, Extent, ExtentKind, Layout, NoSpace};
use crate::node::NodeId;
use crate::platform::Platform;
use crate::sync::{AtomicU32, AtomicU64};

/// Bytes of tables for a segment over `frames`.
fn table_bytes(frames: FrameRange) -> Option<u64> {
    let huges = Segment::huges_for(frames);
    Carver::bytes_for::<AtomicU64>(Segment::giants_for(frames))?
        .checked_add(Carver::bytes_for::<AtomicU32>(huges)?)?
        .checked_add(Carver::bytes_for::<Bitmap>(huges)?)
}

/// Reserves memory for tables and maps it.
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
             }| BuildError::NoSpace {
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
    // SAFETY: the range was just taken from early memory, so it has no other owner, and the
    // platform guarantees that it is reachable while borrowed for 'm.
    Ok(unsafe { Carver::new(start, bytes) })
}

/// Memory for tables: how much, and the memory once there is some.
#[derive(Default)]
struct Tables<'m> {
    bytes: u64,
    carver: Option<Carver<'m>>,
}

/// A node while its segments are laid out.
#[derive(Default)]
struct NodeTables<'m> {
    present: Tables<'m>,
    /// Those of its windows, which a machine can do without.
    absent: Tables<'m>,
}

impl<'m> NodeTables<'m> {
    /// Whether its windows have tables as well.
    fn is_complete(&self) -> bool {
        self.absent.bytes == 0 || self.absent.carver.is_some()
    }

    fn of(&mut self, span: &SegmentSpan) -> &mut Tables<'m> {
        if span.is_present {
            &mut self.present
        } else {
            &mut self.absent
        }
    }
}

/// Ranges not free at start, ascending and disjoint.
#[derive(Clone, Copy)]
struct Lists<'m> {
    /// All of them.
    taken: &'m [FrameRange],
    /// Those reserved for ever.
    pinned: &'m [FrameRange],
}

/// Lays out one segment's tables in its node's metadata.
fn segment<'m>(
    span: SegmentSpan,
    nodes: &mut [NodeTables<'m>],
    lists: Lists<'m>,
) -> Option<ZoneSegment<'m>> {
    let tables = nodes.get_mut(usize::from(span.node.0))?.of(&span);
    let tables = tables.carver.as_mut()?;
    let SegmentSpan {
        frames,
        node,
        zone,
        is_present,
    } = span;
    let giants = usize::try_from(Segment::giants_for(frames)).ok()?;
    let huges = usize::try_from(Segment::huges_for(frames)).ok()?;
    let (giants, words) = (tables.table(giants)?, tables.table(huges)?);
    let bitmaps = tables.table(huges)?;
    let segment = Segment::new(frames, lists.pinned, giants, words, bitmaps);
    Some(ZoneSegment::new(
        segment,
        node,
        zone,
        is_present,
        lists.taken,
    ))
}

/// Frames of one node and zone that get a segment.
#[derive(Clone, Copy)]
struct SegmentSpan {
    frames: FrameRange,
    node: NodeId,
    zone: crate::node::ZoneKind,
    is_present: bool,
}

/// Windows get tables as long as these cost at most one in so many bytes of the memory present:
/// firmware announces petabytes. They get none where early memory has no space in one piece.
const WINDOW_SHARE: u64 = 256;

/// All memory, and the windows in which some may be plugged in, ascending.
fn spans<'a>(layout: &'a Layout<'_>) -> impl Iterator<Item = SegmentSpan> + 'a {
    let present = layout
        .segments()
        .map(|segment: layout::ZoneSegment| SegmentSpan {
            frames: segment.frames,
            node: segment.node,
            zone: segment.zone,
            is_present: true,
        });
    let mut left_bytes = layout.present_frames() * PAGE_BYTES / WINDOW_SHARE;
    let absent = layout.windows().filter_map(move |window: Extent| {
        left_bytes = left_bytes.checked_sub(table_bytes(window.frames)?)?;
        Some(SegmentSpan {
            frames: window.frames,
            node: window.node,
            zone: window.zone,
            is_present: false,
        })
    });
    let (mut present, mut absent) = (present.peekable(), absent.peekable());
    core::iter::from_fn(move || match (present.peek(), absent.peek()) {
        (Some(one), Some(other)) if one.frames.start() <= other.frames.start() => present.next(),
        (_, Some(_)) => absent.next(),
        _ => present.next(),
    })
}

impl<'m> Frames<'m> {
    /// Reserves space for the allocator's tables in early memory, node by node, and makes all
    /// frames that are not reserved free. The cost follows the number of ranges and nodes; tables
    /// are written at the first call that reaches a segment. Windows in which memory may be plugged
    /// in get tables too, which cost reserved space only, as far as that is in proportion to the
    /// memory there is and early memory has it in one piece.
    ///
    /// # Errors
    /// [`BuildError`]: no memory at all, no space for the tables, or tables out
    /// of the platform's reach.
    pub fn build<P: Platform>(mut layout: Layout<'m>, platform: &'m P) -> Result<Self, BuildError> {
        let mut metadata = Metadata::default();
        let first = layout.segments().next().ok_or(BuildError::NoMemory)?.node;
        let segments = spans(&layout).count();
        let nodes = layout.nodes().len();
        // The tables of each node and these lists are reserved as well.
        let most_taken = layout.most_reserved_runs() + 2 * nodes + 1;

        let too_large = BuildError::TooLarge { segments, nodes };
        let bytes = directory_bytes(segments, nodes, most_taken).ok_or(too_large)?;
        let mut directory = carver(&mut layout, platform, first, bytes, &mut metadata)?;
        metadata.written_bytes += bytes;

        let tables = take_tables(&mut layout, platform, &mut directory, nodes, &mut metadata)?;
        let tables = tables.ok_or(too_large)?;
        let lists = lists(&layout, &mut directory, most_taken).ok_or(too_large)?;
        let segments = if tables.iter().all(NodeTables::is_complete) {
            segments
        } else {
            spans(&layout)
                .filter(|span| has_tables(span, tables))
                .count()
        };
        let mut spans = spans(&layout);
        let next = |_| {
            let span = spans.find(|span| has_tables(span, tables))?;
            segment(span, tables, lists)
        };
        let all = directory.slice(segments, next).ok_or(too_large)?;
        let heads = directory.slice(nodes, |_| Some(Heads::default()));
        let heads = heads.ok_or(too_large)?;
        drop(spans);

        metadata.managed_frames = all.iter().map(ZoneSegment::managed_frames).sum();
        Ok(Self {
            shared: Shared {
                nodes: Nodes {
                    segments: Segments::new(all, heads),
                    layout,
                    marks: Marks::NONE,
                },
                cpus: Cpus::NONE,
            },
            metadata,
        })
    }
}

/// Whether memory was reserved for the tables of these frames.
fn has_tables(span: &SegmentSpan, nodes: &[NodeTables<'_>]) -> bool {
    let node = || nodes.get(usize::from(span.node.0));
    span.is_present || node().is_some_and(|node| node.absent.carver.is_some())
}

/// Reserves space for the tables of each node, then for those of its windows if there is any;
/// `None` if they exceed all bounds.
fn take_tables<'m, P: Platform>(
    layout: &mut Layout<'_>,
    platform: &'m P,
    directory: &mut Carver<'m>,
    nodes: usize,
    metadata: &mut Metadata,
) -> Result<Option<&'m mut [NodeTables<'m>]>, BuildError> {
    let Some(tables) = directory.slice(nodes, |_| Some(NodeTables::default())) else {
        return Ok(None);
    };
    for span in spans(layout) {
        let sum = &mut tables[usize::from(span.node.0)].of(&span).bytes;
        match table_bytes(span.frames).and_then(|bytes| sum.checked_add(bytes)) {
            Some(bytes) => *sum = bytes,
            None => return Ok(None),
        }
    }
    for (id, tables) in (0..=u16::MAX).zip(tables.iter_mut()) {
        if tables.present.bytes > 0 {
            let bytes = tables.present.bytes;
            let carver = carver(layout, platform, NodeId(id), bytes, metadata)?;
            tables.present.carver = Some(carver);
        }
    }
    for (id, tables) in (0..=u16::MAX).zip(tables.iter_mut()) {
        if tables.absent.bytes > 0 {
            let bytes = tables.absent.bytes;
            tables.absent.carver = match carver(layout, platform, NodeId(id), bytes, metadata) {
                Err(BuildError::NoSpace { .. }) => None,
                carver => Some(carver?),
            };
        }
    }
    Ok(Some(tables))
}

/// Whether an extent is not free at start.
fn is_taken(extent: &Extent) -> bool {
    extent.kind != ExtentKind::Usable
}

/// Ascending ranges, joined where they touch.
struct RangeList<'m> {
    ranges: &'m mut [FrameRange],
    len: usize,
}

impl<'m> RangeList<'m> {
    fn new(directory: &mut Carver<'m>, most: usize) -> Option<Self> {
        let ranges = directory.slice(most, |_| Some(FrameRange::EMPTY))?;
        Some(Self { ranges, len: 0 })
    }

    /// `None` if there are more than expected.
    fn push(&mut self, range: FrameRange) -> Option<()> {
        if let Some(last) = self
            .len
            .checked_sub(1)
            .and_then(|last| self.ranges.get_mut(last))
            && last.end() == range.start()
        {
            *last = FrameRange::new(last.start().get(), range.end().get())?;
            return Some(());
        }
        *self.ranges.get_mut(self.len)? = range;
        self.len += 1;
        Some(())
    }

    fn into_list(self) -> &'m [FrameRange] {
        self.ranges.get(..self.len).unwrap_or_default()
    }
}

/// The ranges not free at start, in one pass.
fn lists<'m>(layout: &Layout<'_>, directory: &mut Carver<'m>, most: usize) -> Option<Lists<'m>> {
    let mut taken = RangeList::new(directory, most)?;
    let mut pinned = RangeList::new(directory, most)?;
    for extent in layout.extents().filter(is_taken) {
        taken.push(extent.frames)?;
        if !extent.kind.may_become_free() {
            pinned.push(extent.frames)?;
        }
    }
    Some(Lists {
        taken: taken.into_list(),
        pinned: pinned.into_list(),
    })
}

/// Bytes of the lists of segments, nodes and taken ranges.
fn directory_bytes(segments: usize, nodes: usize, taken: usize) -> Option<u64> {
    let [segments, nodes, taken] = [segments, nodes, taken].map(|len| len as u64);
    Carver::bytes_for::<ZoneSegment<'_>>(segments)?
        .checked_add(Carver::bytes_for::<Heads>(nodes)?)?
        .checked_add(Carver::bytes_for::<NodeTables<'_>>(nodes)?)?
        // Those that are reserved for ever are among them.
        .checked_add(Carver::bytes_for::<FrameRange>(taken)?.checked_mul(2)?)
}
