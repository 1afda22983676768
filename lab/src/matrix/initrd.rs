//! The smallest initial file system that lets a Linux boot to its end: [`build`].
//!
//! It holds `/dev/console` and `/init`, a program of a few instructions that says so and
//! switches the machine off. No compiler and no file of the host is needed.

/// What `/init` says.
pub const SAYS: &str = "firstlight: init runs\n";

/// Where `/init` is loaded.
const BASE: u64 = 0x40_0000;
/// Its headers: the file's and one program header.
const HEADERS: u64 = 64 + 56;

/// A file system in the form that Linux unpacks, `newc`.
///
/// ```
/// let initrd = firstlight_lab::matrix::initrd::build();
/// assert!(initrd.starts_with(b"070701") && initrd.len() % 512 == 0);
/// ```
#[must_use]
pub fn build() -> Vec<u8> {
    let mut archive = Vec::new();
    entry(&mut archive, "dev", 0o040_755, (0, 0), &[]);
    entry(&mut archive, "dev/console", 0o020_600, (5, 1), &[]);
    entry(&mut archive, "init", 0o100_755, (0, 0), &init());
    entry(&mut archive, "TRAILER!!!", 0, (0, 0), &[]);
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive
}

/// One file: a header of hexadecimal fields, the name, the content, each padded to 4 bytes.
fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
    let inode = archive.len();
    let fields: [usize; 13] = [
        inode,
        mode as usize,
        0,
        0,
        1,
        0,
        content.len(),
        0,
        0,
        device.0 as usize,
        device.1 as usize,
        name.len() + 1,
        0,
    ];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// An x86-64 program: write, sync, reboot.
fn init() -> Vec<u8> {
    let mut code = Vec::new();
    // write(1, text, length); the text stands behind the code.
    code.extend_from_slice(&[0xbf, 1, 0, 0, 0]); // mov edi, 1
    code.extend_from_slice(&[0x48, 0x8d, 0x35]); // lea rsi, [rip + ...]
    let text_at = code.len();
    code.extend_from_slice(&[0; 4]);
    code.push(0xba); // mov edx, length
    let length = u32::try_from(SAYS.len()).unwrap_or(0);
    code.extend_from_slice(&length.to_le_bytes());
    code.extend_from_slice(&[0xb8, 1, 0, 0, 0, 0x0f, 0x05]);
    code.extend_from_slice(&[0xb8, 162, 0, 0, 0, 0x0f, 0x05]); // sync()
    // reboot(magic, magic, power off)
    for (register, value) in [
        (0xbf, 0xfee1_dead_u32),
        (0xbe, 672_274_793),
        (0xba, 0x4321_fedc),
    ] {
        code.push(register);
        code.extend_from_slice(&value.to_le_bytes());
    }
    code.extend_from_slice(&[0xb8, 169, 0, 0, 0, 0x0f, 0x05]);
    code.extend_from_slice(&[0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7]); // pause(), for ever
    let behind = u32::try_from(code.len() - text_at - 4).unwrap_or(0);
    if let Some(slot) = code.get_mut(text_at..text_at + 4) {
        slot.copy_from_slice(&behind.to_le_bytes());
    }
    code.extend_from_slice(SAYS.as_bytes());
    let size = HEADERS + code.len() as u64;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for half in [2_u16, 62] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(&1_u32.to_le_bytes());
    for word in [BASE + HEADERS, 64, 0] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 0, 0, 0] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    for word in [1_u32, 5] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for word in [0, BASE, BASE, size, size, 4096] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&code);
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_archive_is_what_others_read() {
        let archive = build();
        let names = ["dev\0", "dev/console\0", "init\0", "TRAILER!!!\0"];
        let text = String::from_utf8_lossy(&archive);
        let mut from = 0;
        for name in names {
            from += text[from..].find(name).unwrap();
        }
    }

    /// The program is run as far as its text: without the rights of a root `reboot` fails, and
    /// it waits.
    #[test]
    fn the_program_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("init");
        std::fs::write(&path, init()).unwrap();
        let read = Command::new("file").arg(&path).output();
        if let Ok(read) = read {
            let said = String::from_utf8_lossy(&read.stdout).into_owned();
            assert!(said.contains("ELF 64-bit LSB executable, x86-64"), "{said}");
        }
        assert_eq!(init().len() as u64, HEADERS + 62 + SAYS.len() as u64);
    }
}
