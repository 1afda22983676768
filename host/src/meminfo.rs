//! Memory of the operating system, as `/proc/meminfo` reports it.

/// Bytes that programs can allocate without swapping (`MemAvailable`); `None`
/// where the kernel does not say.
///
/// ```
/// assert!(firstlight_host::meminfo::available_bytes() > Some(1 << 20));
/// ```
#[must_use]
pub fn available_bytes() -> Option<u64> {
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Available bytes by the text of `/proc/meminfo`, for callers that keep that file open.
///
/// ```
/// use firstlight_host::meminfo::available;
/// assert_eq!(available("MemTotal: 8 kB\nMemAvailable: 3 kB\n"), Some(3 << 10));
/// ```
#[must_use]
pub fn available(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::available;

    #[test]
    fn a_damaged_line_is_no_figure() {
        let text = "MemTotal:       24576000 kB\nMemAvailable:   20480 kB\nBuffers: 1 kB\n";
        assert_eq!(available(text), Some(20 << 20));
        for text in [
            "",
            "MemTotal: 1 kB",
            "MemAvailable: 1 MB",
            "MemAvailable: -1 kB",
            "MemAvailable: 18446744073709551615 kB",
        ] {
            assert_eq!(available(text), None, "{text}");
        }
    }
}
