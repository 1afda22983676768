//! The gate on recorded noisy runs: how often it finds a change of 18.9 % on the wall clock,
//! and how often it sees one that is not there. Draws are the same on every run.

#![expect(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod common;

use firstlight_lab::gate::{Method, State, differs};

/// Numbers without a pattern that matters.
struct Random(u64);

impl Random {
    fn pick(&mut self, from: &[u64]) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let at = usize::try_from(self.0 % from.len() as u64).unwrap();
        from[at]
    }

    fn runs(&mut self, from: &[u64], count: usize, slower_per_mille: u64) -> Vec<u64> {
        (0..count)
            .map(|_| {
                let ns = self.pick(from);
                ns + ns / 1000 * slower_per_mille
            })
            .collect()
    }
}

/// What `firstlight gate` does with boots: as many as their spread wants, and again.
fn gate(random: &mut Random, from: &[u64], slower_per_mille: u64) -> bool {
    let method = Method::WALL;
    let mut a = random.runs(from, method.least_runs, 0);
    let mut b = random.runs(from, method.least_runs, slower_per_mille);
    let needed = method.runs_needed(&[&a, &b]);
    a.extend(random.runs(from, needed - a.len(), 0));
    b.extend(random.runs(from, needed - b.len(), slower_per_mille));
    let moved = differs(&a, &b, &method, method.alpha);
    let Some(state) = moved else { return false };
    let (a, b) = (
        random.runs(from, needed, 0),
        random.runs(from, needed, slower_per_mille),
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
    let mut random = Random(0x2545_f491_4f6c_dd1d);
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
