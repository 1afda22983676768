//! Memory blocks: all of them listed, one looked up, and what small ones cost at boot.

use std::error::Error;
use std::hint::black_box;

use firstlight::addr::{Order, PhysRange};
use firstlight::blocks::{BlockId, BlockMemory, BlockSize, Blocks};
use firstlight::frames::{Frames, Request};
use firstlight::node::NodeId;
use firstlight_bench::machine::{GIB, Machine};
use firstlight_figures::random::Random;
use firstlight_figures::spread::Spread;
use firstlight_host::metadata::MetadataSpace;

use crate::contest::{nice, time};

const ROUNDS: usize = 51;
const LOOKUPS: usize = 4096;

/// One node with memory in these ranges of GiB.
fn machine(ranges: &[(u64, u64)]) -> Machine {
    let range = |&(start, end): &(u64, u64)| {
        let range = PhysRange::new(start * GIB, end * GIB).unwrap_or_default();
        (range, NodeId(0))
    };
    Machine {
        nodes: 1,
        memory: ranges.iter().map(range).collect(),
        reserved: Vec::new(),
    }
}

/// All facts of all blocks.
fn list<M: BlockMemory>(blocks: &Blocks<M>) -> u64 {
    let mut seen = 0;
    for block in blocks {
        let nodes = block.nodes().count() as u64;
        black_box((
            block.id(),
            block.state(),
            block.zones(),
            nodes,
            block.is_removable(),
        ));
        seen += 1;
    }
    seen
}

/// From a layout to a first page, and a view of blocks of this size with their number.
fn ready(
    machine: &Machine,
    size: BlockSize,
    space: &mut MetadataSpace,
) -> Result<f64, Box<dyn Error>> {
    let mut storage = machine.storage();
    let layout = machine.layout(&mut storage)?;
    space.reset();
    let (ns, frames) = time(|| -> Result<_, Box<dyn Error>> {
        let frames = Frames::build(layout, &*space)?;
        frames.allocate(Request::new(Order::PAGE))?;
        black_box(Blocks::new(&frames, size).count());
        Ok(frames)
    });
    frames?;
    Ok(ns)
}

fn median(times: impl IntoIterator<Item = f64>) -> Result<f64, Box<dyn Error>> {
    Ok(Spread::of(times).ok_or("no rounds")?.median)
}

/// A row of the table: all facts of all blocks of 128 MiB, and single ones.
fn row(name: &str, memory: impl BlockMemory, end_bytes: u64) -> Result<(), Box<dyn Error>> {
    let blocks = Blocks::new(memory, BlockSize::SMALLEST);
    let count = blocks.count();
    let last = end_bytes / BlockSize::SMALLEST.bytes();
    let mut random = Random::new(5);
    let ids: Vec<_> = (0..LOOKUPS)
        .map(|_| BlockId(random.below(last as usize) as u64))
        .collect();
    let (mut listed, mut looked_up) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (ns, seen) = time(|| list(black_box(&blocks)));
        assert_eq!(seen, count);
        listed.push(ns);
        let (ns, found) = time(|| {
            let found = ids
                .iter()
                .filter(|id| blocks.get(black_box(**id)).is_some());
            found.count()
        });
        black_box(found);
        looked_up.push(ns / LOOKUPS as f64);
    }
    println!(
        "| {name} | {count} | 0 bytes | {} | {:.1} ns | {} |",
        nice(median(listed)?),
        median(looked_up)?,
        blocks.runs().count()
    );
    Ok(())
}

/// Prints the tables.
pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    println!("| memory | blocks | stored a block | all facts of all | a lookup by id | runs |");
    println!("|---|---|---|---|---|---|");
    let scattered: Vec<_> = (0..1024).map(|at| (32 * at, 32 * at + 31)).collect();
    for (name, ranges) in [
        ("2 TiB, full", vec![(0, 2048)]),
        ("2 TiB, the published 16,288", vec![(0, 3), (15, 2048)]),
        ("32 TiB, 1,024 ranges", scattered),
    ] {
        let machine = machine(&ranges);
        let mut storage = machine.storage();
        let layout = machine.layout(&mut storage)?;
        row(&format!("{name}: a layout"), &layout, machine.end_bytes())?;
        let space = MetadataSpace::new(machine.metadata_bytes())?;
        let frames = Frames::build(layout, &space)?;
        row(&format!("{name}: `Frames`"), &frames, machine.end_bytes())?;
        let block = PhysRange::new(GIB, GIB + BlockSize::SMALLEST.bytes()).unwrap_or_default();
        frames.offline(block)?;
        row(
            &format!("{name}: `Frames`, one block offline"),
            &frames,
            machine.end_bytes(),
        )?;
    }
    let machine = machine(&[(0, 2048)]);
    let mut space = MetadataSpace::new(machine.metadata_bytes())?;
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        small.push(ready(&machine, BlockSize::SMALLEST, &mut space)?);
        large.push(ready(&machine, BlockSize::LARGEST_CHOSEN, &mut space)?);
    }
    let (small, large) = (median(small)?, median(large)?);
    println!(
        "\n2 TiB ready, from a layout to a first page and its blocks: {} with 16,384 blocks of 128 MiB, {} with 1,024 of 2 GiB: {:.2} times.\n",
        nice(small),
        nice(large),
        small / large
    );
    Ok(())
}
