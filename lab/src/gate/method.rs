//! What counts as moved: [`Method`].

use serde::Serialize;

use firstlight_figures::spread::median;

/// What counts as moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Method {
    /// Largest probability of a chance, on the wall clock.
    pub alpha: f64,
    /// Largest probability of a chance for the runs that confirm it.
    pub confirm_alpha: f64,
    /// Least change of the median in hundredths.
    pub effect_percent: f64,
    /// Least change of the median in nanoseconds.
    pub least_ns: u64,
    /// Least runs a side.
    pub least_runs: usize,
}

impl Method {
    /// For the wall clock.
    pub const WALL: Self = Self {
        alpha: 0.01,
        confirm_alpha: 0.05,
        effect_percent: 5.0,
        least_ns: 1_000_000,
        least_runs: 10,
    };

    /// For the clock that is the same from run to run.
    pub const INSTRUCTIONS: Self = Self {
        alpha: 1.0,
        confirm_alpha: 1.0,
        effect_percent: 0.1,
        least_ns: 1,
        least_runs: 1,
    };

    /// Runs a side that show a change of 18.9 % in 19 of 20 trials, where figures spread as
    /// these do; `docs/gate.md` has where the factor is from.
    #[must_use]
    pub fn runs_needed(&self, figures: &[&[u64]]) -> usize {
        const MOST_RUNS: usize = 200;
        const FACTOR: f64 = 100.0;
        const CHANGE: f64 = 0.17;
        let spreads = figures.iter().filter_map(|ns| relative_spread(&floats(ns)));
        let spread = spreads.fold(0.0, f64::max);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bounded below and above"
        )]
        let runs = (FACTOR * (spread / CHANGE).powi(2)).ceil().min(1e6) as usize;
        runs.clamp(self.least_runs, MOST_RUNS.max(self.least_runs))
    }

    /// For the clock of this name.
    #[must_use]
    pub fn of(clock: &str) -> Self {
        match clock {
            "instructions" => Self::INSTRUCTIONS,
            _ => Self::WALL,
        }
    }

    /// This method with other bounds, where they are given.
    #[must_use]
    pub fn with(self, bounds: Bounds) -> Self {
        Self {
            effect_percent: bounds.percent.unwrap_or(self.effect_percent),
            least_ns: bounds.least_ns.unwrap_or(self.least_ns),
            ..self
        }
    }
}

/// Bounds that an operator sets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Least change of the median in hundredths.
    pub percent: Option<f64>,
    /// Least change of the median in nanoseconds.
    pub least_ns: Option<u64>,
}

/// How far figures spread beside their median: the distance between their quartiles, as the
/// standard deviation of a normal distribution with these.
fn relative_spread(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    let middle = median(&mut sorted)?;
    let quarter = sorted.len() / 4;
    let low = sorted.get(quarter)?;
    let high = sorted.get(sorted.len().checked_sub(quarter + 1)?)?;
    (middle > 0.0).then(|| (high - low) / 1.349 / middle)
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a boot")]
pub(super) fn floats(ns: &[u64]) -> Vec<f64> {
    ns.iter().map(|ns| *ns as f64).collect()
}
