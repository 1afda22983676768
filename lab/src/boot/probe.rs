//! The smallest guest there is: [`image`], an ELF file that ends QEMU as soon as it
//! runs. What takes longer than [`PATIENCE`] to get there is not worth using.

use std::time::Duration;

/// How long the guest may take for its few instructions.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Where the guest is loaded.
const ADDRESS: u32 = 0x10_0000;
/// ELF header and two program headers.
const HEADERS: u32 = 52 + 2 * 32;

/// Bytes of instructions: in 32-bit mode, as PVH starts a guest. It asks which vector state is
/// switched on, as every kernel does early: there are hosts whose KVM runs a guest up to there
/// and no further.
const CODE: [u8; 42] = [
    0xb8, 0x01, 0, 0, 0, // mov eax, 1
    0x31, 0xc9, // xor ecx, ecx
    0x0f, 0xa2, // cpuid
    0x0f, 0xba, 0xe1, 26, // bt ecx, 26: has it xsave?
    0x73, 16, // jnc to the end of what needs it
    0x0f, 0x20, 0xe0, // mov eax, cr4
    0x0d, 0, 0, 0x04, 0, // or eax, 1 << 18
    0x0f, 0x22, 0xe0, // mov cr4, eax
    0x31, 0xc9, // xor ecx, ecx
    0x0f, 0x01, 0xd0, // xgetbv
    0xb8, 0x2a, 0, 0, 0, // mov eax, 0x2a
    0xe7, 0xf4, // out 0xf4, eax: QEMU exits with status 0x55
    0xf4, // hlt
    0xeb, 0xfd, // jmp to hlt
    0x90,
];

/// The exit status of a QEMU in which the guest ran.
pub(super) const STATUS: i32 = 0x55;

/// A PVH guest as an ELF file.
pub(super) fn image() -> Vec<u8> {
    let code_bytes = u32::try_from(CODE.len()).unwrap_or(0);
    let entry = ADDRESS + HEADERS + 20;
    let file_bytes = HEADERS + 20 + code_bytes;
    let mut file = Vec::new();
    // Identification: 32 bits, little endian, version 1.
    file.extend([0x7f, b'E', b'L', b'F', 1, 1, 1]);
    file.resize(16, 0);
    half(&mut file, &[2, 3]); // a program for the 80386
    words(&mut file, &[1, entry, 52, 0, 0]); // program headers follow
    half(&mut file, &[52, 32, 2, 0, 0, 0]);
    // The whole file at `ADDRESS`, then the note within it.
    words(
        &mut file,
        &[1, 0, ADDRESS, ADDRESS, file_bytes, file_bytes, 7, 0x1000],
    );
    let note = ADDRESS + HEADERS;
    words(&mut file, &[4, HEADERS, note, note, 20, 20, 4, 4]);
    // Owner "Xen", type 18: where to start in 32-bit mode.
    words(&mut file, &[4, 4, 18]);
    file.extend(*b"Xen\0");
    words(&mut file, &[entry]);
    file.extend(CODE);
    file
}

fn half(file: &mut Vec<u8>, numbers: &[u16]) {
    file.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn words(file: &mut Vec<u8>, numbers: &[u32]) {
    file.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_laid_out_as_its_headers_say() {
        let file = image();
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let entry = word(24);
        assert_eq!(word(28), 52, "program headers");
        assert_eq!(word(52 + 16) as usize, file.len(), "bytes of the segment");
        let note = word(52 + 32 + 4) as usize;
        assert_eq!(&file[note + 12..note + 16], b"Xen\0");
        assert_eq!(word(note + 16), entry);
        let start = (entry - ADDRESS) as usize;
        assert_eq!(file[start..], CODE);
    }
}
