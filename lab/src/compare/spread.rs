//! How figures of some runs spread: [`Spread`].

use firstlight_figures::spread;
use serde::{Deserialize, Serialize};

/// Some runs of one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    /// How many.
    pub runs: usize,
    /// The middle one, or the mean of both.
    pub median_ns: f64,
    /// The median of their distances from it.
    pub mad_ns: f64,
    /// The least.
    pub min_ns: u64,
    /// The most.
    pub max_ns: u64,
    /// Each run's, in their order.
    pub ns: Vec<u64>,
}

impl Spread {
    /// Of `ns`; `None` if there are none.
    ///
    /// ```
    /// use firstlight_lab::compare::Spread;
    /// let spread = Spread::of(&[9, 1, 2, 3]).unwrap();
    /// assert_eq!((spread.median_ns, spread.mad_ns), (2.5, 1.0));
    /// assert_eq!((spread.min_ns, spread.max_ns), (1, 9));
    /// assert_eq!(Spread::of(&[]), None);
    /// ```
    #[must_use]
    pub fn of(ns: &[u64]) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "figures to print")]
        let floats = spread::Spread::of(ns.iter().map(|ns| *ns as f64))?;
        Some(Self {
            runs: floats.count,
            median_ns: floats.median,
            mad_ns: floats.mad,
            min_ns: *ns.iter().min()?,
            max_ns: *ns.iter().max()?,
            ns: ns.to_vec(),
        })
    }
}
