//! The power button: [`PowerButton`].

use crate::virtio::Registers;

/// Bit 8 of the fixed events' status and, two bytes above, of what is enabled.
const FIXED: u16 = 1 << 8;
const ENABLE: u32 = 2;
/// Bit 1 of the events of QEMU's generic event device.
const EVENT: u32 = 1 << 1;

/// The power button, which ends the use of slots.
#[derive(Debug)]
pub enum PowerButton<R> {
    /// One of ACPI's fixed events, by the registers of these.
    Fixed(R),
    /// One of a generic event device's, by the register that says which there were and forgets them when it is read.
    Event(R),
}

impl<R: Registers> PowerButton<R> {
    /// That of fixed events.
    pub fn fixed(mut events: R) -> Self {
        // The interrupt stays masked; the enable bit is what makes the board note a press.
        events.write16(ENABLE, FIXED);
        Self::Fixed(events)
    }

    /// Whether it was pressed; a generic event device says so once.
    pub fn is_pressed(&mut self) -> bool {
        match self {
            Self::Fixed(events) => events.read16(0) & FIXED != 0,
            Self::Event(events) => events.read32(0) & EVENT != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtio::fake::Bytes;

    #[test]
    fn a_press_is_a_bit_of_either_kind_of_events() {
        let mut button = PowerButton::fixed(Bytes::new(4));
        assert!(!button.is_pressed());
        let PowerButton::Fixed(events) = &mut button else {
            unreachable!()
        };
        assert_eq!(events.read16(2), 1 << 8, "it is enabled");
        events.write16(0, 1 << 8);
        assert!(button.is_pressed());
        // Memory came, a press, both.
        for (events, is_pressed) in [(0, false), (1, false), (2, true), (3, true)] {
            let mut register = Bytes::new(4);
            register.write32(0, events);
            assert_eq!(PowerButton::Event(register).is_pressed(), is_pressed);
        }
    }
}
