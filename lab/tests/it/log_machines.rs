//! The log reader on real machines' logs, file by file: what was read of each.

use crate::common;

use firstlight_lab::log::{E820Kind, KernelLog, MemorySource, PagesOf, Span, read};

/// The log whose file name starts with `number`.
fn machine(number: &str) -> KernelLog {
    let folder = std::fs::read_dir(common::testdata().join("machines")).unwrap();
    let file = folder.map(|entry| entry.unwrap().path()).find(|path| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with(&format!("{number}-"))
    });
    let log = read(&std::fs::read(file.unwrap()).unwrap());
    assert_eq!(log.problems, [], "{number}");
    log
}

fn count(log: &KernelLog, kind: E820Kind) -> usize {
    log.e820.iter().filter(|row| row.kind == kind).count()
}

fn usable_bytes(rows: &[firstlight_lab::log::E820Row]) -> u64 {
    let usable = rows.iter().filter(|row| row.kind == E820Kind::Usable);
    usable.map(|row| row.span.range().unwrap().bytes()).sum()
}

fn span(start: u64, last: u64) -> Span {
    Span { start, last }
}

#[test]
fn every_file_has_its_test() {
    let tested = [
        "01", "03", "05", "08", "11", "16", "17", "22", "23", "24", "26", "28", "30", "35", "37",
    ];
    let folder = std::fs::read_dir(common::testdata().join("machines")).unwrap();
    let mut found: Vec<String> = folder
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".txt"))
        .map(|name| name[..2].to_owned())
        .collect();
    found.sort();
    assert_eq!(found, tested);
}

#[test]
fn hp_16_sockets_12_tb() {
    let log = machine("01");
    assert_eq!(log.e820.len(), 38);
    assert_eq!(count(&log, E820Kind::Unusable), 1);
    assert_eq!(count(&log, E820Kind::AcpiNvs), 3);
    assert_eq!(count(&log, E820Kind::AcpiData), 1);
    assert_eq!(log.srat_memory.len(), 17);
    assert_eq!(log.srat_memory[16].node, 15);
    assert_eq!(
        log.srat_memory[2].span,
        span(0xe0_0000_0000, 0x19f_ffff_ffff)
    );
    assert_eq!(log.node_data.len(), 2);
    assert_eq!(log.memory_rows().0, MemorySource::Firmware);
}

#[test]
fn lenovo_byte_granular_setup_data() {
    let log = machine("03");
    assert_eq!((log.e820.len(), log.setup_data.len()), (17, 21));
    assert_eq!(log.setup_data[5].span, span(0x5f43_7018, 0x5f43_f057));
    // Cutting the map at the boot loader's data loses no byte.
    assert_eq!(usable_bytes(&log.setup_data), usable_bytes(&log.e820));
    assert_eq!(log.e820_changes.len(), 6);
    assert_eq!(log.e820_changes[3].to, None);
    assert_eq!(log.e820_changes[2].to, Some(E820Kind::Reserved));
    let slit = log
        .acpi_tables
        .iter()
        .find(|table| table.signature == "SLIT")
        .unwrap();
    assert_eq!(slit.bytes, 0x102c);
}

#[test]
fn sparse_nodes_known_from_affinity_alone() {
    let log = machine("05");
    assert_eq!(log.srat_memory.len(), 7);
    assert_eq!(log.srat_memory[6].span.last, 0x191f_ffff_ffff);
    let (source, rows) = log.memory_rows();
    assert_eq!((source, rows.len()), (MemorySource::Srat, 7));
    assert_eq!(usable_bytes(&rows), (5 * 512 + 256 + 128) << 30);
}

#[test]
fn epyc_8_nodes() {
    let log = machine("08");
    assert_eq!(log.srat_memory.len(), 10);
    assert_eq!(
        log.srat_memory.iter().filter(|row| row.node == 0).count(),
        3
    );
    assert_eq!(log.node_data[0].span, span(0x20_7f37_c000, 0x20_7f37_ffff));
}

#[test]
fn hyperv_windows_up_to_4_pib_are_not_memory() {
    let log = machine("11");
    assert_eq!(log.srat_memory.len(), 14);
    assert!(log.srat_memory.iter().all(|row| row.hotplug));
    assert_eq!(log.srat_memory[13].span.last, 0xf_ffff_ffff_ffff);
    let (source, rows) = log.memory_rows();
    assert_eq!((source, rows.len()), (MemorySource::NodeRanges, 2));
    assert_eq!(rows[1].span, span(0x20_0000, 0xf4bf_ffff));
    assert_eq!(log.zones.len(), 3);
    assert_eq!(log.zones[1].span, None);
    assert_eq!(
        log.unavailable.iter().map(|row| row.pages).sum::<u64>(),
        1 + 352 + 13312
    );
    assert_eq!(log.node_spans[0].span, Some(span(0x1000, 0xf4bf_ffff)));
}

#[test]
fn cxl_windows_that_overlap() {
    let log = machine("16");
    assert_eq!(log.srat_memory.len(), 3);
    let overlap = log.node_overlaps[0];
    assert_eq!(overlap.one, (0, span(0x1_0000_0000, 0xff_ffff_ffff)));
    assert_eq!(overlap.other, (1, span(0x1_0000_0000, 0x1ff_ffff_ffff)));
}

#[test]
fn soft_reserved_around_a_hole() {
    let log = machine("17");
    assert_eq!(
        (log.e820.len(), count(&log, E820Kind::SoftReserved)),
        (3, 2)
    );
}

#[test]
fn a_user_map_stands_in_for_the_firmwares() {
    let log = machine("22");
    assert!(log.e820.is_empty());
    let (source, rows) = log.memory_rows();
    assert_eq!((source, rows.len()), (MemorySource::User, 7));
    assert_eq!(rows[6].kind, E820Kind::Persistent);
    assert_eq!(log.node_spans.len(), 2);
    assert_eq!(log.node_spans[1].span, None);
}

#[test]
fn two_rows_are_a_map() {
    let log = machine("23");
    assert_eq!(log.e820.len(), 2);
    assert_eq!(usable_bytes(&log.e820), 4096);
}

#[test]
fn the_wording_after_the_rework_of_2025() {
    let log = machine("24");
    assert_eq!(log.release.as_deref(), Some("7.2.0-rc1"));
    assert_eq!(log.command_line.as_deref(), Some("console=ttyS0 panic=1"));
    assert_eq!((log.e820.len(), count(&log, E820Kind::Usable)), (7, 2));
    assert_eq!(log.e820[5].kind, E820Kind::Reserved);
}

#[test]
fn a_laptop_of_2013() {
    let log = machine("26");
    assert_eq!((log.e820.len(), count(&log, E820Kind::Usable)), (13, 3));
}

#[test]
fn a_row_alone() {
    let log = machine("28");
    assert_eq!(log.e820[0].span, span(0x1_0000_0000, 0x2b5_7fff_ffff));
}

#[test]
fn zone_counts_good_and_bad() {
    let log = machine("30");
    assert_eq!(log.zone_pages.len(), 4);
    assert_eq!(
        (log.zone_pages[0].of, log.zone_pages[0].pages),
        (PagesOf::Memmap, 1_445_888)
    );
    assert_eq!(
        (log.zone_pages[3].of, log.zone_pages[3].pages),
        (PagesOf::Zone, 89_391_104)
    );
    assert_eq!(log.zone_pages[0].stamp_ns, Some(33_176_000));
    assert_eq!(log.zone_pages[3].stamp_ns, Some(26_875_000));
}

#[test]
fn deferral_on_216_nodes() {
    let log = machine("35");
    let rows: Vec<_> = log
        .deferred
        .iter()
        .map(|r| (r.node, r.pages, r.milliseconds))
        .collect();
    let expected = [
        (0, Some(14_950_072), 544),
        (1, Some(15_990_505), 564),
        (215, Some(3_600_110), 724),
        (102, Some(3_604_205), 756),
        (30, Some(7_732_972), 1368),
    ];
    assert_eq!(rows, expected);
    assert_eq!(log.deferred[0].stamp_ns, Some(177_250_385_000));
}

#[test]
fn deferral_in_every_wording() {
    let log = machine("37");
    let rows: Vec<_> = log
        .deferred
        .iter()
        .map(|r| (r.node, r.pages, r.milliseconds))
        .collect();
    let expected = [
        (0, None, 188),
        (0, None, 1168),
        (1, Some(32_444_607), 1679),
        (1, Some(32_471_632), 901),
        (0, Some(23_398_907), 292),
        (1, Some(24_189_223), 32),
        (1, Some(366_473), 0),
    ];
    assert_eq!(rows, expected);
    assert_eq!(log.deferred[2].stamp_ns, None);
}
