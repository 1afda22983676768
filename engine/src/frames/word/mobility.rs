//! Whether the content of a block can be moved: [`Mobility`].

/// Whether the content of a block can be moved elsewhere.
///
/// One unmovable page keeps its huge frame from ever being free as a whole. So the
/// allocator keeps the two apart: they share a huge frame only when there is no
/// other choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mobility {
    /// It stays where it is until it is freed: what a kernel points at.
    #[default]
    Unmovable = 0,
    /// It can be copied to another place: what only page tables point at.
    Movable = 1,
}

impl Mobility {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Unmovable, Self::Movable];

    /// The other one.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Unmovable => Self::Movable,
            Self::Movable => Self::Unmovable,
        }
    }
}
