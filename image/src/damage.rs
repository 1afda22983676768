//! What goes wrong with a hand-over, for tests: [`Damage`].

use crate::words::number;

/// What goes wrong with a hand-over, on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// A bit of the table changes.
    Bit(u32),
    /// Another table is in its place.
    Foreign,
    /// It names the image's own memory.
    Kernel,
    /// It names memory that is not there.
    Absent,
    /// It names more ranges than the next kernel has slots for.
    Many,
    /// It names a node that its memory is not on.
    Node,
    /// The next kernel is told of another restart.
    Stale,
    /// A bit of a guest's memory changes.
    Guest,
}

impl Damage {
    /// What each is called, but for `bit:N`.
    pub(crate) const NAMES: [(&'static [u8], Self); 7] = [
        (b"foreign", Self::Foreign),
        (b"kernel", Self::Kernel),
        (b"absent", Self::Absent),
        (b"many", Self::Many),
        (b"node", Self::Node),
        (b"stale", Self::Stale),
        (b"guest", Self::Guest),
    ];

    /// The damage of this name; `bit:N` has a number.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if let Some(bit) = text.strip_prefix(b"bit:") {
            return number(bit).map(Self::Bit);
        }
        let named = Self::NAMES.iter().find(|(name, _)| *name == text);
        named.map(|(_, damage)| *damage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_damage_has_a_name() {
        for (name, damage) in Damage::NAMES {
            assert_eq!(Damage::parse(name), Some(damage));
        }
        assert_eq!(Damage::parse(b"bit:77"), Some(Damage::Bit(77)));
        for nonsense in [&b"bit:"[..], b"bit:x", b"bit", b"", b"all"] {
            assert_eq!(Damage::parse(nonsense), None);
        }
    }
}
