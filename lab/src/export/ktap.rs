//! The kernel's Test Anything Protocol, KTAP version 1, as kselftest and KUnit print it: a
//! subtest a set-up, one test a figure.

use std::fmt::Write;

use super::parts::result_of;
use crate::gate::{Group, Outcome, Verdict};

/// The verdict; what is unclear is no `ok`.
pub(super) fn verdict(verdict: &Verdict) -> String {
    let mut text = format!("KTAP version 1\n1..{}\n", verdict.groups.len() + 1);
    for (number, group) in (1..).zip(&verdict.groups) {
        suite(&mut text, number, group);
    }
    // Writing to a string does not fail.
    for why in verdict.moved.iter().chain(&verdict.unclear) {
        let _ = writeln!(text, "# {}", plain(why));
    }
    let ok = if verdict.verdict == Outcome::Pass {
        "ok"
    } else {
        "not ok"
    };
    let _ = writeln!(
        text,
        "{ok} {} verdict # {}",
        verdict.groups.len() + 1,
        verdict.verdict.name()
    );
    text
}

fn suite(text: &mut String, number: usize, group: &Group) {
    let _ = writeln!(text, "  KTAP version 1\n  1..{}", group.rows.len());
    for (at, row) in (1..).zip(&group.rows) {
        let (ok, more) = match result_of(group, row) {
            "PASS" => ("ok", String::new()),
            "SKIP" => ("ok", format!(" # SKIP {}", row.state.words())),
            _ => ("not ok", String::new()),
        };
        if !row.state.words().is_empty() {
            let _ = writeln!(text, "  # {}", plain(&row.words()));
        }
        let _ = writeln!(text, "  {ok} {at} {}{more}", plain(&row.title()));
    }
    for why in &group.unclear {
        let _ = writeln!(text, "# {}", plain(why));
    }
    let ok = if group.outcome == Outcome::Pass {
        "ok"
    } else {
        "not ok"
    };
    let _ = writeln!(text, "{ok} {number} {}", plain(&group.name));
}

/// A description: a hash would begin a directive.
fn plain(text: &str) -> String {
    let safe = |c: char| if c.is_control() || c == '#' { ' ' } else { c };
    text.chars().map(safe).collect()
}
