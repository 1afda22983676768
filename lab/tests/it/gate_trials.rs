//! Verdicts on recorded noisy runs, drawn in their true order: a busy host slows several boots
//! in a row. How often the gate finds a change of 18.9 % on the wall clock, and how often the
//! gate and the history see one that is not there.

use crate::common;

use firstlight_figures::random::Random;
use firstlight_lab::gate::{Method, State, differs};
use firstlight_lab::history::History;
use firstlight_lab::records::Folder;
use firstlight_lab::run::Run;
use serde_json::json;

/// 400 boots, one after the other.
fn noise() -> Vec<u64> {
    let file = common::testdata().join("noise/image-256m.json");
    let noise: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let runs: Vec<u64> = noise["ns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ns| ns.as_u64().unwrap())
        .collect();
    assert_eq!(runs.len(), 400);
    runs
}

/// Boots as they follow each other; behind the last comes the first.
struct Boots<'b> {
    ns: &'b [u64],
    at: usize,
}

impl Boots<'_> {
    fn next(&mut self) -> u64 {
        self.at += 1;
        self.ns[(self.at - 1) % self.ns.len()]
    }

    /// Boots of A and of B in turns, first A, B, then B, A; B's are longer by so much.
    fn turns(&mut self, rounds: usize, slower_per_mille: u64) -> [Vec<u64>; 2] {
        let mut sides = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                let ns = self.next();
                let more = if side == 1 {
                    ns / 1000 * slower_per_mille
                } else {
                    0
                };
                sides[side].push(ns + more);
            }
        }
        sides
    }
}

/// What `firstlight gate` does with boots: as many as their spread wants, and again.
fn gate(boots: &mut Boots<'_>, slower_per_mille: u64) -> bool {
    let method = Method::WALL;
    let [mut a, mut b] = boots.turns(method.least_runs, slower_per_mille);
    let needed = method.runs_needed(&[&a, &b]);
    let [more_a, more_b] = boots.turns(needed - a.len(), slower_per_mille);
    a.extend(more_a);
    b.extend(more_b);
    let moved = differs(&a, &b, &method, method.alpha);
    let Some(state) = moved else { return false };
    let [a, b] = boots.turns(needed, slower_per_mille);
    let again = differs(&a, &b, &method, method.confirm_alpha);
    again == Some(state) && state == State::Regressed
}

#[test]
fn the_gate_finds_what_is_there_and_nothing_else() {
    let runs = noise();
    // A calm stretch, a loaded one, all of it; from every boot on. Of an odd number, so that
    // a boot is the other side's when its turn comes again.
    for ns in [&runs[141..260], &runs[261..], &runs[1..]] {
        let count = |slower| {
            let starts: Vec<usize> = (0..ns.len()).step_by(3).collect();
            let found = starts
                .iter()
                .filter(|at| gate(&mut Boots { ns, at: **at }, slower));
            found.count() * 100 / starts.len()
        };
        let (found, alarms) = (count(189), count(0));
        assert!(found >= 85, "{found} of 100 found");
        assert_eq!(alarms, 0, "of 100 are false");
    }
}

/// Change points of the whole boot in records of these times.
fn changes(ns: impl Iterator<Item = u64>) -> usize {
    let record = |ns: u64| {
        let record = json!({
            "schema": "firstlight.run/1", "kind": "boot", "clock": "wall",
            "source": {"kind": "image"}, "machine": {}, "milestones": {},
            "phases": [{"name": "all", "start_ns": 0, "end_ns": ns}],
        });
        Run::read(record.to_string().as_bytes()).unwrap()
    };
    let folder = Folder {
        runs: ns.map(record).collect(),
        ..Folder::default()
    };
    let history = History::of(&folder);
    let total = history.series.iter().find(|one| one.figure == "total");
    total.unwrap().changes.len()
}

#[test]
fn a_history_of_a_steady_system_has_no_change() {
    let runs = noise();
    // A record now and then, over all 400: from every place it may begin at.
    for (records, apart) in [(20, 20), (40, 10), (80, 5)] {
        for first in 0..apart {
            let series = runs.iter().skip(first).step_by(apart).copied();
            assert_eq!(changes(series.take(records)), 0, "{records} from {first}");
        }
    }
    // Records of different days: any of a stretch.
    let mut random = Random::new(1);
    for stretch in [&runs[140..260], &runs[260..]] {
        let mut alarms = 0;
        for trial in 0..200 {
            let count = [20, 40, 80][trial % 3];
            let drawn: Vec<u64> = (0..count)
                .map(|_| stretch[random.below(stretch.len())])
                .collect();
            alarms += usize::from(changes(drawn.into_iter()) > 0);
        }
        assert!(alarms <= 2, "{alarms} of 200 false");
    }
}

#[test]
fn a_history_finds_a_change_for_good() {
    let runs = noise();
    let calm = &runs[140..260];
    let mut random = Random::new(2);
    let mut found = 0;
    for _ in 0..100 {
        let drawn = (0..40).map(|at| {
            let ns = calm[random.below(calm.len())];
            ns + if at >= 20 { ns / 1000 * 189 } else { 0 }
        });
        let drawn: Vec<u64> = drawn.collect();
        found += usize::from(changes(drawn.into_iter()) == 1);
    }
    assert!(found >= 75, "{found} of 100 found");
}
