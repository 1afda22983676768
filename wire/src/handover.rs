//! What the UEFI loader hands to the image: a module of PVH's start info that begins with
//! [`MAGIC`]. Both sides use this file: the loader writes ([`Handover::write`]), the image
//! reads ([`View::read`]) and trusts nothing.
//!
//! All numbers are little endian. The EFI memory map follows at [`HEAD_BYTES`], as firmware
//! left it when boot services ended, so that attributes survive.

use core::fmt;

/// First bytes of a hand-over.
pub const MAGIC: [u8; 7] = *b"FL-UEFI";
/// The byte after them. The image reads no other version: both are on one stick.
pub const VERSION: u8 = 1;
/// The note in an image's ELF file that says which version it reads (name, content and kind as in any ELF
/// note): looked for by the loader before it ends boot services, as there is no screen after that.
pub const NOTE: [u8; 28] = *b"\x0b\0\0\0\x04\0\0\0\x01\0\0\0Firstlight\0\0\x01\0\0\0";
const _: () = assert!(NOTE[24] == VERSION);
/// Where the memory map begins.
pub const HEAD_BYTES: usize = 128;
/// The least size of a descriptor of the memory map.
pub const LEAST_DESCRIPTOR_BYTES: u32 = 40;

/// The numbers before the memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handover {
    /// The time stamp counter when firmware started the loader.
    pub entered_ticks: u64,
    /// When the loader had read its files.
    pub read_ticks: u64,
    /// When boot services had ended.
    pub exited_ticks: u64,
    /// The address of firmware's system table.
    pub system_table: u64,
    /// Whether a result in variables reaches the stick: firmware kept them the last time, and
    /// the stick can be written.
    pub keeps_results: bool,
    /// The frame buffer, if the image can write to one.
    pub screen: Option<Screen>,
    /// Memory for the lists of the way up, where the map has many descriptors.
    pub storage: Option<Storage>,
    /// Bytes of a descriptor of the memory map.
    pub descriptor_bytes: u32,
}

/// A frame buffer of 4 bytes a pixel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Screen {
    /// Physical address of the first pixel.
    pub address: u64,
    /// Bytes of the buffer.
    pub bytes: u64,
    /// Pixels a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Pixels from one row to the next.
    pub stride: u32,
}

impl Screen {
    /// This screen if all its pixels lie in the buffer, and the buffer in physical memory.
    ///
    /// # Errors
    /// [`HandoverError::Screen`].
    pub fn checked(self) -> Result<Self, HandoverError> {
        // Less than 2^66.
        let needed = (u64::from(self.stride) * u64::from(self.height)).saturating_mul(4);
        let end = self.address.checked_add(self.bytes);
        let is_sane = self.address != 0
            && self.address.is_multiple_of(4)
            && (1..=self.stride).contains(&self.width)
            && (1..=self.bytes).contains(&needed)
            && end.is_some_and(|end| end < 1 << 52);
        match is_sane {
            true => Ok(self),
            false => Err(HandoverError::Screen(self)),
        }
    }
}

/// Memory that nothing else uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Storage {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// Ranges that the lists in it have space for.
    pub ranges: u32,
}

/// Why a hand-over cannot be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandoverError {
    /// Another version.
    Version(u8),
    /// It ends before its parts do.
    Cut {
        /// Bytes there are.
        seen_bytes: usize,
        /// Bytes there must be.
        needed_bytes: u64,
    },
    /// The memory map is not a whole number of descriptors, or has none.
    Map {
        /// Bytes of the map.
        map_bytes: u64,
        /// Bytes of a descriptor.
        descriptor_bytes: u32,
    },
    /// The screen does not lie in its buffer.
    Screen(Screen),
}

impl fmt::Display for HandoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(seen) => write!(
                f,
                "UEFI hand-over of version {seen}, expected {VERSION}: loader and image are of different releases"
            ),
            Self::Cut {
                seen_bytes,
                needed_bytes,
            } => write!(
                f,
                "UEFI hand-over of {seen_bytes} bytes, expected {needed_bytes}"
            ),
            Self::Map {
                map_bytes,
                descriptor_bytes,
            } => write!(
                f,
                "UEFI hand-over: a memory map of {map_bytes} bytes, expected one or more \
                 descriptors of {descriptor_bytes} bytes, of {LEAST_DESCRIPTOR_BYTES} at least"
            ),
            Self::Screen(screen) => write!(
                f,
                "UEFI hand-over: a screen of {} x {} pixels, {} a row, expected all of them \
                 in its {} bytes at {:#x}",
                screen.width, screen.height, screen.stride, screen.bytes, screen.address
            ),
        }
    }
}

impl core::error::Error for HandoverError {}

impl Handover {
    /// Writes it with `map` behind it; returns how many bytes that takes.
    ///
    /// ```
    /// use firstlight_wire::handover::{Handover, View};
    /// let map = [7; 96];
    /// let handover = Handover { exited_ticks: 9, descriptor_bytes: 48, ..Handover::default() };
    /// let mut bytes = [0; 300];
    /// let count = handover.write(&map, &mut bytes).unwrap();
    /// let view = View::read(&bytes[..count]).unwrap().unwrap();
    /// assert_eq!((view.handover, view.map), (handover, &map[..]));
    /// ```
    ///
    /// # Errors
    /// [`HandoverError::Cut`] if `bytes` are too few, [`HandoverError::Map`].
    pub fn write(&self, map: &[u8], bytes: &mut [u8]) -> Result<usize, HandoverError> {
        let map_bytes = map.len() as u64;
        check_map(map_bytes, self.descriptor_bytes)?;
        let (whole, seen_bytes) = (HEAD_BYTES + map.len(), bytes.len());
        let Some((head, rest)) = bytes
            .get_mut(..whole)
            .and_then(|bytes| bytes.split_first_chunk_mut::<HEAD_BYTES>())
        else {
            return Err(HandoverError::Cut {
                seen_bytes,
                needed_bytes: whole as u64,
            });
        };
        rest.copy_from_slice(map);
        let screen = self.screen.unwrap_or(NO_SCREEN);
        let storage = self.storage.unwrap_or(NO_STORAGE);
        let mut start = [0; 8];
        start[..7].copy_from_slice(&MAGIC);
        start[7] = VERSION;
        let words = [
            u64::from_le_bytes(start),
            map_bytes,
            pair(self.descriptor_bytes, self.keeps_results.into()),
            self.entered_ticks,
            self.read_ticks,
            self.exited_ticks,
            self.system_table,
            screen.address,
            screen.bytes,
            pair(screen.width, screen.height),
            pair(screen.stride, storage.ranges),
            storage.start,
            storage.bytes,
        ];
        head.fill(0);
        for (slot, word) in head.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        Ok(whole)
    }
}

const NO_SCREEN: Screen = Screen {
    address: 0,
    bytes: 0,
    width: 0,
    height: 0,
    stride: 0,
};
const NO_STORAGE: Storage = Storage {
    start: 0,
    bytes: 0,
    ranges: 0,
};

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn check_map(map_bytes: u64, descriptor_bytes: u32) -> Result<(), HandoverError> {
    let whole = descriptor_bytes >= LEAST_DESCRIPTOR_BYTES
        && map_bytes > 0
        && map_bytes.is_multiple_of(descriptor_bytes.into());
    match whole {
        true => Ok(()),
        false => Err(HandoverError::Map {
            map_bytes,
            descriptor_bytes,
        }),
    }
}

/// A hand-over that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View<'b> {
    /// The numbers. Addresses are as they were given; [`Screen::checked`] has yet to be called.
    pub handover: Handover,
    /// The memory map, one or more whole descriptors.
    pub map: &'b [u8],
}

impl<'b> View<'b> {
    /// Reads a module; `None` if it does not begin as a hand-over does.
    ///
    /// # Errors
    /// [`HandoverError`], but never for the screen.
    pub fn read(bytes: &'b [u8]) -> Result<Option<Self>, HandoverError> {
        let Some(rest) = bytes.strip_prefix(&MAGIC) else {
            return Ok(None);
        };
        let cut = |needed_bytes| HandoverError::Cut {
            seen_bytes: bytes.len(),
            needed_bytes,
        };
        let (Some(&version), Some((head, map))) = (rest.first(), bytes.split_first_chunk()) else {
            return Err(cut(HEAD_BYTES as u64));
        };
        if version != VERSION {
            return Err(HandoverError::Version(version));
        }
        let head: &[u8; HEAD_BYTES] = head;
        let mut words = [0; HEAD_BYTES / 8];
        for (word, bytes) in words.iter_mut().zip(head.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [
            _,
            map_bytes,
            sizes,
            entered_ticks,
            read_ticks,
            exited_ticks,
            system_table,
            address,
            screen_bytes,
            extent,
            more,
            start,
            storage_bytes,
            ..,
        ] = words;
        let [descriptor_bytes, flags] = halves(sizes);
        let [width, height] = halves(extent);
        let [stride, ranges] = halves(more);
        check_map(map_bytes, descriptor_bytes)?;
        let map = usize::try_from(map_bytes)
            .ok()
            .and_then(|count| map.get(..count))
            .ok_or_else(|| cut(map_bytes.saturating_add(HEAD_BYTES as u64)))?;
        let screen = Screen {
            address,
            bytes: screen_bytes,
            width,
            height,
            stride,
        };
        let storage = Storage {
            start,
            bytes: storage_bytes,
            ranges,
        };
        let handover = Handover {
            entered_ticks,
            read_ticks,
            exited_ticks,
            system_table,
            keeps_results: flags & 1 == 1,
            screen: Some(screen).filter(|screen| *screen != NO_SCREEN),
            storage: Some(storage).filter(|storage| *storage != NO_STORAGE),
            descriptor_bytes,
        };
        Ok(Some(Self { handover, map }))
    }
}

fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    fn full() -> Handover {
        Handover {
            entered_ticks: 1,
            read_ticks: 2,
            exited_ticks: 3,
            system_table: 0x7fee_d018,
            keeps_results: true,
            screen: Some(Screen {
                address: 0x8000_0000,
                bytes: 1280 * 800 * 4,
                width: 1280,
                height: 800,
                stride: 1280,
            }),
            storage: Some(Storage {
                start: 0x100_0000,
                bytes: 1 << 20,
                ranges: 4096,
            }),
            descriptor_bytes: 56,
        }
    }

    fn written() -> Vec<u8> {
        let mut bytes = [0xcc; 1024];
        let count = full().write(&[5; 112], &mut bytes).unwrap();
        bytes[..count].to_vec()
    }

    #[test]
    fn all_that_is_written_is_read() {
        let bytes = written();
        assert_eq!(bytes.len(), HEAD_BYTES + 112);
        let view = View::read(&bytes).unwrap().unwrap();
        assert_eq!((view.handover, view.map), (full(), &[5; 112][..]));
        // A module may be longer than what is in it.
        let longer = [&bytes[..], &[1, 2, 3]].concat();
        assert_eq!(View::read(&longer).unwrap().unwrap().map.len(), 112);
    }

    #[test]
    fn what_is_cut_is_refused_at_every_length() {
        let bytes = written();
        for length in 0..bytes.len() {
            let cut = View::read(&bytes[..length]);
            match length < MAGIC.len() {
                true => assert_eq!(cut, Ok(None)),
                false => assert!(matches!(cut, Err(HandoverError::Cut { .. })), "{length}"),
            }
        }
    }

    #[test]
    fn other_versions_and_broken_maps_are_refused() {
        let changed = |at: usize, value: u8| {
            let mut bytes = written();
            bytes[at] = value;
            View::read(&bytes).unwrap_err()
        };
        assert_eq!(changed(7, 2), HandoverError::Version(2));
        // Bytes of the map, then of a descriptor.
        assert!(matches!(changed(8, 0), HandoverError::Map { .. }));
        assert!(matches!(changed(8, 113), HandoverError::Map { .. }));
        assert!(matches!(changed(15, 0x70), HandoverError::Cut { .. }));
        assert!(matches!(changed(16, 39), HandoverError::Map { .. }));
        assert!(matches!(changed(16, 0), HandoverError::Map { .. }));
        let mut small = [0; HEAD_BYTES];
        let refused = full().write(&[0; 56], &mut small).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "UEFI hand-over of 128 bytes, expected 184"
        );
        assert!(full().write(&[0; 57], &mut [0; 512]).is_err());
    }

    #[test]
    fn screens_that_cannot_be_are_refused() {
        let good = full().screen.unwrap();
        assert_eq!(good.checked(), Ok(good));
        let bad = [
            Screen { address: 0, ..good },
            Screen {
                address: 0x8000_0002,
                ..good
            },
            Screen {
                address: u64::MAX - 3,
                ..good
            },
            Screen {
                bytes: good.bytes - 1,
                ..good
            },
            Screen {
                width: 1281,
                ..good
            },
            Screen { width: 0, ..good },
            Screen { height: 0, ..good },
            Screen {
                stride: u32::MAX,
                height: u32::MAX,
                ..good
            },
        ];
        for screen in bad {
            assert_eq!(screen.checked(), Err(HandoverError::Screen(screen)));
        }
    }
}
