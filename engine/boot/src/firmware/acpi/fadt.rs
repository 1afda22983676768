//! Fixed hardware: [`Fadt`], of which the power management timer, the port of the power button and, on Arm, how
//! firmware is called are read.
//!
//! That timer counts at a known rate ([`PM_TIMER_HZ`]) on every PC that has
//! one, so another counter can be measured against it: see
//! [`crate::clock::Calibration`]. Virtual machines without legacy hardware have
//! none, and state it in the table's flags.
//!
//! Format: ACPI specification, chapter 5.2.9 and 4.8.3.3. Tables are as long as
//! their age makes them, 116 bytes in ACPI 1.0; a field past the end is absent,
//! whatever revision the header claims.

use super::error::{AcpiError, Fault, Signature};
use super::table::Table;
use crate::addr::PhysAddr;
use crate::firmware::bytes::{u16_le, u32_le, u64_le};
use crate::firmware::psci::PsciConduit;

/// Rate of the power management timer, the same on every machine.
pub const PM_TIMER_HZ: u64 = 3_579_545;

/// All of an ACPI 1.0 table: up to the end of the flags.
const FIXED_BYTES: usize = 116;
/// DSDT: its address in 32 bits, and X_DSDT: in 64, since ACPI 2.0.
const DSDT_OFFSET: usize = 40;
const WIDE_DSDT_OFFSET: usize = 140;
/// PM1a_EVT_BLK: the port in 32 bits.
const EVENT_OFFSET: usize = 56;
/// PM1_EVT_LEN: bytes of status and enable registers, half each.
const EVENT_BYTES_OFFSET: usize = 88;
/// PM_TMR_BLK: the port in 32 bits.
const PORT_OFFSET: usize = 76;
/// PM_TMR_LEN: bytes the timer decodes, 4 where there is one.
const PORT_BYTES_OFFSET: usize = 91;
const FLAGS_OFFSET: usize = 112;
/// ARM_BOOT_ARCH, since ACPI 5.1.
const ARM_OFFSET: usize = 129;
/// X_PM_TMR_BLK: the same in a generic address structure, since ACPI 2.0.
const ADDRESS_OFFSET: usize = 208;

/// TMR_VAL_EXT: the timer has 32 bits instead of 24.
const WIDE_TIMER: u32 = 1 << 8;
/// HW_REDUCED_ACPI: the fixed hardware does not exist.
const HARDWARE_REDUCED: u32 = 1 << 20;
/// PSCI_COMPLIANT and PSCI_USE_HVC.
const PSCI: u16 = 1;
const PSCI_BY_HVC: u16 = 2;
/// Address space 1 of a generic address structure: I/O ports.
const IO_SPACE: u8 = 1;

/// The fixed ACPI description table, read in place.
///
/// ```
/// # use firstlight_boot::firmware::acpi::AcpiError;
/// use firstlight_boot::firmware::acpi::{Fadt, PmTimer};
/// let mut table = [0u8; 116];
/// table[..8].copy_from_slice(b"FACP\x74\0\0\0");
/// assert_eq!(Fadt::parse(&table)?.pm_timer(), None);
/// table[76..78].copy_from_slice(&0x608u16.to_le_bytes());
/// table[91] = 4;
/// assert_eq!(Fadt::parse(&table)?.pm_timer(), Some(PmTimer { port: 0x608, bits: 24 }));
/// # Ok::<(), AcpiError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fadt<'a> {
    table: Table<'a>,
}

/// The power management timer: a counter that only goes up, behind an I/O port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PmTimer {
    /// Where to read it, 32 bits at once.
    pub port: u16,
    /// Bits that count, 24 or 32; it starts again at zero after the last.
    /// The bits above mean nothing.
    pub bits: u32,
}

impl<'a> Fadt<'a> {
    /// Checks header and length.
    ///
    /// # Errors
    /// [`AcpiError::WrongSignature`] or [`AcpiError::Truncated`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AcpiError> {
        Ok(Self {
            table: Table::expect(bytes, Signature::FADT, FIXED_BYTES)?,
        })
    }

    /// Whether the machine has none of the hardware this table describes.
    pub fn hardware_reduced(&self) -> bool {
        self.flags() & HARDWARE_REDUCED != 0
    }

    /// The timer, where there is one that can be read through an I/O port.
    ///
    /// The generic address wins if it names such a port, else the plain port
    /// number counts. A port number that does not fit the 65,536 ports is none.
    pub fn pm_timer(&self) -> Option<PmTimer> {
        if self.hardware_reduced() {
            return None;
        }
        let bits = if self.flags() & WIDE_TIMER == 0 {
            24
        } else {
            32
        };
        let port = self.generic_port().or_else(|| self.plain_port())?;
        Some(PmTimer { port, bits })
    }

    /// The port of the fixed events' status, 16 bits, with their enable register 2 bytes above:
    /// bit 8 of both is the power button. `None` on machines without fixed hardware.
    pub fn event_port(&self) -> Option<u16> {
        let bytes = self.table.bytes();
        let address = u32_le(bytes, EVENT_OFFSET)?;
        let &decoded = bytes.get(EVENT_BYTES_OFFSET)?;
        let is_there = !self.hardware_reduced() && decoded >= 4;
        port(address.into()).filter(|_| is_there)
    }

    /// Where the table with ACPI's code is (DSDT), by the field of 64 bits where that is not zero.
    pub fn dsdt(&self) -> Option<PhysAddr> {
        let bytes = self.table.bytes();
        let is_set = |address: &u64| *address != 0;
        let wide = u64_le(bytes, WIDE_DSDT_OFFSET).filter(is_set);
        let address = wide.or_else(|| u32_le(bytes, DSDT_OFFSET).map(u64::from).filter(is_set));
        address.map(PhysAddr::new)
    }

    /// How firmware's power interface (PSCI) is called on an Arm machine; `None` where it has none.
    ///
    /// ```
    /// use firstlight_boot::firmware::acpi::Fadt;
    /// use firstlight_boot::firmware::psci::PsciConduit;
    /// let mut table = [0u8; 244];
    /// table[..8].copy_from_slice(b"FACP\xf4\0\0\0");
    /// table[129] = 3;
    /// assert_eq!(Fadt::parse(&table).unwrap().psci(), Some(PsciConduit::Hvc));
    /// ```
    pub fn psci(&self) -> Option<PsciConduit> {
        let flags = u16_le(self.table.bytes(), ARM_OFFSET)?;
        let conduit = match flags & PSCI_BY_HVC {
            0 => PsciConduit::Smc,
            _ => PsciConduit::Hvc,
        };
        (flags & PSCI != 0).then_some(conduit)
    }

    /// A wrong checksum, if it has one.
    pub fn checksum_fault(&self) -> Option<Fault> {
        self.table.checksum_fault()
    }

    fn flags(&self) -> u32 {
        u32_le(self.table.bytes(), FLAGS_OFFSET).unwrap_or_default()
    }

    /// X_PM_TMR_BLK: space, width, offset in bits, access size, address.
    fn generic_port(&self) -> Option<u16> {
        let bytes = self.table.bytes();
        let address = u64_le(bytes, ADDRESS_OFFSET + 4)?;
        let (&space, &bit_offset) = (bytes.get(ADDRESS_OFFSET)?, bytes.get(ADDRESS_OFFSET + 2)?);
        port(address).filter(|_| space == IO_SPACE && bit_offset == 0)
    }

    /// PM_TMR_BLK, whose length is zero where it means nothing.
    fn plain_port(&self) -> Option<u16> {
        let bytes = self.table.bytes();
        let address = u32_le(bytes, PORT_OFFSET)?;
        let &decoded = bytes.get(PORT_BYTES_OFFSET)?;
        port(address.into()).filter(|_| decoded != 0)
    }
}

/// The port at `address`, if it is one and all four bytes of it are.
fn port(address: u64) -> Option<u16> {
    let port = u16::try_from(address).ok()?;
    (port != 0 && port <= u16::MAX - 3).then_some(port)
}
