//! Slots of DIMMs that come and go while the machine runs: [`Slots`], the registers that QEMU
//! has for them, as ACPI's code for this board uses them. Where that says they are: [`Place`]; what ends
//! their use: [`PowerButton`].
//!
//! One register selects a slot, others describe what is in it, and a byte of status says what
//! happened to it since. What came of that is reported back, so that the host knows.

mod button;
mod place;

use firstlight::addr::PhysRange;

use crate::virtio::Registers;

pub use button::PowerButton;
pub use place::Place;

/// The most slots that a machine has.
pub const MOST_SLOTS: u32 = 256;

/// Written: the slot that the other registers are about. Read: the address, low half.
const SELECT: u32 = 0;
const ADDRESS: u32 = 0;
/// Written: what the outcome is of. Read: the address, high half.
const OUTCOME_OF: u32 = 4;
/// Written: the outcome. Read: the size, low half.
const OUTCOME: u32 = 8;
const BYTES: u32 = 8;
/// The node, in firmware's numbers.
const DOMAIN: u32 = 16;
const STATUS: u32 = 20;

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
    use crate::virtio::fake::Bytes;
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
        fn bytes(&self) -> u32 {
            24
        }

        fn read16(&self, at: u32) -> u16 {
            panic!("no register has 16 bits: {at}")
        }

        fn write16(&mut self, at: u32, _: u16) {
            panic!("no register has 16 bits: {at}")
        }

        fn read32(&self, at: u32) -> u32 {
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

        fn read8(&self, at: u32) -> u8 {
            assert_eq!(at, 20);
            self.slots.get(self.selected).map_or(0, |slot| slot.status)
        }

        fn write32(&mut self, at: u32, value: u32) {
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

        fn write8(&mut self, at: u32, value: u8) {
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
    fn where_nothing_answers_there_are_no_slots() {
        let mut slots = Slots::new(Bytes::new(0), 256);
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
