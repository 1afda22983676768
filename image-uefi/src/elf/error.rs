//! Why a file is not the image, or cannot be placed elsewhere: [`ElfError`].

use core::fmt;

use firstlight_wire::handover::VERSION;

/// Why a file is not the image, or cannot be placed elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElfError {
    /// No 64-bit ELF program for x86-64 at fixed addresses.
    Format,
    /// A table or a segment that the file does not have.
    Cut {
        /// Which.
        what: &'static str,
        /// Where it begins in the file.
        offset: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// More entries than an image has.
    Many {
        /// Of which table.
        what: &'static str,
        /// How many.
        seen: u64,
        /// How many at most.
        most: u64,
    },
    /// Segments that do not lie in one range of at most 2 MiB between 1 MiB and 4 GiB.
    Range {
        /// First address.
        start: u64,
        /// Address after the last.
        end: u64,
    },
    /// No PVH note, or its entry is outside of the image.
    Entry(Option<u64>),
    /// It reads another version of the hand-over, or says none.
    Handover(Option<u64>),
    /// No relocations: it has to lie where it is linked.
    Fixed,
    /// An address in it that cannot name memory so far up.
    Far {
        /// Where it is.
        address: u64,
        /// The end of what it can name.
        reach: u64,
        /// The image's end, if it were there.
        end: u64,
    },
    /// A relocation that is not known here, or of bytes outside of the image.
    Relocation {
        /// Its kind.
        kind: u32,
        /// Where it is.
        address: u64,
    },
}

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Format => f.write_str("it is no 64-bit ELF program for x86-64"),
            Self::Cut {
                what,
                offset,
                bytes,
            } => write!(
                f,
                "it is cut: {what}, {bytes} bytes at {offset:#x}, is not in it"
            ),
            Self::Many { what, seen, most } => {
                write!(f, "it has {seen} {what}, expected at most {most}")
            }
            Self::Range { start, end } => write!(
                f,
                "its segments are at {start:#x} to {end:#x}, expected at most 2 MiB between 1 MiB and 4 GiB"
            ),
            Self::Entry(None) => f.write_str("it has no PVH note, which names the entry"),
            Self::Entry(Some(entry)) => write!(f, "its PVH entry, {entry:#x}, is outside of it"),
            Self::Handover(None) => write!(
                f,
                "it does not say which hand-over it reads, expected version {VERSION}"
            ),
            Self::Handover(Some(seen)) => write!(
                f,
                "it reads a hand-over of version {seen}, this loader writes {VERSION}: they are of different releases"
            ),
            Self::Fixed => f.write_str(
                "its place is taken and it has no relocations by which it could be placed elsewhere",
            ),
            Self::Far {
                address,
                reach,
                end,
            } => write!(
                f,
                "its address at {address:#x} names memory below {reach:#x} only, and it would end at {end:#x}"
            ),
            Self::Relocation { kind, address } => {
                write!(f, "it has a relocation of kind {kind} at {address:#x}, which is not known")
            }
        }
    }
}

impl core::error::Error for ElfError {}
