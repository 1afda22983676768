//! The root pointer: [`Rsdp`].

use super::error::{AcpiError, Signature};
use super::table::sum;
use crate::firmware::bytes::{array, index, number, u32_le, u64_le};

/// Bytes of the structure in ACPI 1.0.
const V1_BYTES: usize = 20;
/// Bytes of the structure from ACPI 2.0 on.
const V2_BYTES: usize = 36;

/// Where the root tables are.
///
/// ```
/// use firstlight_boot::firmware::acpi::Rsdp;
/// let mut bytes = *b"RSD PTR \0FIRST \0\x00\x10\x00\x00";
/// bytes[8] = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
/// let rsdp = Rsdp::parse(&bytes).unwrap();
/// assert_eq!((rsdp.rsdt, rsdp.xsdt), (Some(0x1000), None));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rsdp {
    /// 0 for ACPI 1.0, 2 for all later.
    pub revision: u8,
    /// Physical address of the RSDT, unless zero.
    pub rsdt: Option<u32>,
    /// Physical address of the XSDT, unless zero; never in revision 0.
    pub xsdt: Option<u64>,
}

impl Rsdp {
    /// Bytes worth reading for [`Rsdp::parse`]; 20 are enough for revision 0.
    pub const BYTES: usize = V2_BYTES;

    /// Reads the structure at the start of `bytes`.
    ///
    /// # Errors
    /// [`AcpiError::WrongSignature`], [`AcpiError::Truncated`], and
    /// [`AcpiError::RsdpChecksum`]: without the checksum there is no telling
    /// an RSDP from eight bytes that look like one.
    pub fn parse(bytes: &[u8]) -> Result<Self, AcpiError> {
        let truncated = |needed: usize| AcpiError::Truncated {
            table: Signature::RSDP,
            seen_bytes: number(bytes.len()),
            needed_bytes: number(needed),
        };
        let magic: [u8; 8] = array(bytes, 0).ok_or(truncated(V1_BYTES))?;
        if magic != *b"RSD PTR " {
            let seen = Signature(array(&magic, 0).unwrap_or_default());
            return Err(AcpiError::WrongSignature {
                expected: Signature::RSDP,
                seen,
            });
        }
        let first = bytes.get(..V1_BYTES).ok_or(truncated(V1_BYTES))?;
        check(first)?;
        let revision = first.get(15).copied().unwrap_or_default();
        let rsdt = u32_le(first, 16).filter(|&address| address != 0);
        if revision < 2 {
            return Ok(Self {
                revision,
                rsdt,
                xsdt: None,
            });
        }
        let length = u32_le(bytes, 20).ok_or(truncated(V2_BYTES))?;
        let length = index(length.into()).max(V2_BYTES);
        let all = bytes.get(..length).ok_or(truncated(length))?;
        check(all)?;
        let xsdt = u64_le(all, 24).filter(|&address| address != 0);
        Ok(Self {
            revision,
            rsdt,
            xsdt,
        })
    }
}

fn check(bytes: &[u8]) -> Result<(), AcpiError> {
    match sum(bytes) {
        0 => Ok(()),
        sum => Err(AcpiError::RsdpChecksum {
            over_bytes: number(bytes.len()),
            sum,
        }),
    }
}
