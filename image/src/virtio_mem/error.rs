//! What can be wrong with a memory device: [`MemError`].

use core::fmt;

use firstlight::addr::PhysRange;

use super::{ConfigFault, Request};
use crate::virtio::VirtioError;

/// Why a request came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemError {
    /// The device works no more: it was reset. What is plugged stays.
    Device(VirtioError),
    /// What it says of itself can't be.
    Config(ConfigFault),
    /// It does not do what was requested.
    Refused {
        /// What was requested.
        request: Request,
        /// Of which blocks.
        range: PhysRange,
        /// How it refused.
        refusal: Refusal,
    },
    /// An answer that is none.
    WrongAnswer {
        /// What was requested.
        request: Request,
        /// The kind of the answer.
        kind: u16,
        /// Its bytes.
        bytes: u32,
        /// The least it must have.
        expected: u32,
    },
    /// A state that is none.
    NoState {
        /// Of which blocks.
        range: PhysRange,
        /// The number.
        seen: u16,
    },
}

impl MemError {
    /// Whether the device works no more.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Device(_))
    }
}

/// How a device refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is not what the host wants now.
    Nack,
    /// Not now.
    Busy,
    /// The request is wrong, or the host has no memory.
    Error,
}

impl From<VirtioError> for MemError {
    fn from(error: VirtioError) -> Self {
        Self::Device(error)
    }
}

impl From<ConfigFault> for MemError {
    fn from(fault: ConfigFault) -> Self {
        Self::Config(fault)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plug => "PLUG",
            Self::Unplug => "UNPLUG",
            Self::UnplugAll => "UNPLUG_ALL",
            Self::State => "STATE",
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nack => "NACK, the host wants another size by now",
            Self::Busy => "BUSY",
            Self::Error => "ERROR",
        })
    }
}

impl fmt::Display for MemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Config(fault) => fault.fmt(f),
            Self::Refused {
                request: request @ Request::UnplugAll,
                refusal,
                ..
            } => write!(f, "it answers {request} with {refusal}"),
            Self::Refused {
                request,
                range,
                refusal,
            } => write!(f, "it answers {request} of {range} with {refusal}"),
            Self::WrongAnswer {
                request,
                kind,
                bytes,
                expected,
            } => write!(
                f,
                "it answers {request} with kind {kind:#x} in {bytes} bytes; expected ACK, NACK, BUSY or \
                 ERROR, 0 to 3, in {expected}"
            ),
            Self::NoState { range, seen } => write!(
                f,
                "it says that {range} is in state {seen:#x}; expected plugged, unplugged or mixed, 0 to 2"
            ),
        }
    }
}
