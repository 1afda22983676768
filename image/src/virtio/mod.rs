//! Virtio devices, as far as a driver without interrupts and without a heap needs them:
//! modern (1.0) devices over PCI and over MMIO.
//!
//! | file | contents |
//! |---|---|
//! | `registers` | [`Registers`]: a device's memory, read and written within its bounds |
//! | `pci` | finding a function on PCI, and where its capabilities put its registers |
//! | `ecam` | [`Ecam`]: the configuration space of PCI in memory |
//! | `mmio` | the word `virtio_mmio.device=`, and the registers of such a device |
//! | `transport` | [`Transport`]: the same questions to either, and [`PciTransport`] |
//! | `ring` | [`Ring`]: the memory that driver and device share for a queue |
//! | `queue` | [`Queue`]: chains of buffers out, answers in |
//! | `device` | [`Device`]: reset, negotiation of features, waiting |
//! | `error` | [`VirtioError`] |
//!
//! The device is not trusted: what it says is checked against the bounds of its registers and
//! against what is in flight, and every wait has an end ([`Patience`]).

mod device;
pub mod ecam;
mod error;
#[cfg(test)]
pub(crate) mod fake;
pub mod mmio;
pub mod pci;
mod queue;
mod registers;
mod ring;
mod transport;

pub use device::{Device, Patience, VERSION_1};
pub use ecam::Ecam;
pub use error::VirtioError;
pub use mmio::MmioTransport;
pub use queue::{Buffer, Queue};
pub use registers::Registers;
pub use ring::{MOST_BUFFERS, Ring};
pub use transport::{MOST_QUEUES, PciTransport, QueueAddresses, Transport};
