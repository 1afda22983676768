//! Slots of DIMMs that come and go while the machine runs: [`Slots`], the registers that QEMU
//! has for them, as ACPI's code for this board uses them, and where that says they are, [`Place`].
//!
//! One register selects a slot, others describe what is in it, and a byte of status says what
//! happened to it since. What came of that is reported back, so that the host knows.

use firstlight::addr::PhysRange;

/// The most slots that a machine has.
pub const MOST_SLOTS: u32 = 256;

/// Written: the slot that the other registers are about. Read: the address, low half.
const SELECT: u16 = 0;
const ADDRESS: u16 = 0;
/// Written: what the outcome is of. Read: the address, high half.
const OUTCOME_OF: u16 = 4;
/// Written: the outcome. Read: the size, low half.
const OUTCOME: u16 = 8;
const BYTES: u16 = 8;
/// The node, in firmware's numbers.
const DOMAIN: u16 = 16;
const STATUS: u16 = 20;

/// Bits of the status byte: there is a DIMM; it came; it is to go.
const ENABLED: u8 = 1;
const INSERTED: u8 = 1 << 1;
const REMOVING: u8 = 1 << 2;
/// Written there: it is gone.
const EJECT: u8 = 1 << 3;

/// What is read where no register is.
const NOTHING: u8 = u8::MAX;

/// What an outcome is of, and outcomes, as in ACPI's `_OST`.
const OF_INSERTION: u32 = 1;
const OF_EJECTION: u32 = 3;
const SUCCESS: u32 = 0;
const FAILURE: u32 = 1;
const IN_USE: u32 = 0x81;

/// Where the registers are: at I/O port 0xa00 of QEMU's boards `pc` and `q35`, in memory of arm64's `virt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whether they are I/O ports, not memory.
    pub is_io: bool,
    /// The first of them.
    pub address: u64,
}

impl Place {
    /// What ACPI's code in a DSDT calls them.
    const REGION: &[u8] = b"\x5b\x80HPMR";
    /// Their bytes.
    const BYTES: u64 = 24;

    /// By the region that ACPI's code in `dsdt` declares for them; `None` if it declares none, or one of another kind.
    ///
    /// ```
    /// use firstlight_image::hotplug::Place;
    /// let code = b"\x5b\x80HPMR\x01\x0b\x00\x0a\x0a\x18"; // OperationRegion (HPMR, SystemIO, 0x0A00, 0x18)
    /// assert_eq!(Place::find(code), Some(Place { is_io: true, address: 0xa00 }));
    /// ```
    #[must_use]
    pub fn find(dsdt: &[u8]) -> Option<Self> {
        let at = dsdt
            .windows(Self::REGION.len())
            .position(|code| code == Self::REGION)?;
        let (space, rest) = dsdt.get(at + Self::REGION.len()..)?.split_first()?;
        let is_io = match space {
            0 => false,
            1 => true,
            _ => return None,
        };
        let (address, rest) = integer(rest)?;
        let (bytes, _) = integer(rest)?;
        let ends = address.checked_add(bytes)?;
        let fits = bytes >= Self::BYTES && address > 0 && (!is_io || ends <= 1 << 16);
        fits.then_some(Self { is_io, address })
    }
}

/// An integer of ACPI's code, and what follows it.
fn integer(code: &[u8]) -> Option<(u64, &[u8])> {
    let (kind, rest) = code.split_first()?;
    let bytes = match kind {
        0x0a => 1,
        0x0b => 2,
        0x0c => 4,
        0x0e => 8,
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(bytes)?;
    let value = value
        .iter()
        .rev()
        .fold(0, |all, byte| all << 8 | u64::from(*byte));
    Some((value, rest))
}

/// The registers.
pub trait Registers {
    /// Reads 32 bits.
    fn read32(&self, at: u16) -> u32;
    /// Reads a byte.
    fn read8(&self, at: u16) -> u8;
    /// Writes 32 bits.
    fn write32(&mut self, at: u16, value: u32);
    /// Writes a byte.
    fn write8(&mut self, at: u16, value: u8);
}

/// A DIMM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dimm {
    /// The slot it is in.
    pub slot: u32,
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// Its node, in firmware's numbers.
    pub domain: u32,
}

impl Dimm {
    /// Its range; `None` if there can't be one.
    #[must_use]
    pub fn range(&self) -> Option<PhysRange> {
        PhysRange::with_size(self.start, self.bytes).filter(|range| !range.is_empty())
    }
}

/// What happened to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A DIMM came.
    Came(Dimm),
    /// A DIMM is to go.
    Goes(Dimm),
}

/// All slots of a machine.
#[derive(Debug)]
pub struct Slots<R> {
    registers: R,
    count: u32,
}

impl<R: Registers> Slots<R> {
    /// The first `count` slots; none where nothing answers, which reads as ones.
    pub fn new(mut registers: R, count: u32) -> Self {
        registers.write32(SELECT, 0);
        let count = match registers.read8(STATUS) {
            NOTHING => 0,
            _ => count.min(MOST_SLOTS),
        };
        Self { registers, count }
    }

    /// How many there are, or 0.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// What happened to a slot, of all that happened and was not yet returned.
    pub fn next_change(&mut self) -> Option<Change> {
        for slot in 0..self.count {
            self.registers.write32(SELECT, slot);
            let status = self.registers.read8(STATUS);
            if status & ENABLED == 0 {
                continue;
            }
            if status & INSERTED != 0 {
                let dimm = self.selected(slot);
                self.registers.write8(STATUS, INSERTED);
                return Some(Change::Came(dimm));
            }
            if status & REMOVING != 0 {
                let dimm = self.selected(slot);
                self.registers.write8(STATUS, REMOVING);
                return Some(Change::Goes(dimm));
            }
        }
        None
    }

    /// The DIMM that is in a slot, if there is one; that it came is no change any more.
    pub fn take(&mut self, slot: u32) -> Option<Dimm> {
        if slot >= self.count {
            return None;
        }
        self.registers.write32(SELECT, slot);
        let status = self.registers.read8(STATUS);
        if status & ENABLED == 0 {
            return None;
        }
        let dimm = self.selected(slot);
        if status & INSERTED != 0 {
            self.registers.write8(STATUS, INSERTED);
        }
        Some(dimm)
    }

    fn selected(&self, slot: u32) -> Dimm {
        let wide = |at| {
            let (low, high) = (self.registers.read32(at), self.registers.read32(at + 4));
            u64::from(high) << 32 | u64::from(low)
        };
        Dimm {
            slot,
            start: wide(ADDRESS),
            bytes: wide(BYTES),
            domain: self.registers.read32(DOMAIN),
        }
    }

    /// What came of a DIMM that came: whether its memory is used.
    pub fn came(&mut self, slot: u32, used: bool) {
        self.outcome(slot, OF_INSERTION, if used { SUCCESS } else { FAILURE });
    }

    /// What came of a DIMM that was to go: whether it may be pulled.
    pub fn goes(&mut self, slot: u32, may_go: bool) {
        self.outcome(slot, OF_EJECTION, if may_go { SUCCESS } else { IN_USE });
        if may_go {
            self.registers.write8(STATUS, EJECT);
        }
    }

    fn outcome(&mut self, slot: u32, of: u32, outcome: u32) {
        self.registers.write32(SELECT, slot);
        self.registers.write32(OUTCOME_OF, of);
        self.registers.write32(OUTCOME, outcome);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// A slot: what is in it, its status, and what was reported.
    #[derive(Clone, Default)]
    struct Slot {
        dimm: Dimm,
        status: u8,
        outcomes: Vec<(u32, u32)>,
        of: u32,
    }

    /// QEMU's side.
    struct Board {
        slots: Vec<Slot>,
        selected: usize,
    }

    impl Registers for &mut Board {
        fn read32(&self, at: u16) -> u32 {
            let Some(slot) = self.slots.get(self.selected) else {
                return 0;
            };
            let half = |value: u64, high: bool| {
                let half = value >> if high { 32 } else { 0 } & u64::from(u32::MAX);
                u32::try_from(half).unwrap()
            };
            match at {
                0 => half(slot.dimm.start, false),
                4 => half(slot.dimm.start, true),
                8 => half(slot.dimm.bytes, false),
                12 => half(slot.dimm.bytes, true),
                16 => slot.dimm.domain,
                _ => u32::MAX,
            }
        }

        fn read8(&self, at: u16) -> u8 {
            assert_eq!(at, 20);
            self.slots.get(self.selected).map_or(0, |slot| slot.status)
        }

        fn write32(&mut self, at: u16, value: u32) {
            if at == 0 {
                self.selected = value as usize;
            }
            let selected = self.selected;
            let Some(slot) = self.slots.get_mut(selected) else {
                return;
            };
            match at {
                4 => slot.of = value,
                8 => slot.outcomes.push((slot.of, value)),
                _ => {}
            }
        }

        fn write8(&mut self, at: u16, value: u8) {
            assert_eq!(at, 20);
            let selected = self.selected;
            let slot = &mut self.slots[selected];
            if value & EJECT != 0 {
                assert_eq!(value, EJECT);
                slot.status = 0;
            } else {
                slot.status &= !value;
            }
        }
    }

    fn board() -> Board {
        let dimm = |slot| Dimm {
            slot,
            start: 0x1_2000_0000 + u64::from(slot),
            bytes: 5 << 30,
            domain: 7,
        };
        let slot = |slot, status| Slot {
            dimm: dimm(slot),
            status,
            ..Slot::default()
        };
        Board {
            slots: vec![
                slot(0, 0),
                slot(1, ENABLED | INSERTED),
                slot(2, ENABLED),
                slot(3, ENABLED | REMOVING),
                // Nothing is in it, whatever else its status says.
                slot(4, INSERTED | REMOVING),
            ],
            selected: 0,
        }
    }

    #[test]
    fn registers_are_where_the_board_declares_them() {
        let find = |code: &[u8]| Place::find(&[b"DSDT and before".as_slice(), code].concat());
        let io = |address| {
            Some(Place {
                is_io: true,
                address,
            })
        };
        let memory = |address| {
            Some(Place {
                is_io: false,
                address,
            })
        };
        assert_eq!(find(b"\x5b\x80HPMR\x01\x0b\x00\x0a\x0a\x18\x5b"), io(0xa00));
        // arm64's `virt`, and in a wider form.
        assert_eq!(
            find(b"\x5b\x80HPMR\x00\x0c\0\0\x07\x09\x0a\x18"),
            memory(0x907_0000)
        );
        let wide = b"\x5b\x80HPMR\x00\x0e\0\0\x07\x09\x01\0\0\0\x0b\x18\0";
        assert_eq!(find(wide), memory(0x1_0907_0000));
        for none in [
            &b""[..],
            b"\x5b\x80HPMX\x01\x0b\x00\x0a\x0a\x18",
            // The fields of the region name it, too.
            b"\x5b\x81HPMR\x01\x0b\x00\x0a\x0a\x18",
            // Another space, too few registers, beyond all ports, at 0, no integers.
            b"\x5b\x80HPMR\x02\x0b\x00\x0a\x0a\x18",
            b"\x5b\x80HPMR\x01\x0b\x00\x0a\x0a\x17",
            b"\x5b\x80HPMR\x01\x0b\xf0\xff\x0a\x18",
            b"\x5b\x80HPMR\x01\x0b\x00\x00\x0a\x18",
            b"\x5b\x80HPMR\x01\x70\x00\x0a\x0a\x18",
        ] {
            assert_eq!(find(none), None, "{}", none.escape_ascii());
        }
        for end in 0..wide.len() {
            assert_eq!(Place::find(&wide[..end]), None);
        }
    }

    /// As on a board without slots: nothing answers.
    struct Bus;

    impl Registers for Bus {
        fn read32(&self, _: u16) -> u32 {
            u32::MAX
        }
        fn read8(&self, _: u16) -> u8 {
            u8::MAX
        }
        fn write32(&mut self, _: u16, _: u32) {}
        fn write8(&mut self, _: u16, _: u8) {}
    }

    #[test]
    fn where_nothing_answers_there_are_no_slots() {
        let mut slots = Slots::new(Bus, 256);
        assert_eq!((slots.count(), slots.take(0)), (0, None));
        assert_eq!(slots.next_change(), None);
    }

    #[test]
    fn each_change_is_returned_once() {
        let mut board = board();
        let (one, three) = (board.slots[1].dimm, board.slots[3].dimm);
        let mut slots = Slots::new(&mut board, 256);
        assert_eq!(slots.next_change(), Some(Change::Came(one)));
        assert_eq!(slots.next_change(), Some(Change::Goes(three)));
        assert_eq!(slots.next_change(), None);
        assert_eq!(slots.take(2).map(|dimm| dimm.slot), Some(2));
        assert_eq!((slots.take(0), slots.take(9)), (None, None));
        let mut slots = Slots::new(&mut board, 1);
        assert_eq!(slots.next_change(), None);
        assert_eq!(slots.take(2), None, "beyond the slots there are");
    }

    #[test]
    fn what_came_before_the_slots_were_served_came_once() {
        let mut board = board();
        let (one, three) = (board.slots[1].dimm, board.slots[3].dimm);
        let mut slots = Slots::new(&mut board, 256);
        let taken = (0..256).filter_map(|slot| slots.take(slot));
        assert_eq!(taken.map(|dimm| dimm.slot).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(slots.take(1), Some(one), "it stays there");
        assert_eq!(slots.next_change(), Some(Change::Goes(three)));
        assert_eq!(slots.next_change(), None);
    }

    #[test]
    fn outcomes_reach_the_board() {
        let mut board = board();
        let mut slots = Slots::new(&mut board, 4);
        slots.came(1, true);
        slots.came(2, false);
        slots.goes(3, false);
        slots.goes(1, true);
        let outcomes = |slot: usize| board.slots[slot].outcomes.clone();
        assert_eq!(
            outcomes(1),
            [(OF_INSERTION, SUCCESS), (OF_EJECTION, SUCCESS)]
        );
        assert_eq!(outcomes(2), [(OF_INSERTION, FAILURE)]);
        assert_eq!(outcomes(3), [(OF_EJECTION, IN_USE)]);
        assert_eq!(
            (board.slots[1].status, board.slots[3].status),
            (0, ENABLED | REMOVING)
        );
    }

    #[test]
    fn a_dimm_beyond_all_addresses_has_no_range() {
        let dimm = Dimm {
            start: u64::MAX - 5,
            bytes: 1 << 30,
            ..Dimm::default()
        };
        assert_eq!((dimm.range(), Dimm::default().range()), (None, None));
    }
}
