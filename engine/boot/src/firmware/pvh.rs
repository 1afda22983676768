//! The start info a hypervisor passes to a guest it boots through the PVH
//! entry: [`StartInfo`], in version 0 (no memory map) and 1.
//!
//! It is a few numbers and physical addresses of lists, so all but the first
//! step reads through a [`PhysRead`].
//!
//! Format: Xen's public header `arch-x86/hvm/start_info.h`.

use core::ffi::CStr;
use core::fmt;

use super::bytes::{number, u32_le, u64_le};
use super::e820::entries_of;
use super::memory::{PhysRead, read};
use crate::addr::PhysAddr;
use crate::map::MapEntry;

/// First four bytes of a start info.
pub const MAGIC: u32 = 0x336e_c578;
/// Bytes of version 0.
pub const V0_BYTES: usize = 40;
/// Bytes of version 1 and, as far as it is known here, of any later one.
pub const V1_BYTES: usize = 56;
/// Longest command line searched for its end, in bytes.
pub const COMMAND_LINE_BYTES: u64 = 64 << 10;

const MAP_ENTRY_BYTES: usize = 24;
const MODULE_BYTES: usize = 32;

/// Why a start info, or something it points to, could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PvhError {
    /// Not a start info.
    BadMagic {
        /// The number in its place.
        seen: u32,
    },
    /// Fewer bytes than its version has.
    Truncated {
        /// Bytes there are.
        seen_bytes: usize,
        /// Bytes there must be.
        needed_bytes: usize,
    },
    /// It is of version 0, or names no memory map.
    NoMemoryMap,
    /// What a pointer names could not be read.
    Unreadable {
        /// What was to be read.
        what: &'static str,
        /// Its address.
        address: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// No NUL within [`COMMAND_LINE_BYTES`], or before memory ends.
    Unterminated {
        /// Where the command line starts.
        address: u64,
        /// Bytes searched.
        bytes: u64,
    },
}

impl fmt::Display for PvhError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadMagic { seen } => write!(
                f,
                "start info begins with {seen:#010x}, expected {MAGIC:#010x}"
            ),
            Self::Truncated {
                seen_bytes,
                needed_bytes,
            } => {
                write!(
                    f,
                    "start info of {seen_bytes} bytes, at least {needed_bytes} expected"
                )
            }
            Self::NoMemoryMap => {
                f.write_str("start info has no memory map: it is of version 0, or names none")
            }
            Self::Unreadable {
                what,
                address,
                bytes,
            } => {
                write!(
                    f,
                    "start info: {what}, {bytes} bytes at {address:#x}, cannot be read"
                )
            }
            Self::Unterminated { address, bytes } => {
                write!(
                    f,
                    "start info: command line at {address:#x} has no end within {bytes} bytes"
                )
            }
        }
    }
}

impl core::error::Error for PvhError {}

/// A start info; addresses are the hypervisor's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartInfo {
    /// 0, 1, or later.
    pub version: u32,
    /// Flags; bits 0 and 1 mark a Xen control domain.
    pub flags: u32,
    /// Number of modules (initial RAM disks and the like).
    pub modules: u32,
    /// Where their list is.
    pub module_list: PhysAddr,
    /// Where the command line is, unless zero.
    pub command_line: Option<PhysAddr>,
    /// Where the ACPI root pointer is, unless zero.
    pub rsdp: Option<PhysAddr>,
    /// Where the memory map is; only from version 1 on.
    pub memory_map: Option<PhysAddr>,
    /// Entries in the memory map.
    pub memory_map_entries: u32,
}

/// A file the hypervisor put into memory, unchecked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Module {
    /// First byte.
    pub start: u64,
    /// Length in bytes; may wrap.
    pub bytes: u64,
    /// Where its own command line is, unless zero.
    pub command_line: Option<PhysAddr>,
}

fn address(raw: u64) -> Option<PhysAddr> {
    (raw != 0).then_some(PhysAddr::new(raw))
}

impl StartInfo {
    /// Reads the structure at the start of `bytes`.
    ///
    /// ```
    /// use firstlight_boot::firmware::pvh::{MAGIC, PvhError, StartInfo};
    /// let mut bytes = [0u8; 56];
    /// bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    /// bytes[4] = 1; // version
    /// bytes[41] = 0x70; // the map lies at 0x7000
    /// bytes[48] = 3; // and has three entries
    /// let info = StartInfo::parse(&bytes).unwrap();
    /// assert_eq!(info.memory_map.unwrap().get(), 0x7000);
    /// assert_eq!(info.rsdp, None);
    /// let needed_bytes = 56;
    /// assert_eq!(StartInfo::parse(&bytes[..40]), Err(PvhError::Truncated { seen_bytes: 40, needed_bytes }));
    /// ```
    ///
    /// # Errors
    /// [`PvhError::BadMagic`] or [`PvhError::Truncated`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PvhError> {
        let truncated = |needed_bytes| PvhError::Truncated {
            seen_bytes: bytes.len(),
            needed_bytes,
        };
        let word = |offset, needed| u32_le(bytes, offset).ok_or(truncated(needed));
        let long = |offset, needed| u64_le(bytes, offset).ok_or(truncated(needed));
        let seen = word(0, V0_BYTES)?;
        if seen != MAGIC {
            return Err(PvhError::BadMagic { seen });
        }
        let version = word(4, V0_BYTES)?;
        let (memory_map, memory_map_entries) = match version {
            0 => (None, 0),
            // The reserved word after the count belongs to the structure.
            _ => (
                address(long(40, V1_BYTES)?),
                long(48, V1_BYTES).and(word(48, V1_BYTES))?,
            ),
        };
        Ok(Self {
            version,
            flags: word(8, V0_BYTES)?,
            modules: word(12, V0_BYTES)?,
            module_list: PhysAddr::new(long(16, V0_BYTES)?),
            command_line: address(long(24, V0_BYTES)?),
            rsdp: address(long(32, V0_BYTES)?),
            memory_map,
            memory_map_entries,
        })
    }

    /// Reads the structure at `at` in memory, as long as its version has it.
    ///
    /// # Errors
    /// [`PvhError::Unreadable`], and as [`StartInfo::parse`].
    pub fn read<'m>(memory: &dyn PhysRead<'m>, at: PhysAddr) -> Result<Self, PvhError> {
        let fetch = |length: usize| list(memory, "start info", at.get(), number(length));
        match Self::parse(fetch(V0_BYTES)?) {
            Err(PvhError::Truncated {
                needed_bytes: V1_BYTES,
                ..
            }) => Self::parse(fetch(V1_BYTES)?),
            other => other,
        }
    }

    /// The memory map, for [`crate::map::MemoryMap::build`].
    ///
    /// # Errors
    /// [`PvhError::NoMemoryMap`] for version 0 and for a map without address;
    /// [`PvhError::Unreadable`].
    pub fn map_entries<'m>(
        &self,
        memory: &dyn PhysRead<'m>,
    ) -> Result<impl Iterator<Item = MapEntry> + Clone + use<'m>, PvhError> {
        let start = self.memory_map.ok_or(PvhError::NoMemoryMap)?.get();
        let length = u64::from(self.memory_map_entries) * number(MAP_ENTRY_BYTES);
        let what = "memory map";
        let table = list(memory, what, start, length)?;
        // The length is a whole number of entries, so this cannot fail.
        entries_of(table, MAP_ENTRY_BYTES).map_err(|_| PvhError::Unreadable {
            what,
            address: start,
            bytes: length,
        })
    }

    /// The modules, in the list's order.
    ///
    /// # Errors
    /// [`PvhError::Unreadable`].
    pub fn modules<'m>(
        &self,
        memory: &dyn PhysRead<'m>,
    ) -> Result<impl Iterator<Item = Module> + Clone + use<'m>, PvhError> {
        let length = u64::from(self.modules) * number(MODULE_BYTES);
        let table = match length {
            0 => &[],
            _ => list(memory, "module list", self.module_list.get(), length)?,
        };
        Ok(table.chunks_exact(MODULE_BYTES).filter_map(|entry| {
            let (start, bytes) = (u64_le(entry, 0)?, u64_le(entry, 8)?);
            Some(Module {
                start,
                bytes,
                command_line: address(u64_le(entry, 16)?),
            })
        }))
    }

    /// The command line, without its NUL; `None` when there is none.
    ///
    /// # Errors
    /// [`PvhError::Unreadable`] or [`PvhError::Unterminated`].
    pub fn command_line<'m>(
        &self,
        memory: &dyn PhysRead<'m>,
    ) -> Result<Option<&'m [u8]>, PvhError> {
        self.command_line
            .map(|start| text(memory, start.get()))
            .transpose()
    }
}

fn list<'m>(
    memory: &dyn PhysRead<'m>,
    what: &'static str,
    address: u64,
    bytes: u64,
) -> Result<&'m [u8], PvhError> {
    read(memory, address, bytes).ok_or(PvhError::Unreadable {
        what,
        address,
        bytes,
    })
}

/// Bytes up to a NUL, of unknown length: reads ever more, and less again
/// where memory ends, until the NUL is there.
fn text<'m>(memory: &dyn PhysRead<'m>, address: u64) -> Result<&'m [u8], PvhError> {
    let mut known: u64 = 0;
    let mut step: u64 = 64;
    while step > 0 && known < COMMAND_LINE_BYTES {
        let length = (known + step).min(COMMAND_LINE_BYTES);
        let Some(bytes) = read(memory, address, length) else {
            step /= 2;
            continue;
        };
        if let Ok(text) = CStr::from_bytes_until_nul(bytes) {
            return Ok(text.to_bytes());
        }
        known = length;
        // Grow only while nothing has been refused.
        if step >= 64 {
            step *= 2;
        }
    }
    match known {
        0 => Err(PvhError::Unreadable {
            what: "command line",
            address,
            bytes: 1,
        }),
        bytes => Err(PvhError::Unterminated { address, bytes }),
    }
}
