//! What several forms need: [`Unwritable`], a figure as a test.

use crate::gate::{Group, Judged, Outcome, State};

/// Text that a form cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the document cannot be written: {0}")]
pub struct Unwritable(pub(super) String);

/// What a figure is as a test: figures that decide fail where their set-up does, and do not pass
/// where that is unclear; the others explain.
pub(super) fn result_of(group: &Group, row: &Judged) -> &'static str {
    match row.state {
        State::Regressed if row.decides && group.outcome == Outcome::Regressed => "FAIL",
        State::Regressed | State::Unconfirmed => "SKIP",
        _ if row.decides && group.outcome == Outcome::Unclear => "SKIP",
        State::Same | State::Improved | State::Refuted => "PASS",
    }
}

/// A name as part of a test's path: letters, digits, dashes and underscores.
pub(super) fn path_part(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    name.chars().map(plain).collect()
}
