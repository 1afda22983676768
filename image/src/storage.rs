//! Static storage for the engine, which has no heap. Sizes are generous; for a machine
//! that needs more, the error has the size needed (no list is cut).

use firstlight::early::{Allocation, EarlyRegion};
use firstlight::events::Event;
use firstlight::frames::CpuSlot;
use firstlight::layout::{LayoutStorage, Node, NodeRange, Zone};
use firstlight::map::{Region, ScratchEntry};
use firstlight::topology::{NodeInfo, TopologyRange, TopologyStorage};
use spin::{Mutex, MutexGuard};

use crate::arch::cpus::MOST;

/// Entries of the loader's memory map.
const ENTRIES: usize = 512;
/// Regions of the map made from them, and of early memory.
const REGIONS: usize = 1024;
/// Rows of memory in the SRAT.
const ROWS: usize = 1024;
/// Most nodes.
const NODES: usize = 256;

/// All of it.
pub(crate) struct Storage {
    pub(crate) scratch: [ScratchEntry; ENTRIES],
    pub(crate) map: [Region; REGIONS],
    pub(crate) memory: [EarlyRegion; REGIONS],
    pub(crate) reserved: [EarlyRegion; REGIONS],
    pub(crate) owners: [Allocation; 256],
    infos: [NodeInfo; NODES],
    rows: [TopologyRange; ROWS],
    pub(crate) distances: [u8; NODES * NODES],
    nodes: [Node; NODES],
    ranges: [NodeRange; REGIONS],
    zones: [Zone; 4 * NODES],
}

/// [`Storage`] in the parts that the steps need, one after the other.
pub(crate) struct Parts {
    pub(crate) scratch: &'static mut [ScratchEntry],
    pub(crate) map: &'static mut [Region],
    pub(crate) memory: &'static mut [EarlyRegion],
    pub(crate) reserved: &'static mut [EarlyRegion],
    pub(crate) owners: &'static mut [Allocation],
    pub(crate) topology: TopologyStorage<'static>,
    pub(crate) distances: &'static mut [u8],
    pub(crate) layout: LayoutStorage<'static>,
}

static STORAGE: Mutex<Storage> = Mutex::new(Storage {
    scratch: [ScratchEntry::EMPTY; ENTRIES],
    map: [Region::EMPTY; REGIONS],
    memory: [EarlyRegion::EMPTY; REGIONS],
    reserved: [EarlyRegion::EMPTY; REGIONS],
    owners: [Allocation::EMPTY; 256],
    infos: [NodeInfo::EMPTY; NODES],
    rows: [TopologyRange::EMPTY; ROWS],
    distances: [0; NODES * NODES],
    nodes: [Node::EMPTY; NODES],
    ranges: [NodeRange::EMPTY; REGIONS],
    zones: [Zone::EMPTY; 4 * NODES],
});

static EVENTS: Mutex<[Event; 64]> = Mutex::new([Event::EMPTY; 64]);

/// All storage; called once, a second call would wait for ever.
pub(crate) fn parts() -> Parts {
    let all = MutexGuard::leak(STORAGE.lock());
    Parts {
        scratch: &mut all.scratch,
        map: &mut all.map,
        memory: &mut all.memory,
        reserved: &mut all.reserved,
        owners: &mut all.owners,
        topology: TopologyStorage {
            nodes: &mut all.infos,
            ranges: &mut all.rows,
        },
        distances: &mut all.distances,
        layout: LayoutStorage {
            nodes: &mut all.nodes,
            ranges: &mut all.ranges,
            zones: &mut all.zones,
        },
    }
}

/// The shared part of the per-CPU caches.
static CPU_SLOTS: [CpuSlot; MOST] = [const { CpuSlot::new() }; MOST];

/// Slots for so many CPUs, or for the most that are started.
pub(crate) fn cpu_slots(cpus: usize) -> &'static [CpuSlot] {
    CPU_SLOTS.get(..cpus).unwrap_or(&CPU_SLOTS)
}

/// Slots for the events of the way up; called once.
pub(crate) fn event_slots() -> &'static mut [Event] {
    &mut *MutexGuard::leak(EVENTS.lock())
}
