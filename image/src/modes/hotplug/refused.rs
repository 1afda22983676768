//! Why memory that came is not used, or does not go: [`Refused`].

use core::fmt::{self, Write};

use firstlight::addr::PhysRange;
use firstlight::frames::{HotplugError, Refusal};
use firstlight::memmap::MemmapError;

/// Why memory is not used, or does not go.
#[derive(Clone, Copy)]
pub(super) enum Refused {
    /// It is not a range that memory may have.
    NoRange {
        start: u64,
        bytes: u64,
    },
    /// Firmware has no such node.
    NoSuchNode(u32),
    /// Its descriptors would take all of it.
    AllDescriptors(PhysRange),
    /// Beyond the processor's addresses, or no memory for page tables.
    NotMapped,
    Descriptors(MemmapError),
    Hotplug(HotplugError),
}

impl Refused {
    /// Whether a part of it is in use, and others may be free.
    pub(super) const fn is_in_use(&self) -> bool {
        matches!(
            self,
            Self::Hotplug(HotplugError {
                why: Refusal::InUse { .. },
                ..
            })
        )
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRange { start, bytes } => write!(
                f,
                "a DIMM of {bytes:#x} bytes at {start:#x}: expected whole huge frames of 2 MiB"
            ),
            Self::NoSuchNode(domain) => {
                write!(
                    f,
                    "its node, {domain} in firmware's numbers, does not exist"
                )
            }
            Self::Hotplug(HotplugError {
                frame,
                why: Refusal::OutsideSpan,
                ..
            }) => {
                write!(
                    f,
                    "{frame} is in no window that firmware announces for hotplug"
                )
            }
            Self::Hotplug(HotplugError {
                frame,
                why: Refusal::NoTables { needed_bytes, .. },
                ..
            }) => write!(
                f,
                "firmware announces {frame} for hotplug, but the window has no tables for it: \
                 {needed_bytes} bytes of tables would be needed"
            ),
            Self::AllDescriptors(range) => write!(
                f,
                "its descriptors would take all of {range}, as the rest of a huge frame of 2 MiB is not used; \
                 expected 4 MiB or more, or no descriptors="
            ),
            Self::NotMapped => {
                f.write_str("it is beyond this processor's addresses, or cannot be mapped")
            }
            Self::Descriptors(error) => write!(f, "its descriptors: {error}"),
            Self::Hotplug(error) => error.fmt(f),
        }
    }
}

/// A reason in words, cut where it does not fit.
#[derive(Clone, Copy)]
pub(super) struct Reason {
    text: [u8; 240],
    len: usize,
}

impl Default for Reason {
    fn default() -> Self {
        Self {
            text: [0; 240],
            len: 0,
        }
    }
}

impl Reason {
    pub(super) fn of(why: &impl fmt::Display) -> Self {
        let mut reason = Self::default();
        // An error: it is cut.
        let _ = write!(reason, "{why}");
        reason
    }

    pub(super) fn text(&self) -> &str {
        let text = self.text.get(..self.len).unwrap_or_default();
        core::str::from_utf8(text).unwrap_or_default()
    }
}

impl Write for Reason {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let slot = self.text.get_mut(self.len).ok_or(fmt::Error)?;
            *slot = byte;
            self.len += 1;
        }
        Ok(())
    }
}
