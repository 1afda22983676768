//! ACPI tables made to order, with right lengths and checksums.
#![allow(
    clippy::allow_attributes,
    reason = "each test binary uses some of these"
)]
#![allow(
    dead_code,
    unused_macros,
    clippy::unwrap_used,
    reason = "each test binary uses some of these; bad input is a bug of the test"
)]

/// Bytes of a real machine's table, by its file.
macro_rules! machine {
    ($name:literal) => {
        include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../testdata/machines/acpi/",
            $name
        ))
    };
}

/// A table with header and checksum around `body`.
pub(crate) fn sealed(signature: &[u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(36 + body.len()).unwrap();
    let mut table = Vec::from(signature);
    table.extend(length.to_le_bytes());
    table.extend([revision, 0]);
    table.extend(b"FIRST FIRSTLIT\x01\0\0\0FRST\x01\0\0\0");
    table.extend(body);
    seal(&mut table);
    table
}

/// Makes the bytes add up to zero.
pub(crate) fn seal(table: &mut [u8]) {
    table[9] = 0;
    table[9] = table.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
}

/// An entry of `kind` with its length before `content`.
pub(crate) fn entry(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len() + 2).unwrap();
    [&[kind, length], content].concat()
}

/// A MADT type 0 entry.
pub(crate) fn cpu(uid: u8, apic_id: u8, flags: u8) -> Vec<u8> {
    entry(0, &[uid, apic_id, flags, 0, 0, 0])
}

/// A MADT type 9 entry.
pub(crate) fn madt_x2apic(apic_id: u32, flags: u32, uid: u32) -> Vec<u8> {
    entry(
        9,
        &[
            &[0, 0][..],
            &apic_id.to_le_bytes(),
            &flags.to_le_bytes(),
            &uid.to_le_bytes(),
        ]
        .concat(),
    )
}

/// A MADT type 11 entry, of the 80 bytes that ACPI 6.0 gives it.
pub(crate) fn madt_gicc(uid: u32, mpidr: u64, flags: u32) -> Vec<u8> {
    let mut content = vec![0; 78];
    content[6..10].copy_from_slice(&uid.to_le_bytes());
    content[10..14].copy_from_slice(&flags.to_le_bytes());
    content[66..74].copy_from_slice(&mpidr.to_le_bytes());
    entry(11, &content)
}

/// An SRAT type 3 entry.
pub(crate) fn gicc(domain: u32, uid: u32, flags: u32) -> Vec<u8> {
    let fields = [domain, uid, flags, 0].map(u32::to_le_bytes);
    entry(3, fields.as_flattened())
}

/// An SRAT type 2 entry.
pub(crate) fn x2apic(domain: u32, apic_id: u32, flags: u32) -> Vec<u8> {
    let fields = [0, domain, apic_id, flags, 0, 0].map(u32::to_le_bytes);
    entry(2, &fields.as_flattened()[2..])
}

/// An SRAT type 1 entry.
pub(crate) fn memory(domain: u32, base: u64, bytes: u64, flags: u32) -> Vec<u8> {
    let mut content = domain.to_le_bytes().to_vec();
    content.extend([0; 2]);
    content.extend(base.to_le_bytes());
    content.extend(bytes.to_le_bytes());
    content.extend([0; 4]);
    content.extend(flags.to_le_bytes());
    content.extend([0; 8]);
    entry(1, &content)
}

/// An SRAT of these entries.
pub(crate) fn srat(revision: u8, entries: &[Vec<u8>]) -> Vec<u8> {
    sealed(b"SRAT", revision, &[vec![0; 12], entries.concat()].concat())
}

/// A MADT of these entries.
pub(crate) fn madt(entries: &[Vec<u8>]) -> Vec<u8> {
    sealed(
        b"APIC",
        5,
        &[vec![0, 0, 0xe0, 0xfe, 1, 0, 0, 0], entries.concat()].concat(),
    )
}

/// A SLIT of these distances.
pub(crate) fn slit(localities: u64, distances: &[u8]) -> Vec<u8> {
    sealed(
        b"SLIT",
        1,
        &[&localities.to_le_bytes()[..], distances].concat(),
    )
}

/// A window for CXL memory with so many targets.
pub(crate) fn cfmws(base: u64, bytes: u64, targets: usize) -> Vec<u8> {
    let length = u16::try_from(36 + 4 * targets).unwrap();
    let mut window = vec![1, 0];
    window.extend(length.to_le_bytes());
    window.extend([0; 4]);
    window.extend(base.to_le_bytes());
    window.extend(bytes.to_le_bytes());
    window.resize(length.into(), 0);
    window
}

/// MADT and SRAT of a machine with `cpus` x2APIC CPUs in `domains` domains of
/// 64 GiB each.
pub(crate) fn large_machine(cpus: u32, domains: u32) -> (Vec<u8>, Vec<u8>) {
    let per_domain = cpus / domains;
    let processors: Vec<_> = (0..cpus).map(|id| madt_x2apic(id, 1, id)).collect();
    let mut affinity: Vec<_> = (0..cpus).map(|id| x2apic(id / per_domain, id, 1)).collect();
    affinity.extend((0..domains).map(|domain| memory(domain, u64::from(domain) << 36, 1 << 36, 1)));
    (madt(&processors), srat(3, &affinity))
}
