//! The memory map a running kernel shows: [`firmware`] and [`iomem`] exactly,
//! [`blocks`] and [`total`] as approximations any user may read.

use super::text::{self, SourceError};
use firstlight::map::{MapEntry, MemoryKind};
use std::fs;
use std::path::Path;

/// One row of a memory map as it was read, unchecked: it may overlap others or
/// end before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRow {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end_inclusive: u64,
    /// The kernel's name for the kind, for example `System RAM`.
    pub label: String,
}

impl MapRow {
    /// The row as the engine takes it; `None` if it ends before it starts.
    /// A name that is not known is reserved memory.
    ///
    /// ```
    /// use firstlight::map::MemoryKind;
    /// use firstlight_host::topology::MapRow;
    /// let row = MapRow { start: 0, end_inclusive: 0xfff, label: "System RAM".into() };
    /// assert_eq!(row.entry().map(|entry| entry.kind), Some(MemoryKind::Usable));
    /// ```
    #[must_use]
    pub fn entry(&self) -> Option<MapEntry> {
        let known = FIRMWARE_KINDS
            .iter()
            .find(|(label, _)| *label == self.label);
        let kind = known.map_or(MemoryKind::Reserved, |(_, kind)| *kind);
        MapEntry::inclusive(self.start, self.end_inclusive, kind)
    }
}

/// The kernel's name for ordinary memory.
pub const SYSTEM_RAM: &str = "System RAM";

/// The x86 kernel's names of rows of a firmware map, and their kinds.
const FIRMWARE_KINDS: [(&str, MemoryKind); 9] = [
    (SYSTEM_RAM, MemoryKind::Usable),
    ("Reserved", MemoryKind::Reserved),
    ("ACPI Tables", MemoryKind::AcpiReclaimable),
    ("ACPI Non-volatile Storage", MemoryKind::AcpiNvs),
    ("Unusable memory", MemoryKind::Unusable),
    ("Persistent Memory", MemoryKind::Persistent),
    ("Persistent Memory (legacy)", MemoryKind::Persistent),
    ("Soft Reserved", MemoryKind::SoftReserved),
    ("Unaccepted Memory", MemoryKind::Unaccepted),
];

/// The firmware's map before any change of the kernel's:
/// `/sys/firmware/memmap/N/{start,end,type}`, in the firmware's order.
/// Recent kernels show it to root only.
///
/// # Errors
/// [`SourceError`] when it is not there, not shown to this user, or malformed.
pub fn firmware(root: &Path) -> Result<Vec<MapRow>, SourceError> {
    let folder = root.join("sys/firmware/memmap");
    let mut rows = Vec::new();
    for number in numbered(&folder, "")? {
        let row = folder.join(number.to_string());
        rows.push(MapRow {
            start: text::read_hexadecimal(&row.join("start"))?,
            end_inclusive: text::read_hexadecimal(&row.join("end"))?,
            label: text::read_text(&row.join("type"))?.trim().into(),
        });
    }
    if rows.is_empty() {
        return Err(SourceError::Empty {
            path: folder,
            expected: "numbered entries",
        });
    }
    Ok(rows)
}

/// The rows of `/proc/iomem` that name memory, at any depth: this is the map
/// after the kernel's own corrections. Ordinary users see every address as zero.
///
/// # Errors
/// [`SourceError`] when it cannot be read, hides addresses, or is malformed.
pub fn iomem(root: &Path) -> Result<Vec<MapRow>, SourceError> {
    let path = root.join("proc/iomem");
    let expected = "start-end : name, in hexadecimal";
    let content = text::read_text(&path)?;
    let mut rows = Vec::new();
    let mut shown = false;
    for (index, line) in content.lines().enumerate() {
        let bad = || SourceError::malformed(&path, index + 1, line, expected);
        let (range, label) = line.trim_start().split_once(" : ").ok_or_else(bad)?;
        let (start, end) = range.split_once('-').ok_or_else(bad)?;
        let start = text::hexadecimal(start).ok_or_else(bad)?;
        let end_inclusive = text::hexadecimal(end).ok_or_else(bad)?;
        shown |= end_inclusive != 0;
        if FIRMWARE_KINDS.iter().any(|(known, _)| *known == label) {
            rows.push(MapRow {
                start,
                end_inclusive,
                label: label.into(),
            });
        }
    }
    if !content.is_empty() && !shown {
        return Err(SourceError::Hidden { path });
    }
    if !rows.iter().any(|row| row.label == SYSTEM_RAM) {
        return Err(SourceError::Empty {
            path,
            expected: "System RAM",
        });
    }
    Ok(rows)
}

/// An approximation any user may read: the memory blocks of
/// `/sys/devices/system/memory`, 128 MiB or more each. Holes smaller than a
/// block are missing.
///
/// # Errors
/// [`SourceError`] when the kernel has no memory blocks or they are malformed.
pub fn blocks(root: &Path) -> Result<Vec<MapRow>, SourceError> {
    let folder = root.join("sys/devices/system/memory");
    let block_bytes = block_size_bytes(root)?;
    let numbers = numbered(&folder, "memory")?;
    let ranges = runs(&numbers, block_bytes).ok_or_else(|| {
        SourceError::malformed(&folder, 1, "a block beyond 2^64", "blocks below 2^64")
    })?;
    if ranges.is_empty() {
        return Err(SourceError::Empty {
            path: folder,
            expected: "memory blocks",
        });
    }
    let row = |(start, end_inclusive)| MapRow {
        start,
        end_inclusive,
        label: SYSTEM_RAM.into(),
    };
    Ok(ranges.into_iter().map(row).collect())
}

/// The last resort: `MemTotal` of `/proc/meminfo` as one piece that starts at
/// 1 MiB. MemTotal excludes what firmware and kernel reserved.
///
/// # Errors
/// [`SourceError`] when it cannot be read or has no sensible `MemTotal`.
pub fn total(root: &Path) -> Result<Vec<MapRow>, SourceError> {
    const START: u64 = 1 << 20;
    let path = root.join("proc/meminfo");
    let content = text::read_text(&path)?;
    for (index, line) in content.lines().enumerate() {
        let Some(value) = line.strip_prefix("MemTotal:") else {
            continue;
        };
        let kib = value
            .trim()
            .strip_suffix(" kB")
            .and_then(|kib| kib.parse::<u64>().ok());
        let end = kib
            .and_then(|kib| kib.checked_mul(1024))
            .and_then(|b| b.checked_add(START));
        let Some(end) = end.filter(|end| *end > START) else {
            return Err(SourceError::malformed(
                &path,
                index + 1,
                line,
                "a number of kB",
            ));
        };
        let label = SYSTEM_RAM.into();
        return Ok(vec![MapRow {
            start: START,
            end_inclusive: end - 1,
            label,
        }]);
    }
    Err(SourceError::Empty {
        path,
        expected: "MemTotal",
    })
}

/// Bytes in a memory block.
///
/// # Errors
/// [`SourceError`] when the kernel has none or the number is malformed.
pub(super) fn block_size_bytes(root: &Path) -> Result<u64, SourceError> {
    let path = root.join("sys/devices/system/memory/block_size_bytes");
    let bytes = text::read_hexadecimal(&path)?;
    if bytes.is_power_of_two() {
        Ok(bytes)
    } else {
        Err(SourceError::malformed(
            &path,
            1,
            &format!("{bytes:#x}"),
            "a power of two",
        ))
    }
}

/// Numbers of the entries `prefixN` of a folder, ascending.
pub(super) fn numbered(folder: &Path, prefix: &str) -> Result<Vec<u64>, SourceError> {
    let unreadable = |error| SourceError::unreadable(folder, error);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(prefix));
        let all_digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        numbers.extend(
            digits
                .filter(all_digits)
                .and_then(|digits| digits.parse::<u64>().ok()),
        );
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// Consecutive blocks as ranges (first byte, last byte); `None` past 2^64.
pub(super) fn runs(numbers: &[u64], block_bytes: u64) -> Option<Vec<(u64, u64)>> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        let start = number.checked_mul(block_bytes)?;
        let end_inclusive = start.checked_add(block_bytes - 1)?;
        match ranges.last_mut() {
            Some(last) if last.1.checked_add(1) == Some(start) => last.1 = end_inclusive,
            _ => ranges.push((start, end_inclusive)),
        }
    }
    Some(ranges)
}
