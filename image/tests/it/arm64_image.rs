//! The aarch64 image, read by the loader that Cloud Hypervisor and Firecracker use (`linux-loader`), which has it on
//! aarch64 alone: `make foreign` runs this under emulation.

use std::io::Cursor;
use std::process::Command;
use std::sync::LazyLock;

use linux_loader::loader::pe::PE;
use linux_loader::loader::{KernelLoader, KernelLoaderResult};
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

/// Where memory of a guest of Firecracker begins; of one of Cloud Hypervisor it is at 1 GiB.
const MEMORY: [u64; 2] = [2 << 30, 1 << 30];
const MEMORY_BYTES: usize = 64 << 20;
const BORDER: u64 = 2 << 20;

/// The file, built like the one people boot.
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let build = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "-p", "firstlight-image"])
        .args(["--target", "aarch64-unknown-none", "--message-format=json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&build.stderr);
    assert!(build.status.success(), "the image does not build: {told}");
    let messages = String::from_utf8(build.stdout).unwrap();
    let paths = messages.split("\"executable\":\"").skip(1);
    let path = paths.last().unwrap().split('"').next().unwrap();
    std::fs::read(path).unwrap()
});

fn word(at: usize) -> u64 {
    u64::from_le_bytes(IMAGE[at..at + 8].try_into().unwrap())
}

/// Loads `file` at `at` into memory that begins at `start`.
fn load(file: &[u8], start: u64, at: u64) -> Result<(GuestMemoryMmap, KernelLoaderResult), String> {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(start), MEMORY_BYTES)]).unwrap();
    let loaded = PE::load(
        &memory,
        Some(GuestAddress(at)),
        &mut Cursor::new(file),
        None,
    );
    loaded
        .map(|loaded| (memory, loaded))
        .map_err(|error| error.to_string())
}

#[test]
fn the_loader_puts_the_image_where_its_header_says() {
    for start in MEMORY {
        let (memory, loaded) = load(&IMAGE, start, start).unwrap();
        // The first instruction of the file is where the guest is entered.
        assert_eq!(loaded.kernel_load, GuestAddress(start + word(8)));
        let bytes = IMAGE.len() as u64;
        assert_eq!(loaded.kernel_end, loaded.kernel_load.raw_value() + bytes);
        let mut there = vec![0; IMAGE.len()];
        memory.read_slice(&mut there, loaded.kernel_load).unwrap();
        assert!(there == *IMAGE, "the file is in memory as it is");
    }
}

/// What the loader does not look at and a machine needs.
#[test]
fn the_header_says_how_much_memory_the_image_takes() {
    let (offset, bytes) = (word(8), word(16));
    assert!(offset.is_multiple_of(4096) && offset < BORDER);
    // With memory that the file does not hold; of 0 bytes loaders make another offset.
    assert!(
        bytes >= IMAGE.len() as u64 && bytes < MEMORY_BYTES as u64,
        "{bytes}"
    );
    // Little-endian, pages of 4 KiB.
    assert_eq!(word(24) & 0b111, 0b010);
}

#[test]
fn a_damaged_image_and_a_wrong_place_are_refused() {
    let [start, _] = MEMORY;
    let error = load(&IMAGE, start, start + 4096).unwrap_err();
    assert!(error.contains("not aligned to 2 MB"), "{error}");
    let last = start + MEMORY_BYTES as u64 - BORDER;
    let error = load(&IMAGE, start, last + BORDER).unwrap_err();
    assert!(error.contains("unable to read kernel image"), "{error}");
    let mut damaged = IMAGE.clone();
    damaged[56] ^= 1;
    let error = load(&damaged, start, start).unwrap_err();
    assert!(error.contains("magic"), "{error}");
    let error = load(&IMAGE[..63], start, start).unwrap_err();
    assert!(error.contains("unable to read Image header"), "{error}");
}
