//! Annotations of a job on GitHub, as workflow commands.

use std::fmt::Write;

use crate::gate::{Outcome, Verdict};

/// An error for each thing that is slower, a warning for each reason why it is unclear.
pub(super) fn verdict(verdict: &Verdict) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for moved in &verdict.moved {
        let _ = writeln!(text, "::error title=Boot is slower::{}", data(moved));
    }
    for why in &verdict.unclear {
        let _ = writeln!(text, "::warning title=Boot time is unclear::{}", data(why));
    }
    if verdict.verdict == Outcome::Pass {
        let _ = writeln!(text, "::notice title=Boot time::no slower");
    }
    text
}

/// What may stand behind a command: a line end would begin another one.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_s_line_begins_no_command() {
        assert_eq!(data("5 %\n::set-env"), "5 %25%0A::set-env");
    }
}
