//! The memory of a process, from `/proc`.

use std::fs;

/// Bytes of a process that are resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) now: u64,
    pub(super) peak: u64,
}

impl Memory {
    /// Of the process `id`, if it is still there.
    pub(super) fn of(id: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{id}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kib.checked_mul(1024)
        };
        Some(Self {
            now: value("VmRSS:")?,
            peak: value("VmHWM:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_and_a_zombie_has_none() {
        let text = "Name:\tqemu\nVmHWM:\t  1024 kB\nVmRSS:\t   512 kB\n";
        let memory = Memory {
            now: 512 << 10,
            peak: 1 << 20,
        };
        assert_eq!(Memory::parse(text), Some(memory));
        assert_eq!(Memory::parse("Name:\tqemu\nState:\tZ (zombie)\n"), None);
        assert_eq!(Memory::parse("VmHWM: 1\nVmRSS: x kB\n"), None);
        let own = Memory::of(std::process::id()).unwrap();
        assert!(own.now > 0 && own.peak >= own.now);
    }
}
