//! The time of a whole run, and each cell's part of it: [`Budget`].
//!
//! A cell gets the most that cells may take, as long as a little is left for each later
//! one; so on a busy host the later ones get less, and none gets nothing because others
//! used up all. Cells that are measured in turns get the same.

use super::workers::Limit;

/// Kept for each cell that has not begun, as long as there is as much.
const KEPT_NS: u64 = 200_000_000;

/// The time that is left of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    run: Limit,
    cell_ns: u64,
    /// Cells that have not begun.
    later: u64,
}

impl Budget {
    /// For `cells` cells, from now on.
    pub(super) fn new(run_ms: u64, cell_ms: u64, cells: u64) -> Self {
        Self {
            run: Limit::new(run_ms.saturating_mul(1_000_000)),
            cell_ns: cell_ms.saturating_mul(1_000_000),
            later: cells,
        }
    }

    /// The time for each of `cells` cells that begin now.
    pub(super) fn begin(&mut self, cells: u64) -> u64 {
        self.later = self.later.saturating_sub(cells);
        part(self.left_ns(), self.cell_ns, cells, self.later)
    }

    /// The most time of a cell.
    pub(super) fn cell_ns(&self) -> u64 {
        self.cell_ns
    }

    /// The time left to the run.
    pub(super) fn left_ns(&self) -> u64 {
        self.run.left_ns()
    }

    /// The time limit of the run.
    pub(super) fn run(&self) -> Limit {
        self.run
    }
}

/// The part of `left_ns` for each of `cells` when `later` more come after them.
fn part(left_ns: u64, cell_ns: u64, cells: u64, later: u64) -> u64 {
    let each = left_ns / cells.saturating_add(later).max(1);
    let kept = KEPT_NS.min(each).saturating_mul(later);
    (left_ns.saturating_sub(kept) / cells.max(1)).min(cell_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn later_cells_get_the_rest_and_none_gets_nothing() {
        for (left_ms, cells, later, expected_ms) in [
            (220_000, 8, 170, 1700),
            // 170 cells keep 34 s.
            (40_000, 8, 170, 750),
            (35_600, 8, 170, 200),
            // One that counts for ten, before fifty more.
            (14_000, 10, 50, 400),
            // Too little for all: the same for each.
            (17_800, 8, 170, 100),
            (1_000, 1, 0, 1000),
            (0, 8, 170, 0),
            (5_000, 0, 0, 1700),
        ] {
            let got = part(left_ms * MS, 1700 * MS, cells, later);
            assert_eq!(got, expected_ms * MS, "{left_ms} ms, {cells} of {later}");
        }
    }

    #[test]
    fn all_parts_together_are_at_most_the_whole() {
        for left_ms in [1, 100, 30_000, 100_000, 220_000] {
            let (mut left, mut later) = (left_ms * MS, 180);
            while later > 0 {
                let cells = 8.min(later);
                later -= cells;
                let each = part(left, 1700 * MS, cells, later);
                assert!(each > 0 || left < 180, "{left_ms} ms, {later} later");
                left = left.checked_sub(each * cells).expect("as much is there");
            }
        }
    }
}
