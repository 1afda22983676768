//! How figures of some runs spread: [`Spread`].

use serde::{Deserialize, Serialize};

/// Some runs of one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
        let floats: Vec<f64> = ns.iter().map(|ns| *ns as f64).collect();
        let median_ns = median(floats.clone())?;
        let distances = floats.iter().map(|ns| (ns - median_ns).abs());
        Some(Self {
            runs: ns.len(),
            median_ns,
            mad_ns: median(distances.collect())?,
            min_ns: *ns.iter().min()?,
            max_ns: *ns.iter().max()?,
            ns: ns.to_vec(),
        })
    }
}

pub(crate) fn median(mut list: Vec<f64>) -> Option<f64> {
    list.sort_by(f64::total_cmp);
    let upper = list.get(list.len() / 2)?;
    let lower = list.get(list.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}
