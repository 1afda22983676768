//! From a layout to memory that can be allocated, beside the rivals, all in
//! one run: `make bench`.
//!
//! - `contest`: interleaved rounds, medians, tables;
//! - `ours`, `rivals`: the contestants;
//! - `acpi`: reading the CPUs of a large machine;
//! - `blocks`, `hash`: memory blocks, a hash table; only with this word.
//!
//! An argument such as `64` keeps to machines of that many GiB.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "figures to print"
)]

mod acpi;
mod blocks;
mod contest;
mod hash;
mod ours;
mod rivals;

use std::error::Error;

use contest::{Contestant, Task, contest, nice};
use firstlight::addr::FrameRange;
use firstlight_bench::host;
use firstlight_bench::machine::{GIB, Machine};
use ours::Firstlight;
use rivals::{Bitmap1T, Bitmap16T, BuddySlab, BuddySystem, Memset, Ranges};

/// Memory in GiB and nodes.
const MACHINES: [(u64, u16); 5] = [(16, 1), (64, 1), (512, 4), (4096, 8), (65_536, 64)];

/// Properties that are not measured.
const ABILITIES: &str = "\
| | nodes | zones | largest block, aligned to its size | a given frame | parts of a block freed | double free | many CPUs |
|---|---|---|---|---|---|---|---|
| **firstlight** | yes, by distance | yes | 1 GiB | yes | yes | typed error | no lock; a level being split is waited for |
| buddy_system_allocator 0.13 | no | no | 16 TiB | yes | not promised | not noticed | a spin lock around it |
| free-list 0.3 | no | no | any | yes | yes | typed error | no (`&mut`) |
| bitmap-allocator 0.4 | no | no | any, found bit by bit | yes | yes | reported | no (`&mut`) |
| buddy-slab-allocator 0.6 | no | below 4 GiB or not | a page (4 GiB unaligned) | no | no | not noticed in release builds | no (`&mut`) |
";

/// All contestants; ours first.
fn contestants(machine: &Machine) -> Vec<Box<dyn Contestant>> {
    let small = machine.end_bytes() <= 1024 * GIB;
    vec![
        Box::new(Firstlight::default()),
        Box::new(BuddySystem),
        Box::new(Ranges),
        if small {
            Box::new(Bitmap1T::default())
        } else {
            Box::new(Bitmap16T::default())
        },
        Box::new(BuddySlab::default()),
        Box::new(Firstlight::every_node()),
        Box::new(Memset::<64>::default()),
        Box::new(Memset::<8>::default()),
    ]
}

/// The free memory of the machine's layout.
fn free(machine: &Machine) -> Result<Vec<FrameRange>, Box<dyn Error>> {
    let mut storage = machine.storage();
    let layout = machine.layout(&mut storage)?;
    let free = layout.early().free_ranges();
    Ok(free
        .map(|free| free.range.inner_frames())
        .filter(|frames| !frames.is_empty())
        .collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let only: Option<u64> = std::env::args().find_map(|argument| argument.parse().ok());
    println!("Host: {}, load {}.\n", host::line(), host::load());
    let mut words = std::env::args().skip(1);
    match words
        .find(|word| ["blocks", "hash"].contains(&word.as_str()))
        .as_deref()
    {
        Some("blocks") => return blocks::print(),
        Some(_) => return hash::print(),
        None => {}
    }
    println!("### From a layout to all memory allocatable\n");
    println!(
        "Median (min .. max). *Fresh*: the metadata's pages are untouched, faults are counted;\n\
         *warm*: the same again over pages that are there. A ratio below 1: faster than firstlight.\n"
    );
    let mut medians = Vec::new();
    for (gib, nodes) in MACHINES
        .into_iter()
        .filter(|&(gib, _)| only.is_none_or(|only| only == gib))
    {
        let machine = Machine::pc(gib * GIB, nodes);
        let mut contestants = contestants(&machine);
        let ours = contest(&machine, &free(&machine)?, Task::First, &mut contestants);
        medians.push((gib, ours));
    }
    let of = |wanted| medians.iter().find(|(gib, _)| *gib == wanted);
    if let (
        Some((_, [Some(small), Some(small_warm)])),
        Some((_, [Some(large), Some(large_warm)])),
    ) = (of(64), of(4096))
    {
        println!(
            "4 TiB on 8 nodes: {} fresh, {:.2} times 64 GiB; {} warm, {:.2} times. Target: 100 us, 2 times.\n",
            nice(*large),
            large / small,
            nice(*large_warm),
            large_warm / small_warm
        );
    }
    println!("What each can do at all:\n\n{ABILITIES}");
    println!("### Allocate and free, one thread, 64 GiB\n");
    let machine = Machine::pc(64 * GIB, 1);
    contest(
        &machine,
        &free(&machine)?,
        Task::Steady,
        &mut contestants(&machine)[..5],
    );
    println!("### Reading CPUs\n");
    acpi::print()
}
