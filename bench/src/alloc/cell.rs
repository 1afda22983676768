//! One contestant's figures of one task: [`Cell`], filled in several turns.

use super::contestant::Contestant;
use super::task::Task;
use super::workers::Part;

/// Turns of each contestant, so that noise affects all alike.
pub(super) const TURNS: usize = 3;
/// Complete rounds below which a cell counts as cut short.
const FEWEST_ROUNDS: usize = 2;

/// One round's figures, in nanoseconds an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Round {
    pub(super) ns: f64,
    /// Of bulk: a block allocated, a block freed.
    pub(super) halves: Option<(f64, f64)>,
}

/// The measurements so far.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) contestant: Contestant,
    pub(super) task: Task,
    pub(super) rounds: Vec<Round>,
    /// Rounds over untouched tables; of bulk only.
    pub(super) cold: Vec<Round>,
    /// Requests that were refused.
    pub(super) refused: u64,
    /// The most so far.
    pub(super) touched_bytes: u64,
    /// The time was up before all was done.
    incomplete: bool,
    pub(super) spent_ns: u64,
    longest_turn_ns: u64,
}

impl Cell {
    pub(super) fn new(contestant: Contestant, task: Task) -> Self {
        Self {
            contestant,
            task,
            rounds: Vec::new(),
            cold: Vec::new(),
            refused: 0,
            touched_bytes: 0,
            incomplete: false,
            spent_ns: 0,
            longest_turn_ns: 0,
        }
    }

    /// The part of `budget_ns` for the next turn; `None` if another would not fit.
    pub(super) fn next_turn_ns(&self, budget_ns: u64) -> Option<u64> {
        let left = budget_ns.saturating_sub(self.spent_ns);
        (left > self.longest_turn_ns && !self.incomplete).then_some(left)
    }

    /// A turn is over.
    pub(super) fn spend(&mut self, ns: u64) {
        self.spent_ns += ns;
        self.longest_turn_ns = self.longest_turn_ns.max(ns);
    }

    /// Marks that time ran out.
    pub(super) fn cut(&mut self) {
        self.incomplete = true;
    }

    /// Whether less was done than planned.
    pub(super) fn is_cut_short(&self) -> bool {
        self.incomplete || self.rounds.len() < FEWEST_ROUNDS
    }

    /// Adds a round of `planned` operations; whether all of it was done.
    pub(super) fn add(&mut self, part: Part, planned: usize) -> bool {
        if let Some(ns) = part.ns_per_operation() {
            self.rounds.push(Round { ns, halves: None });
        }
        self.incomplete |= part.operations < planned;
        part.operations >= planned
    }

    /// Adds a round of bulk; whether all of it was done.
    pub(super) fn add_bulk(
        &mut self,
        filled: Part,
        freed: Part,
        planned: usize,
        cold: bool,
    ) -> bool {
        let halves = filled.ns_per_operation().zip(freed.ns_per_operation());
        if let Some((allocate, free)) = halves {
            let rounds = if cold {
                &mut self.cold
            } else {
                &mut self.rounds
            };
            rounds.push(Round {
                ns: allocate + free,
                halves,
            });
        }
        let whole = filled.operations >= planned && freed.operations >= planned;
        self.incomplete |= !whole;
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::task::Workload;

    fn cell() -> Cell {
        let task = Task::of(Workload::Bulk, 1)[0];
        Cell::new(Contestant::Lifo, task)
    }

    fn part(operations: usize, cpu_ns: u64) -> Part {
        Part { operations, cpu_ns }
    }

    #[test]
    fn an_unfinished_cell_is_cut_short() {
        let mut cell = cell();
        assert!(cell.is_cut_short(), "nothing yet");
        assert!(cell.add(part(100, 500), 100));
        assert!(cell.is_cut_short(), "one round shows no noise");
        assert!(cell.add(part(100, 500), 100));
        assert!(!cell.is_cut_short());
        assert!(!cell.add(part(99, 500), 100));
        assert!(cell.is_cut_short());
        assert_eq!(cell.rounds.len(), 3);
        assert_eq!(cell.next_turn_ns(1_000), None, "no more turns then");
    }

    #[test]
    fn cold_rounds_are_kept_apart() {
        let mut cell = cell();
        assert!(cell.add_bulk(part(10, 100), part(10, 50), 10, true));
        assert!(!cell.add_bulk(part(10, 100), part(5, 50), 10, false));
        assert_eq!((cell.cold[0].ns, cell.rounds[0].ns), (15.0, 20.0));
        assert!(!cell.add_bulk(part(10, 100), part(0, 50), 10, false));
        assert_eq!(cell.rounds.len(), 1, "nothing freed is no figure");
    }

    #[test]
    fn turns_end_with_the_budget() {
        let mut cell = cell();
        assert_eq!(cell.next_turn_ns(1_000), Some(1_000));
        cell.spend(400);
        assert_eq!(cell.next_turn_ns(1_000), Some(600));
        cell.spend(300);
        assert_eq!(
            cell.next_turn_ns(1_000),
            None,
            "300 left, a turn may take 400"
        );
    }
}
