//! Whether two sets of figures differ: [`mann_whitney`] and an [`interval`] of the ratio of
//! their medians. Both give the same answer for the same figures, always.

use crate::random::Random;
use crate::spread::median;
use std::vec;
use std::vec::Vec;

/// Runs a side up to which every order is counted; beyond, a normal distribution stands in.
const MOST_EXACT: usize = 30;
/// Draws of the bootstrap.
const DRAWS: usize = 1000;

/// How probable figures as different as these are, in either direction, if both sides are
/// the same: the rank sum test, exact up to 30 runs a side, ties by their mean rank.
///
/// ```
/// use firstlight_figures::rank_sum::mann_whitney;
/// let slow = mann_whitney(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
/// assert!((slow - 2.0 / 252.0).abs() < 1e-12);
/// assert_eq!(mann_whitney(&[1.0, 1.0], &[1.0, 1.0]), 1.0);
/// ```
#[must_use]
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let ranks = twice_ranks(a, b);
    let (of_a, _) = ranks.split_at(a.len());
    let sum: usize = of_a.iter().sum();
    let p = if a.len().max(b.len()) <= MOST_EXACT {
        exact(&ranks, a.len(), sum)
    } else {
        normal(&ranks, a.len(), sum)
    };
    p.clamp(0.0, 1.0)
}

/// Twice the rank of each figure among all, A's first; equal figures share their mean.
fn twice_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let mut sorted: Vec<f64> = a.iter().chain(b).copied().collect();
    sorted.sort_by(f64::total_cmp);
    let rank = |figure: &f64| {
        let below = sorted.partition_point(|other| other < figure);
        let up_to = sorted.partition_point(|other| other <= figure);
        below + up_to + 1
    };
    a.iter().chain(b).map(rank).collect()
}

/// The share of all choices of `count` ranks whose sum is as far from the middle as `sum`.
fn exact(ranks: &[usize], count: usize, sum: usize) -> f64 {
    let most: usize = ranks.iter().sum();
    // ways[n][s]: choices of n ranks with sum s, as a share of what they may become.
    let mut ways = vec![vec![0.0_f64; most + 1]; count + 1];
    if let Some(slot) = ways.first_mut().and_then(|row| row.first_mut()) {
        *slot = 1.0;
    }
    for rank in ranks {
        for chosen in (1..=count).rev() {
            let (before, after) = ways.split_at_mut(chosen);
            if let (Some(before), Some(after)) = (before.last(), after.first_mut()) {
                for (slot, ways) in after.iter_mut().skip(*rank).zip(before) {
                    *slot += ways;
                }
            }
        }
    }
    let Some(sums) = ways.last() else { return 1.0 };
    let all: f64 = sums.iter().sum();
    // The mean of the sum is count / ranks.len() of all; compared without a fraction.
    let far = |sum: usize| (sum * ranks.len()).abs_diff(count * most);
    let as_far = sums.iter().enumerate();
    let as_far = as_far.filter(|(other, _)| far(*other) >= far(sum));
    as_far.map(|(_, ways)| *ways).sum::<f64>() / all
}

/// How many standard deviations the rank sum of A is from what it is by chance.
#[must_use]
pub fn rank_sum_z(a: &[f64], b: &[f64]) -> f64 {
    let ranks = twice_ranks(a, b);
    let (of_a, _) = ranks.split_at(a.len());
    deviations(&ranks, a.len(), of_a.iter().sum())
}

fn normal(ranks: &[usize], count: usize, sum: usize) -> f64 {
    two_sided(deviations(ranks, count, sum))
}

#[expect(clippy::cast_precision_loss, reason = "ranks are small")]
fn deviations(ranks: &[usize], count: usize, sum: usize) -> f64 {
    let all = ranks.len() as f64;
    let (a, b) = (count as f64, all - count as f64);
    let mean = a / all * ranks.iter().sum::<usize>() as f64;
    let center = ranks.iter().sum::<usize>() as f64 / all;
    let squares: f64 = ranks
        .iter()
        .map(|rank| (*rank as f64 - center).powi(2))
        .sum();
    let variance = a * b / (all * (all - 1.0)) * squares;
    if variance <= 0.0 {
        return 0.0;
    }
    // Twice ranks: a whole step is two.
    let distance = ((sum as f64 - mean).abs() - 1.0).max(0.0);
    distance / variance.sqrt()
}

/// What lies beyond `z` standard deviations on both sides of a normal distribution, by the
/// rational approximation of Abramowitz and Stegun, 7.1.26.
#[must_use]
pub fn two_sided(z: f64) -> f64 {
    const TERMS: [f64; 5] = [
        0.254_829_592,
        -0.284_496_736,
        1.421_413_741,
        -1.453_152_027,
        1.061_405_429,
    ];
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let sum = TERMS.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    sum * (-x * x).exp()
}

/// The interval in which 99 of 100 ratios of the medians lie when both sides are drawn anew
/// from their own runs.
///
/// ```
/// use firstlight_figures::rank_sum::interval;
/// let (low, high) = interval(&[10.0; 10], &[20.0; 10]).unwrap();
/// assert_eq!((low, high), (2.0, 2.0));
/// ```
#[must_use]
pub fn interval(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    let mut random = Random::new(1);
    let mut ratios = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        let (mut drawn_a, mut drawn_b) = (draw(&mut random, a), draw(&mut random, b));
        let (a, b) = (median(&mut drawn_a)?, median(&mut drawn_b)?);
        if a > 0.0 {
            ratios.push(b / a);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let at = |share: usize| {
        ratios
            .get(ratios.len().saturating_sub(1) * share / 1000)
            .copied()
    };
    Some((at(5)?, at(995)?))
}

/// As many of the figures as there are, each any of them.
fn draw(random: &mut Random, figures: &[f64]) -> Vec<f64> {
    let one = |_| figures.get(random.below(figures.len())).copied();
    (0..figures.len()).filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The probability by trying all choices.
    fn by_hand(a: &[f64], b: &[f64]) -> f64 {
        let ranks = twice_ranks(a, b);
        let sum: usize = ranks[..a.len()].iter().sum();
        let most: usize = ranks.iter().sum();
        let far = |sum: usize| (sum * ranks.len()).abs_diff(a.len() * most);
        let (mut all, mut as_far) = (0_u32, 0_u32);
        for choice in 0_u32..1 << ranks.len() {
            if choice.count_ones() as usize != a.len() {
                continue;
            }
            let chosen = ranks
                .iter()
                .enumerate()
                .filter(|(at, _)| choice >> at & 1 == 1);
            let other = chosen.map(|(_, rank)| *rank).sum();
            all += 1;
            as_far += u32::from(far(other) >= far(sum));
        }
        f64::from(as_far) / f64::from(all)
    }

    #[test]
    fn every_order_is_counted_once() {
        for (a, b) in [
            (&[1.0, 4.0, 2.0][..], &[3.0, 5.0, 9.0, 7.0][..]),
            (&[1.0, 1.0, 2.0, 2.0], &[1.0, 3.0, 3.0]),
            (&[5.0], &[1.0, 2.0, 3.0]),
        ] {
            assert!(
                (mann_whitney(a, b) - by_hand(a, b)).abs() < 1e-12,
                "{a:?} {b:?}"
            );
        }
        assert_eq!(mann_whitney(&[], &[1.0]), 1.0);
    }

    #[test]
    fn large_sets_agree_with_the_exact_test() {
        let a: Vec<f64> = (0..30).map(|n| f64::from(n * 7 % 30)).collect();
        for shift in [0.0, 6.0] {
            let b: Vec<f64> = a.iter().map(|n| n + shift + 0.5).collect();
            let ranks = twice_ranks(&a, &b);
            let sum = ranks[..30].iter().sum();
            let (exact, normal) = (exact(&ranks, 30, sum), normal(&ranks, 30, sum));
            assert!((exact - normal).abs() < 0.01, "{shift}: {exact} {normal}");
        }
        assert!((two_sided(1.959_964) - 0.05).abs() < 1e-4);
    }

    #[test]
    fn intervals_hold_the_ratio() {
        let a: Vec<f64> = (100..120).map(f64::from).collect();
        let b: Vec<f64> = a.iter().map(|n| n * 1.2).collect();
        let (low, high) = interval(&a, &b).unwrap();
        assert!(low < 1.2 && 1.2 < high && high - low < 0.2, "{low} {high}");
        assert_eq!(interval(&a, &b), interval(&a, &b));
        assert_eq!(interval(&[], &b), None);
    }
}
