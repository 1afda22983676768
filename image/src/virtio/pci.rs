//! Devices on PCI: finding a function, [`find`], and where its capabilities put its
//! registers, [`Places`].

use super::VirtioError;

/// The vendor of all virtio devices.
const VENDOR: u16 = 0x1af4;
/// What a modern device adds to the number of its kind.
const MODERN: u16 = 0x1040;
/// Numbers of devices that are also old ones, and their kinds.
const TRANSITIONAL: [(u16, u32); 6] = [
    (0x1000, 1),
    (0x1001, 2),
    (0x1002, 5),
    (0x1003, 3),
    (0x1004, 8),
    (0x1005, 4),
];

/// Offsets in a function's configuration space.
mod at {
    pub(super) const ID: u8 = 0x00;
    pub(super) const COMMAND: u8 = 0x04;
    pub(super) const HEADER: u8 = 0x0c;
    pub(super) const BARS: u8 = 0x10;
    pub(super) const BUSES: u8 = 0x18;
    pub(super) const CAPABILITIES: u8 = 0x34;
    /// First place of a capability.
    pub(super) const FIRST: u8 = 0x40;
}

/// In the status, which is the upper half of the word at [`at::COMMAND`]: there are
/// capabilities.
const HAS_CAPABILITIES: u32 = 1 << 20;
/// Commands: answer at the addresses of its memory, use memory itself, no interrupts.
const MEMORY: u32 = 1 << 1;
const MASTER: u32 = 1 << 2;
const NO_INTERRUPTS: u32 = 1 << 10;
/// The upper half, which is cleared by writing ones.
const COMMANDS: u32 = 0xffff;
/// Most capabilities that fit the space.
const MOST_CAPABILITIES: usize = 48;
/// A capability of the vendor's own.
const VENDOR_CAPABILITY: u32 = 9;

/// A function of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Function {
    /// Its bus.
    pub bus: u8,
    /// Its device, 0 to 31.
    pub device: u8,
    /// Its number, 0 to 7.
    pub function: u8,
}

/// The configuration space of all functions. What is not there reads as all ones.
pub trait ConfigSpace {
    /// The word at a multiple of 4.
    fn read(&self, function: Function, at: u8) -> u32;
    /// Writes it.
    fn write(&mut self, function: Function, at: u8, value: u32);
}

/// Memory of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its physical address.
    pub address: u64,
    /// Its size.
    pub bytes: u32,
}

/// Where the registers of a virtio device are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// The kind of the device.
    pub kind: u32,
    /// Common registers.
    pub common: Region,
    /// Notifications.
    pub notify: Region,
    /// Bytes from one queue's place for notifications to the next.
    pub notify_multiplier: u32,
    /// The device's configuration, if it has one.
    pub config: Option<Region>,
}

/// The first virtio device of `kind`, if there is one: bus 0, and every bus behind a bridge.
pub fn find(space: &impl ConfigSpace, kind: u32) -> Option<Function> {
    nth(space, kind, 0)
}

/// The virtio device of `kind` that comes after `before` others.
pub fn nth(space: &impl ConfigSpace, kind: u32, mut before: usize) -> Option<Function> {
    let mut known = [false; 256];
    known[0] = true;
    // A bus is found at most once, in ascending order or behind a bridge met later.
    let mut searched = [false; 256];
    while let Some(bus) = (0..256).find(|&bus| known[bus] && !searched[bus]) {
        searched[bus] = true;
        for device in 0..32 {
            for function in 0..8 {
                let at = Function {
                    bus: u8::try_from(bus).unwrap_or(0),
                    device,
                    function,
                };
                let id = space.read(at, at::ID);
                if id == u32::MAX {
                    if function == 0 {
                        break;
                    }
                    continue;
                }
                if kind_of(id) == Some(kind) {
                    if before == 0 {
                        return Some(at);
                    }
                    before -= 1;
                }
                let [_, _, header, _] = space.read(at, at::HEADER).to_le_bytes();
                if header & 0x7f == 1 {
                    let [_, secondary, ..] = space.read(at, at::BUSES).to_le_bytes();
                    known[usize::from(secondary)] = true;
                }
                if function == 0 && header & 0x80 == 0 {
                    break;
                }
            }
        }
    }
    None
}

/// The kind of virtio device with this vendor and number.
fn kind_of(id: u32) -> Option<u32> {
    let [a, b, c, d] = id.to_le_bytes();
    let (vendor, device) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
    if vendor != VENDOR {
        return None;
    }
    let transitional = TRANSITIONAL.iter().find(|(id, _)| *id == device);
    match transitional {
        Some((_, kind)) => Some(*kind),
        None => device
            .checked_sub(MODERN)
            .filter(|kind| *kind < 64)
            .map(u32::from),
    }
}

impl Places {
    /// Reads a function's capabilities, and lets it answer there, and use memory.
    ///
    /// # Errors
    /// [`VirtioError`] if a part is missing or lies outside the memory of its BAR.
    pub fn read(space: &mut impl ConfigSpace, function: Function) -> Result<Self, VirtioError> {
        let id = space.read(function, at::ID);
        let kind = kind_of(id).ok_or(VirtioError::NoDevice { seen: id })?;
        let mut parts = [None; 4];
        let mut notify_multiplier = 0;
        for at in capabilities(space, function) {
            let [name, _, bytes, part] = space.read(function, at).to_le_bytes();
            let space_left = u8::MAX - at;
            // 1 common, 2 notifications, 3 interrupts, 4 configuration.
            let Some(slot) = usize::from(part)
                .checked_sub(1)
                .and_then(|part| parts.get_mut(part))
            else {
                continue;
            };
            // The first of each is meant; the others are alternatives.
            if u32::from(name) != VENDOR_CAPABILITY
                || bytes < 16
                || space_left < 15
                || slot.is_some()
            {
                continue;
            }
            if part == 2 {
                if bytes < 20 || space_left < 19 {
                    continue;
                }
                notify_multiplier = space.read(function, at + 16);
            }
            let [bar, ..] = space.read(function, at + 4).to_le_bytes();
            let offset = space.read(function, at + 8);
            let length = space.read(function, at + 12);
            *slot = Some((bar, offset, length));
        }
        const NAMES: [&str; 4] = [
            "common registers",
            "place for notifications",
            "interrupt status",
            "configuration",
        ];
        let mut region = |part: usize| match (parts[part], NAMES[part]) {
            (Some(place), what) => region(space, function, what, place),
            (None, what) => Err(VirtioError::Missing { what }),
        };
        let places = Self {
            kind,
            common: region(0)?,
            notify: region(1)?,
            notify_multiplier,
            config: match region(3) {
                Ok(region) => Some(region),
                Err(VirtioError::Missing { .. }) => None,
                Err(error) => return Err(error),
            },
        };
        let commands = space.read(function, at::COMMAND) & COMMANDS;
        let commands = commands | MEMORY | MASTER | NO_INTERRUPTS;
        space.write(function, at::COMMAND, commands);
        Ok(places)
    }
}

/// The offsets of a function's capabilities, each once.
fn capabilities(space: &impl ConfigSpace, function: Function) -> impl Iterator<Item = u8> {
    let has_some = space.read(function, at::COMMAND) & HAS_CAPABILITIES != 0;
    let pointer = move |at: u8, byte: usize| {
        let next = space.read(function, at).to_le_bytes()[byte] & !3;
        (next >= at::FIRST).then_some(next)
    };
    let first = has_some.then(|| pointer(at::CAPABILITIES, 0)).flatten();
    // A list that runs in a circle ends, too.
    core::iter::successors(first, move |at| pointer(*at, 1)).take(MOST_CAPABILITIES)
}

/// The region of `length` bytes from `offset` on of a BAR.
fn region(
    space: &mut impl ConfigSpace,
    function: Function,
    what: &'static str,
    (bar, offset, length): (u8, u32, u32),
) -> Result<Region, VirtioError> {
    let missing = VirtioError::Missing { what };
    if bar > 5 {
        return Err(missing);
    }
    let at = at::BARS + 4 * bar;
    let low = space.read(function, at);
    let wide = low & 0b110 == 0b100;
    // Ports are not used, and the last BAR has no upper half.
    if low & 1 != 0 || (wide && bar == 5) {
        return Err(missing);
    }
    let high = if wide {
        space.read(function, at + 4)
    } else {
        0
    };
    let address = u64::from(high) << 32 | u64::from(low & !0xf);
    let limit = size(space, function, at, [low, high], wide);
    let end = u64::from(offset) + u64::from(length);
    let ends = address.checked_add(end);
    if end > limit || ends.is_none() || !offset.is_multiple_of(4) {
        return Err(VirtioError::Outside {
            what,
            offset: offset.into(),
            bytes: length.into(),
            limit,
        });
    }
    if address == 0 {
        return Err(missing);
    }
    Ok(Region {
        address: address + u64::from(offset),
        bytes: length,
    })
}

/// The size of a BAR that holds `value`: the device shows it when ones are written, while it
/// does not answer.
fn size(
    space: &mut impl ConfigSpace,
    function: Function,
    at: u8,
    value: [u32; 2],
    wide: bool,
) -> u64 {
    let commands = space.read(function, at::COMMAND) & COMMANDS;
    space.write(function, at::COMMAND, commands & !MEMORY);
    let mut half = |at, value| {
        space.write(function, at, u32::MAX);
        let mask = space.read(function, at);
        space.write(function, at, value);
        mask
    };
    let low = half(at, value[0]) & !0xf;
    let high = if wide {
        half(at + 4, value[1])
    } else {
        u32::MAX
    };
    space.write(function, at::COMMAND, commands);
    match u64::from(high) << 32 | u64::from(low) {
        // No bit can be written: there is no memory.
        0 => 0,
        mask => (!mask).wrapping_add(1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::PciFunctions;
    use super::*;

    const BALLOON: Function = Function {
        bus: 2,
        device: 7,
        function: 1,
    };

    #[test]
    fn a_device_is_found_behind_bridges() {
        let mut space = PciFunctions::default();
        space.add_bridge(0, 3, 9);
        space.add_bridge(9, 0, 2);
        // A circle ends.
        space.add_bridge(2, 1, 0);
        space.add(
            Function {
                function: 0,
                ..BALLOON
            },
            0x1234_8086,
            0x80,
        );
        assert_eq!(find(&space, 5), None);
        space.add_balloon(BALLOON);
        assert_eq!(find(&space, 5), Some(BALLOON));
        assert_eq!(find(&space, 4), None);
        let second = Function {
            device: 8,
            function: 0,
            ..BALLOON
        };
        space.add_balloon(second);
        let found = [0, 1, 2].map(|before| nth(&space, 5, before));
        assert_eq!(found, [Some(BALLOON), Some(second), None]);
    }

    #[test]
    fn places_are_those_of_the_capabilities() {
        let mut space = PciFunctions::default();
        space.add_balloon(BALLOON);
        let places = Places::read(&mut space, BALLOON).unwrap();
        let region = |address, bytes| Region { address, bytes };
        assert_eq!(
            places,
            Places {
                kind: 5,
                common: region(0x8_fe00_0000, 0x1000),
                notify: region(0x8_fe00_3000, 0x1000),
                notify_multiplier: 4,
                config: Some(region(0x8_fe00_2000, 0x1000)),
            }
        );
        let commands = space.read(BALLOON, at::COMMAND) & COMMANDS;
        assert_eq!(commands, MEMORY | MASTER | NO_INTERRUPTS);
        // Sizing leaves the BAR as it was.
        assert_eq!(space.read(BALLOON, at::BARS + 16), 0xfe00_000c);
    }

    #[test]
    fn lies_of_capabilities_are_errors() {
        // Offset and value of a byte of the configuration space, and the error's part.
        let common = usize::from(PciFunctions::COMMON);
        for (what, lies) in [
            // A BAR that there is not, or that is ports, or has no upper half.
            ("common registers", &[(common + 4, 6)][..]),
            ("common registers", &[(0x20, 0x01)]),
            ("common registers", &[(common + 4, 5), (0x24, 0x04)]),
            // A length and an offset beyond the BAR, alone and together beyond 32 bits.
            ("common registers", &[(common + 14, 1)]),
            (
                "common registers",
                &[(common + 11, 0xff), (common + 15, 0xff)],
            ),
            ("common registers", &[(common + 8, 1)]),
            // A capability that is too short to have the parts that count.
            ("common registers", &[(common + 2, 15)]),
            ("place for notifications", &[(common + 16 + 2, 19)]),
            // A list that ends early, runs in a circle, or leads out of the space.
            ("common registers", &[(0x34, 0)]),
            (
                "place for notifications",
                &[(common + 1, PciFunctions::COMMON)],
            ),
            (
                "common registers",
                &[(0x34, 0xfc), (0xfc, 9), (0xfe, 16), (0xff, 1)],
            ),
        ] {
            let mut space = PciFunctions::default();
            space.add_balloon(BALLOON);
            for (at, value) in lies {
                space.poke(BALLOON, *at, *value);
            }
            let error = Places::read(&mut space, BALLOON).unwrap_err();
            let named = match error {
                VirtioError::Missing { what } | VirtioError::Outside { what, .. } => what,
                other => panic!("{lies:?}: {other}"),
            };
            assert_eq!(named, what, "{lies:?}");
        }
        let mut space = PciFunctions::default();
        let seen = u32::MAX;
        let nothing = Places::read(&mut space, BALLOON);
        assert_eq!(nothing, Err(VirtioError::NoDevice { seen }));
    }
}
