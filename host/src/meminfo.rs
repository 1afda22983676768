//! Memory of the operating system, as `/proc/meminfo` reports it.

use std::fs;

/// Bytes that programs can allocate without swapping (`MemAvailable`); `None`
/// where the kernel does not say.
///
/// ```
/// assert!(firstlight_host::meminfo::available_bytes() > Some(1 << 20));
/// ```
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
