//! From where moments and the whole boot count: [`Base`].
//!
//! Runs that count from power-on have it in common. A kernel's own clock begins where it
//! likes: runs whose clocks begin at different lines have the start of a phase in common.

use crate::record::From;
use crate::run::Run;

/// What is zero, for all runs of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// Power-on.
    Start,
    /// The kernel's entry, of runs that count from power-on on the instruction clock: firmware
    /// has its phase, and would hide what is small beside it.
    Counted,
    /// The kernel's entry, or where its own clock begins, at the same line in all runs.
    Entry,
    /// The start of this phase.
    Phase(String),
    /// Nothing: no moment can stand beside another.
    Nowhere,
}

impl Base {
    /// What `runs` have in common.
    pub(super) fn of(runs: &[Run]) -> Self {
        let clocks = || {
            let runs = runs.iter();
            runs.filter(|run| run.time_base().from == From::Clock)
        };
        let Some(first) = clocks().next() else {
            let counted = runs.iter().all(|run| run.clock == "instructions");
            let heard = |run: &Run| run.time_base().from == From::HostClock;
            return match counted {
                true => Self::Counted,
                false if runs.iter().any(heard) => Self::Entry,
                false => Self::Start,
            };
        };
        let begins_at = first.time_base().begins_at;
        if clocks().all(|run| run.time_base().begins_at == begins_at) {
            return Self::Entry;
        }
        let names = first.phase_names().into_iter();
        let mut common = names.filter(|name| {
            let has = |run: &Run| run.phase_names().contains(name);
            clocks().all(|run| has(run) && run.spent_ns(name).is_some())
        });
        match common.next() {
            Some(name) => Self::Phase(name.to_owned()),
            None => Self::Nowhere,
        }
    }

    /// Zero, on the clock of `run`.
    pub(super) fn zero_ns(&self, run: &Run) -> Option<u64> {
        match self {
            Self::Start => Some(0),
            Self::Entry if run.time_base().from == From::HostClock => run.entry_ns(),
            Self::Counted | Self::Entry => Some(run.entry_ns().unwrap_or(0)),
            Self::Phase(name) => {
                let mut phases = run.phases.iter();
                phases
                    .find(|phase| phase.name == *name)
                    .map(|phase| phase.start_ns)
            }
            Self::Nowhere => None,
        }
    }

    /// The whole boot from zero on.
    pub(super) fn total_ns(&self, run: &Run) -> Option<u64> {
        let end = run.phases.iter().map(|phase| phase.end_ns).max();
        match self {
            Self::Entry if run.time_base().from == From::Clock => run.total_ns(),
            Self::Start | Self::Counted => run.total_ns(),
            _ => end?.checked_sub(self.zero_ns(run)?).filter(|ns| *ns > 0),
        }
    }

    /// In words, behind "counted from".
    pub(super) fn words(&self) -> String {
        match self {
            Self::Start => "power-on".into(),
            Self::Counted => "the kernel's entry, the whole boot from power-on".into(),
            Self::Entry => "the kernel's entry, or where its own clock begins".into(),
            Self::Phase(name) => format!("the start of {name}: clocks begin at different lines"),
            Self::Nowhere => {
                "nowhere: clocks begin at different lines, and no phase that all have is after them"
                    .into()
            }
        }
    }
}
