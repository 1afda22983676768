//! Where registers are, by ACPI's code for a board (DSDT), of which none is run: [`Place`].

use crate::virtio::pci::Region;

/// Where registers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// I/O ports, from the first on.
    Ports(u16),
    /// Memory.
    Memory(Region),
}

impl Place {
    /// What declares a region, and the names that QEMU gives to those of slots and of events.
    const SLOTS: &[u8] = b"\x5b\x80HPMR";
    const EVENTS: &[u8] = b"\x5b\x80EREG";
    /// The generic event device (GED), which has the latter.
    const EVENT_DEVICE: &[u8] = b"ACPI0013\0";
    /// Their bytes.
    const SLOTS_BYTES: u32 = 24;
    const EVENTS_BYTES: u32 = 4;

    /// The registers of slots: at I/O port 0xa00 of QEMU's boards `pc` and `q35`, in memory of arm64's `virt`. `None` if
    /// `dsdt` declares none, or one of another kind.
    ///
    /// ```
    /// use firstlight_image::hotplug::Place;
    /// let code = b"\x5b\x80HPMR\x01\x0b\x00\x0a\x0a\x18"; // OperationRegion (HPMR, SystemIO, 0x0A00, 0x18)
    /// assert_eq!(Place::of_slots(code), Some(Place::Ports(0xa00)));
    /// ```
    #[must_use]
    pub fn of_slots(dsdt: &[u8]) -> Option<Self> {
        Self::find(after(dsdt, Self::SLOTS)?, Self::SLOTS_BYTES)
    }

    /// The register that says which events a generic event device has, if there is such a device.
    #[must_use]
    pub fn of_events(dsdt: &[u8]) -> Option<Self> {
        let device = after(dsdt, Self::EVENT_DEVICE)?;
        Self::find(after(device, Self::EVENTS)?, Self::EVENTS_BYTES)
    }

    /// The first `bytes` of the region that `code` goes on to declare.
    fn find(code: &[u8], bytes: u32) -> Option<Self> {
        let (space, rest) = code.split_first()?;
        let (address, rest) = integer(rest)?;
        let (declared, _) = integer(rest)?;
        let ends = address.checked_add(declared)?;
        if declared < bytes.into() || address == 0 {
            return None;
        }
        match space {
            0 => Some(Self::Memory(Region { address, bytes })),
            1 if ends <= 1 << 16 => Some(Self::Ports(u16::try_from(address).ok()?)),
            _ => None,
        }
    }
}

/// What follows the first `part` of `code`.
fn after<'c>(code: &'c [u8], part: &[u8]) -> Option<&'c [u8]> {
    let at = code.windows(part.len()).position(|code| code == part)?;
    code.get(at + part.len()..)
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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn memory(address: u64, bytes: u32) -> Option<Place> {
        Some(Place::Memory(Region { address, bytes }))
    }

    #[test]
    fn slots_are_where_the_board_declares_them() {
        let find = |code: &[u8]| Place::of_slots(&[b"DSDT and before".as_slice(), code].concat());
        let ports = b"\x5b\x80HPMR\x01\x0b\x00\x0a\x0a\x18\x5b";
        assert_eq!(find(ports), Some(Place::Ports(0xa00)));
        // arm64's `virt`, and in a wider form.
        assert_eq!(
            find(b"\x5b\x80HPMR\x00\x0c\0\0\x07\x09\x0a\x18"),
            memory(0x907_0000, 24)
        );
        let wide = b"\x5b\x80HPMR\x00\x0e\0\0\x07\x09\x01\0\0\0\x0b\x18\0";
        assert_eq!(find(wide), memory(0x1_0907_0000, 24));
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
            assert_eq!(Place::of_slots(&wide[..end]), None);
        }
    }

    #[test]
    fn events_are_those_of_the_event_device() {
        let region = b"\x5b\x80EREG\x00\x0c\0\0\x08\x09\x0a\x04";
        let device = [b"\x08_HID\x0dACPI0013\0".as_slice(), region].concat();
        assert_eq!(Place::of_events(&device), memory(0x908_0000, 4));
        // Of another device, or before it.
        assert_eq!(Place::of_events(region), None);
        let before = [region.as_slice(), b"\x0dACPI0013\0"].concat();
        assert_eq!(Place::of_events(&before), None);
        for end in 0..device.len() {
            assert_eq!(Place::of_events(&device[..end]), None);
        }
    }
}
