//! The image elsewhere than where it is linked, by the relocations that the linker kept.

use alloc::vec::Vec;

use super::read::{field, number, part, rows, short};
use super::{END, ElfError, Image};

/// Most sections; the image has some twenty.
const MOST_SECTIONS: u64 = 256;
pub(super) const WITH_ADDENDS: u64 = 4;
pub(super) const ALLOCATED: u64 = 2;

/// Kinds of relocations.
pub(super) const ADDRESS_64: u32 = 1;
pub(super) const RELATIVE_32: u32 = 2;
pub(super) const CALL_32: u32 = 4;
pub(super) const TABLE_RELATIVE_32: u32 = 9;
pub(super) const ADDRESS_32: u32 = 10;
pub(super) const SIGNED_ADDRESS_32: u32 = 11;

/// The end of what an address of a kind can name: farther away its upper bits would be cut.
fn reach(kind: u32) -> u64 {
    match kind {
        SIGNED_ADDRESS_32 => 1 << 31,
        _ => END,
    }
}

/// A relocation as it is in the file.
struct Relocation {
    kind: u32,
    address: u64,
    addend: u64,
}

impl Image<'_> {
    /// The end of the memory that all of its addresses can name: there is no other place for it
    /// above. Its own place is always one.
    #[must_use]
    pub fn reach(&self) -> u64 {
        // A list that cannot be read is an error of `write`.
        let relocations = self.relocations().unwrap_or_default();
        let reaches = relocations.iter().map(|relocation| reach(relocation.kind));
        reaches.min().unwrap_or(END)
    }

    /// Those of what is loaded.
    fn relocations(&self) -> Result<Vec<Relocation>, ElfError> {
        let sections = number::<2>(self.file, 60).unwrap_or_default();
        let table = [field(self.file, 40), 64, sections, MOST_SECTIONS];
        let sections = rows::<64>(self.file, "sections", table)?;
        let loaded = |section: &[u8; 64]| {
            let of = usize::try_from(short(section, 44)).ok();
            let target = of.and_then(|of| sections.get(of));
            target.is_some_and(|target| field(target, 8) & ALLOCATED != 0)
        };
        let mut all = None;
        for section in sections {
            if short(section, 4) != WITH_ADDENDS || !loaded(section) {
                continue;
            }
            let (offset, bytes) = (field(section, 24), field(section, 32));
            let list = part(self.file, "relocations", offset, bytes)?;
            let relocations = list.as_chunks::<24>().0.iter().map(|row| Relocation {
                kind: u32::try_from(short(row, 8)).unwrap_or_default(),
                address: field(row, 0),
                addend: field(row, 16),
            });
            all.get_or_insert_with(Vec::new).extend(relocations);
        }
        all.ok_or(ElfError::Fixed)
    }

    /// Adds `delta` to all addresses in the image.
    pub(super) fn relocate(&self, delta: u64, memory: &mut [u8]) -> Result<(), ElfError> {
        // Words of the global offset table, which the linker makes itself and keeps no
        // relocations of: known by those of the instructions that read them.
        let mut slots = Vec::new();
        let end = self.range.end.wrapping_add(delta);
        for Relocation {
            kind,
            address,
            addend,
        } in self.relocations()?
        {
            let wrong = ElfError::Relocation { kind, address };
            match kind {
                RELATIVE_32 | CALL_32 => {}
                ADDRESS_64 => add::<8>(self, memory, address, delta).ok_or(wrong)?,
                ADDRESS_32 | SIGNED_ADDRESS_32 => {
                    let reach = reach(kind);
                    if end > reach {
                        return Err(ElfError::Far {
                            address,
                            reach,
                            end,
                        });
                    }
                    add::<4>(self, memory, address, delta).ok_or(wrong)?;
                }
                TABLE_RELATIVE_32 => {
                    let at = self.index(address).ok_or(wrong)?;
                    let seen = memory.get(at..).and_then(|rest| rest.first_chunk());
                    let distance = i64::from(i32::from_le_bytes(*seen.ok_or(wrong)?));
                    let slot = address.wrapping_sub(addend);
                    slots.push(slot.wrapping_add_signed(distance));
                }
                _ => return Err(wrong),
            }
        }
        slots.sort_unstable();
        slots.dedup();
        for address in slots {
            add::<8>(self, memory, address, delta).ok_or(ElfError::Relocation {
                kind: TABLE_RELATIVE_32,
                address,
            })?;
        }
        Ok(())
    }

    /// Where the byte of an address is in the image.
    fn index(&self, address: u64) -> Option<usize> {
        self.range
            .contains(&address)
            .then(|| usize::try_from(address - self.range.start).ok())?
    }
}

/// Adds `delta` to the number of `N` bytes at `address`, of which higher bytes are cut off.
fn add<const N: usize>(
    image: &Image<'_>,
    memory: &mut [u8],
    address: u64,
    delta: u64,
) -> Option<()> {
    let at = image.index(address)?;
    let slot = memory.get_mut(at..)?.first_chunk_mut::<N>()?;
    let sum = number::<N>(slot, 0)?.wrapping_add(delta).to_le_bytes();
    slot.copy_from_slice(sum.first_chunk::<N>()?);
    Some(())
}
