//! Numbers and tables for people.

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

/// How a column is set.
#[derive(Debug, Clone, Copy)]
pub enum Align {
    /// To the left.
    Left,
    /// To the right.
    Right,
}

/// Rows of cells as wide as their widest, two spaces apart and in front.
/// Cells hold no styles, so that what is counted is what is seen.
#[must_use]
pub fn table(columns: &[Align], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for ((cell, align), width) in row.iter().zip(columns).zip(&widths) {
            let _ = match align {
                Align::Left => write!(line, "  {cell:<width$}"),
                Align::Right => write!(line, "  {cell:>width$}"),
            };
        }
        line.trim_end().into()
    };
    rows.iter().map(line).collect()
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
        let lines = table(&[Align::Left, Align::Right, Align::Left], &rows);
        assert_eq!(lines, ["  a    10", "  µbc   9  x"]);
    }
}
