//! The image, booted by real QEMU with what no honest loader hands over: wherever
//! a pointer leads and whatever a table claims, it brings the machine up or says
//! why it cannot, and its end is clear. Skipped with a line where there is no QEMU.

use crate::common::image;
use crate::common::qemu;
use crate::hand_over;

use firstlight_lab::boot::events::Outcome::{self, Fault, Machine, Ok, Panic};
use firstlight_lab::boot::{Board, Machine as Shape};
use hand_over::acpi::{cpu_of, local_apic, madt, memory_of, of_length, slit, srat, table, x2apic};
use hand_over::qemu::Boot;
use hand_over::random::hand_overs;
use hand_over::{ACPI, DEVICE, HandOver, IMAGE, MAP, MIB, NVS, RESERVED, USABLE};
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use qemu::qemu_is_here;

/// Boots each, which has to end with `outcome` and to say all the words.
fn all<const CASES: usize>(cases: [(HandOver, Outcome, &[&str]); CASES]) {
    if !qemu_is_here() {
        return;
    }
    for (hand_over, outcome, lines) in cases {
        let boot = hand_over.boot();
        boot.ended(outcome);
        for words in lines {
            boot.says(words);
        }
    }
}

fn good() -> HandOver {
    HandOver::good()
}

/// The first addresses that the emulated processor does not have.
const BEYOND: u64 = (1 << 40) + 0x1000;

#[test]
fn without_memory_it_says_so() {
    let empty = HandOver {
        map: Vec::new(),
        ..good()
    };
    let none_usable = HandOver {
        map: MAP[1..2].to_vec(),
        ..good()
    };
    all([
        (good(), Ok, &["of 2 run", "end: ok"]),
        (
            good().lie(|info| info.version = 0),
            Machine,
            &["start info has no memory map: it is of version 0"],
        ),
        (
            empty,
            Machine,
            &["no usable memory, expected some; 0 bytes"],
        ),
        (
            none_usable,
            Machine,
            &["no usable memory, expected some; 65536 bytes"],
        ),
    ]);
}

#[test]
fn pointers_to_what_is_no_memory_are_not_followed() {
    let told_at = |at| HandOver {
        start_info: Some(at),
        ..good()
    };
    all([
        (
            told_at(0),
            Machine,
            &["start info, 40 bytes at 0x0, cannot be read"],
        ),
        (
            told_at(IMAGE),
            Machine,
            &["start info, 40 bytes at 0x200000, cannot be read"],
        ),
        (
            told_at(DEVICE),
            Machine,
            &["start info, 40 bytes at 0xfee00000, cannot be read"],
        ),
        (
            told_at(0xffff_ffff),
            Machine,
            &["start info, 40 bytes at 0xffffffff, cannot be read"],
        ),
        (
            good().lie(|info| info.map = 0),
            Machine,
            &["start info has no memory map: it is of version 0, or names none"],
        ),
        (
            good().lie(|info| info.map = IMAGE),
            Machine,
            &["memory map, 72 bytes at 0x200000, cannot be read"],
        ),
        (
            good().lie(|info| info.map = DEVICE),
            Machine,
            &["memory map, 72 bytes at 0xfee00000, cannot be read"],
        ),
        (
            good().lie(|info| info.map_rows = u32::MAX),
            Machine,
            &["memory map, 103079215080 bytes"],
        ),
        (
            good().lie(|info| (info.modules, info.module_list) = (u32::MAX, info.map)),
            Ok,
            &["corrected: start info: module list, 137438953440 bytes"],
        ),
    ]);
}

#[test]
fn a_map_may_be_long_overlap_and_wrap() {
    let thousands = (0..5000).map(|row| (128 * MIB + row * 0x4000, 0x1000, RESERVED));
    let overlapping = [
        (0x5000, 0, USABLE),
        (16 * MIB, 16, RESERVED),
        (32 * MIB, 64 * MIB, USABLE),
        (BEYOND & !0xfff, u64::MAX, RESERVED),
        (u64::MAX - 0xfff, 0x2000, RESERVED),
        (1 << 60, 0x1000, ACPI),
    ];
    all([
        (
            good().rows(thousands),
            Machine,
            &[
                "storage for 1024 entries is too small: 5003 are needed",
                "RANGES of BootStorage must be at least 5003",
            ],
        ),
        (
            good().rows(overlapping),
            Ok,
            &[
                "corrected: entry 3: no bytes at 0x5000, dropped",
                "run past 2^64, clipped",
                "overlaps entry 4, now reserved",
                "lies past the end of physical memory",
            ],
        ),
        (
            good().rows([(0x3000, u64::MAX, RESERVED)]),
            Machine,
            &["usable overlaps entry 3, now reserved"],
        ),
    ]);
}

#[test]
fn memory_beyond_the_processors_addresses_is_left_out() {
    let left_out = "memory from 0x10000000000 on is beyond this processor's addresses, left out";
    all([
        (good().rows([(BEYOND, 1 << 30, USABLE)]), Ok, &[left_out]),
        (
            good().rows([((1 << 40) - 0x1000, 0x2000, ACPI)]),
            Ok,
            &["0x010000000fff] ACPI"],
        ),
        (
            good().rows([(BEYOND, 1 << 30, ACPI)]),
            Ok,
            &["[mem 0x010000001000-"],
        ),
        (
            good().rows([(BEYOND, 0x1000, NVS)]),
            Ok,
            &["[mem 0x010000001000-"],
        ),
    ]);
}

#[test]
fn broken_roots_and_tables_are_left_out() {
    let endless = of_length(srat(&[cpu_of(1, 1)]), 0xf000_0000);
    let pointers = vec![
        0,
        IMAGE,
        DEVICE,
        0xfec0_0000,
        0xffff_ffff,
        1 << 47,
        1 << 52,
        u64::MAX - 35,
        u64::MAX,
    ];
    let many = (0..5000).map(|number| 0x700_0000 + number * 0x2000);
    all([
        (good().lie(|info| info.root = 0), Ok, &["of 2 run"]),
        (
            good().lie(|info| info.root = DEVICE),
            Ok,
            &["corrected: RSDP", "of 2 run"],
        ),
        (
            good().lie(|info| info.root = u64::MAX - 0xff),
            Ok,
            &["corrected: RSDP", "of 2 run"],
        ),
        (
            HandOver {
                pointers: many.collect(),
                ..good()
            },
            Ok,
            &["of 2 run"],
        ),
        (
            HandOver { pointers, ..good() },
            Ok,
            &[
                "XSDT: entry 0 is zero, skipped",
                "XSDT: entry 2 points to 0xfee00000",
                "of 2 run",
            ],
        ),
        (
            good().tables([endless]),
            Ok,
            &[
                "SRAT: 4026531840 bytes at 0x5002000 cannot be read",
                "of 2 run",
            ],
        ),
        // Each in a page of its own, with a gap behind it; the first one of a name is read.
        (
            good().tables((0..2_400).map(|number| match number % 2 {
                0 => table(b"APIC", &[0; 8]),
                _ => table(b"GAPS", &[]),
            })),
            Ok,
            &["of 2 run"],
        ),
    ]);
}

#[test]
fn broken_nodes_are_mended() {
    let halves = || {
        vec![
            memory_of(0, 0, 128 * MIB),
            memory_of(1, 128 * MIB, 128 * MIB),
        ]
    };
    let with = |entry: &[u8]| good().tables([srat(&[halves().concat(), entry.to_vec()])]);
    let overlapping = [
        memory_of(0, 0, 200 * MIB),
        memory_of(7, 128 * MIB, 1 << 63),
        memory_of(9, u64::MAX, u64::MAX),
    ];
    let two = || good().tables([srat(&halves())]);
    let nodes = |count: u32| -> Vec<_> {
        let each = 256 * MIB / 512;
        (0..count)
            .map(|node| memory_of(node, u64::from(node) * each, each))
            .collect()
    };
    all([
        (
            with(&[1, 40, 2, 0]),
            Ok,
            &["corrected: SRAT entry left out", "node 1:"],
        ),
        (
            with(&[1, 0]),
            Ok,
            &["corrected: SRAT entry left out", "node 1:"],
        ),
        (
            good().tables([srat(&overlapping)]),
            Ok,
            &[
                "claimed by node 0 and node 1; node 0 keeps it",
                "clipped at the end of physical",
            ],
        ),
        (
            two().tables([slit(1 << 40, &[])]),
            Ok,
            &["corrected: SLIT: 1099511627776 localities"],
        ),
        (
            two().tables([slit(2, &[10, 0, 255, 20])]),
            Ok,
            &["corrected: SLIT: locality 0 is 0 from 1", "node 1:"],
        ),
        (
            good().tables([srat(&vec![memory_of(0, 0, 256 * MIB); 5000])]),
            Machine,
            &["storage for 1024 entries is too small: 5000 are needed"],
        ),
        (
            good().tables([srat(&nodes(257))]),
            Machine,
            &["topology nodes: storage for 256 entries is too small: 257 are needed"],
        ),
        (good().tables([srat(&nodes(256))]), Ok, &["node 255:"]),
    ]);
}

#[test]
fn cpus_are_started_once_and_none_is_made_up() {
    let ids = |ids: &[u8]| -> Vec<_> { ids.iter().map(|id| local_apic(*id)).collect() };
    let everybody = [
        local_apic(0),
        x2apic(u32::MAX),
        local_apic(1),
        local_apic(255),
    ];
    let many: Vec<_> = (0..=u8::MAX).cycle().take(5000).map(local_apic).collect();
    let past_the_end = [local_apic(0), local_apic(1), vec![0, 8, 0, 2]];
    all([
        (good().cpus(&ids(&[0, 0, 1])), Ok, &["of 2 run"]),
        (
            good().cpus(&ids(&[0, 1, 1, 0])),
            Ok,
            &["CPU with id 0x1 listed twice, counted once", "of 2 run"],
        ),
        (
            good().cpus(&everybody),
            Ok,
            &["id 0xff not started", "id 0xffffffff not started"],
        ),
        (
            good().cpus(&many),
            Ok,
            &["CPU with id 0x1 listed twice", "end: ok"],
        ),
        (
            good().cpus(&past_the_end),
            Ok,
            &[
                "corrected: MADT entry left out: APIC: entry at 60",
                "of 2 run",
            ],
        ),
        (
            HandOver {
                tables: vec![of_length(madt(&[]), 0xf000_0000)],
                ..good()
            },
            Ok,
            &[
                "APIC: 4026531840 bytes at 0x5001000 cannot be read",
                "of 1 run",
            ],
        ),
    ]);
}

#[test]
fn a_command_line_may_be_anything() {
    let endless = vec![0xff; 70_000];
    let nonsense = (1..=255).chain([0]).collect();
    all([
        (
            HandOver {
                command_line: endless,
                ..good()
            },
            Ok,
            &["has no end within 65536 bytes"],
        ),
        (
            HandOver {
                command_line: nonsense,
                ..good()
            },
            Ok,
            &["note: command line: unknown word"],
        ),
        (
            good().lie(|info| info.command_line = IMAGE),
            Ok,
            &["corrected: start info: command line"],
        ),
        (
            good().command_line("selftest memmap=exactmap memmap=64M@0 tsc_hz=2000000000"),
            Ok,
            &[
                "[mem 0x000000000000-0x000003ffffff] usable",
                "of 2 run",
                " 0 failures",
            ],
        ),
    ]);
}

/// The image itself, without a loader of ours.
fn plain(machine: &Shape, append: &str, extra: &str) -> Boot {
    let extra: Vec<_> = extra.split_whitespace().map(str::to_owned).collect();
    Boot::run(machine, image::image(), append, &extra)
}

/// As many MiB, and CPUs.
fn shape(memory_mib: u64, cpus: u32) -> Shape {
    Shape {
        memory_mib,
        cpus,
        ..Shape::default()
    }
}

#[test]
fn a_fault_is_told_in_the_log_and_as_an_event() {
    if !qemu_is_here() {
        return;
    }
    let small = shape(200, 1);
    for (word, outcome, words) in [
        (
            "page-fault",
            Fault,
            "fault: CPU 0: page fault (vector 14, error code 0x3)",
        ),
        (
            "double-fault",
            Fault,
            "fault: CPU 0: double fault (vector 8",
        ),
        ("panic", Panic, "requested by the command line"),
    ] {
        let boot = plain(&small, &format!("test={word}"), "");
        boot.ended(outcome).says(words);
    }
}

#[test]
fn odd_machines_come_up() {
    if !qemu_is_here() {
        return;
    }
    let microvm = Shape {
        board: Board::Microvm,
        ..shape(256, 2)
    };
    let boot = plain(&microvm, "", "-machine pit=off,acpi=off");
    boot.ended(Ok)
        .says("times stay in ticks")
        .says("no ACPI: one CPU, one node")
        .says(" ticks] end: ok");

    let boot = plain(&shape(2048, 2), "", "-cpu qemu64");
    boot.ended(Ok).says("2045 MiB allocatable");

    let boot = plain(&shape(256, 8), "test=late-cpu", "");
    boot.ended(Ok)
        .says("CPU 7 has not started yet; it joins when it does")
        .says("joined late; work now runs on 8");
}

/// The checks above can fail.
#[test]
fn rubbish_is_no_clear_end() {
    if !qemu_is_here() {
        return;
    }
    let boot = plain(&shape(64, 1), "test=rubbish", "");
    assert!(boot.outcome().is_err(), "{}", boot.log());
}

/// `PROPTEST_CASES` makes it longer, `PROPTEST_RNG_SEED` different.
#[test]
fn whatever_is_damaged_the_end_is_clear() {
    if !qemu_is_here() {
        return;
    }
    let mut config = Config {
        failure_persistence: None,
        // Each step is a boot.
        max_shrink_iters: 30,
        ..Config::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 20;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(1);
    }
    let clear = TestRunner::new(config).run(&hand_overs(), |hand_over| {
        let boot = hand_over.boot();
        match boot.outcome() {
            Result::Ok(Outcome::Ok | Machine) => Result::Ok(()),
            other => Err(TestCaseError::fail(format!("{other:?}\n{}", boot.log()))),
        }
    });
    clear.unwrap();
}
