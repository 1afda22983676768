//! Numbers and tables for people.

use crate::output::HEADING;
pub use firstlight_figures::text::{bytes, count, microseconds, milliseconds, plural};
use std::fmt::Write;

/// The first `most` lines and how many there are besides; a single one besides
/// takes no more room than saying so, and is shown.
#[must_use]
pub fn fold<T>(lines: &[T], most: usize) -> (&[T], usize) {
    let shown = if lines.len() > most.saturating_add(1) {
        most
    } else {
        lines.len()
    };
    (&lines[..shown], lines.len() - shown)
}

/// The first row of a table.
#[must_use]
pub fn head<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(String::from).to_vec()
}

/// Rows of cells as wide as their widest, two spaces apart and in front.
/// Cells hold no styles, so that what is counted is what is seen.
///
/// `columns` has a sign for each, `<` to the left and `>` to the right; the last one is that of
/// all further columns.
#[must_use]
pub fn table(columns: &str, rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let most = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..most).map(width).collect();
    let last = columns.chars().next_back().unwrap_or('<');
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        let signs = columns.chars().chain(std::iter::repeat(last));
        for ((cell, sign), width) in row.iter().zip(signs).zip(&widths) {
            let _ = match sign {
                '>' => write!(line, "  {cell:>width$}"),
                _ => write!(line, "  {cell:<width$}"),
            };
        }
        line.trim_end().into()
    };
    rows.iter().map(line).collect()
}

/// A heading and a table of numbers below it; nothing without rows.
pub fn titled_table(
    page: &mut String,
    name: &str,
    columns: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) {
    let mut cells = vec![columns.iter().map(|column| (*column).to_owned()).collect()];
    cells.extend(rows);
    if cells.len() == 1 {
        return;
    }
    let _ = writeln!(page, "\n{HEADING}{name}{HEADING:#}");
    for line in table(">", &cells) {
        let _ = writeln!(page, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align() {
        let rows = [
            vec!["a".into(), "10".into()],
            vec!["µbc".into(), "9".into(), "x".into()],
        ];
        let lines = table("<><", &rows);
        assert_eq!(lines, ["  a    10", "  µbc   9  x"]);
        assert_eq!(table("<>", &rows), lines);
        assert_eq!(table(">", &rows)[0], "    a  10");
    }
}
