//! When firmware did what: [`Fpdt`] points to the table of this boot, [`BootTimes`] are read from it.
//!
//! Format: ACPI specification, chapter 5.2.24. The table that is pointed to begins as all do, with
//! name and length, but has no more of a header, and no checksum. Both consist of records.

use super::error::{AcpiError, Fault, Signature};
use super::table::{HEADER_BYTES, Table};
use crate::firmware::bytes::{number, u16_le, u32_le, u64_le};
use crate::firmware::memory::{PhysRead, read};

/// Name and length, all of a header that the table of this boot has.
const SHORT_HEADER_BYTES: usize = 8;
/// Kind in 16 bits, length and revision in 8 each.
const RECORD_BYTES: u8 = 4;

/// The kind of a record, and its bytes.
type Kind = (u16, u8);
/// A pointer to the table of this boot.
const BOOT_POINTER: Kind = (0, 16);
/// The times of this boot.
const BOOT_TIMES: Kind = (2, 48);

/// The firmware performance data table, read in place: of its records, the pointer to the table of this boot.
///
/// ```
/// use firstlight_boot::firmware::acpi::{AcpiError, Fpdt};
/// let mut table = [0u8; 52];
/// table[..8].copy_from_slice(b"FPDT\x34\0\0\0");
/// table[36..40].copy_from_slice(&[0, 0, 16, 1]);
/// table[46] = 0x7f;
/// assert_eq!(Fpdt::parse(&table)?.boot_table()?, Some(0x7f_0000));
/// # Ok::<(), AcpiError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fpdt<'a> {
    table: Table<'a>,
}

impl<'a> Fpdt<'a> {
    /// Checks header and length.
    ///
    /// # Errors
    /// [`AcpiError::WrongSignature`] or [`AcpiError::Truncated`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AcpiError> {
        Ok(Self {
            table: Table::expect(bytes, Signature::FPDT, HEADER_BYTES)?,
        })
    }

    /// The address to read [`BootTimes`] at; `None` if the table has none, or zero.
    ///
    /// # Errors
    /// [`AcpiError::EntryTooShort`] or [`AcpiError::EntryPastEnd`] of a record on the way there.
    pub fn boot_table(&self) -> Result<Option<u64>, AcpiError> {
        let record = record(
            Signature::FPDT,
            self.table.bytes(),
            HEADER_BYTES,
            BOOT_POINTER,
        )?;
        let address = record.and_then(|record| u64_le(record, 8));
        Ok(address.filter(|&address| address != 0))
    }

    /// A wrong checksum, if it has one.
    pub fn checksum_fault(&self) -> Option<Fault> {
        self.table.checksum_fault()
    }
}

/// When firmware did what, in nanoseconds from the processor's reset by firmware's own clock.
/// Firmware that is not UEFI knows the first time alone. Times are not checked: firmware may have
/// them in any order.
///
/// ```
/// use firstlight_frames::addr::PhysAddr;
/// use firstlight_boot::firmware::MemoryImage;
/// use firstlight_boot::firmware::acpi::{AcpiError, BootTimes};
/// let mut table = [0u8; 56];
/// table[..12].copy_from_slice(b"FBPT\x38\0\0\0\x02\0\x30\x02");
/// table[16..18].copy_from_slice(&5_000u16.to_le_bytes());
/// let memory = MemoryImage::new(PhysAddr::new(0x7f_0000), &table);
/// let times = BootTimes::read(&memory, 0x7f_0000)?.ok_or("no times")?;
/// assert_eq!((times.reset_end_ns, times.load_image_ns), (5_000, None));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootTimes {
    /// Firmware began to run.
    pub reset_end_ns: u64,
    /// It began to load the operating system's loader.
    pub load_image_ns: Option<u64>,
    /// It started that loader.
    pub start_image_ns: Option<u64>,
    /// The loader called `ExitBootServices`.
    pub exit_entered_ns: Option<u64>,
    /// That call was about to return.
    pub exit_left_ns: Option<u64>,
}

impl BootTimes {
    /// Reads the table at `address`, which [`Fpdt::boot_table`] says; `None` if it has no times.
    ///
    /// # Errors
    /// [`AcpiError::Unreadable`], [`AcpiError::WrongSignature`], [`AcpiError::Truncated`] if its
    /// length is less than its header, and those of [`Fpdt::boot_table`].
    pub fn read<'m>(memory: &impl PhysRead<'m>, address: u64) -> Result<Option<Self>, AcpiError> {
        let table = Signature::FBPT;
        let bytes = |bytes: u64| {
            read(memory, address, bytes).ok_or(AcpiError::Unreadable {
                table,
                address,
                bytes,
            })
        };
        let header = bytes(number(SHORT_HEADER_BYTES))?;
        let seen = Signature(header.first_chunk().copied().unwrap_or_default());
        if seen != table {
            let expected = table;
            return Err(AcpiError::WrongSignature { expected, seen });
        }
        let length = u32_le(header, 4).map_or(0, u64::from);
        let needed_bytes = number(SHORT_HEADER_BYTES);
        if length < needed_bytes {
            return Err(AcpiError::Truncated {
                table,
                seen_bytes: length,
                needed_bytes,
            });
        }
        let record = record(table, bytes(length)?, SHORT_HEADER_BYTES, BOOT_TIMES)?;
        Ok(record.and_then(Self::of))
    }

    /// The times in their record; zero is none but in the first.
    fn of(record: &[u8]) -> Option<Self> {
        let time = |at| u64_le(record, at).filter(|&ns| ns != 0);
        Some(Self {
            reset_end_ns: u64_le(record, 8)?,
            load_image_ns: time(16),
            start_image_ns: time(24),
            exit_entered_ns: time(32),
            exit_left_ns: time(40),
        })
    }
}

/// The first record of a kind, at least as long as that kind is. `table` has a header of `offset` bytes.
fn record(
    table: Signature,
    bytes: &[u8],
    mut offset: usize,
    (wanted, wanted_bytes): Kind,
) -> Result<Option<&[u8]>, AcpiError> {
    while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
        let (kind, length) = (u16_le(rest, 0), rest.get(2).copied());
        let past_end = AcpiError::EntryPastEnd {
            table,
            offset,
            seen_bytes: length.unwrap_or(0).into(),
            left_bytes: rest.len(),
        };
        let (Some(kind), Some(length)) = (kind, length) else {
            return Err(past_end);
        };
        let needed_bytes = if kind == wanted {
            wanted_bytes
        } else {
            RECORD_BYTES
        };
        if length < needed_bytes {
            return Err(AcpiError::EntryTooShort {
                table,
                offset,
                // Larger ones are a vendor's.
                kind: u8::try_from(kind).unwrap_or(u8::MAX),
                seen_bytes: length.into(),
                needed_bytes: needed_bytes.into(),
            });
        }
        let Some(record) = rest.get(..length.into()) else {
            return Err(past_end);
        };
        if kind == wanted {
            return Ok(Some(record));
        }
        offset += record.len();
    }
    Ok(None)
}
