//! Bytes that the allocator writes and reserves before the first allocation, on
//! machines of every size and shape.

use firstlight::addr::PhysRange;
use firstlight::frames::{Frames, Metadata};
use firstlight::node::NodeId;
use firstlight_bench::machine::{GIB, Machine};
use firstlight_host::metadata::MetadataSpace;

const KIB: u64 = 1 << 10;
const TIB: u64 = 1 << 40;

/// What is known of a range of memory, besides 0.3 bytes a frame.
const RANGE_BYTES: u64 = 512;

/// Brings the machine up and checks its metadata.
#[expect(clippy::unwrap_used, reason = "a test")]
fn check(name: &str, machine: &Machine) -> Metadata {
    let mut storage = machine.storage();
    let layout = machine.layout(&mut storage).unwrap();
    let ranges = layout.early().memory().len() + layout.early().reserved().len();
    let space = MetadataSpace::new(machine.metadata_bytes()).unwrap();
    let frames = Frames::build(layout, &space).unwrap();
    // A recount starts every segment: nothing more is written before any first
    // allocation.
    frames.validate().unwrap();
    let free_frames = frames.statistics().free_frames;
    let metadata = frames.metadata();
    assert_eq!(free_frames, frames.statistics().managed_frames, "{name}");

    let gibs = machine.memory_bytes().div_ceil(GIB);
    let most = 16 * gibs + 8 * KIB * (u64::from(machine.nodes) + ranges as u64);
    let written = metadata.written_bytes;
    assert!(
        written <= most,
        "{name}: {written} bytes written, at most {most} allowed"
    );

    // Counted by the operating system: nothing else was touched. Tables share
    // no page with each other, and each table, and each range's part of the
    // deepest one, may end inside a page.
    let resident = space.reservation().resident_bytes().unwrap();
    let pages = 4 * KIB * (2 * u64::from(machine.nodes) + 1 + 8 * ranges as u64);
    assert!(
        resident <= written + pages,
        "{name}: {resident} bytes resident, {written} written"
    );

    if machine.memory_bytes() >= GIB * u64::from(machine.nodes) {
        let reserved = metadata.reserved_bytes;
        assert!(
            reserved.saturating_sub(RANGE_BYTES * ranges as u64) * 10 <= machine.frames() * 3,
            "{name}: {reserved} bytes reserved for {} frames",
            machine.frames()
        );
    }
    metadata
}

#[test]
fn every_size_and_number_of_nodes() {
    for memory_bytes in [
        GIB,
        4 * GIB,
        16 * GIB,
        64 * GIB,
        512 * GIB,
        4 * TIB,
        64 * TIB,
    ] {
        for nodes in [1, 2, 8, 64]
            .into_iter()
            .filter(|&nodes| u64::from(nodes) * GIB <= memory_bytes)
        {
            let machine = Machine::pc(memory_bytes, nodes);
            check(&machine.name(), &machine);
        }
    }
}

/// Memory in equal pieces, `stride` bytes from one start to the next.
#[expect(clippy::unwrap_used, reason = "a test")]
fn pieces(
    count: u64,
    bytes: u64,
    stride: u64,
    nodes: u16,
    node_of: impl Fn(u64) -> u64,
) -> Machine {
    Machine {
        nodes,
        memory: (0..count)
            .map(|piece| {
                let range = PhysRange::with_size(GIB + piece * stride, bytes).unwrap();
                (range, NodeId(u16::try_from(node_of(piece)).unwrap()))
            })
            .collect(),
        reserved: Vec::new(),
    }
}

#[test]
fn interleaved_nodes() {
    check("1 GiB turns", &pieces(512, GIB, GIB, 4, |piece| piece % 4));
    check(
        "16 MiB turns",
        &pieces(1024, 16 << 20, 16 << 20, 8, |piece| piece % 8),
    );
}

#[test]
fn address_space_without_memory_is_free() {
    // 512 GiB in 64 pieces: in a row, and over a span of 32 TiB.
    let dense = pieces(64, 8 * GIB, 8 * GIB, 8, |piece| piece / 8);
    let sparse = pieces(64, 8 * GIB, 512 * GIB, 8, |piece| piece / 8);
    let dense = check("dense", &dense);
    let sparse = check("sparse", &sparse);
    assert!(sparse.reserved_bytes < dense.reserved_bytes * 101 / 100 + 64 * KIB);
    // The span costs a directory entry a piece and nothing else.
    assert!(sparse.written_bytes < dense.written_bytes + 64 * RANGE_BYTES);
}

#[test]
fn many_small_ranges() {
    let page = 4 * KIB;
    // Tables need space in one piece.
    let with_space = |mut machine: Machine| {
        let space = PhysRange::with_size(512 * GIB, 4 << 20).unwrap();
        machine.memory.push((space, NodeId(0)));
        machine
    };
    let crumbs = pieces(4096, 3 * page, 4 * page, 1, |_| 0);
    check("3 pages in 4", &with_space(crumbs));
    let crumbs = pieces(4096, 40 * page, 2 << 20, 2, |piece| piece / 2048);
    check("40 pages in 2 MiB", &with_space(crumbs));
    let crumbs = pieces(256, 600 * page, GIB, 4, |piece| piece / 64);
    check("a bit of each GiB", &with_space(crumbs));
    let mut pocked = Machine::pc(16 * GIB, 2);
    pocked.reserved = (0..4096)
        .map(|hole| PhysRange::with_size((8 << 20) + hole * 3 * page, page).unwrap())
        .collect();
    check("every third page reserved", &pocked);
    pocked.reserved = (0..16)
        .map(|hole| PhysRange::with_size(hole * GIB + 12_345, 1).unwrap())
        .collect();
    check("a byte of each GiB reserved", &pocked);
}

/// Every byte that differs from both fillings of the memory was counted.
#[test]
fn no_byte_is_written_uncounted() {
    for machine in [
        Machine::pc(4 * GIB, 1),
        Machine::pc(16 * GIB, 4),
        pieces(64, 40 << 20, 1 << 30, 2, |piece| piece % 2),
    ] {
        let bring_up = |filling: u8| {
            let mut space = MetadataSpace::new(machine.metadata_bytes()).unwrap();
            space.as_mut_slice().fill(filling);
            let mut storage = machine.storage();
            let layout = machine.layout(&mut storage).unwrap();
            let frames = Frames::build(layout, &space).unwrap();
            assert!(frames.statistics().free_frames > 0); // starts every segment
            let metadata = frames.metadata();
            (metadata, space.as_mut_slice().to_vec())
        };
        let (metadata, zeros) = bring_up(0);
        let (_, ones) = bring_up(0xff);
        let written = zeros
            .iter()
            .zip(&ones)
            .filter(|&(&zero, &one)| zero != 0 || one != 0xff);
        let written = written.count() as u64;
        assert!(
            written > 0 && written <= metadata.written_bytes,
            "{written} of {metadata:?}"
        );
    }
}
