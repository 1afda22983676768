//! ACPI tables, byte by byte, so that each byte can be wrong.

/// A table with its header; the sum of its bytes is right.
pub(crate) fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(36 + body.len()).unwrap();
    let mut table = [
        signature.as_slice(),
        &bytes.to_le_bytes(),
        &[3, 0],
        b"FLTESTFLTESTTB",
        &[1, 0, 0, 0],
        b"TEST",
        &[1, 0, 0, 0],
        body,
    ]
    .concat();
    mend(&mut table, 9, ..);
    table
}

/// `table` with another length in its header.
pub(crate) fn of_length(mut table: Vec<u8>, bytes: u32) -> Vec<u8> {
    table[4..8].copy_from_slice(&bytes.to_le_bytes());
    mend(&mut table, 9, ..);
    table
}

/// Sets the byte `at` so that the bytes of `range` add up to zero.
pub(crate) fn mend(
    table: &mut [u8],
    at: usize,
    range: impl std::slice::SliceIndex<[u8], Output = [u8]>,
) {
    if at < table.len() {
        table[at] = 0;
        let sum = table[range].iter().copied().fold(0, u8::wrapping_add);
        table[at] = sum.wrapping_neg();
    }
}

/// The root of all tables.
pub(crate) fn root(xsdt: u64, rsdt: u32) -> Vec<u8> {
    let mut root = [
        b"RSD PTR \0FLTEST\x02".as_slice(),
        &rsdt.to_le_bytes(),
        &36_u32.to_le_bytes(),
        &xsdt.to_le_bytes(),
        &[0; 4],
    ]
    .concat();
    mend_root(&mut root);
    root
}

/// Makes both sums of a root right.
pub(crate) fn mend_root(root: &mut [u8]) {
    mend(root, 8, ..20);
    mend(root, 32, ..);
}

/// The table that names the others.
pub(crate) fn xsdt(pointers: &[u64]) -> Vec<u8> {
    let body: Vec<u8> = pointers.iter().flat_map(|at| at.to_le_bytes()).collect();
    table(b"XSDT", &body)
}

/// CPUs, from entries.
pub(crate) fn madt(entries: &[Vec<u8>]) -> Vec<u8> {
    let controller = 0xfee0_0000_u64 | 1 << 32;
    table(
        b"APIC",
        &[controller.to_le_bytes().as_slice(), &entries.concat()].concat(),
    )
}

/// A CPU of the MADT with an 8-bit id.
pub(crate) fn local_apic(id: u8) -> Vec<u8> {
    vec![0, 8, 0, id, 1, 0, 0, 0]
}

/// A CPU of the MADT with a 32-bit id.
pub(crate) fn x2apic(id: u32) -> Vec<u8> {
    let [a, b, c, d] = id.to_le_bytes();
    vec![9, 16, 0, 0, a, b, c, d, 1, 0, 0, 0, 0, 0, 0, 0]
}

/// Nodes, from entries.
pub(crate) fn srat(entries: &[Vec<u8>]) -> Vec<u8> {
    let head = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    table(b"SRAT", &[head.as_slice(), &entries.concat()].concat())
}

/// Memory of a node.
pub(crate) fn memory_of(domain: u32, start: u64, bytes: u64) -> Vec<u8> {
    [
        [1, 40].as_slice(),
        &domain.to_le_bytes(),
        &[0; 2],
        &start.to_le_bytes(),
        &bytes.to_le_bytes(),
        &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat()
}

/// A CPU of a node.
pub(crate) fn cpu_of(domain: u32, id: u8) -> Vec<u8> {
    let [low, rest @ ..] = domain.to_le_bytes();
    let head = [0, 16, low, id, 1, 0, 0, 0, 0];
    [head.as_slice(), &rest, &[0; 4]].concat()
}

/// Distances; `nodes` says how many rows and columns there should be.
pub(crate) fn slit(nodes: u64, distances: &[u8]) -> Vec<u8> {
    table(
        b"SLIT",
        &[nodes.to_le_bytes().as_slice(), distances].concat(),
    )
}

/// Where the times of this boot are.
pub(crate) fn fpdt(boot_table: u64) -> Vec<u8> {
    let pointer = [&[0, 0, 16, 1, 0, 0, 0, 0], &boot_table.to_le_bytes()[..]].concat();
    table(b"FPDT", &pointer)
}

/// Firmware's times, in nanoseconds.
pub(crate) fn fbpt(times: [u64; 5]) -> Vec<u8> {
    let head = b"FBPT\x38\0\0\0\x02\0\x30\x02\0\0\0\0";
    [&head[..], times.map(u64::to_le_bytes).as_flattened()].concat()
}

/// The fixed description, with a timer at port 0x608.
pub(crate) fn fadt() -> Vec<u8> {
    let mut body = [0; 240];
    body[40..44].copy_from_slice(&0x608_u32.to_le_bytes());
    body[55] = 4;
    table(b"FACP", &body)
}
