//! Serial ports: [`Spcr`] has the one for the console, [`Dbg2`] those for debuggers; both describe a port as
//! [`SerialPort`].
//!
//! Formats: Microsoft's "Serial Port Console Redirection Table" and "Debug Port Table 2", to which the ACPI
//! specification refers.

use super::error::{AcpiError, Fault, Signature};
use super::table::Table;
use crate::firmware::bytes::{array, index, u16_le, u32_le, u64_le};

/// Of the SPCR: header, interface type, three reserved bytes, base address.
const SPCR_BYTES: usize = 52;
const SPCR_KIND: usize = 36;
const SPCR_ADDRESS: usize = 40;

/// Of the DBG2: header, where the devices begin, how many there are.
const DBG2_BYTES: usize = 44;
/// A device up to the offset of its address sizes.
const DEVICE_BYTES: u16 = 22;
/// Port type of serial ports.
const SERIAL: u16 = 0x8000;

/// Registers of a serial port, by their common name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SerialKind {
    /// The 16550 of PCs, and what is compatible with it.
    Uart16550,
    /// Arm's PL011, and its subset for servers (SBSA generic UART).
    Pl011,
    /// Another one, by its number.
    Other(u16),
}

/// A serial port. Nothing of the address is checked but that it is not zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SerialPort {
    /// Its registers.
    pub kind: SerialKind,
    /// Whether they are I/O ports, not memory.
    pub is_io: bool,
    /// The first register, a physical address or the number of an I/O port.
    pub address: u64,
    /// Bytes from one register to the next; of a PL011, whose registers have 4 bytes each, 4.
    pub stride: u8,
    /// Bytes of an access: 1, 2 or 4.
    pub width: u8,
}

impl SerialPort {
    /// By the number of its kind and a generic address structure: space, bits of a register, offset in bits, size of
    /// an access, address. `None` where the address is zero, or neither memory nor an I/O port.
    fn new(kind: u16, address: [u8; 12]) -> Option<Self> {
        let [space, register_bits, _, access, ..] = address;
        let address = u64_le(&address, 4).filter(|address| *address != 0)?;
        if space > 1 {
            return None;
        }
        let kind = match kind {
            0 | 1 | 0x12 => SerialKind::Uart16550,
            0x3 | 0xd | 0xe => SerialKind::Pl011,
            other => SerialKind::Other(other),
        };
        // 1, 2 and 3 stand for 1, 2 and 4 bytes. Where it says nothing, so much as a register has.
        let bytes = match register_bits {
            32.. => 4,
            16.. => 2,
            _ => 1,
        };
        let width = match access {
            1..=3 => 1 << (access - 1),
            _ => bytes,
        };
        let (stride, width) = match kind {
            // Some take no other accesses, all take these.
            SerialKind::Pl011 => (4, 4),
            _ => (bytes.max(width), width),
        };
        Some(Self {
            kind,
            is_io: space == 1,
            address,
            stride,
            width,
        })
    }
}

/// The serial port console redirection table, read in place.
///
/// ```
/// # use firstlight_boot::firmware::acpi::AcpiError;
/// use firstlight_boot::firmware::acpi::{SerialKind, Spcr};
/// let mut table = [0u8; 80];
/// table[..8].copy_from_slice(b"SPCR\x50\0\0\0");
/// assert_eq!(Spcr::parse(&table)?.port(), None);
/// (table[8], table[36]) = (2, 3); // revision 2, a PL011
/// table[40..52].copy_from_slice(&[0, 32, 0, 3, 0, 0, 0, 9, 0, 0, 0, 0]);
/// let port = Spcr::parse(&table)?.port().unwrap();
/// assert_eq!((port.kind, port.address), (SerialKind::Pl011, 0x900_0000));
/// # Ok::<(), AcpiError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Spcr<'a> {
    table: Table<'a>,
}

impl<'a> Spcr<'a> {
    /// Checks header and length.
    ///
    /// # Errors
    /// [`AcpiError::WrongSignature`] or [`AcpiError::Truncated`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AcpiError> {
        Ok(Self {
            table: Table::expect(bytes, Signature::SPCR, SPCR_BYTES)?,
        })
    }

    /// The port; `None` where the console is redirected to none. The first revision of the table knows 16550s alone.
    pub fn port(&self) -> Option<SerialPort> {
        let bytes = self.table.bytes();
        let kind = match self.table.revision() {
            0 | 1 => 0,
            _ => *bytes.get(SPCR_KIND)?,
        };
        SerialPort::new(kind.into(), array(bytes, SPCR_ADDRESS)?)
    }

    /// A wrong checksum, if it has one.
    pub fn checksum_fault(&self) -> Option<Fault> {
        self.table.checksum_fault()
    }
}

/// The debug port table, read in place.
///
/// ```
/// # use firstlight_boot::firmware::acpi::AcpiError;
/// use firstlight_boot::firmware::acpi::{Dbg2, SerialPort};
/// fn first_port(table: &[u8]) -> Result<Option<SerialPort>, AcpiError> {
///     Dbg2::parse(table)?.ports().next().transpose()
/// }
/// assert!(first_port(b"SLIT").is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Dbg2<'a> {
    table: Table<'a>,
}

impl<'a> Dbg2<'a> {
    /// Checks header and length.
    ///
    /// # Errors
    /// [`AcpiError::WrongSignature`] or [`AcpiError::Truncated`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AcpiError> {
        Ok(Self {
            table: Table::expect(bytes, Signature::DBG2, DBG2_BYTES)?,
        })
    }

    /// The serial ports in the table's order, each by its first address; those without one are passed over. After
    /// an error the next ones still come, as long as the bad one says where they are.
    pub fn ports(&self) -> Dbg2Ports<'a> {
        let bytes = self.table.bytes();
        Dbg2Ports {
            bytes,
            offset: u32_le(bytes, 36).map_or(usize::MAX, |offset| index(offset.into())),
            left: u32_le(bytes, 40).unwrap_or_default(),
        }
    }

    /// A wrong checksum, if it has one.
    pub fn checksum_fault(&self) -> Option<Fault> {
        self.table.checksum_fault()
    }
}

/// See [`Dbg2::ports`].
#[derive(Clone, Debug)]
pub struct Dbg2Ports<'a> {
    bytes: &'a [u8],
    offset: usize,
    /// Devices the table says to have, that were not read.
    left: u32,
}

impl<'a> Dbg2Ports<'a> {
    /// The next device of any kind. Ends after one that gives no way to find the next.
    fn next_device(&mut self) -> Option<Result<&'a [u8], AcpiError>> {
        self.left = self.left.checked_sub(1)?;
        let (table, offset) = (Signature::DBG2, self.offset);
        let rest = self.bytes.get(offset..).unwrap_or_default();
        let length = u16_le(rest, 1);
        let seen_bytes = length.unwrap_or(0);
        if (1..DEVICE_BYTES).contains(&seen_bytes) || length == Some(0) {
            // Below three bytes it names no next one.
            if seen_bytes < 3 {
                self.left = 0;
            }
            self.offset = offset.saturating_add(seen_bytes.into());
            return Some(Err(AcpiError::EntryTooShort {
                table,
                offset,
                kind: rest.first().copied().unwrap_or_default(),
                seen_bytes,
                needed_bytes: DEVICE_BYTES,
            }));
        }
        let Some(device) = length.and_then(|length| rest.get(..length.into())) else {
            self.left = 0;
            return Some(Err(AcpiError::EntryPastEnd {
                table,
                offset,
                seen_bytes,
                left_bytes: rest.len(),
            }));
        };
        self.offset = offset.saturating_add(device.len());
        Some(Ok(device))
    }
}

impl Iterator for Dbg2Ports<'_> {
    type Item = Result<SerialPort, AcpiError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_device()? {
                Ok(device) => match port(device) {
                    Some(port) => return Some(Ok(port)),
                    None => continue,
                },
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// A device that is a serial port with an address.
fn port(device: &[u8]) -> Option<SerialPort> {
    let (&addresses, kind) = (device.get(3)?, u16_le(device, 12)?);
    if addresses == 0 || kind != SERIAL {
        return None;
    }
    let at = u16_le(device, 18)?;
    SerialPort::new(u16_le(device, 14)?, array(device, at.into())?)
}
