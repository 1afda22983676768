//! Whether the allocator has memory: [`BlockState`].

use core::fmt;

/// Whether memory is in use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum BlockState {
    /// The allocator has it.
    #[default]
    Online,
    /// It is there, and the allocator does not have it.
    Offline,
}

impl BlockState {
    /// As Linux spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Offline => "offline",
        }
    }
}

impl fmt::Display for BlockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
