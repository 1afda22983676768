//! Where memory on CXL may appear, and how that is aligned: [`Cedt`].

use super::error::{AcpiError, Fault, Signature};
use super::table::Table;
use crate::addr::PHYS_END;
use crate::firmware::bytes::{array, u16_le, u64_le};

/// The header.
const FIXED_BYTES: usize = 36;
/// Kind, a reserved byte, and the length.
const ENTRY_BYTES: usize = 4;
/// The kind of a window.
const WINDOW: u8 = 1;
/// A window with no target.
const WINDOW_BYTES: u16 = 36;

/// The CXL early discovery table, read in place: of its structures, the fixed memory windows (CFMWS).
///
/// ```
/// # use firstlight_boot::firmware::acpi::{AcpiError, Cedt};
/// fn largest_block(table: &[u8]) -> Result<Option<u64>, AcpiError> {
///     Ok(Cedt::parse(table)?.advised_bytes())
/// }
/// assert!(largest_block(b"SLIT").is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Cedt<'a> {
    table: Table<'a>,
}

/// A window of addresses at which memory may appear; the range is not checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CedtWindow {
    /// First byte.
    pub base: u64,
    /// Length in bytes; base plus length may wrap.
    pub bytes: u64,
}

impl<'a> Cedt<'a> {
    /// Checks header and length.
    ///
    /// # Errors
    /// [`AcpiError::WrongSignature`] or [`AcpiError::Truncated`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AcpiError> {
        Ok(Self {
            table: Table::expect(bytes, Signature::CEDT, FIXED_BYTES)?,
        })
    }

    /// The windows in the table's order. After an error the next ones still come, as long as the
    /// bad one says where they are.
    pub const fn windows(&self) -> CedtWindows<'a> {
        CedtWindows {
            bytes: self.table.bytes(),
            offset: FIXED_BYTES,
        }
    }

    /// The largest power of two that divides base and length of every window that can be read: the
    /// largest size of memory blocks with which each window consists of whole blocks. `None`
    /// without windows.
    pub fn advised_bytes(&self) -> Option<u64> {
        let windows = self.windows().filter_map(Result::ok);
        let used = windows.filter(|window| window.bytes > 0);
        let bits = used.map(|window| window.base | window.bytes);
        let bits = bits.reduce(|all, one| all | one)?;
        Some(1 << bits.trailing_zeros().min(PHYS_END.trailing_zeros()))
    }

    /// A wrong checksum, if it has one.
    pub fn checksum_fault(&self) -> Option<Fault> {
        self.table.checksum_fault()
    }
}

/// See [`Cedt::windows`].
#[derive(Clone, Debug)]
pub struct CedtWindows<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> CedtWindows<'a> {
    /// The next structure of any kind: where it starts, and its bytes. Ends after one that gives no way to find
    /// the next.
    fn next_entry(&mut self) -> Option<Result<(usize, &'a [u8]), AcpiError>> {
        let (table, offset) = (Signature::CEDT, self.offset);
        let rest = self.bytes.get(offset..)?;
        let &kind = rest.first()?;
        // Every early return below ends the walk.
        self.offset = self.bytes.len();
        let length = u16_le(rest, 2);
        let past_end = AcpiError::EntryPastEnd {
            table,
            offset,
            seen_bytes: length.unwrap_or(0),
            left_bytes: rest.len(),
        };
        let Some(length) = length else {
            return Some(Err(past_end));
        };
        if usize::from(length) < ENTRY_BYTES {
            return Some(Err(AcpiError::EntryTooShort {
                table,
                offset,
                kind,
                seen_bytes: length,
                needed_bytes: 4,
            }));
        }
        let Some(bytes) = rest.get(..length.into()) else {
            return Some(Err(past_end));
        };
        self.offset = offset + bytes.len();
        Some(Ok((offset, bytes)))
    }
}

impl Iterator for CedtWindows<'_> {
    type Item = Result<CedtWindow, AcpiError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (offset, bytes) = match self.next_entry()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            if bytes.first() == Some(&WINDOW) {
                return Some(window(bytes).ok_or(AcpiError::EntryTooShort {
                    table: Signature::CEDT,
                    offset,
                    kind: WINDOW,
                    seen_bytes: u16_le(bytes, 2).unwrap_or(0),
                    needed_bytes: WINDOW_BYTES,
                }));
            }
        }
    }
}

/// A window out of its structure.
fn window(bytes: &[u8]) -> Option<CedtWindow> {
    let fixed: [u8; WINDOW_BYTES as usize] = array(bytes, 0)?;
    Some(CedtWindow {
        base: u64_le(&fixed, 8)?,
        bytes: u64_le(&fixed, 16)?,
    })
}
