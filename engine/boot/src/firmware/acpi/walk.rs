//! From the root pointer to a table by name: [`Tables`].
//!
//! The root table is flat, so the walk is one loop over its pointers; each
//! costs one read of a header. Only the table requested is read whole.

use super::error::{AcpiError, Fault, Signature};
use super::rsdp::Rsdp;
use super::table::{HEADER_BYTES, Table};
use crate::addr::PhysAddr;
use crate::firmware::bytes::{number, u32_le, u64_le};
use crate::firmware::memory::{PhysRead, read};

/// The tables a root table lists.
///
/// ```no_run
/// use firstlight_frames::addr::PhysRange;
/// use firstlight_boot::firmware::acpi::{Fault, Rsdp, Signature, Srat, Tables};
/// # fn direct_map(range: PhysRange) -> Option<&'static [u8]> { None }
/// # fn example(rsdp: &Rsdp) -> Result<(), firstlight_boot::firmware::acpi::AcpiError> {
/// let mut log = |fault: Fault| eprintln!("ACPI: {fault}");
/// let tables = Tables::open(direct_map, rsdp, &mut log)?;
/// if let Some(table) = tables.find(Signature::SRAT, &mut log) {
///     let srat = Srat::parse(table.bytes())?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tables<'m, R> {
    memory: R,
    root: Table<'m>,
    /// Addresses of both root tables, which no entry may name again.
    roots: [u64; 2],
    pointer_bytes: usize,
}

impl<'m, R: PhysRead<'m>> Tables<'m, R> {
    /// Reads the root table: the XSDT where there is one, else the RSDT.
    ///
    /// # Errors
    /// [`AcpiError`] when neither can be read.
    pub fn open(memory: R, rsdp: &Rsdp, report: &mut dyn FnMut(Fault)) -> Result<Self, AcpiError> {
        let roots = [
            rsdp.xsdt.unwrap_or_default(),
            rsdp.rsdt.unwrap_or_default().into(),
        ];
        let mut failure = AcpiError::NoRoot;
        for (address, signature, pointer_bytes) in [
            (roots[0], Signature::XSDT, 8),
            (roots[1], Signature::RSDT, 4),
        ] {
            if address == 0 {
                continue;
            }
            match Table::read(&memory, PhysAddr::new(address), signature) {
                Ok(root) => {
                    if failure != AcpiError::NoRoot {
                        report(Fault::XsdtUnusable(failure));
                    }
                    if let Some(fault) = root.checksum_fault() {
                        report(fault);
                    }
                    let bytes = (root.bytes().len() - HEADER_BYTES) % pointer_bytes;
                    if bytes != 0 {
                        report(Fault::PartialPointer {
                            root: signature,
                            bytes,
                        });
                    }
                    return Ok(Self {
                        memory,
                        root,
                        roots,
                        pointer_bytes,
                    });
                }
                // The first failure is the one reported.
                Err(error) if failure == AcpiError::NoRoot => failure = error,
                Err(_) => {}
            }
        }
        Err(failure)
    }

    /// Name of the root table in use.
    pub const fn root(&self) -> Signature {
        self.root.signature()
    }

    /// Each root entry: the address and name of a table, or what is wrong.
    pub const fn iter(&self) -> TableIter<'_, 'm, R> {
        TableIter {
            tables: self,
            index: 0,
        }
    }

    /// The first table of a name that can be read whole; reports everything
    /// wrong on the way, a wrong checksum among it.
    pub fn find(&self, signature: Signature, report: &mut dyn FnMut(Fault)) -> Option<Table<'m>> {
        let mut found = None;
        for (index, entry) in self.iter().enumerate() {
            let (address, seen) = match entry {
                Ok(entry) => entry,
                Err(fault) => {
                    report(fault);
                    continue;
                }
            };
            if seen != signature {
                continue;
            }
            if found.is_some() {
                report(Fault::Duplicate {
                    table: signature,
                    index,
                });
                continue;
            }
            match Table::read(&self.memory, address, signature) {
                Ok(table) => found = Some(table),
                Err(error) => {
                    report(Fault::Unreadable {
                        root: self.root(),
                        index,
                        address: address.get(),
                        error,
                    });
                }
            }
        }
        if let Some(fault) = found.as_ref().and_then(Table::checksum_fault) {
            report(fault);
        }
        found
    }

    fn entry(&self, index: usize) -> Option<Result<(PhysAddr, Signature), Fault>> {
        let offset = index
            .checked_mul(self.pointer_bytes)?
            .checked_add(HEADER_BYTES)?;
        let bytes = self.root.bytes();
        let address = if self.pointer_bytes == 8 {
            u64_le(bytes, offset)?
        } else {
            u32_le(bytes, offset)?.into()
        };
        let root = self.root();
        if address == 0 {
            return Some(Err(Fault::NullPointer { root, index }));
        }
        if self.roots.contains(&address) {
            return Some(Err(Fault::Cycle {
                root,
                index,
                address,
            }));
        }
        let Some(header) = read(&self.memory, address, number(HEADER_BYTES)) else {
            let table = Signature::default();
            let error = AcpiError::Unreadable {
                table,
                address,
                bytes: number(HEADER_BYTES),
            };
            return Some(Err(Fault::Unreadable {
                root,
                index,
                address,
                error,
            }));
        };
        let name = header
            .first_chunk()
            .copied()
            .map(Signature)
            .unwrap_or_default();
        Some(Ok((PhysAddr::new(address), name)))
    }
}

impl<'m> Table<'m> {
    /// The whole table at `address`, which must be `signature`: for those that another table names instead of the
    /// root.
    ///
    /// ```no_run
    /// use firstlight_boot::firmware::acpi::{AcpiError, Fadt, Signature, Table};
    /// use firstlight_frames::addr::PhysRange;
    /// # fn direct_map(range: PhysRange) -> Option<&'static [u8]> { None }
    /// fn code(fadt: &Fadt<'_>) -> Result<Option<&'static [u8]>, AcpiError> {
    ///     let dsdt = fadt.dsdt().map(|at| Table::read(&direct_map, at, Signature::DSDT));
    ///     Ok(dsdt.transpose()?.map(|table| table.bytes()))
    /// }
    /// ```
    ///
    /// # Errors
    /// [`AcpiError::Unreadable`], [`AcpiError::WrongSignature`] or [`AcpiError::Truncated`].
    pub fn read(
        memory: &impl PhysRead<'m>,
        address: PhysAddr,
        signature: Signature,
    ) -> Result<Self, AcpiError> {
        let address = address.get();
        let unreadable = |bytes| AcpiError::Unreadable {
            table: signature,
            address,
            bytes,
        };
        let header =
            read(memory, address, number(HEADER_BYTES)).ok_or(unreadable(number(HEADER_BYTES)))?;
        // A header that names a longer table than can be read is not followed.
        let length = u32_le(header, 4)
            .map_or(0, u64::from)
            .max(number(HEADER_BYTES));
        let whole = read(memory, address, length).ok_or(unreadable(length))?;
        Self::expect(whole, signature, HEADER_BYTES)
    }
}

/// See [`Tables::iter`].
#[derive(Clone, Debug)]
pub struct TableIter<'t, 'm, R> {
    tables: &'t Tables<'m, R>,
    index: usize,
}

impl<'m, R: PhysRead<'m>> Iterator for TableIter<'_, 'm, R> {
    type Item = Result<(PhysAddr, Signature), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.tables.entry(self.index)?;
        self.index += 1;
        Some(entry)
    }
}
