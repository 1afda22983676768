//! Several figures of the same: [`Spread`], [`median`].

use std::vec::Vec;

/// Median, deviation and range of several figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Number of figures.
    pub count: usize,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// Median absolute deviation: the median of the distances from the median.
    pub mad: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of `figures`; `None` if there are none.
    ///
    /// ```
    /// use firstlight_figures::spread::Spread;
    /// let spread = Spread::of([9.0, 1.0, 2.0, 3.0]).unwrap();
    /// assert_eq!((spread.median, spread.mad), (2.5, 1.0));
    /// assert_eq!((spread.count, spread.min, spread.max), (4, 1.0, 9.0));
    /// assert_eq!(Spread::of([]), None);
    /// ```
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        let median = median(&mut figures)?;
        let (min, max) = (*figures.first()?, *figures.last()?);
        let mut distances: Vec<f64> = figures.iter().map(|one| (one - median).abs()).collect();
        Some(Self {
            count: figures.len(),
            median,
            mad: self::median(&mut distances)?,
            min,
            max,
        })
    }
}

/// The median of `figures`, which are sorted afterwards; `None` if there are none.
///
/// ```
/// use firstlight_figures::spread::median;
/// assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
/// assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
/// assert_eq!(median(&mut []), None);
/// ```
#[must_use]
pub fn median(figures: &mut [f64]) -> Option<f64> {
    figures.sort_unstable_by(f64::total_cmp);
    let upper = figures.get(figures.len() / 2)?;
    let lower = figures.get(figures.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}
