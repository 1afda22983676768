//! A verdict for continuous integration, in the form that JUnit made common.

use std::fmt::Write;

use super::{State, Verdict};

impl Verdict {
    /// One suite a machine, one case a figure; what is slower is a failure.
    #[must_use]
    pub fn junit(&self) -> String {
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let cases: usize = self.groups.iter().map(|group| group.rows.len()).sum();
        let states = self.groups.iter().flat_map(|group| &group.rows);
        let failures = states.filter(|row| row.state == State::Regressed).count();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "<testsuites name=\"firstlight gate\" tests=\"{cases}\" failures=\"{failures}\">"
        );
        for group in &self.groups {
            let gib = group.memory_bytes.map_or(0, |bytes| bytes >> 20);
            let failures = group
                .rows
                .iter()
                .filter(|row| row.state == State::Regressed);
            let _ = writeln!(
                text,
                "  <testsuite name=\"{gib} MiB\" tests=\"{}\" failures=\"{}\">",
                group.rows.len(),
                failures.count()
            );
            for row in &group.rows {
                let _ = write!(
                    text,
                    "    <testcase classname=\"{gib} MiB\" name=\"{}\" time=\"{:.6}\"",
                    escaped(&row.name),
                    row.b_ns / 1e9
                );
                match row.state {
                    State::Regressed => {
                        let words = escaped(&row.words());
                        let _ = writeln!(text, "><failure message=\"{words}\"/></testcase>");
                    }
                    State::Unconfirmed => {
                        let words = escaped(&row.words());
                        let _ = writeln!(
                            text,
                            "><skipped message=\"unconfirmed: {words}\"/></testcase>"
                        );
                    }
                    State::Same | State::Improved => text.push_str("/>\n"),
                }
            }
            text.push_str("  </testsuite>\n");
        }
        text.push_str("</testsuites>\n");
        text
    }
}

/// What XML has in attributes: a guest's lines are in some of the names.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_kind_are_attributes() {
        assert_eq!(escaped("a<b>&\"\u{1}\u{ffff}é"), "a&lt;b&gt;&amp;&quot;  é");
    }
}
