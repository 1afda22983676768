//! The whole path: a firmware map and an SRAT go in, early memory, topology
//! and layout come out, and no frame of memory is lost or given twice.
#![no_main]

use firstlight::addr::FrameRange;
use firstlight::early::EarlyRequest;
use firstlight::firmware::e820;
use firstlight::layout::{CoreSize, ExtentKind, Layout, LayoutPolicy};
use firstlight::map::MapEntry;
use firstlight::start::{
    AcpiNodes, Boot, BootMemory, BootSizes, BootSlots, NodeTables, StartError,
};
use firstlight::topology::Trust;
use firstlight_fuzz::with_header;
use libfuzzer_sys::fuzz_target;

const ROW_BYTES: usize = 8;
/// More than a fuzzer's input has entries for: five regions for each of 64 rows of the map,
/// two ends for each of 1,024 rows of nodes.
const RANGES: usize = 2400;
/// More than its rows name.
const NODES: usize = 1024;

/// Start and length in units of 64 KiB or 16 GiB, so that ranges meet often.
fn row(bytes: &[u8; ROW_BYTES]) -> MapEntry {
    let [number, coarse, start @ .., c, d] = *bytes;
    let shift = if coarse & 1 == 0 { 16 } else { 34 };
    let start = u64::from(u32::from_le_bytes(start)) & 0x3_ffff;
    let length = u64::from(u16::from_le_bytes([c, d]));
    // A few bytes off the page now and then.
    let odd = u64::from(coarse >> 4) << 8;
    e820::typed(
        (start << shift) + odd,
        length << shift,
        u32::from(number & 7).max(1),
    )
}

fn policy(bits: u8) -> LayoutPolicy {
    let size = |on: u8| (bits & on != 0).then_some(CoreSize::Percent(u32::from(bits >> 2)));
    LayoutPolicy {
        kernelcore: size(1),
        movablecore: size(2),
        kernelcore_mirror: bits & 4 != 0,
        movable_node: bits & 8 != 0,
        ..LayoutPolicy::DEFAULT
    }
}

fn check(layout: &Layout<'_>, usable: u64) {
    let present = layout.present_frames();
    assert_eq!(present, usable, "frames lost or made up");
    let mut sums = vec![0; layout.nodes().len()];
    let mut end = 0;
    for extent in layout.segments() {
        assert!(!extent.frames.is_empty() && extent.frames.start().get() >= end);
        end = extent.frames.end().get();
        sums[usize::from(extent.node.0)] += extent.frames.count();
        let mut zones = layout.zones_of(extent.node).iter();
        let zone = zones
            .find(|zone| zone.kind == extent.zone)
            .expect("a zone with memory exists");
        assert!(zone.span.covers(extent.frames));
    }
    assert_eq!(end, layout.end().get());
    for (node, sum) in layout.nodes().iter().zip(sums) {
        assert_eq!(node.present_frames, sum);
        let zones = layout
            .zones_of(node.id)
            .iter()
            .map(|zone| zone.present_frames);
        assert_eq!(zones.sum::<u64>(), sum);
        let ranges = layout.ranges_of(node.id).map(|range| range.frames.count());
        assert_eq!(ranges.sum::<u64>(), sum);
        assert!(node.eager_frames <= sum && (sum == 0 || layout.distance(node.id, node.id) == 10));
    }
    let holes: u64 = layout.holes().map(FrameRange::count).sum();
    assert_eq!(holes + present, end);
    // Extents cover the segments exactly, each longer than could be joined.
    let mut extents = layout.extents();
    for segment in layout.segments() {
        let (mut at, mut kind) = (segment.frames.start(), None);
        while at < segment.frames.end() {
            let extent = extents.next().expect("an extent for every frame of memory");
            assert_eq!((extent.node, extent.zone), (segment.node, segment.zone));
            assert!(extent.frames.start() == at && kind != Some(extent.kind));
            (at, kind) = (extent.frames.end(), Some(extent.kind));
        }
        assert_eq!(at, segment.frames.end());
    }
    assert!(extents.next().is_none());
    let mut end = 0;
    for window in layout.windows() {
        assert!(window.kind == ExtentKind::Absent && window.frames.start().get() >= end);
        end = window.frames.end().get();
        let mut memory = layout
            .segments()
            .map(|segment| segment.frames.intersect(window.frames));
        assert!(memory.all(FrameRange::is_empty));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(([count, bits, trust], rest)) = data.split_first_chunk::<3>() else {
        return;
    };
    let (rows, rest) = rest.split_at(rest.len().min(usize::from(count & 0x3f) * ROW_BYTES));
    let rows: Vec<MapEntry> = rows.as_chunks::<ROW_BYTES>().0.iter().map(row).collect();
    let table = with_header(b"SRAT", &[&[0; 48], rest].concat());
    let nodes = AcpiNodes {
        srat: Some(&table),
        ..AcpiNodes::NONE
    };
    let sizes = BootSizes::new(RANGES, NODES).without_distances();
    let mut storage = Vec::with_capacity(sizes.bytes());
    let slots = BootSlots::carve(storage.spare_capacity_mut(), sizes).expect("as many bytes");
    let boot = Boot {
        policy: policy(*bits),
        ..Boot::new(rows)
    };
    let BootMemory {
        map,
        mut early,
        policy,
        topology,
        distances,
        layout,
        ..
    } = match boot.early(slots, &mut |_| {}) {
        Ok(memory) => memory,
        Err(StartError::NoMemory { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let present = map.usable_bytes() >> 12;
    let _ = early.allocate(&EarlyRequest::new(0x2345, 64, "fuzz"));
    let _ = early.allocate(&EarlyRequest::new(0x1234, 16, "fuzz").freeable());

    let mut topology = nodes
        .topology(topology, distances, &mut |_| {})
        .expect("fewer entries than slots");
    let trust = match trust & 1 {
        0 => Trust::Repair,
        _ => Trust::AllOrNothing {
            unclaimed_bytes: 1 << 20,
        },
    };
    topology
        .apply(&mut early, trust, &mut |_| {})
        .expect("there is room");
    let (reserved_bytes, memory_bytes) = (early.reserved_bytes(), early.memory_bytes());
    assert_eq!(
        memory_bytes >> 12,
        map.memory()
            .map(|region| region.range.bytes() >> 12)
            .sum::<u64>()
    );
    assert!(reserved_bytes <= 0x2345 + 0x1234 + 0x1000);

    match Layout::build(early, topology, &policy, layout) {
        Ok(layout) => check(&layout, present),
        Err(error) => panic!("{error}"),
    }
});
