//! The storage of all steps: [`BootStorage`], sized by the compiler, or [`BootSlots`] carved
//! out of memory at run time.

use core::mem::{self, MaybeUninit};
use core::slice;

use crate::early::{Allocation, EarlyRegion};
use crate::layout::{LayoutStorage, Node, NodeRange, Zone};
use crate::map::{Region, ScratchEntry};
use crate::node::ZoneKind;
use crate::store::Full;
use crate::topology::{NodeInfo, TopologyRange, TopologyStorage};

/// Zones that a node may have.
const ZONES: usize = ZoneKind::ALL.len();

/// The storage of [`start`](super::start): 192 bytes a range, 224 and `NODES` bytes a node.
///
/// `RANGES` is the most entries of any list of ranges: of firmware's map, of the regions
/// made from it, of memory, reservations, rows of the SRAT. A PC has 20 to 40 entries in its
/// map and needs 64; 256 fit almost every machine. `NODES` is the most nodes. Storage that is
/// too small is an error with the number that is needed; no list is cut.
///
/// As a `static` it is a [`StaticStorage`](super::StaticStorage).
#[derive(Debug)]
pub struct BootStorage<const RANGES: usize, const NODES: usize> {
    scratch: [ScratchEntry; RANGES],
    map: [Region; RANGES],
    memory: [EarlyRegion; RANGES],
    reserved: [EarlyRegion; RANGES],
    owners: [Allocation; RANGES],
    rows: [TopologyRange; RANGES],
    ranges: [NodeRange; RANGES],
    infos: [NodeInfo; NODES],
    nodes: [Node; NODES],
    zones: [[Zone; ZONES]; NODES],
    distances: [[u8; NODES]; NODES],
}

impl<const RANGES: usize, const NODES: usize> BootStorage<RANGES, NODES> {
    /// Unused storage: all zero, so that a `static` of it lies in `.bss` and takes no space in the kernel's file.
    pub const EMPTY: Self = Self {
        scratch: [ScratchEntry::EMPTY; RANGES],
        map: [Region::EMPTY; RANGES],
        memory: [EarlyRegion::EMPTY; RANGES],
        reserved: [EarlyRegion::EMPTY; RANGES],
        owners: [Allocation::EMPTY; RANGES],
        rows: [TopologyRange::EMPTY; RANGES],
        ranges: [NodeRange::EMPTY; RANGES],
        infos: [NodeInfo::EMPTY; NODES],
        nodes: [Node::EMPTY; NODES],
        zones: [[Zone::EMPTY; ZONES]; NODES],
        distances: [[0; NODES]; NODES],
    };
}

impl<'s, const RANGES: usize, const NODES: usize> From<&'s mut BootStorage<RANGES, NODES>>
    for BootSlots<'s>
{
    fn from(storage: &'s mut BootStorage<RANGES, NODES>) -> Self {
        Self {
            scratch: &mut storage.scratch,
            map: &mut storage.map,
            memory: &mut storage.memory,
            reserved: &mut storage.reserved,
            owners: &mut storage.owners,
            topology: TopologyStorage {
                nodes: &mut storage.infos,
                ranges: &mut storage.rows,
            },
            distances: storage.distances.as_flattened_mut(),
            layout: LayoutStorage {
                nodes: &mut storage.nodes,
                ranges: &mut storage.ranges,
                zones: storage.zones.as_flattened_mut(),
            },
        }
    }
}

/// The storage in the parts that the steps take, one after the other.
#[derive(Debug)]
pub struct BootSlots<'s> {
    /// For [`MemoryMap::build`](crate::map::MemoryMap::build), one slot an entry.
    pub scratch: &'s mut [ScratchEntry],
    /// The regions of the memory map.
    pub map: &'s mut [Region],
    /// Early memory.
    pub memory: &'s mut [EarlyRegion],
    /// What of it is reserved.
    pub reserved: &'s mut [EarlyRegion],
    /// The log of reservations; a full one loses no reservation.
    pub owners: &'s mut [Allocation],
    /// Nodes and ranges of the topology.
    pub topology: TopologyStorage<'s>,
    /// Distances, a byte for each pair of nodes.
    pub distances: &'s mut [u8],
    /// Nodes, ranges and zones of the layout.
    pub layout: LayoutStorage<'s>,
}

/// How large storage is that is sized at run time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootSizes {
    /// The most entries of any list of ranges.
    pub ranges: usize,
    /// The most nodes.
    pub nodes: usize,
    /// Bytes of distances: `nodes` squared where firmware has distances, else 0.
    pub distances: usize,
}

impl BootSizes {
    /// So many ranges and nodes, with distances between all nodes.
    pub const fn new(ranges: usize, nodes: usize) -> Self {
        Self {
            ranges,
            nodes,
            distances: nodes.saturating_mul(nodes),
        }
    }

    /// Without distances: all other nodes are as far.
    #[must_use]
    pub const fn without_distances(self) -> Self {
        Self {
            distances: 0,
            ..self
        }
    }

    /// Bytes of memory that [`BootSlots::carve`] needs, wherever it begins.
    pub const fn bytes(self) -> usize {
        const A_RANGE: usize = size_of::<ScratchEntry>()
            + size_of::<Region>()
            + 2 * size_of::<EarlyRegion>()
            + size_of::<Allocation>()
            + size_of::<TopologyRange>()
            + size_of::<NodeRange>();
        const A_NODE: usize = size_of::<NodeInfo>() + size_of::<Node>() + ZONES * size_of::<Zone>();
        /// Ten lists begin where their type may.
        const GAPS: usize = 10 * align_of::<u128>();
        let ranges = self.ranges.saturating_mul(A_RANGE);
        let nodes = self.nodes.saturating_mul(A_NODE);
        let lists = ranges.saturating_add(nodes).saturating_add(GAPS);
        lists.saturating_add(self.distances)
    }
}

impl<'s> BootSlots<'s> {
    /// Storage of `sizes` in `memory`, which needs [`BootSizes::bytes`].
    ///
    /// ```
    /// use firstlight_boot::start::{BootSizes, BootSlots};
    /// let sizes = BootSizes::new(64, 2);
    /// let mut memory = Vec::with_capacity(sizes.bytes());
    /// let slots = BootSlots::carve(memory.spare_capacity_mut(), sizes)?;
    /// assert_eq!((slots.map.len(), slots.layout.zones.len()), (64, 8));
    /// # Ok::<(), firstlight_frames::store::Full>(())
    /// ```
    ///
    /// # Errors
    /// [`Full`] with the number of bytes that is enough.
    pub fn carve(memory: &'s mut [MaybeUninit<u8>], sizes: BootSizes) -> Result<Self, Full> {
        let full = Full {
            capacity: memory.len(),
            needed: sizes.bytes(),
        };
        Self::parts(memory, sizes).ok_or(full)
    }

    fn parts(memory: &'s mut [MaybeUninit<u8>], sizes: BootSizes) -> Option<Self> {
        let BootSizes {
            ranges,
            nodes,
            distances,
        } = sizes;
        let mut left = memory;
        let left = &mut left;
        Some(Self {
            scratch: list(left, ranges, ScratchEntry::EMPTY)?,
            map: list(left, ranges, Region::EMPTY)?,
            memory: list(left, ranges, EarlyRegion::EMPTY)?,
            reserved: list(left, ranges, EarlyRegion::EMPTY)?,
            owners: list(left, ranges, Allocation::EMPTY)?,
            topology: TopologyStorage {
                nodes: list(left, nodes, NodeInfo::EMPTY)?,
                ranges: list(left, ranges, TopologyRange::EMPTY)?,
            },
            layout: LayoutStorage {
                nodes: list(left, nodes, Node::EMPTY)?,
                ranges: list(left, ranges, NodeRange::EMPTY)?,
                zones: list(left, nodes.checked_mul(ZONES)?, Zone::EMPTY)?,
            },
            distances: list(left, distances, 0)?,
        })
    }
}

/// A list of `count` times `empty` at the start of `left`, which becomes what is after it.
fn list<'s, T: Copy>(
    left: &mut &'s mut [MaybeUninit<u8>],
    count: usize,
    empty: T,
) -> Option<&'s mut [T]> {
    let gap = left.as_ptr().align_offset(align_of::<T>());
    let bytes = count.checked_mul(size_of::<T>())?;
    let (_, rest) = mem::take(left).split_at_mut_checked(gap)?;
    let (own, rest) = rest.split_at_mut_checked(bytes)?;
    *left = rest;
    let first = own.as_mut_ptr().cast::<MaybeUninit<T>>();
    // SAFETY: `own` begins at a multiple of T's alignment, is as long as `count` of T, and is
    // borrowed for 's by nothing else; slots that may be uninitialised have no invalid content.
    let slots = unsafe { slice::from_raw_parts_mut(first, count) };
    for slot in slots.iter_mut() {
        slot.write(empty);
    }
    // SAFETY: the same memory, and every slot of it was just written.
    Some(unsafe { slice::from_raw_parts_mut(slots.as_mut_ptr().cast::<T>(), count) })
}
