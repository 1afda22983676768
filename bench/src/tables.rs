//! The firmware tables of a large machine.

#[path = "../../engine/tests/it/acpi_tables/mod.rs"]
mod acpi_tables;

/// MADT and SRAT of a machine with `cpus` x2APIC processors in `domains`
/// proximity domains of 64 GiB each.
///
/// ```
/// use firstlight::firmware::acpi::Madt;
/// let (madt, _) = firstlight_bench::tables::acpi(128, 2);
/// assert_eq!(Madt::parse(&madt)?.cpus().count(), 128);
/// # Ok::<(), firstlight::firmware::acpi::AcpiError>(())
/// ```
#[must_use]
pub fn acpi(cpus: u32, domains: u32) -> (Vec<u8>, Vec<u8>) {
    acpi_tables::large_machine(cpus, domains)
}

/// An e820 map of 20 entries as a server's firmware has it: unsorted, with
/// overlaps, an odd end, reserved pieces and memory above 4 GiB.
#[must_use]
pub fn e820() -> Vec<u8> {
    const ENTRIES: [(u64, u64, u32); 20] = [
        (0x1_0000_0000, 0x80_8000_0000, 1),
        (0, 0x9_fc00, 1),
        (0x9_fc00, 0x400, 2),
        (0xf_0000, 0x1_0000, 2),
        (0x10_0000, 0x5_ff00, 1),
        (0x20_0000, 0x3fe0_0000, 1),
        (0x4000_0000, 0x2000_0000, 1),
        (0x5fff_f000, 0x2000, 2),
        (0x6000_1000, 0x0fff_f000, 1),
        (0x7000_0000, 0x40_0000, 3),
        (0x7040_0000, 0x20_0000, 4),
        (0x7060_0000, 0x0fa0_0000, 1),
        (0x7ff0_0000, 0x10_0000, 5),
        (0x8000_0000, 0x1000_0000, 2),
        (0xfec0_0000, 0x1000, 2),
        (0xfee0_0000, 0x1000, 2),
        (0xff00_0000, 0x100_0000, 2),
        (0x81_8000_0000, 0x40_0000_0000, 7),
        (0xc1_8000_0000, 0x10_0000_0000, 0xefff_ffff),
        (0x80_0000_0000, 0x4000_0000, 2),
    ];
    let entry = |(start, bytes, kind): (u64, u64, u32)| {
        [
            &start.to_le_bytes()[..],
            &bytes.to_le_bytes(),
            &kind.to_le_bytes(),
        ]
        .concat()
    };
    ENTRIES.into_iter().flat_map(entry).collect()
}
