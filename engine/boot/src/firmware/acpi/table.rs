//! What all tables have in common: [`Table`], a checked header over the bytes,
//! and the walk over entries of `kind, length, ...` inside one.

use super::error::{AcpiError, Fault, Signature};
use crate::firmware::bytes::{array, index, number, u32_le};

/// Bytes of the header every table starts with.
pub const HEADER_BYTES: usize = 36;

/// A table whose header and length have been checked.
///
/// ```
/// use firstlight_boot::firmware::acpi::{AcpiError, Table};
/// assert!(matches!(Table::parse(b"SRAT"), Err(AcpiError::Truncated { needed_bytes: 36, .. })));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    signature: Signature,
    revision: u8,
    bytes: &'a [u8],
}

impl<'a> Table<'a> {
    /// Checks the header at the start of `bytes`; bytes past the length it
    /// names are cut off.
    ///
    /// # Errors
    /// [`AcpiError::Truncated`] when the header, or the length it names, does
    /// not fit in `bytes`, or the length is shorter than the header.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AcpiError> {
        let signature = Signature(array(bytes, 0).unwrap_or_default());
        let truncated = |seen, needed_bytes| AcpiError::Truncated {
            table: signature,
            seen_bytes: seen,
            needed_bytes,
        };
        let (Some(length), Some(&revision)) = (u32_le(bytes, 4), bytes.get(8)) else {
            return Err(truncated(number(bytes.len()), number(HEADER_BYTES)));
        };
        if bytes.len() < HEADER_BYTES || index(length.into()) < HEADER_BYTES {
            return Err(truncated(
                number(bytes.len()).min(length.into()),
                number(HEADER_BYTES),
            ));
        }
        let whole = bytes.get(..index(length.into()));
        let bytes = whole.ok_or(truncated(number(bytes.len()), length.into()))?;
        Ok(Self {
            signature,
            revision,
            bytes,
        })
    }

    /// The table at the start of `bytes`, which must be `expected`, with at least `fixed`
    /// bytes before its entries.
    ///
    /// # Errors
    /// As [`Table::parse`], and [`AcpiError::WrongSignature`].
    pub(crate) fn expect(
        bytes: &'a [u8],
        expected: Signature,
        fixed: usize,
    ) -> Result<Self, AcpiError> {
        match array(bytes, 0).map(Signature) {
            Some(seen) if seen != expected => {
                return Err(AcpiError::WrongSignature { expected, seen });
            }
            _ => {}
        }
        let table = Self::parse(bytes).map_err(|error| match error {
            AcpiError::Truncated {
                seen_bytes,
                needed_bytes,
                ..
            } => AcpiError::Truncated {
                table: expected,
                seen_bytes,
                needed_bytes,
            },
            other => other,
        })?;
        if table.bytes.len() < fixed {
            let seen_bytes = number(table.bytes.len());
            return Err(AcpiError::Truncated {
                table: expected,
                seen_bytes,
                needed_bytes: number(fixed),
            });
        }
        Ok(table)
    }

    /// The table's name.
    pub const fn signature(&self) -> Signature {
        self.signature
    }

    /// The table's revision, which decides the width of some of its fields.
    pub const fn revision(&self) -> u8 {
        self.revision
    }

    /// All of the table, header included.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Adds up all bytes; a sum that is not zero is a fault to report, not a
    /// reason to do without the table.
    pub fn checksum_fault(&self) -> Option<Fault> {
        let sum = sum(self.bytes);
        (sum != 0).then_some(Fault::Checksum {
            table: self.signature,
            sum,
        })
    }
}

/// The sum of all bytes, which checksums make zero.
pub(super) fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, &byte| sum.wrapping_add(byte))
}

/// An entry inside a table: a kind, a length, and what the kind defines.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawEntry<'a> {
    pub(super) table: Signature,
    pub(super) offset: usize,
    pub(super) kind: u8,
    /// All of the entry, kind and length included; its length fits `length`.
    pub(super) bytes: &'a [u8],
    pub(super) length: u8,
}

impl RawEntry<'_> {
    /// The error of an entry that must have `needed_bytes`.
    pub(super) fn too_short(&self, needed_bytes: u16) -> AcpiError {
        AcpiError::EntryTooShort {
            table: self.table,
            offset: self.offset,
            kind: self.kind,
            seen_bytes: self.length.into(),
            needed_bytes,
        }
    }
}

/// Walks entries by the length each one names. Ends after an entry that gives
/// no way to find the next.
#[derive(Clone, Debug)]
pub(super) struct RawEntries<'a> {
    table: Signature,
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> RawEntries<'a> {
    /// The entries of `table` from byte `offset` on.
    pub(super) const fn new(table: &Table<'a>, offset: usize) -> Self {
        Self {
            table: table.signature,
            bytes: table.bytes,
            offset,
        }
    }
}

impl<'a> Iterator for RawEntries<'a> {
    type Item = Result<RawEntry<'a>, AcpiError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (table, offset) = (self.table, self.offset);
        let rest = self.bytes.get(offset..)?;
        let &kind = rest.first()?;
        // Every early return below ends the walk.
        self.offset = self.bytes.len();
        let Some(&length) = rest.get(1) else {
            return Some(Err(AcpiError::EntryPastEnd {
                table,
                offset,
                seen_bytes: 0,
                left_bytes: rest.len(),
            }));
        };
        if length < 2 {
            let needed_bytes = 2;
            return Some(Err(AcpiError::EntryTooShort {
                table,
                offset,
                kind,
                seen_bytes: length.into(),
                needed_bytes,
            }));
        }
        let Some(bytes) = rest.get(..length.into()) else {
            return Some(Err(AcpiError::EntryPastEnd {
                table,
                offset,
                seen_bytes: length.into(),
                left_bytes: rest.len(),
            }));
        };
        self.offset = offset + bytes.len();
        Some(Ok(RawEntry {
            table,
            offset,
            kind,
            bytes,
            length,
        }))
    }
}
