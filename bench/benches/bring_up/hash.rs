//! A hash table on memory that is zero, beside the crate `hashbrown`: a million keys.

use std::error::Error;
use std::hint::black_box;
use std::num::NonZeroU64;

use firstlight::tables::{OpenTable, Slot};
use firstlight_figures::random::Random;
use firstlight_figures::spread::Spread;
use hashbrown::HashMap;

use crate::contest::time;

const KEYS: usize = 1 << 20;
/// Twice as many slots as keys; hashbrown reserves at least this for them, too.
const SLOTS: usize = 2 << 20;
const ROUNDS: usize = 11;

/// What is timed, a million of each.
const STEPS: [&str; 4] = ["insert", "found", "not found", "remove"];

/// Four times of a million operations.
type Times = [f64; STEPS.len()];

fn ours(
    keys: &[NonZeroU64],
    others: &[NonZeroU64],
    chunks: usize,
) -> Result<Times, Box<dyn Error>> {
    let mut slots = vec![Slot::FREE; SLOTS];
    // Touched before, as the other's memory is in all but its first round.
    black_box(&mut slots).fill(Slot::FREE);
    let mut chunks: Vec<&mut [Slot]> = slots.chunks_mut(SLOTS / chunks).collect();
    let mut table = OpenTable::new(&mut chunks)?;
    let (insert, result) = time(|| {
        keys.iter()
            .try_for_each(|key| table.insert(*key, 1).map(drop))
    });
    result?;
    let (found, hits) = time(|| keys.iter().filter(|key| table.get(**key).is_some()).count());
    let (missed, none) = time(|| {
        others
            .iter()
            .filter(|key| table.get(**key).is_some())
            .count()
    });
    let (remove, gone) = time(|| {
        keys.iter()
            .filter(|key| table.remove(**key).is_some())
            .count()
    });
    assert_eq!((hits, none, gone), (keys.len(), 0, keys.len()));
    Ok([insert, found, missed, remove])
}

fn theirs(keys: &[NonZeroU64], others: &[NonZeroU64]) -> Times {
    let mut table = HashMap::with_capacity(KEYS);
    let (insert, ()) = time(|| {
        keys.iter()
            .for_each(|key| drop(table.insert(key.get(), 1u64)))
    });
    let (found, hits) = time(|| {
        keys.iter()
            .filter(|key| table.contains_key(&key.get()))
            .count()
    });
    let (missed, none) = time(|| {
        others
            .iter()
            .filter(|key| table.contains_key(&key.get()))
            .count()
    });
    let (remove, gone) = time(|| {
        keys.iter()
            .filter(|key| table.remove(&key.get()).is_some())
            .count()
    });
    assert_eq!((hits, none, gone), (keys.len(), 0, keys.len()));
    [insert, found, missed, remove]
}

/// Keys like addresses of 64-byte objects, in no order.
fn keys(random: &mut Random, bit: u64) -> Vec<NonZeroU64> {
    let mut keys: Vec<_> = (1..=KEYS as u64)
        .map(|at| (at << 6) | bit)
        .filter_map(NonZeroU64::new)
        .collect();
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at + 1));
    }
    keys
}

/// Prints the table.
pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    let mut random = Random::new(3);
    let (keys, others) = (keys(&mut random, 0), keys(&mut random, 1));
    let mut rounds: [Vec<Times>; 3] = Default::default();
    for _ in 0..ROUNDS {
        rounds[0].push(ours(&keys, &others, 1)?);
        rounds[1].push(ours(&keys, &others, 64)?);
        rounds[2].push(theirs(&keys, &others));
    }
    println!("| {KEYS} keys, ns each | {} |", STEPS.join(" | "));
    println!("|---|{}", "---|".repeat(STEPS.len()));
    let names = [
        "**firstlight**, one chunk",
        "**firstlight**, 64 chunks",
        "hashbrown 0.17, its own hash",
    ];
    for (name, rounds) in names.iter().zip(&rounds) {
        let mut row = Vec::new();
        for step in 0..STEPS.len() {
            let each = Spread::of(rounds.iter().map(|times| times[step] / KEYS as f64));
            row.push(format!("{:.1}", each.ok_or("no rounds")?.median));
        }
        println!("| {name} | {} |", row.join(" | "));
    }
    println!();
    Ok(())
}
