//! The log reader on logs nobody should print: nothing fails, nothing goes missing unsaid.

use crate::common;

use firstlight::map::MemoryKind;
use firstlight_lab::log::{E820Kind, MOST_PROBLEMS, MemblockAction, MemorySource, Span, read};
use proptest::prelude::*;

#[test]
fn dialects_that_no_file_here_shows() {
    let log = read(
        b" BIOS-e820: 0000000000000000 - 000000000009fc00 (usable)\n\
          BIOS-e820: 0000000000100000 - 000000007ffd0000 (ACPI NVS)\n\
          BIOS-88: 0000000000100000 - 0000000004000000 (type 42)\n\
          modified: 0000000000000000 - 0000000000001000 (reserved)\n\
         SRAT: Node 0 PXM 7 0-a0000\n\
         SRAT: Node 1 PXM 9 [mem 0x1000-0x1fff] hotplug non-volatile\n\
         SRAT: PXM 1 -> APIC 255 -> Node 1\n\
         SRAT: PXM 2 -> APIC 0x01fe -> Node 2\n\
         Zone PFN ranges:\n\
           DMA      0x00000010 -> 0x00001000\n\
           Normal   empty\n\
         Movable zone start PFN for each node\n\
           Node 1: 262144\n\
         early_node_map[2] active PFN ranges\n\
             0: 0x00000010 -> 0x0000009f\n\
             1: 0x00000100 -> 0x0007ffd0\n\
         Zeroed struct page in unavailable ranges: 98 pages\n\
         Brought up 48 CPUs\n",
    );
    assert_eq!(log.problems, []);
    assert_eq!(log.e820.len(), 3);
    assert_eq!(
        log.e820[0].span,
        Span {
            start: 0,
            last: 0x9fbff
        }
    );
    assert_eq!(log.e820[2].kind, E820Kind::Type(42));
    assert_eq!(log.e820[2].entry().kind, MemoryKind::Reserved);
    assert_eq!(log.modified_map.len(), 1);
    assert_eq!(log.srat_memory[0].span.last, 0x9ffff);
    assert!(log.srat_memory[1].hotplug && log.srat_memory[1].non_volatile);
    assert_eq!(
        (log.srat_cpus[0].hardware_id, log.srat_cpus[1].hardware_id),
        (255, 0x1fe)
    );
    assert_eq!(
        log.zones[0].span,
        Some(Span {
            start: 0x10000,
            last: 0xff_ffff
        })
    );
    assert_eq!(log.movable_starts[0].start, 1 << 30);
    assert_eq!(log.node_ranges[1].span.last, 0x7ffc_ffff);
    assert_eq!(log.unavailable[0].pages, 98);
    assert_eq!(log.cpus.brought_up, Some(48));
}

#[test]
fn absurd_rows_are_listed_each_with_its_line() {
    let lines = [
        (
            "BIOS-e820: [mem 0x100000000000000-0x1ffffffffffffff] usable",
            "beyond 4 PiB",
        ),
        (
            "BIOS-e820: [mem 0x0-0x1ffffffffffffffff] usable",
            "more than 64 bits",
        ),
        ("BIOS-e820: [mem 0x2000-0x1fff] usable", "before its start"),
        ("BIOS-e820: [mem 0x2000-0x2fff", "expected ]"),
        ("BIOS-e820: [mem 0x3000-0x3fff] usab", "no kind"),
        (
            "BIOS-e820: 00002000 - 00002000 (usable)",
            "before its start",
        ),
        (
            "SRAT: Node 99999999999 PXM 0 [mem 0x0-0xfff]",
            "more than 32 bits",
        ),
        ("SRAT: Node 0 PXM [mem 0x0-0xfff]", "expected a number"),
        (
            "SRAT: Node 0 PXM 0 [mem 0x4000-0x4fff] hotplog",
            "means nothing",
        ),
        (
            "SRAT: PXM 0 -> APIC 0x1ffffffff -> Node 0",
            "more than 32 bits",
        ),
        ("  node   0: [mem 0x5000-0x4fff]", "before its start"),
        (
            "node 0 initialised, 99999999999999999999 pages in 1ms",
            "more than 64 bits",
        ),
        ("node 0 deferred pages initialised in", "expected a number"),
        (
            "memblock_alloc_try_nid: 12 bytes align=0xzz",
            "expected a number",
        ),
        (
            " memory[0x0]\t[0x1000-0x1fff], 0x1000 bytes flags: 0x0",
            "without its heading",
        ),
        (
            "junk BIOS-e820: [mem 0x6000-0x6fff] usable",
            "in front of this row",
        ),
    ];
    let text: Vec<_> = lines.iter().map(|(line, _)| *line).collect();
    let log = read(text.join("\n").as_bytes());
    assert_eq!(log.problems.len(), lines.len(), "{:#?}", log.problems);
    for (at, (problem, (line, what))) in log.problems.iter().zip(lines).enumerate() {
        assert_eq!(problem.line, at + 1);
        assert!(
            problem.to_string().contains(what),
            "{problem} should say {what:?} of {line:?}"
        );
    }
    // What can be represented is kept: the engine decides what to make of it.
    let kept: Vec<_> = log
        .e820
        .iter()
        .map(|row| (row.span.start, row.kind))
        .collect();
    let expected = [
        (1 << 56, E820Kind::Usable),
        (0x3000, E820Kind::Reserved),
        (0x6000, E820Kind::Usable),
    ];
    assert_eq!(kept, expected);
    assert_eq!(log.srat_memory.len(), 1);
}

#[test]
fn the_last_byte_of_64_bits_is_no_overflow() {
    let log = read(b"BIOS-e820: [mem 0x0000000000000000-0xffffffffffffffff] usable");
    assert_eq!(log.e820[0].span.last, u64::MAX);
    assert_eq!(log.e820[0].entry().bytes, u64::MAX);
    assert_eq!(log.problems.len(), 1);
    assert_eq!(log.memory_rows().0, MemorySource::Firmware);
}

#[test]
fn a_second_boot_is_not_mixed_into_the_first() {
    let boot = common::log("A_6.1_1G_n1_c1");
    let first = read(&boot);
    let twice = read(&[boot.as_slice(), boot.as_slice()].concat());
    assert_eq!(twice.e820, first.e820);
    assert_eq!(twice.problems.len(), 1);
    assert!(twice.problems[0].what.contains("another boot"));

    let bare = "Linux version 1\nCommand line: a\nBIOS-e820: [mem 0x0-0xfff] usable\n";
    let shown = read(format!("{bare}Linux version 1\n").as_bytes());
    assert_eq!((shown.e820.len(), shown.problems.len()), (1, 0));
    let twice = read(bare.repeat(2).as_bytes());
    assert_eq!((twice.e820.len(), twice.problems.len()), (1, 1));
    assert_eq!(twice.problems[0].line, 4);
}

#[test]
fn words_that_only_look_like_rows_are_left_alone() {
    let log = read(
        b"user: 12 processes\nuser: root logged in\nnode 3 is fine\nNormal people\nDMA is fun\n\
          # Notes: BIOS-e820: [mem 0x0-0xfff] usable\nmemory[0] = 5\nACPI: Core revision 20220331\n",
    );
    assert_eq!(log, Default::default());
}

#[test]
fn trace_lines_of_older_kernels() {
    let log = read(
        b"memblock_reserve: [0x00000000000000-0x00000000000fff] flags 0x0 setup+0x1/0x2\n\
          memblock_virt_alloc_try_nid: 64 bytes align=0x0 nid=3 from=0x0 max_addr=0x0 f+0x1/0x2\n\
             memblock_free: [0x1000-0x1fff] g+0x1/0x2\n",
    );
    assert_eq!(log.problems, []);
    let [reserve, request, free] = log.memblock.as_slice() else {
        panic!("{:?}", log.memblock)
    };
    assert_eq!(reserve.caller, "setup+0x1/0x2");
    let MemblockAction::Request(request) = &request.what else {
        panic!("{request:?}")
    };
    assert_eq!(
        (request.bytes, request.align, request.node),
        (64, 0, Some(3))
    );
    assert_eq!(
        free.what,
        MemblockAction::Free(Span {
            start: 0x1000,
            last: 0x1fff
        })
    );
}

/// Rows to be damaged.
const ROWS: &str = "[    0.000000] BIOS-e820: [mem 0x0000000000100000-0x00000000bffdffff] usable\n\
    [    0.000000] ACPI: SRAT: Node 0 PXM 0 [mem 0x00100000-0xbfffffff] hotplug\n\
    [    0.000000]   node   0: [mem 0x0000000000001000-0x000000000009efff]\n\
    [    0.000000]   DMA      [mem 0x0000000000001000-0x0000000000ffffff]\n\
    [    0.000000] memblock_alloc_try_nid: 73 bytes align=0x40 nid=-1 from=0x0 max_addr=0x0 f+0x1/0x2\n\
    [    0.000000]  memory[0x0]\t[0x1000-0x9efff], 0x9e000 bytes on node 0 flags: 0x0\n\
    [    1.000000] node 0 deferred pages initialised in 12ms\n";

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_log(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        read(&bytes);
    }

    #[test]
    fn damaged_rows_never_stop_the_reader(
        damage in prop::collection::vec((0..ROWS.len(), any::<u8>()), 1..12),
        cut in 0..ROWS.len(),
    ) {
        let mut bytes = ROWS.as_bytes().to_vec();
        for (at, byte) in damage {
            bytes[at] = byte;
        }
        bytes.truncate(cut);
        let rest = b"\n[    2.000000] BIOS-e820: [mem 0x7000-0x7fff] usable\n";
        bytes.extend_from_slice(rest);
        let log = read(&bytes);
        prop_assert_eq!(log.e820.last().map(|row| row.span.start), Some(0x7000));
    }

    /// A firmware row that lost characters is either read or listed.
    #[test]
    fn a_cut_row_is_read_or_listed(cut in 12..65usize) {
        let row = "BIOS-e820: [mem 0x0000000000100000-0x00000000bffdffff] usable";
        let text = &row[..cut.min(row.len())];
        let log = read(text.as_bytes());
        prop_assert_eq!(log.e820.len() + log.problems.len() > 0, true, "{}", text);
    }
}

#[test]
fn problems_are_bounded_and_the_rest_is_counted() {
    let rows = MOST_PROBLEMS + 5;
    let log = read("BIOS-e820: [mem 0x2-0x1]\n".repeat(rows).as_bytes());
    assert_eq!((log.problems.len(), log.more_problems), (MOST_PROBLEMS, 5));
    assert_eq!(log.problems[MOST_PROBLEMS - 1].line, MOST_PROBLEMS);
}
