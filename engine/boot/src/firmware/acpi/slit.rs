//! How far domains are from each other: [`Slit`].

use core::fmt;

use super::error::{AcpiError, Fault, Signature};
use super::table::Table;
use crate::firmware::bytes::{index, number, u64_le};

/// Header and the number of localities.
const FIXED_BYTES: usize = 44;
/// The distance of a locality to itself.
const LOCAL: u8 = 10;

/// The system locality information table: a square of distances, read in
/// place. Row and column are proximity domains.
///
/// ```
/// # use firstlight_boot::firmware::acpi::AcpiError;
/// use firstlight_boot::firmware::acpi::Slit;
/// let mut table = [0u8; 48];
/// table[..8].copy_from_slice(b"SLIT\x30\0\0\0");
/// table[36] = 2;
/// table[44..].copy_from_slice(&[10, 21, 21, 10]);
/// let slit = Slit::parse(&table)?;
/// assert_eq!(slit.distance(0, 1), Some(21));
/// assert_eq!(slit.distance(0, 2), None);
/// # Ok::<(), AcpiError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Slit<'a> {
    table: Table<'a>,
    localities: usize,
    matrix: &'a [u8],
}

impl<'a> Slit<'a> {
    /// Checks header, length, and that the square of distances is all there.
    ///
    /// # Errors
    /// [`AcpiError::WrongSignature`], [`AcpiError::Truncated`], or
    /// [`AcpiError::Localities`] when the number of localities squared is more
    /// than the table has bytes for.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AcpiError> {
        let table = Table::expect(bytes, Signature::SLIT, FIXED_BYTES)?;
        let seen = u64_le(table.bytes(), 36).unwrap_or_default();
        let rest = table.bytes().get(FIXED_BYTES..).unwrap_or_default();
        let localities = index(seen);
        let square = localities
            .checked_mul(localities)
            .and_then(|square| rest.get(..square));
        let matrix = square.ok_or(AcpiError::Localities {
            seen,
            matrix_bytes: number(rest.len()),
        })?;
        Ok(Self {
            table,
            localities,
            matrix,
        })
    }

    /// Number of localities: rows, and columns.
    pub const fn localities(&self) -> usize {
        self.localities
    }

    /// Relative distance; 10 is local, 255 means no path. `None` past the last
    /// locality.
    pub fn distance(&self, from: usize, to: usize) -> Option<u8> {
        if from >= self.localities || to >= self.localities {
            return None;
        }
        self.matrix.get(from * self.localities + to).copied()
    }

    /// What contradicts the specification in the distances: a diagonal that is
    /// not 10, a distance below 10, a pair whose two directions differ. They
    /// are passed on as they are.
    pub fn faults(&self) -> impl Iterator<Item = SlitFault> + Clone + use<'a> {
        let slit = *self;
        (0..slit.matrix.len())
            .filter_map(move |at| slit.fault(at / slit.localities, at % slit.localities))
    }

    fn fault(&self, from: usize, to: usize) -> Option<SlitFault> {
        let seen = self.distance(from, to)?;
        let back = self.distance(to, from)?;
        match (from == to, seen) {
            (true, LOCAL) => None,
            (true, _) => Some(SlitFault::Diagonal { at: from, seen }),
            (false, ..LOCAL) => Some(SlitFault::BelowLocal { from, to, seen }),
            (false, _) if from < to && seen != back => Some(SlitFault::Asymmetric {
                from,
                to,
                seen,
                back,
            }),
            _ => None,
        }
    }

    /// Bytes after the distances, which mean nothing.
    pub fn trailing_bytes(&self) -> usize {
        self.table.bytes().len() - FIXED_BYTES - self.matrix.len()
    }

    /// A wrong checksum, if it has one.
    pub fn checksum_fault(&self) -> Option<Fault> {
        self.table.checksum_fault()
    }
}

/// A distance the specification does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlitFault {
    /// A locality's distance to itself is not 10.
    Diagonal {
        /// The locality.
        at: usize,
        /// The distance.
        seen: u8,
    },
    /// A distance to another locality is below 10, which is reserved.
    BelowLocal {
        /// Row.
        from: usize,
        /// Column.
        to: usize,
        /// The distance.
        seen: u8,
    },
    /// The way there and the way back differ.
    Asymmetric {
        /// Row.
        from: usize,
        /// Column.
        to: usize,
        /// The distance there.
        seen: u8,
        /// The distance back.
        back: u8,
    },
}

impl fmt::Display for SlitFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Diagonal { at, seen } => {
                write!(f, "SLIT: locality {at} is {seen} from itself, expected 10")
            }
            Self::BelowLocal { from, to, seen } => {
                write!(
                    f,
                    "SLIT: locality {from} is {seen} from {to}, expected at least 10"
                )
            }
            Self::Asymmetric {
                from,
                to,
                seen,
                back,
            } => {
                write!(
                    f,
                    "SLIT: locality {from} is {seen} from {to}, but {back} on the way back"
                )
            }
        }
    }
}
