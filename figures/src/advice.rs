//! What to do about a file that cannot be read: [`Advised`].

use std::fmt;
use std::io::{self, ErrorKind};

/// What the system says of a file, and what to do about it where that is known.
///
/// ```
/// use firstlight_figures::advice::Advised;
/// let error = std::fs::read("/nowhere").unwrap_err();
/// assert!(Advised(&error).to_string().ends_with("; expected the name of a file that is there"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Advised<'e>(pub &'e io::Error);

impl fmt::Display for Advised<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(error) = self;
        let advice = match error.kind() {
            ErrorKind::NotFound => "expected the name of a file that is there",
            ErrorKind::NotADirectory => "a part of this name is a file; expected a folder",
            ErrorKind::IsADirectory => "expected a file, not a folder",
            ErrorKind::PermissionDenied => "expected a file of this user; root may use any (sudo)",
            _ => return write!(f, "{error}"),
        };
        write!(f, "{error}; {advice}")
    }
}
