//! What can be wrong with a device: [`VirtioError`].

use core::fmt;

/// Why a device cannot be used, or can no longer be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VirtioError {
    /// There is no virtio device where one should be: the magic value that was read.
    NoDevice {
        /// Where `virt` should be.
        seen: u32,
    },
    /// A device of before virtio 1.0.
    Legacy {
        /// The version of its registers.
        version: u32,
    },
    /// Another kind of device.
    Kind {
        /// Its number.
        seen: u32,
        /// The number of the kind that was wanted.
        expected: u32,
    },
    /// A part of the registers that a device must have is missing.
    Missing {
        /// Its name.
        what: &'static str,
    },
    /// A part of the registers, or of the configuration, lies outside its memory.
    Outside {
        /// Its name.
        what: &'static str,
        /// Where it begins.
        offset: u64,
        /// Its size.
        bytes: u64,
        /// The size of the memory it should lie in.
        limit: u64,
    },
    /// Features without which the driver cannot work are not offered.
    NotOffered {
        /// The bits that are missing.
        features: u64,
    },
    /// The device did not accept the features that were chosen of its own.
    NotAccepted {
        /// The features.
        features: u64,
    },
    /// A queue is missing, in use or shorter than the driver needs.
    Queue {
        /// Its number.
        queue: u16,
        /// Buffers it can hold.
        capacity: u16,
        /// Buffers the driver needs.
        needed: u16,
    },
    /// More buffers than the queue holds.
    Full {
        /// The queue.
        queue: u16,
    },
    /// The device has not answered; it was reset, and has nothing of the driver's any more.
    NoAnswer {
        /// The queue.
        queue: u16,
        /// The driver's patience.
        waited_ns: u64,
    },
    /// It asks for a reset, or was reset by another party; it was reset, and has nothing of
    /// the driver's any more.
    NeedsReset {
        /// Its status.
        status: u8,
    },
    /// It answered with what it was not sent; it was reset.
    WrongAnswer {
        /// The queue.
        queue: u16,
        /// The number it sent.
        seen: u32,
    },
    /// It does not complete a reset: it may still use what it was sent.
    Unreleased {
        /// Its status.
        status: u8,
        /// The driver's patience.
        waited_ns: u64,
    },
}

impl fmt::Display for VirtioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoDevice { seen } => {
                write!(
                    f,
                    "no virtio device: read {seen:#010x}, expected 0x74726976"
                )
            }
            Self::Legacy { version } => write!(
                f,
                "a virtio device of version {version}: expected 2; QEMU has it with -global virtio-mmio.force-legacy=off"
            ),
            Self::Kind { seen, expected } => {
                write!(f, "a virtio device of kind {seen}, expected {expected}")
            }
            Self::Missing { what } => write!(f, "the device has no {what}"),
            Self::Outside {
                what,
                offset,
                bytes,
                limit,
            } => write!(
                f,
                "the device's {what}, {bytes} bytes from {offset:#x} on, is outside its memory of {limit} bytes"
            ),
            Self::NotOffered { features } => {
                write!(f, "the device does not offer features {features:#x}")
            }
            Self::NotAccepted { features } => {
                write!(
                    f,
                    "the device offers features {features:#x} and refuses them"
                )
            }
            Self::Queue {
                queue,
                capacity,
                needed,
            } => write!(
                f,
                "queue {queue} of the device has {capacity} buffers, expected {needed} or more, unused"
            ),
            Self::Full { queue } => write!(f, "queue {queue} is full"),
            Self::NoAnswer { queue, waited_ns } => write!(
                f,
                "the device has not answered on queue {queue} for {} ms and was reset",
                waited_ns / 1_000_000
            ),
            Self::NeedsReset { status } => {
                write!(
                    f,
                    "the device needs a reset (status {status:#04x}) and was reset"
                )
            }
            Self::WrongAnswer { queue, seen } => write!(
                f,
                "the device answered {seen} on queue {queue}, which it was not sent, and was reset"
            ),
            Self::Unreleased { status, waited_ns } => write!(
                f,
                "the device has not completed a reset for {} ms (status {status:#04x}): it may still use what it was sent",
                waited_ns / 1_000_000
            ),
        }
    }
}

impl core::error::Error for VirtioError {}
