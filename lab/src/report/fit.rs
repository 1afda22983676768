//! How phases grow with memory: [`Fit`], a line of least squares.

use serde::Serialize;

use super::setup::Setup;

/// A phase over machines of several sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fit {
    /// The set-ups, without their memory.
    pub family: String,
    /// Which clock the times are from.
    pub clock: String,
    /// The phase.
    pub phase: String,
    /// GiB of memory and median milliseconds, ascending.
    pub points: Vec<(f64, f64)>,
    /// Milliseconds that each GiB adds.
    pub ms_per_gib: f64,
    /// Milliseconds without any memory.
    pub base_ms: f64,
    /// The share of the differences that the line explains.
    pub r2: f64,
}

/// A line for each phase of each family with three sizes or more.
pub(super) fn fits(setups: &[Setup]) -> Vec<Fit> {
    let mut fits: Vec<Fit> = Vec::new();
    for setup in setups {
        let Some(bytes) = setup.memory_bytes else {
            continue;
        };
        #[expect(clippy::cast_precision_loss, reason = "a size to draw")]
        let gib = bytes as f64 / f64::from(1 << 30);
        for phase in &setup.phases {
            let ms = phase.took.median_ns / 1e6;
            let alike = fits.iter_mut().find(|fit| {
                (&fit.family, &fit.clock, &fit.phase) == (&setup.family, &setup.clock, &phase.name)
            });
            match alike {
                Some(fit) => fit.points.push((gib, ms)),
                None => fits.push(Fit {
                    family: setup.family.clone(),
                    clock: setup.clock.clone(),
                    phase: phase.name.clone(),
                    points: vec![(gib, ms)],
                    ms_per_gib: 0.0,
                    base_ms: 0.0,
                    r2: 0.0,
                }),
            }
        }
    }
    fits.retain(|fit| fit.points.len() >= 3);
    for fit in &mut fits {
        fit.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        (fit.ms_per_gib, fit.base_ms, fit.r2) = line(&fit.points);
    }
    fits
}

/// Slope, value at zero and r² of the line of least squares.
fn line(points: &[(f64, f64)]) -> (f64, f64, f64) {
    let count = points.iter().map(|_| 1.0).sum::<f64>();
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    let xx = sum(&|point| (point.0 - x).powi(2));
    let yy = sum(&|point| (point.1 - y).powi(2));
    let xy = sum(&|point| (point.0 - x) * (point.1 - y));
    if xx <= 0.0 {
        return (0.0, y, 0.0);
    }
    let slope = xy / xx;
    let r2 = if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 };
    (slope, y - slope * x, r2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_points_on_it_is_that_line() {
        let (slope, base, r2) = line(&[(1.0, 7.0), (2.0, 9.0), (8.0, 21.0)]);
        assert!((slope - 2.0).abs() < 1e-9 && (base - 5.0).abs() < 1e-9 && (r2 - 1.0).abs() < 1e-9);
        let (slope, _, r2) = line(&[(1.0, 1.0), (2.0, 0.0), (3.0, 1.0)]);
        assert!(slope.abs() < 1e-9 && r2 < 1e-9);
        assert_eq!(line(&[(1.0, 3.0), (1.0, 5.0)]), (0.0, 4.0, 0.0));
    }
}
