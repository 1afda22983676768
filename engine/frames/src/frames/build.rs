//! From a [`Layout`] to [`Frames`]: the size of each node's metadata, its memory, and the first
//! writes to it.
//!
//! *The tables lie in early memory.*

use super::cpu::cpus::Cpus;
use super::error::BuildError;
use super::find::Frames;
use super::metadata::Metadata;
use super::segment::Segment;
use super::segment::pinned::{Entry, Pinned};
use super::segment::table::Table;
use super::word::Bitmap;
use super::word::geometry::{GIANT_ORDER, HUGES};
use super::zone::record::Zones;
use super::zone::segment::{ONE_ZONE, ZoneSegment};
use super::zone::{Nodes, Segments};
#[cfg(feature = "hotplug")]
use crate::addr::Frame;
use crate::addr::FrameRange;
use crate::carver::Carver;
use crate::layout::{self, Extent, ExtentKind, Layout, NoSpace};
use crate::node::{NodeId, NodeZone, ZoneKind};
use crate::platform::Platform;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64};

/// Bytes of tables for a segment over `frames`.
pub(super) const fn table_bytes(frames: FrameRange) -> Option<u64> {
    let huges = Segment::huges_for(frames);
    sum([
        Carver::bytes_for::<AtomicU64>(Segment::giants_for(frames)),
        Carver::bytes_for::<AtomicU32>(huges),
        // Fewer than 2^55 huge frames.
        Carver::bytes_for::<Bitmap>(huges),
    ])
}

/// The sum, if it is a number of bytes.
pub(super) const fn sum<const N: usize>(parts: [Option<u64>; N]) -> Option<u64> {
    let (mut sum, mut at) = (0_u64, 0);
    while at < N {
        sum = match parts[at] {
            Some(bytes) => match sum.checked_add(bytes) {
                Some(sum) => sum,
                None => return None,
            },
            None => return None,
        };
        at += 1;
    }
    Some(sum)
}

/// Takes `bytes` bytes of early memory for the tables of `node`, on that node if they can be.
fn take<'m, P: Platform>(
    platform: &'m P,
    layout: &mut Layout<'_>,
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

/// Frames not free at start.
#[derive(Clone, Copy)]
struct Lists<'m> {
    /// All that are memory, ascending and disjoint.
    taken: &'m [FrameRange],
    /// Those that can't be freed.
    pinned: &'m Pinned<'m>,
}

/// Frames of one node and zone that get a segment.
#[derive(Clone, Copy)]
pub(super) struct SegmentSpan {
    pub(super) frames: FrameRange,
    pub(super) node: NodeId,
    pub(super) zone: ZoneKind,
    /// The node that firmware says: another's memory may come to its window, too.
    pub(super) home: NodeId,
    pub(super) is_present: bool,
}

/// Entries of the list of a window's segment.
const WINDOW_LIST: usize = Pinned::entries_for(WINDOW_RANGES + MORE_RANGES);

/// Bytes of tables for a segment of a window.
fn window_bytes(frames: FrameRange) -> Option<u64> {
    sum([
        table_bytes(frames),
        Carver::bytes_for::<Entry>(WINDOW_LIST as u64),
        Carver::bytes_for::<Pinned<'_>>(1),
    ])
}

impl SegmentSpan {
    fn bytes(&self) -> Option<u64> {
        if ONE_ZONE || self.is_present {
            table_bytes(self.frames)
        } else {
            window_bytes(self.frames)
        }
    }

    /// Lays out the tables of a window's segment: all of it is absent, and its list says so.
    fn of_window<'m>(self, tables: &mut Carver<'m>) -> Option<ZoneSegment<'m>> {
        let pinned = Pinned::of(Table::<Entry>::carve(tables, WINDOW_LIST)?, self.frames)?;
        let mut pinned = Some(pinned);
        let pinned: &'m Pinned<'m> = &tables.slice(1, |_| pinned.take())?[0];
        Some(self.segment(tables, &[], pinned)?.of_window())
    }

    /// Lays out its tables; `None` if `tables` has no space for them.
    pub(super) fn segment<'m>(
        self,
        tables: &mut Carver<'m>,
        taken: &'m [FrameRange],
        pinned: &'m Pinned<'m>,
    ) -> Option<ZoneSegment<'m>> {
        let giants = usize::try_from(Segment::giants_for(self.frames)).ok()?;
        let huges = usize::try_from(Segment::huges_for(self.frames)).ok()?;
        let (giants, words) = (Table::carve(tables, giants)?, Table::carve(tables, huges)?);
        let bitmaps = Table::carve(tables, huges)?;
        let segment = Segment::new(self.frames, pinned, giants, words, bitmaps);
        let taken = self.is_present.then_some(taken);
        Some(ZoneSegment::new(segment, self.node, self.zone, taken))
    }
}

/// The beginning of a window up to the end of `giants` giant frames.
fn beginning(window: FrameRange, giants: u64) -> Option<FrameRange> {
    let start = window.start().get();
    let end = (start >> GIANT_ORDER).checked_add(giants)? << GIANT_ORDER;
    FrameRange::new(start, end).map(|part| part.intersect(window))
}

/// The first giant frames of a window whose tables take at most so many bytes; all of it, if they
/// do.
fn affordable(window: FrameRange, bytes: u64) -> FrameRange {
    if window_bytes(window).is_some_and(|needed| needed <= bytes) {
        return window;
    }
    let fits = |giants: u64| {
        beginning(window, giants)
            .and_then(window_bytes)
            .is_some_and(|needed| needed <= bytes)
    };
    // `fits` up to the first, not from the second on: a giant frame has tables of more bytes than
    // this.
    let (mut fit, mut over) = (
        0,
        bytes / (u64::from(HUGES) * size_of::<Bitmap>() as u64) + 1,
    );
    while over - fit > 1 {
        let middle = fit + (over - fit) / 2;
        *if fits(middle) { &mut fit } else { &mut over } = middle;
    }
    beginning(window, fit).unwrap_or_default()
}

/// Bytes of tables that windows would need to have some for all of `range`, as far as it lies in the
/// window that announces `frame`; `None` where none does. Windows get tables in their order, each from
/// its beginning on, so this is what [`Layout::with_window_share`] has to allow.
#[cfg(feature = "hotplug")]
pub(super) fn bytes_up_to(layout: &Layout<'_>, range: FrameRange, frame: Frame) -> Option<u64> {
    let mut bytes = 0_u64;
    for window in layout.windows() {
        let (start, all) = (window.frames.start(), window.frames);
        let is_it = all.contains(frame);
        let frames = if is_it {
            let end = range.end().min(all.end()).get();
            let giants = end.div_ceil(1 << GIANT_ORDER) - (start.get() >> GIANT_ORDER);
            beginning(all, giants)?
        } else {
            all
        };
        let count = node_zones(layout, window).count() as u64;
        let needed = window_bytes(frames).and_then(|needed| needed.checked_mul(count));
        bytes = bytes.saturating_add(needed.unwrap_or(u64::MAX));
        if is_it {
            return Some(bytes);
        }
    }
    None
}

/// The nodes and zones whose memory may come to a window, its own first: the window's zone, and Movable
/// or what kernels get there; on all nodes if firmware announces windows of one node only, as QEMU
/// does for the DIMMs of all.
fn node_zones<'a>(layout: &'a Layout<'_>, window: Extent) -> impl Iterator<Item = NodeZone> + 'a {
    let Extent {
        frames, node, zone, ..
    } = window;
    let other = match zone {
        ZoneKind::Movable => layout.kernel_zone(frames),
        _ => Some(ZoneKind::Movable),
    };
    let is_only = layout.windows().all(|window| window.node == node);
    let nodes = (0..=u16::MAX).zip(layout.nodes());
    let others = nodes.map(|(id, _)| NodeId(id));
    let others = others.filter(move |&other| is_only && other != node);
    let nodes = core::iter::once(node).chain(others);
    let all = nodes.flat_map(move |node| {
        let zones = core::iter::once(zone).chain(other);
        zones.map(move |zone| NodeZone { node, zone })
    });
    all.take(if ONE_ZONE { 1 } else { usize::MAX })
}

/// All memory, and the windows in which some may be plugged in, of each all nodes and zones,
/// [`in_order`].
fn spans<'a>(layout: &'a Layout<'_>) -> impl Iterator<Item = SegmentSpan> + 'a {
    let present = layout
        .segments()
        .map(|segment: layout::ZoneSegment| SegmentSpan {
            frames: segment.frames,
            node: segment.node,
            zone: segment.zone,
            home: segment.node,
            is_present: true,
        });
    // They get none where early memory has no space in one piece.
    let mut left_bytes = layout.window_table_bytes();
    let absent = layout.windows().filter_map(move |window: Extent| {
        let count = node_zones(layout, window).count() as u64;
        let frames = affordable(window.frames, left_bytes / count);
        if frames.is_empty() {
            return None;
        }
        left_bytes = left_bytes.checked_sub(count * window_bytes(frames)?)?;
        let span = move |NodeZone { node, zone }| SegmentSpan {
            frames,
            node,
            zone,
            home: window.node,
            is_present: false,
        };
        Some(node_zones(layout, window).map(span))
    });
    in_order(present, absent.flatten())
}

/// Memory, ascending, and then the windows.
#[cfg(feature = "hotplug")]
fn in_order(
    present: impl Iterator<Item = SegmentSpan>,
    absent: impl Iterator<Item = SegmentSpan>,
) -> impl Iterator<Item = SegmentSpan> {
    present.chain(absent)
}

/// Both, ascending.
#[cfg(not(feature = "hotplug"))]
fn in_order(
    present: impl Iterator<Item = SegmentSpan>,
    absent: impl Iterator<Item = SegmentSpan>,
) -> impl Iterator<Item = SegmentSpan> {
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
    /// memory there is (`Layout::with_window_share`) and early memory has it in one piece.
    ///
    /// # Errors
    /// [`BuildError`]: no memory at all, no space for the tables, or tables out
    /// of the platform's reach.
    pub fn build<P: Platform>(mut layout: Layout<'m>, platform: &'m P) -> Result<Self, BuildError> {
        let mut metadata = Metadata::default();
        let first = layout.segments().next().ok_or(BuildError::NoMemory)?.node;
        let lens = Directory::of(&layout);
        let nodes = lens.nodes;
        let too_large = BuildError::TooLarge {
            segments: lens.segments,
            nodes,
        };
        let bytes = lens.bytes().ok_or(too_large)?;
        let mut directory = take(platform, &mut layout, first, bytes, &mut metadata)?;
        metadata.written_bytes += bytes;

        let tables = take_tables(&mut layout, platform, &mut directory, nodes, &mut metadata)?;
        let tables = tables.ok_or(too_large)?;
        let lists = lists(&layout, &mut directory, &lens).ok_or(too_large)?;
        let segments = if tables.iter().all(NodeTables::is_complete) {
            lens.segments
        } else {
            spans(&layout)
                .filter(|span| has_tables(span, tables))
                .count()
        };
        let zero = layout.zero_memory();
        let mut spans = spans(&layout);
        let next = |_| {
            let span = spans.find(|span| has_tables(span, tables))?;
            let tables = tables.get_mut(usize::from(span.node.0))?.of(&span);
            let carver = tables.carver.as_mut()?;
            if ONE_ZONE || span.is_present {
                span.segment(carver, lists.taken, lists.pinned)
            } else {
                span.of_window(carver)
            }
        };
        let all = directory.slice(segments, next).ok_or(too_large)?;
        if !zero.is_empty() {
            all.iter_mut().for_each(|segment| segment.set_zero(zero));
        }
        let zones = directory.slice(nodes, |_| Some(Zones::default()));
        let zones = zones.ok_or(too_large)?;
        drop(spans);

        let segments = Segments::new(all, zones);
        Ok(Self::of_segments(layout, segments, lists.pinned, metadata))
    }

    /// Without CPUs, water marks and hooks.
    pub(super) fn of_segments(
        layout: Layout<'m>,
        segments: Segments<'m>,
        pinned: &'m Pinned<'m>,
        metadata: Metadata,
    ) -> Self {
        Self {
            nodes: Nodes {
                segments,
                layout,
                pinned,
                added: AtomicU64::new(0),
                hooks: None,
                reported_is_zero: AtomicBool::new(false),
            },
            cpus: Cpus::new(),
            metadata,
        }
    }
}

/// Whether memory was reserved for the tables of these frames. A window whose own node has none for
/// it has none at all: what comes there would be of another node.
fn has_tables(span: &SegmentSpan, nodes: &[NodeTables<'_>]) -> bool {
    let has_some = |node: NodeId| {
        let node = nodes.get(usize::from(node.0));
        node.is_some_and(|node| node.absent.carver.is_some())
    };
    span.is_present || has_some(span.home) && has_some(span.node)
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
        match span.bytes().and_then(|bytes| sum.checked_add(bytes)) {
            Some(bytes) => *sum = bytes,
            None => return Ok(None),
        }
    }
    for (id, tables) in (0..=u16::MAX).zip(tables.iter_mut()) {
        if tables.present.bytes > 0 {
            let bytes = tables.present.bytes;
            let carver = take(platform, layout, NodeId(id), bytes, metadata)?;
            tables.present.carver = Some(carver);
        }
    }
    for (id, tables) in (0..=u16::MAX).zip(tables.iter_mut()) {
        if tables.absent.bytes > 0 {
            let bytes = tables.absent.bytes;
            tables.absent.carver = match take(platform, layout, NodeId(id), bytes, metadata) {
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

/// The ranges not free at start, in one pass, and the windows.
fn lists<'m>(
    layout: &Layout<'_>,
    directory: &mut Carver<'m>,
    lens: &Directory,
) -> Option<Lists<'m>> {
    let mut taken = RangeList::new(directory, lens.taken)?;
    let pinned = Pinned::new(Table::<Entry>::carve(directory, lens.pinned)?);
    for extent in layout.extents().filter(is_taken) {
        taken.push(extent.frames)?;
        if !extent.kind.may_become_free() && !pinned.pin(extent.frames) {
            return None;
        }
    }
    if lens.windows > 0 {
        let mut before = FrameRange::EMPTY;
        for SegmentSpan { frames, .. } in spans(layout).filter(|span| !span.is_present) {
            // Once for all nodes and zones.
            let is_listed = core::mem::replace(&mut before, frames) == frames;
            if !is_listed && !pinned.pin(frames) {
                return None;
            }
        }
    }
    let mut pinned = Some(pinned);
    Some(Lists {
        taken: taken.into_list(),
        pinned: &directory.slice(1, |_| pinned.take())?[0],
    })
}

/// Ranges that can be adopted in the middle of others.
const MORE_RANGES: usize = 16;
/// Ranges that can come to windows, or go offline, in the middle of others: as many as the most
/// DIMMs that machines have slots for.
const WINDOW_RANGES: usize = 256;

/// The lengths of the lists that all nodes share.
struct Directory {
    segments: usize,
    nodes: usize,
    windows: usize,
    /// Ranges not free at start, at most.
    taken: usize,
    /// Entries of the list of what can't be freed.
    pinned: usize,
}

impl Directory {
    fn of(layout: &Layout<'_>) -> Self {
        let (segments, nodes) = (spans(layout).count(), layout.nodes().len());
        // The tables of each node and these lists are reserved as well.
        let taken = layout.most_reserved_runs() + 2 * nodes + 1;
        let windows = layout.windows().count();
        Self {
            segments,
            nodes,
            windows,
            taken,
            pinned: Pinned::entries_for(
                taken + 2 * windows + MORE_RANGES + WINDOW_RANGES * usize::from(windows > 0),
            ),
        }
    }

    fn bytes(&self) -> Option<u64> {
        sum([
            Carver::bytes_for::<ZoneSegment<'_>>(self.segments as u64),
            Carver::bytes_for::<Zones>(self.nodes as u64),
            Carver::bytes_for::<NodeTables<'_>>(self.nodes as u64),
            Carver::bytes_for::<FrameRange>(self.taken as u64),
            Carver::bytes_for::<Entry>(self.pinned as u64),
            Carver::bytes_for::<Pinned<'_>>(1),
        ])
    }
}
