//! The page a report is written on: lines, sections, tables.

use crate::output::{FAINT, HEADING};
use crate::text::{self};
use anstyle::Style;
use std::fmt::Write;

/// A report as far as it is written.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    pub(crate) fn styled(&mut self, style: Style, line: &str) {
        let _ = writeln!(self.text, "{style}{line}{style:#}");
    }

    pub(crate) fn section(&mut self, name: &str, aside: &str) {
        let gap = if aside.is_empty() { "" } else { "  " };
        let _ = writeln!(
            self.text,
            "\n{HEADING}{name}{HEADING:#}{gap}{FAINT}{aside}{FAINT:#}"
        );
    }

    pub(crate) fn table(&mut self, columns: &str, rows: &[Vec<String>]) {
        for line in text::table(columns, rows) {
            self.line(line);
        }
    }

    pub(crate) fn more(&mut self, hidden: usize) {
        if hidden > 0 {
            self.styled(FAINT, &format!("  ... and {hidden} more (--full)"));
        }
    }
}
