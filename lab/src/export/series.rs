//! Figures of set-ups, one after the other, for the forms that keep them over time.

use crate::compare::{Spread, TOTAL};
use crate::report::{Report, Setup};

/// A figure of a set-up.
pub(super) struct Figure<'r> {
    pub(super) setup: &'r Setup,
    pub(super) name: &'r str,
    pub(super) took: &'r Spread,
}

/// The whole boot and every phase of each set-up.
pub(super) fn figures(report: &Report) -> Vec<Figure<'_>> {
    let mut figures = Vec::new();
    for setup in &report.setups {
        let total = setup.total.iter().map(|took| (TOTAL, took));
        let phases = setup.phases.iter().map(|phase| (&*phase.name, &phase.took));
        figures.extend(
            total
                .chain(phases)
                .map(|(name, took)| Figure { setup, name, took }),
        );
    }
    figures
}
