//! What can be wrong with ACPI tables: [`AcpiError`] stops, [`Fault`] is
//! tolerated and reported.

use core::fmt;

/// A table's four-letter name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Signature(pub [u8; 4]);

impl Signature {
    /// Multiple APIC description table: the processors.
    pub const MADT: Self = Self(*b"APIC");
    /// System resource affinity table: domains of processors and memory.
    pub const SRAT: Self = Self(*b"SRAT");
    /// System locality information table: distances.
    pub const SLIT: Self = Self(*b"SLIT");
    /// Fixed ACPI description table: the power management timer, how firmware is called.
    pub const FADT: Self = Self(*b"FACP");
    /// Differentiated system description table: ACPI's code.
    pub const DSDT: Self = Self(*b"DSDT");
    /// CXL early discovery table: windows for memory.
    pub const CEDT: Self = Self(*b"CEDT");
    /// Firmware performance data table: where the next one is.
    pub const FPDT: Self = Self(*b"FPDT");
    /// Firmware basic boot performance table: when firmware did what.
    pub const FBPT: Self = Self(*b"FBPT");
    /// Serial port console redirection table: the port of the console.
    pub const SPCR: Self = Self(*b"SPCR");
    /// Debug port table 2: ports for debuggers.
    pub const DBG2: Self = Self(*b"DBG2");
    /// Root table with 32-bit pointers.
    pub const RSDT: Self = Self(*b"RSDT");
    /// Root table with 64-bit pointers.
    pub const XSDT: Self = Self(*b"XSDT");
    /// The root pointer itself (its signature has eight letters).
    pub const RSDP: Self = Self(*b"RSDP");
}

/// Printable letters as they are, the rest escaped.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a table could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcpiError {
    /// The table is another one.
    WrongSignature {
        /// The one requested.
        expected: Signature,
        /// The one seen.
        seen: Signature,
    },
    /// Fewer bytes than the fixed part of the table needs.
    Truncated {
        /// The table.
        table: Signature,
        /// Bytes there are.
        seen_bytes: u64,
        /// Bytes there must be.
        needed_bytes: u64,
    },
    /// The RSDP's bytes do not add up to zero.
    RsdpChecksum {
        /// Bytes added: 20 for the first part, more for all of it.
        over_bytes: u64,
        /// What they add up to.
        sum: u8,
    },
    /// Memory that a pointer names could not be read.
    Unreadable {
        /// What was to be read there.
        table: Signature,
        /// The address.
        address: u64,
        /// Bytes requested.
        bytes: u64,
    },
    /// The RSDP points to no root table at all.
    NoRoot,
    /// An entry whose length field is too short for its kind. The reader goes
    /// on with the next entry, unless not even kind and length fit.
    EntryTooShort {
        /// The table.
        table: Signature,
        /// Where the entry starts in it.
        offset: usize,
        /// The entry's kind; 255 for all larger ones.
        kind: u8,
        /// Its length field.
        seen_bytes: u16,
        /// The least it may be.
        needed_bytes: u16,
    },
    /// An entry that runs past the end of its table; nothing follows it.
    EntryPastEnd {
        /// The table.
        table: Signature,
        /// Where the entry starts in it.
        offset: usize,
        /// The entry's length field; 0 if not even that is inside.
        seen_bytes: u16,
        /// Bytes left in the table.
        left_bytes: usize,
    },
    /// A SLIT with more localities than its bytes can describe.
    Localities {
        /// The number it claims.
        seen: u64,
        /// Bytes of distances it has.
        matrix_bytes: u64,
    },
}

impl fmt::Display for AcpiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::WrongSignature { expected, seen } => {
                write!(f, "expected table {expected}, found \"{seen}\"")
            }
            Self::Truncated {
                table,
                seen_bytes,
                needed_bytes,
            } => {
                write!(
                    f,
                    "{table}: {seen_bytes} bytes, at least {needed_bytes} expected"
                )
            }
            Self::RsdpChecksum { over_bytes, sum } => {
                write!(
                    f,
                    "RSDP: {over_bytes} bytes add up to {sum:#04x}, expected 0"
                )
            }
            Self::Unreadable {
                table,
                address,
                bytes,
            } => {
                write!(f, "{table}: {bytes} bytes at {address:#x} cannot be read")
            }
            Self::NoRoot => f.write_str("RSDP: both the RSDT and the XSDT address are zero"),
            Self::EntryTooShort {
                table,
                offset,
                kind,
                seen_bytes,
                needed_bytes,
            } => {
                write!(
                    f,
                    "{table}: entry of kind {kind} at {offset} has length {seen_bytes}, at least {needed_bytes} expected"
                )
            }
            Self::EntryPastEnd {
                table,
                offset,
                seen_bytes,
                left_bytes,
            } => {
                write!(
                    f,
                    "{table}: entry at {offset} has length {seen_bytes}, but {left_bytes} bytes are left"
                )
            }
            Self::Localities { seen, matrix_bytes } => {
                write!(
                    f,
                    "SLIT: {seen} localities need a square of distances, but it has {matrix_bytes} bytes"
                )
            }
        }
    }
}

impl core::error::Error for AcpiError {}

/// Something wrong that reading went on in spite of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A table's bytes do not add up to zero.
    Checksum {
        /// The table.
        table: Signature,
        /// What they add up to.
        sum: u8,
    },
    /// A root entry that is zero; skipped.
    NullPointer {
        /// The root table.
        root: Signature,
        /// Which of its entries.
        index: usize,
    },
    /// A root entry that points where no table can be read; skipped.
    Unreadable {
        /// The root table.
        root: Signature,
        /// Which of its entries.
        index: usize,
        /// What it points to.
        address: u64,
        /// Why there is no table.
        error: AcpiError,
    },
    /// A root entry that points back to a root table; skipped.
    Cycle {
        /// The root table.
        root: Signature,
        /// Which of its entries.
        index: usize,
        /// What it points to.
        address: u64,
    },
    /// A second table of a name that should be unique; the first is used.
    Duplicate {
        /// The name.
        table: Signature,
        /// Which root entry points to the second.
        index: usize,
    },
    /// Bytes after the last whole pointer of a root table; ignored.
    PartialPointer {
        /// The root table.
        root: Signature,
        /// How many.
        bytes: usize,
    },
    /// The XSDT could not be read, the RSDT is used instead.
    XsdtUnusable(
        /// Why.
        AcpiError,
    ),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Checksum { table, sum } => write!(
                f,
                "{table}: bytes add up to {sum:#04x}, expected 0; used all the same"
            ),
            Self::NullPointer { root, index } => {
                write!(f, "{root}: entry {index} is zero, skipped")
            }
            Self::Unreadable {
                root,
                index,
                address,
                error,
            } => {
                write!(
                    f,
                    "{root}: entry {index} points to {address:#x}, skipped: {error}"
                )
            }
            Self::Cycle {
                root,
                index,
                address,
            } => {
                write!(
                    f,
                    "{root}: entry {index} points back to a root table at {address:#x}, skipped"
                )
            }
            Self::Duplicate { table, index } => {
                write!(f, "{table}: a second one at root entry {index}, ignored")
            }
            Self::PartialPointer { root, bytes } => {
                write!(
                    f,
                    "{root}: {bytes} bytes after the last whole pointer, ignored"
                )
            }
            Self::XsdtUnusable(error) => write!(f, "XSDT not usable, RSDT used instead: {error}"),
        }
    }
}
