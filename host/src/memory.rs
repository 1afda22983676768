//! Memory that this host could provide: [`available_bytes`].

/// `MemAvailable` of `/proc/meminfo`; `None` where the kernel does not report it.
///
/// ```
/// if let Some(bytes) = firstlight_host::memory::available_bytes() {
///     assert!(bytes > 0);
/// }
/// ```
#[must_use]
pub fn available_bytes() -> Option<u64> {
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::available;

    #[test]
    fn the_line_is_found_and_damaged_ones_are_no_figure() {
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
