//! ACPI tables that say where CPUs and memory are, where there is a timer, how long firmware took, and
//! where the console is: RSDP, RSDT/XSDT, MADT, SRAT, SLIT, FADT, CEDT, FPDT, SPCR, DBG2.
//!
//! [`Rsdp::parse`] finds the root, [`Tables::open`] walks it and
//! [`Tables::find`] picks a table by name; [`Madt`], [`Srat`], [`Slit`], [`Fadt`], [`Cedt`], [`Fpdt`], [`Spcr`] and [`Dbg2`]
//! read one each, in place: no list of CPUs or memory is ever kept, an iterator goes
//! over the table's own bytes.
//!
//! Two classes of mistakes: an [`AcpiError`] means that there is no result; a
//! [`Fault`] was tolerated and is reported. A
//! table with a wrong checksum is a fault (shipped firmware has them), an RSDP
//! with one is an error (it was found by scanning, so it may be no RSDP).
//!
//! Formats: ACPI specification, chapter 5.2; of the CEDT, CXL specification, chapter 9.18.

mod cedt;
mod error;
mod fadt;
mod fpdt;
mod madt;
mod rsdp;
mod serial;
mod slit;
mod srat;
mod table;
mod walk;

pub use cedt::{Cedt, CedtWindow, CedtWindows};
pub use error::{AcpiError, Fault, Signature};
pub use fadt::{Fadt, PM_TIMER_HZ, PmTimer};
pub use fpdt::{BootTimes, Fpdt};
pub use madt::{Madt, MadtCpu, MadtCpus, MadtGicc, MadtGiccs};
pub use rsdp::Rsdp;
pub use serial::{Dbg2, Dbg2Ports, SerialKind, SerialPort, Spcr};
pub use slit::{Slit, SlitFault};
pub use srat::{Srat, SratEntries, SratEntry};
pub use table::{HEADER_BYTES, Table};
pub use walk::{TableIter, Tables};
