//! The configuration space of PCI in memory (ECAM), where ACPI's table MCFG says that it is: [`Ecam`].

use super::Registers;
use super::pci::{ConfigSpace, Function, Region};

/// Where the table's entries begin, and their size: an address, a segment, its first and last bus.
const ENTRIES: usize = 44;
const ENTRY_BYTES: usize = 16;

/// Where the configuration space of the first segment is, from bus 0 on, by `mcfg`.
#[must_use]
pub fn place(mcfg: &[u8]) -> Option<Region> {
    let mut entries = mcfg.get(ENTRIES..)?.chunks_exact(ENTRY_BYTES);
    entries.find_map(|entry| {
        let (address, rest) = entry.split_first_chunk()?;
        let address = u64::from_le_bytes(*address);
        let &[0, 0, 0, last, ..] = rest else {
            return None;
        };
        let bytes = (u32::from(last) + 1) << 20;
        let is_there = address > 0 && address.checked_add(bytes.into()).is_some();
        is_there.then_some(Region { address, bytes })
    })
}

/// The configuration space in these registers. What lies beyond them reads as all ones.
#[derive(Debug)]
pub struct Ecam<R>(pub R);

/// A function has 4 KiB.
fn offset(function: Function, at: u8) -> u32 {
    u32::from(function.bus) << 20
        | u32::from(function.device & 31) << 15
        | u32::from(function.function & 7) << 12
        | u32::from(at & !3)
}

impl<R: Registers> ConfigSpace for Ecam<R> {
    fn read(&self, function: Function, at: u8) -> u32 {
        self.0.read32(offset(function, at))
    }

    fn write(&mut self, function: Function, at: u8, value: u32) {
        self.0.write32(offset(function, at), value);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::super::fake::Bytes;
    use super::super::pci::find;
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn mcfg(entries: &[(u64, u16, u8, u8)]) -> Vec<u8> {
        let mut table = vec![0; ENTRIES];
        for (address, segment, first, last) in entries {
            table.extend(address.to_le_bytes());
            table.extend(segment.to_le_bytes());
            table.extend([*first, *last, 0, 0, 0, 0]);
        }
        table
    }

    #[test]
    fn it_is_where_the_first_segment_has_bus_0() {
        let virt = (0x40_1000_0000, 0, 0, 255);
        let region = Region {
            address: 0x40_1000_0000,
            bytes: 256 << 20,
        };
        assert_eq!(place(&mcfg(&[virt])), Some(region));
        let others = [(1 << 40, 1, 0, 255), (2 << 40, 0, 1, 255), (0, 0, 0, 9)];
        assert_eq!(place(&mcfg(&others)), None);
        // Beyond all addresses.
        assert_eq!(place(&mcfg(&[(u64::MAX << 28, 0, 0, 255)])), None);
        let table = mcfg(&[others.as_slice(), &[virt]].concat());
        assert_eq!(place(&table), Some(region));
        for end in 0..table.len() {
            assert_eq!(place(&table[..end]), None);
        }
    }

    #[test]
    fn each_function_has_its_registers() {
        let mut space = Ecam(Bytes::new(2 << 20));
        let at = |bus, device, function| Function {
            bus,
            device,
            function,
        };
        // Nothing answers, but for a bridge to bus 1 and a balloon there.
        for bus in 0..2 {
            for device in 0..32 {
                for function in 0..8 {
                    space.write(at(bus, device, function), 0, u32::MAX);
                }
            }
        }
        let (bridge, balloon) = (at(0, 3, 0), at(1, 31, 7));
        space.write(bridge, 0x00, 0x0001_8086);
        space.write(bridge, 0x0c, 1 << 16);
        space.write(bridge, 0x18, 1 << 8);
        space.write(at(1, 31, 0), 0x00, 0x1234_8086);
        space.write(at(1, 31, 0), 0x0c, 0x80 << 16);
        space.write(balloon, 0x00, 0x1045_1af4);
        assert_eq!(find(&space, 5), Some(balloon));
        assert_eq!(space.0.read32(0x1f_f000), 0x1045_1af4);
        assert_eq!(space.read(at(2, 0, 0), 0), u32::MAX);
    }
}
