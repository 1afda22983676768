//! The processors: [`Madt`], entries of type 0 (local APIC) and 9 (local x2APIC) on x86, of type 11
//! (GIC CPU interface) on Arm. The others describe interrupt controllers and are stepped over.

use super::error::{AcpiError, Fault, Signature};
use super::table::{RawEntries, RawEntry, Table};
use crate::firmware::bytes::{u32_le, u64_le};

/// Header, local APIC address, flags.
const FIXED_BYTES: usize = 44;

/// The multiple APIC description table, read in place.
///
/// ```
/// # use firstlight_boot::firmware::acpi::AcpiError;
/// use firstlight_boot::firmware::acpi::Madt;
/// fn count_cpus(table: &[u8]) -> Result<usize, AcpiError> {
///     let madt = Madt::parse(table)?;
///     let mut cpus = 0;
///     for cpu in madt.cpus() {
///         cpus += usize::from(cpu?.enabled);
///     }
///     Ok(cpus)
/// }
/// assert!(count_cpus(b"SLIT").is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Madt<'a> {
    table: Table<'a>,
}

/// A processor of an x86 machine, as the MADT lists it. Those neither enabled nor
/// online-capable are empty sockets; their APIC id is often 255.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadtCpu {
    /// Its interrupt controller's id; 8 bits in type 0.
    pub apic_id: u32,
    /// The id that ties it to a processor object in the ACPI namespace.
    pub processor_uid: u32,
    /// Whether it can be started now.
    pub enabled: bool,
    /// Whether it can be enabled later, while the system runs.
    pub online_capable: bool,
}

/// A processor of an Arm machine, as the MADT lists it: its GIC CPU interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadtGicc {
    /// The id that ties it to a processor object in the ACPI namespace, and to the SRAT.
    pub processor_uid: u32,
    /// Its affinity fields as MPIDR_EL1 has them, by which it is started.
    pub mpidr: u64,
    /// Whether it can be started now.
    pub enabled: bool,
    /// Whether it can be enabled later, while the system runs.
    pub online_capable: bool,
}

impl<'a> Madt<'a> {
    /// Checks header and length.
    ///
    /// # Errors
    /// [`AcpiError::WrongSignature`] or [`AcpiError::Truncated`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AcpiError> {
        Ok(Self {
            table: Table::expect(bytes, Signature::MADT, FIXED_BYTES)?,
        })
    }

    /// The processors of an x86 machine in the table's order. After an error the next entries
    /// still come, as long as the bad one says where they are.
    pub const fn cpus(&self) -> MadtCpus<'a> {
        MadtCpus(RawEntries::new(&self.table, FIXED_BYTES))
    }

    /// The processors of an Arm machine in the table's order. After an error the next entries
    /// still come, as long as the bad one says where they are.
    ///
    /// ```
    /// # use firstlight_boot::firmware::acpi::AcpiError;
    /// use firstlight_boot::firmware::acpi::Madt;
    /// /// The MPIDR of the processor that the SRAT calls `uid`.
    /// fn mpidr_of(table: &[u8], uid: u32) -> Result<Option<u64>, AcpiError> {
    ///     let mut cpus = Madt::parse(table)?.giccs().flatten();
    ///     Ok(cpus.find(|cpu| cpu.processor_uid == uid).map(|cpu| cpu.mpidr))
    /// }
    /// assert!(mpidr_of(b"SLIT", 0).is_err());
    /// ```
    pub const fn giccs(&self) -> MadtGiccs<'a> {
        MadtGiccs(RawEntries::new(&self.table, FIXED_BYTES))
    }

    /// A wrong checksum, if it has one.
    pub fn checksum_fault(&self) -> Option<Fault> {
        self.table.checksum_fault()
    }
}

/// See [`Madt::cpus`].
#[derive(Clone, Debug)]
pub struct MadtCpus<'a>(RawEntries<'a>);

impl Iterator for MadtCpus<'_> {
    type Item = Result<MadtCpu, AcpiError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.next()? {
                Ok(entry) if entry.kind == 0 => {
                    return Some(local_apic(&entry).ok_or(entry.too_short(8)));
                }
                Ok(entry) if entry.kind == 9 => {
                    return Some(local_x2apic(&entry).ok_or(entry.too_short(16)));
                }
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

fn local_apic(entry: &RawEntry<'_>) -> Option<MadtCpu> {
    let (&uid, &id) = (entry.bytes.get(2)?, entry.bytes.get(3)?);
    Some(cpu(id.into(), uid.into(), u32_le(entry.bytes, 4)?))
}

fn local_x2apic(entry: &RawEntry<'_>) -> Option<MadtCpu> {
    let (id, flags) = (u32_le(entry.bytes, 4)?, u32_le(entry.bytes, 8)?);
    Some(cpu(id, u32_le(entry.bytes, 12)?, flags))
}

const fn cpu(apic_id: u32, processor_uid: u32, flags: u32) -> MadtCpu {
    MadtCpu {
        apic_id,
        processor_uid,
        enabled: flags & 1 != 0,
        online_capable: flags & 2 != 0,
    }
}

/// See [`Madt::giccs`].
#[derive(Clone, Debug)]
pub struct MadtGiccs<'a>(RawEntries<'a>);

impl Iterator for MadtGiccs<'_> {
    type Item = Result<MadtGicc, AcpiError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.next()? {
                Ok(entry) if entry.kind == 11 => {
                    return Some(gicc(&entry).ok_or(entry.too_short(GICC_BYTES)));
                }
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Up to the end of MPIDR, which came with ACPI 5.1; later versions append to it.
const GICC_BYTES: u16 = 76;

fn gicc(entry: &RawEntry<'_>) -> Option<MadtGicc> {
    let flags = u32_le(entry.bytes, 12)?;
    Some(MadtGicc {
        processor_uid: u32_le(entry.bytes, 8)?,
        mpidr: u64_le(entry.bytes, 68)?,
        enabled: flags & 1 != 0,
        online_capable: flags & 8 != 0,
    })
}
