//! The memory that driver and device share for a queue: [`Ring`], a split virtqueue.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// Buffers of a queue: what free page reporting needs, and QEMU's shortest queues hold.
pub const MOST_BUFFERS: usize = 32;

/// Table of buffers, ring of what is sent, ring of what is answered: a page. All of it can
/// change at any time, so all of it is atomic; zero is the state before the first use.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Ring {
    pub(super) descriptors: [Descriptor; MOST_BUFFERS],
    pub(super) available: Available,
    pub(super) used: Used,
}

/// A buffer.
#[repr(C, align(16))]
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) address: AtomicU64,
    pub(super) bytes: AtomicU32,
    pub(super) flags: AtomicU16,
    pub(super) next: AtomicU16,
}

/// What the driver has sent.
#[repr(C, align(2))]
#[derive(Debug)]
pub(super) struct Available {
    pub(super) flags: AtomicU16,
    pub(super) index: AtomicU16,
    pub(super) heads: [AtomicU16; MOST_BUFFERS],
    pub(super) used_event: AtomicU16,
}

/// What the device has answered.
#[repr(C, align(4))]
#[derive(Debug)]
pub(super) struct Used {
    pub(super) flags: AtomicU16,
    pub(super) index: AtomicU16,
    pub(super) answers: [Answer; MOST_BUFFERS],
    pub(super) available_event: AtomicU16,
}

/// An answer: the head of a chain, and the bytes that were written to it.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) head: AtomicU32,
    pub(super) bytes: AtomicU32,
}

/// Another buffer of the same chain follows.
pub(super) const NEXT: u16 = 1;
/// The device writes to the buffer.
pub(super) const WRITE: u16 = 2;
/// In `available.flags`: no interrupt for answers.
pub(super) const NO_INTERRUPT: u16 = 1;

const _: () = {
    assert!(size_of::<Descriptor>() == 16 && size_of::<Answer>() == 8);
    assert!(size_of::<Ring>() == 4096);
    assert!(core::mem::offset_of!(Used, answers) == 4);
    assert!(core::mem::offset_of!(Available, heads) == 4);
};

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

impl Ring {
    /// One that was not used yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            descriptors: [const {
                Descriptor {
                    address: AtomicU64::new(0),
                    bytes: AtomicU32::new(0),
                    flags: AtomicU16::new(0),
                    next: AtomicU16::new(0),
                }
            }; MOST_BUFFERS],
            available: Available {
                flags: AtomicU16::new(0),
                index: AtomicU16::new(0),
                heads: [const { AtomicU16::new(0) }; MOST_BUFFERS],
                used_event: AtomicU16::new(0),
            },
            used: Used {
                flags: AtomicU16::new(0),
                index: AtomicU16::new(0),
                answers: [const {
                    Answer {
                        head: AtomicU32::new(0),
                        bytes: AtomicU32::new(0),
                    }
                }; MOST_BUFFERS],
                available_event: AtomicU16::new(0),
            },
        }
    }
}
