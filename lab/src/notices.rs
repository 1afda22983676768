//! Remarks for a person, of which a hostile log can cause any number: [`Notices`].

use std::fmt::Display;

/// Remarks in the order they were made; the first [`Notices::MOST`] are kept,
/// the others are counted.
///
/// ```
/// use firstlight_lab::notices::Notices;
/// let mut notices = Notices::default();
/// for row in 0..Notices::MOST + 2 {
///     notices.push(format_args!("row {row} is wrong"));
/// }
/// let list = notices.into_list();
/// assert_eq!(list[1], "row 1 is wrong");
/// assert_eq!(list[Notices::MOST..], ["and 2 more"]);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notices {
    list: Vec<String>,
    more: u64,
}

impl Notices {
    /// Most remarks kept.
    pub const MOST: usize = 1000;

    /// Adds a remark.
    pub fn push(&mut self, notice: impl Display) {
        if self.list.len() < Self::MOST {
            self.list.push(notice.to_string());
        } else {
            self.more_by(1);
        }
    }

    /// Counts `count` remarks that nobody kept.
    pub fn more_by(&mut self, count: u64) {
        self.more = self.more.saturating_add(count);
    }

    /// The remarks, and last how many there are besides, if there are any.
    #[must_use]
    pub fn into_list(mut self) -> Vec<String> {
        if self.more > 0 {
            self.list.push(format!("and {} more", self.more));
        }
        self.list
    }
}
