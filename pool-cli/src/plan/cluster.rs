//! Alike nodes: starts are drawn and dealt out to them once, each node is then played by itself, and
//! the smallest stock that meets a goal is searched for.

use super::node::{Host, Tally, play};
use super::trace::{SECOND, Start};
use super::words::{Lifetimes, Rate, Share, exponential};
use clap::ValueEnum;
use firstlight_figures::random::Random;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::panic::resume_unwind;
use std::thread;

/// Which node a start without one goes to
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Dealing {
    /// The one with the fewest virtual machines, of these the first
    Least,
    /// Any, drawn from the seed
    Random,
}

/// Starts at this rate for so long, each apart from all others.
pub(super) fn draw(
    rate: Rate,
    sizes: &[Share],
    lifetimes: Lifetimes,
    until_ns: u64,
    random: &mut Random,
) -> Vec<Start> {
    let mean_ns = SECOND as f64 / rate.0;
    let sum: usize = sizes.iter().map(|share| share.weight as usize).sum();
    let mut at_ns = 0_u64;
    let mut starts = Vec::new();
    loop {
        at_ns = at_ns.saturating_add(exponential(random, mean_ns));
        if at_ns > until_ns || sum == 0 {
            return starts;
        }
        let mut left = random.below(sum);
        let drawn = sizes.iter().find(|share| {
            let weight = share.weight as usize;
            let is_it = left < weight;
            left = left.saturating_sub(weight);
            is_it
        });
        starts.extend(drawn.map(|share| Start {
            at_ns,
            bytes: share.bytes,
            node: None,
            lifetime_ns: lifetimes.draw(random),
        }));
    }
}

/// The starts of each node. A scheduler knows what was placed and has not ended, waits left out.
pub(super) fn deal(
    starts: &[Start],
    nodes: u32,
    dealing: Dealing,
    random: &mut Random,
) -> Vec<Vec<Start>> {
    let mut dealt = vec![Vec::new(); nodes as usize];
    let mut running: Vec<u32> = vec![0; nodes as usize];
    let mut by_load: BTreeSet<(u32, u32)> = (0..nodes).map(|node| (0, node)).collect();
    let mut ends: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut change = |by_load: &mut BTreeSet<_>, node: u32, more: bool| {
        let load = &mut running[node as usize];
        by_load.remove(&(*load, node));
        *load = if more { *load + 1 } else { *load - 1 };
        by_load.insert((*load, node));
    };
    for start in starts {
        while let Some(Reverse((at_ns, node))) = ends.peek().copied()
            && at_ns <= start.at_ns
        {
            ends.pop();
            change(&mut by_load, node, false);
        }
        let node = start.node.unwrap_or_else(|| match dealing {
            Dealing::Least => by_load.first().map_or(0, |(_, node)| *node),
            Dealing::Random => u32::try_from(random.below(dealt.len())).unwrap_or(0),
        });
        if let Some(starts) = dealt.get_mut(node as usize) {
            starts.push(*start);
            change(&mut by_load, node, true);
            ends.push(Reverse((start.at_ns + start.lifetime_ns, node)));
        }
    }
    dealt
}

/// Plays all nodes with this stock each, on as many threads as there are CPUs.
pub(super) fn play_all(nodes: &[Vec<Start>], slabs: u32, host: &Host) -> Tally {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let part = nodes.len().div_ceil(cpus).max(1);
    let of_part = |part: &[Vec<Start>]| {
        let mut all = Tally::default();
        for starts in part {
            all.add(play(starts, slabs, host));
        }
        all
    };
    thread::scope(|scope| {
        let parts = nodes.chunks(part);
        let parts: Vec<_> = parts
            .map(|part| scope.spawn(move || of_part(part)))
            .collect();
        let mut all = Tally::default();
        for part in parts {
            all.add(part.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        all
    })
}

/// The smallest stock up to `most` that is enough, if one is, and all stocks that were played: 0, 1, 2, 3, 4, 6, 8,
/// 12 and so on, until one is enough, and between the last two of these halves. One more slab never
/// has fewer starts hit, nor one wait longer, so nothing smaller is passed over.
pub(super) fn search<T>(
    most: u32,
    mut play: impl FnMut(u32) -> T,
    is_enough: impl Fn(&T) -> bool,
) -> (Option<u32>, BTreeMap<u32, T>) {
    let mut played = BTreeMap::new();
    let mut try_one = |slabs: u32| {
        let outcome = played.entry(slabs).or_insert_with(|| play(slabs));
        is_enough(outcome)
    };
    let mut too_few = None;
    let mut slabs = 0;
    while !try_one(slabs) {
        if slabs >= most {
            return (None, played);
        }
        too_few = Some(slabs);
        let power = slabs.max(1).ilog2();
        let step = (1_u32 << power >> 1).max(1);
        slabs = slabs.saturating_add(step).min(most);
    }
    while let Some(few) = too_few
        && slabs - few > 1
    {
        let half = few + (slabs - few) / 2;
        if try_one(half) {
            slabs = half;
        } else {
            too_few = Some(half);
        }
    }
    (Some(slabs), played)
}

#[cfg(test)]
mod tests {
    use super::super::words::Time;
    use super::*;

    const G: u64 = 1 << 30;

    fn host(fill_rate: u64, window_ns: (u64, u64)) -> Host {
        Host {
            slab_bytes: 8 * G,
            fill_rate,
            zeroing_rate: 2 * G,
            request_ns: SECOND / 1000,
            topup: (0, false),
            window_ns,
        }
    }

    fn start(at_s: u64, bytes: u64, lifetime_s: u64) -> Start {
        Start {
            at_ns: at_s * SECOND,
            bytes,
            node: None,
            lifetime_ns: lifetime_s * SECOND,
        }
    }

    /// One slab, filled in 4 s: found clean; out; out; being filled; clean again. By hand.
    #[test]
    fn a_trace_played_by_hand() {
        let starts = [
            start(10, 8 * G, 20),
            start(15, 4 * G, 100),
            start(29, 8 * G, 1),
            start(33, 2 * G, 1),
            start(35, 8 * G, 1000),
        ];
        let host = host(2 * G, (0, 60 * SECOND));
        let tally = play(&starts, 1, &host);
        assert_eq!((tally.hits, tally.topped_up, tally.starts()), (2, 0, 5));
        let ms = |ms: u64| ms * 1_000_000;
        let waits = [(ms(1), 2), (ms(1001), 1), (ms(2001), 1), (ms(4001), 1)];
        assert_eq!(tally.waits, waits.into());
        assert_eq!((tally.wait(50), tally.wait(99)), (ms(1001), ms(4001)));
        assert_eq!(tally.zeroed_bytes, 8 << 30);
        // 10 s before the first, and from its end at 30.001 s to 35 s.
        assert_eq!(tally.idle_slab_ns, u128::from(10 * SECOND + ms(4999)));
        // Half of 12 GiB are there or more: 4 GiB are zeroed in 2 s.
        let topped_up = Host {
            topup: (5000, true),
            ..host
        };
        let starts = [
            start(1, 12 * G, 1),
            start(2, 12 * G, 1),
            start(60, 12 * G, 1),
        ];
        let tally = play(&starts, 1, &topped_up);
        assert_eq!((tally.hits, tally.topped_up, tally.starts()), (0, 2, 3));
        assert_eq!(tally.waits, [(ms(2001), 2), (ms(6001), 1)].into());
    }

    fn poisson(rate: u64, lifetimes: Lifetimes, hours: u64, seed: u64) -> Vec<Start> {
        let random = &mut Random::new(seed);
        let share = Share {
            bytes: 8 * G,
            weight: 1,
        };
        let rate = Rate(rate as f64 / 3600.0);
        draw(rate, &[share], lifetimes, hours * 3600 * SECOND, random)
    }

    /// The share of starts that are lost where `servers` serve `load` erlangs.
    fn erlang_b(servers: u32, load: f64) -> f64 {
        (1..=servers).fold(1.0, |lost, n| load * lost / (f64::from(n) + load * lost))
    }

    /// Erlang's formula holds for lifetimes of any distribution. Filled by one thread, slabs that come back
    /// wait in line, and more starts miss than by the formula with the time of one fill.
    #[test]
    fn misses_are_those_of_erlangs_formula_where_filling_takes_no_time() {
        let (hour, minutes) = (3600 * SECOND, Time(600 * SECOND));
        for lifetimes in [Lifetimes::Fixed(minutes), Lifetimes::Exponential(minutes)] {
            let starts = poisson(60, lifetimes, 120, 1);
            let window = (2 * hour, 120 * hour);
            let mut hits = 0;
            for slabs in [1, 6, 12] {
                let tally = play(&starts, slabs, &host(u64::MAX, window));
                let lost = 1.0 - tally.hits as f64 / tally.starts() as f64;
                let expected = erlang_b(slabs, 10.0);
                // Six deviations of a share of 7,000: misses come in rows.
                let most = 6.0 * (expected * (1.0 - expected) / 7000.0).sqrt();
                assert!(
                    (lost - expected).abs() < most,
                    "{slabs}: {lost}, {expected}"
                );
                hits = tally.hits;
            }
            assert!(play(&starts, 12, &host(8 * G / 30, window)).hits < hits);
        }
    }

    #[test]
    fn more_slabs_never_have_fewer_starts_hit_nor_one_wait_longer() {
        for seed in 0..5 {
            let lifetime = Lifetimes::Exponential(Time(200 * SECOND));
            let starts = poisson(200, lifetime, 2, seed);
            let host = host((1 + seed) * G, (0, 7200 * SECOND));
            let tallies: Vec<Tally> = (0..16).map(|slabs| play(&starts, slabs, &host)).collect();
            for two in tallies.windows(2) {
                let [fewer, more] = two else { continue };
                assert!(fewer.hits <= more.hits && fewer.starts() == more.starts());
                assert!((1..=100).all(|percent| fewer.wait(percent) >= more.wait(percent)));
            }
            let hits = |at: usize| tallies[at].hits;
            assert!(hits(0) == 0 && hits(15) > hits(1) && hits(1) > 0, "{seed}");
        }
    }

    #[test]
    fn the_smallest_stock_is_found_and_none_where_none_is_enough() {
        for wanted in 0..200 {
            let (found, played) = search(1000, |slabs| slabs, |slabs| *slabs >= wanted);
            assert_eq!(found, Some(wanted));
            assert!(wanted == 0 || played.contains_key(&(wanted - 1)));
            assert!(played.len() < 24, "{wanted}: {played:?}");
        }
        for most in [0, 1, 5, 1000, u32::MAX] {
            let (found, played) = search(most, |_| (), |()| false);
            assert!(found.is_none() && played.contains_key(&most));
        }
    }

    #[test]
    fn starts_go_to_the_node_that_has_least_or_where_they_say() {
        let random = &mut Random::new(1);
        let mut starts = vec![
            start(0, G, 10),
            start(1, G, 100),
            start(2, G, 1),
            start(20, G, 5),
        ];
        starts[2].node = Some(1);
        let dealt = deal(&starts, 3, Dealing::Least, random);
        let at = |node: usize| dealt[node].iter().map(|start| start.at_ns / SECOND);
        assert_eq!(at(0).collect::<Vec<_>>(), [0, 20]);
        assert_eq!(at(1).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(at(2).count(), 0);
        let starts = vec![start(0, G, 10); 3000];
        let dealt = deal(&starts, 3, Dealing::Random, random);
        assert!(dealt.iter().all(|node| (900..1100).contains(&node.len())));
    }
}
