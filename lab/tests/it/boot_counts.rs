//! How many instructions the image takes until all memory can be allocated, on
//! the instruction clock, where that is the same from run to run: not 1 % more
//! than `boot_counts.txt` has, and never more than was promised. A boot that got
//! shorter is told; `make boot-counts` writes the file anew.

use crate::common::here;

use firstlight_lab::boot::{self, Accelerator, Board, Clock, Machine, Request, Unwatched, Wish};
use here::is_here;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

/// Set to write the counts instead of comparing them.
const UPDATE: &str = "FIRSTLIGHT_UPDATE_BOOT_COUNTS";
/// Instructions from the kernel's entry until 512 GiB on 4 nodes can be allocated.
const MOST: u64 = 300_000;
/// What 512 GiB may cost more than 16 GiB: a tenth, or this.
const MORE: u64 = 10_000;

/// Instructions of 2 GiB on other processors, and what 512 GiB may take, in percent of that.
const MOST_AARCH64: u64 = 150_000;
const MOST_RISCV64: u64 = 130_000;
const MOST_PERCENT: u64 = 115;

/// Name, GiB, nodes, CPUs, command line.
type Boot = (&'static str, u64, u32, u32, &'static str);

const X86_64: [Boot; 5] = [
    ("16g_1_node", 16, 1, 1, ""),
    ("16g_4_nodes", 16, 4, 4, ""),
    ("512g_4_nodes", 512, 4, 4, ""),
    ("16g_4_nodes_lazy_descriptors", 16, 4, 4, "descriptors=lazy"),
    ("4g_eager_descriptors", 4, 1, 1, "descriptors=eager"),
];
const AARCH64: [Boot; 3] = [
    ("aarch64_2g", 2, 1, 1, ""),
    ("aarch64_512g", 512, 1, 1, ""),
    ("aarch64_512g_4_nodes", 512, 4, 4, ""),
];
const RISCV64: [Boot; 3] = [
    ("riscv64_2g", 2, 1, 1, ""),
    ("riscv64_512g", 512, 1, 1, ""),
    ("riscv64_512g_4_nodes", 512, 4, 4, ""),
];

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

/// Counts of all boots with their names; nothing where the processor's QEMU is not here.
fn counts(board: Board, boots: &[Boot]) -> Option<BTreeMap<String, u64>> {
    let processor = board.processor();
    if !is_here(&format!("qemu-system-{processor}")) {
        return None;
    }
    let count = |&(name, gib, nodes, cpus, append): &Boot| {
        (name.to_owned(), count(board, gib, nodes, cpus, append))
    };
    Some(boots.iter().map(count).collect())
}

/// The file's counts, in its order.
fn golden() -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(file()).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
        .collect()
}

/// None is longer than the file has it, or the file gets these counts.
fn compare(counts: &BTreeMap<String, u64>) {
    /// Tests of several processors write one file.
    static WRITING: Mutex<()> = Mutex::new(());
    let _one = WRITING.lock();
    let mut golden = golden();
    if std::env::var_os(UPDATE).is_some() {
        for (name, count) in &mut golden {
            *count = *counts.get(name).unwrap_or(count);
        }
        let mut text = String::from(
            "# Instructions from the image's entry until all memory can be allocated.\n\
             # 1 % more fails; written by: make boot-counts UPDATE=1\n",
        );
        for (name, count) in golden {
            writeln!(text, "{name} {count}").unwrap();
        }
        std::fs::write(file(), text).unwrap();
        return;
    }
    for (name, count) in counts {
        let (_, before) = golden.iter().find(|(known, _)| known == name).unwrap();
        println!("{name}: {count} instructions, {before} before");
        assert!(
            count * 100 <= before * 101,
            "{name}: {count} instructions, {before} before: the boot got longer"
        );
    }
}

#[test]
fn a_boot_takes_no_more_instructions_than_it_did() {
    let Some(counts) = counts(Board::Q35, &X86_64) else {
        return;
    };
    let (small, large) = (counts["16g_4_nodes"], counts["512g_4_nodes"]);
    assert!(
        large <= MOST,
        "{large} instructions for 512 GiB, at most {MOST} are promised"
    );
    assert!(
        large <= small + (small / 10).max(MORE),
        "512 GiB take {large} instructions, 16 GiB {small}: the time must not follow the memory"
    );
    compare(&counts);
}

#[test]
fn a_boot_of_aarch64_takes_no_more_instructions_than_it_did() {
    if let Some(counts) = counts(Board::VirtAarch64, &AARCH64) {
        small_enough(&counts, "aarch64", MOST_AARCH64);
        compare(&counts);
    }
}

#[test]
fn a_boot_of_riscv64_takes_no_more_instructions_than_it_did() {
    if let Some(counts) = counts(Board::VirtRiscv64, &RISCV64) {
        small_enough(&counts, "riscv64", MOST_RISCV64);
        compare(&counts);
    }
}

fn small_enough(counts: &BTreeMap<String, u64>, processor: &str, most: u64) {
    let small = counts[&format!("{processor}_2g")];
    let large = counts[&format!("{processor}_512g")];
    assert!(
        small <= most,
        "{processor}: {small} instructions for 2 GiB, at most {most} are promised"
    );
    assert!(
        large * 100 <= small * MOST_PERCENT,
        "{processor}: 512 GiB take {large} instructions, 2 GiB {small}: the time must not follow the memory"
    );
}

#[test]
fn the_file_has_the_count_of_each_boot_and_no_other() {
    let names = [&X86_64[..], &AARCH64, &RISCV64].concat();
    let names: Vec<_> = names.iter().map(|boot| boot.0).collect();
    let golden = golden();
    let in_file: Vec<_> = golden.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(in_file, names);
}
