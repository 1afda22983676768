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
    #[cfg(feature = "movable")]
    Movable = 1,
}

/// How many mobilities are kept apart.
pub(crate) const MOBILITIES: usize = Mobility::ALL.len();

impl Mobility {
    /// Both; without the feature `movable`, all content is unmovable.
    #[cfg(feature = "movable")]
    pub const ALL: [Self; 2] = [Self::Unmovable, Self::Movable];
    /// Without the feature `movable` all content is unmovable.
    #[cfg(not(feature = "movable"))]
    pub const ALL: [Self; 1] = [Self::Unmovable];

    /// The other one, if there are two.
    pub(crate) const fn other(self) -> Option<Self> {
        match self {
            #[cfg(feature = "movable")]
            Self::Unmovable => Some(Self::Movable),
            #[cfg(feature = "movable")]
            Self::Movable => Some(Self::Unmovable),
            #[cfg(not(feature = "movable"))]
            Self::Unmovable => None,
        }
    }

    /// That of content that can be moved, as far as it is kept apart.
    #[inline]
    pub(crate) const fn of_content(can_be_moved: bool) -> Self {
        #[cfg(feature = "movable")]
        if can_be_moved {
            return Self::Movable;
        }
        let _ = can_be_moved;
        Self::Unmovable
    }

    /// Whether content can be moved.
    #[inline]
    pub(crate) const fn is_movable(self) -> bool {
        self as u8 != 0
    }
}
