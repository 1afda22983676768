//! For whom something is done.

use crate::protocol::GrantId;

/// Who connections, time, and descriptors that are closed count for. The number of a process does not say: its user may
/// be the owner of the range that it is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// A user, with all numbers of its range.
    User(u32),
    /// A grant, with all that come by its socket.
    Grant(GrantId),
    /// The daemon itself, or strangers together.
    #[default]
    Nobody,
}

impl Whose {
    /// The first of all, as they are ordered.
    pub const FIRST: Self = Self::User(0);

    /// The last.
    pub const LAST: Self = Self::Nobody;

    /// The grant, where it is one.
    #[must_use]
    pub fn grant(self) -> Option<GrantId> {
        match self {
            Self::Grant(id) => Some(id),
            Self::User(_) | Self::Nobody => None,
        }
    }
}
