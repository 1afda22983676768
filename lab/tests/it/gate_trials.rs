//! The gate on recorded noisy runs: how often it finds a change of 18.9 % on the wall clock,
//! and how often it sees one that is not there. Draws are the same on every run.

use crate::common;

use firstlight_figures::random::Random;
use firstlight_lab::gate::{Method, State, differs};

fn draw(random: &mut Random, from: &[u64], count: usize, slower_per_mille: u64) -> Vec<u64> {
    (0..count)
        .map(|_| {
            let ns = from[random.below(from.len())];
            ns + ns / 1000 * slower_per_mille
        })
        .collect()
}

/// What `firstlight gate` does with boots: as many as their spread wants, and again.
fn gate(random: &mut Random, from: &[u64], slower_per_mille: u64) -> bool {
    let method = Method::WALL;
    let mut a = draw(random, from, method.least_runs, 0);
    let mut b = draw(random, from, method.least_runs, slower_per_mille);
    let needed = method.runs_needed(&[&a, &b]);
    a.extend(draw(random, from, needed - a.len(), 0));
    b.extend(draw(random, from, needed - b.len(), slower_per_mille));
    let moved = differs(&a, &b, &method, method.alpha);
    let Some(state) = moved else { return false };
    let (a, b) = (
        draw(random, from, needed, 0),
        draw(random, from, needed, slower_per_mille),
    );
    let again = differs(&a, &b, &method, method.confirm_alpha);
    again == Some(state) && state == State::Regressed
}

#[test]
fn noisy_runs_show_what_is_there_and_nothing_else() {
    let file = common::testdata().join("noise/image-256m.json");
    let noise: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let runs: Vec<u64> = noise["ns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ns| ns.as_u64().unwrap())
        .collect();
    assert_eq!(runs.len(), 400);
    let mut random = Random::new(1);
    // A calm stretch, a loaded one, all of it.
    for from in [&runs[140..260], &runs[260..], &runs[..]] {
        let mut count = |trials, slower| {
            (0..trials)
                .filter(|_| gate(&mut random, from, slower))
                .count()
        };
        let found = count(400, 189);
        assert!(found >= 380, "{found} of 400 found");
        let alarms = count(1000, 0);
        assert!(alarms <= 10, "{alarms} of 1,000 false");
    }
}
