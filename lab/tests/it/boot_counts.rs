//! How many instructions the image takes until all memory can be allocated, on
//! the instruction clock, where that is the same from run to run: not 1 % more
//! than `boot_counts.txt` has, and never more than was promised. A boot that got
//! shorter is told; `make boot-counts` writes the file anew.

use crate::common::here;

use Board::{Q35, VirtAarch64, VirtRiscv64};
use firstlight_lab::boot::{
    self, Accelerator, Board, Clock, Machine, Processor, Request, Unwatched, Wish,
};
use here::is_here;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;

/// Set to write the counts instead of comparing them.
const UPDATE: &str = "FIRSTLIGHT_UPDATE_BOOT_COUNTS";
/// Instructions from the kernel's entry until 512 GiB on 4 nodes can be allocated.
const MOST: u64 = 300_000;
/// What 512 GiB may cost more than 16 GiB: a tenth, or this.
const MORE: u64 = 10_000;

/// The same of 2 GiB on other processors, and what 512 GiB may take, in percent of that.
const MOST_AARCH64: u64 = 150_000;
const MOST_RISCV64: u64 = 130_000;
const MOST_PERCENT: u64 = 115;

/// Name, board, GiB, nodes, CPUs, command line.
const BOOTS: [(&str, Board, u64, u32, u32, &str); 11] = [
    ("16g_1_node", Q35, 16, 1, 1, ""),
    ("16g_4_nodes", Q35, 16, 4, 4, ""),
    ("512g_4_nodes", Q35, 512, 4, 4, ""),
    ("16g_4_nodes_lazy_descriptors", Q35, 16, 4, 4, LAZY),
    ("4g_eager_descriptors", Q35, 4, 1, 1, "descriptors=eager"),
    ("aarch64_2g", VirtAarch64, 2, 1, 1, ""),
    ("aarch64_512g", VirtAarch64, 512, 1, 1, ""),
    ("aarch64_512g_4_nodes", VirtAarch64, 512, 4, 4, ""),
    ("riscv64_2g", VirtRiscv64, 2, 1, 1, ""),
    ("riscv64_512g", VirtRiscv64, 512, 1, 1, ""),
    ("riscv64_512g_4_nodes", VirtRiscv64, 512, 4, 4, ""),
];
const LAZY: &str = "descriptors=lazy";

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/boot_counts.txt")
}

/// Instructions from entry until all memory can be allocated.
fn count(board: Board, memory_gib: u64, nodes: u32, cpus: u32, append: &str) -> u64 {
    let request = Request {
        machine: Machine {
            board,
            memory_mib: memory_gib << 10,
            nodes,
            cpus,
            clock: Clock::Instructions,
            ..Machine::default()
        },
        wish: Wish::This(Accelerator::Tcg),
        append: append.into(),
        ..Request::default()
    };
    let record = boot::run(&request, &AtomicUsize::new(0), &mut Unwatched).unwrap();
    record.milestones.all_allocatable_ns.unwrap() - record.milestones.entry_ns.unwrap()
}

#[test]
fn a_boot_takes_no_more_instructions_than_it_did() {
    let processors = Processor::ALL.map(|processor| format!("qemu-system-{processor}"));
    if !processors.iter().all(|qemu| is_here(qemu)) {
        return;
    }
    let mut text = String::from(
        "# Instructions from the image's entry until all memory can be allocated.\n\
         # 1 % more fails; written by: make boot-counts UPDATE=1\n",
    );
    let counts = BOOTS.map(|(name, board, gib, nodes, cpus, append)| {
        let count = count(board, gib, nodes, cpus, append);
        writeln!(text, "{name} {count}").unwrap();
        (name, count)
    });
    let of = |wanted: &str| counts.iter().find(|(name, _)| *name == wanted).unwrap().1;
    let (small, large) = (of("16g_4_nodes"), of("512g_4_nodes"));
    assert!(
        large <= MOST,
        "{large} instructions for 512 GiB, at most {MOST} are promised"
    );
    assert!(
        large <= small + (small / 10).max(MORE),
        "512 GiB take {large} instructions, 16 GiB {small}: the time must not follow the memory"
    );
    for (processor, most) in [("aarch64", MOST_AARCH64), ("riscv64", MOST_RISCV64)] {
        let (small, large) = (
            of(&format!("{processor}_2g")),
            of(&format!("{processor}_512g")),
        );
        assert!(
            small <= most,
            "{processor}: {small} instructions for 2 GiB, at most {most} are promised"
        );
        assert!(
            large * 100 <= small * MOST_PERCENT,
            "{processor}: 512 GiB take {large} instructions, 2 GiB {small}: the time must not follow the memory"
        );
    }
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(file(), text).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(file()).unwrap();
    let lines = golden.lines().filter(|line| !line.starts_with('#'));
    let golden: Vec<(&str, u64)> = lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, count)| (name, count.parse().unwrap()))
        .collect();
    for (name, count) in counts {
        let (_, before) = golden.iter().find(|(known, _)| *known == name).unwrap();
        println!("{name}: {count} instructions, {before} before");
        assert!(
            count * 100 <= before * 101,
            "{name}: {count} instructions, {before} before: the boot got longer"
        );
    }
    assert_eq!(golden.len(), BOOTS.len(), "a count that nobody takes");
}
