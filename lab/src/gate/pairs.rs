//! What is judged: [`Case`]. Set-ups of two folders are paired machine by machine; a set-up
//! without a partner is named.

use std::collections::{BTreeMap, BTreeSet};

use super::{Method, ends};
use crate::compare::{Comparison, Unlike, compare};
use crate::records::{FailedBoot, Folder, LeftOut};
use crate::run::{Machine, Run, Setup};

/// All that is judged, and what could not be.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// Set-ups of both sides.
    pub pairs: Vec<Evidence>,
    /// Set-ups of one side.
    pub missing: Vec<Missing>,
    /// Files that hold no record.
    pub left_out: Vec<LeftOut>,
    /// Boots of A and of B that failed.
    pub failed: [Vec<FailedBoot>; 2],
}

/// A comparison, and the same again from other runs where there are any.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The set-up, in words.
    pub name: String,
    /// What is judged.
    pub first: Comparison,
    /// What confirms it.
    pub again: Option<Comparison>,
}

/// A set-up that one side lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The set-up, in words.
    pub name: String,
    /// Its machine.
    pub machine: Machine,
    /// Runs of A and of B.
    pub runs: [usize; 2],
    /// Why it stands alone.
    pub why: String,
}

type Setups = BTreeMap<Setup, Vec<Run>>;

impl Case {
    /// Two folders. Where a side has several set-ups of a machine, those of equal command
    /// lines and systems belong together.
    ///
    /// # Errors
    /// [`Unlike`].
    pub fn of_folders(a: (&str, &Folder), b: (&str, &Folder)) -> Result<Self, Unlike> {
        let mut case = Self {
            left_out: [a.1, b.1]
                .iter()
                .flat_map(|one| one.left_out.clone())
                .collect(),
            failed: [a.1.failed.clone(), b.1.failed.clone()],
            ..Self::default()
        };
        let (mut rest_a, mut rest_b) = (setups(&a.1.runs), setups(&b.1.runs));
        let machines = |of: &Setups| of.keys().map(|setup| setup.machine.clone()).collect();
        let (has_a, has_b): (BTreeSet<Machine>, BTreeSet<Machine>) =
            (machines(&rest_a), machines(&rest_b));
        for parts in PARTS {
            for (of_a, of_b) in partners(&rest_a, &rest_b, parts) {
                let (Some(runs_a), Some(runs_b)) = (rest_a.remove(&of_a), rest_b.remove(&of_b))
                else {
                    continue;
                };
                let name = names(&of_a, &of_b);
                let [runs_a, runs_b] = ends::to_one([runs_a, runs_b], &mut case.left_out);
                if let Some(lacks) = [(&runs_a, "A"), (&runs_b, "B")]
                    .iter()
                    .find_map(|(runs, side)| runs.is_empty().then_some(side))
                {
                    case.missing.push(Missing {
                        name,
                        machine: of_a.machine,
                        runs: [runs_a.len(), runs_b.len()],
                        why: format!("{lacks} has no log in which the kernel hands over"),
                    });
                    continue;
                }
                let pair = Evidence::of_runs(name, (a.0, &runs_a), (b.0, &runs_b))?;
                case.pairs.push(pair);
            }
        }
        let alone = |setup: &Setup, runs, other: &Setups, has: &BTreeSet<Machine>, lacks: &str| {
            let mut others = other.keys();
            let why = match others.any(|other| other.machine == setup.machine) {
                true => format!(
                    "{lacks} has several set-ups of this machine: which is meant is not known"
                ),
                false if has.contains(&setup.machine) => {
                    format!("{lacks}'s runs of this machine stand beside another set-up")
                }
                false => format!("{lacks} has no run of this machine"),
            };
            Missing {
                name: setup.name(),
                machine: setup.machine.clone(),
                runs,
                why,
            }
        };
        for (setup, runs) in &rest_a {
            case.missing
                .push(alone(setup, [runs.len(), 0], &rest_b, &has_b, "B"));
        }
        for (setup, runs) in &rest_b {
            case.missing
                .push(alone(setup, [0, runs.len()], &rest_a, &has_a, "A"));
        }
        Ok(case)
    }

    /// A folder against itself: of each set-up every second run against the others.
    ///
    /// # Errors
    /// [`Unlike`].
    pub fn of_itself(given: &str, folder: &Folder) -> Result<Self, Unlike> {
        let mut case = Self {
            left_out: folder.left_out.clone(),
            failed: [folder.failed.clone(), Vec::new()],
            ..Self::default()
        };
        for (setup, runs) in &setups(&folder.runs) {
            let (even, odd) = (half(runs, 0), half(runs, 1));
            if odd.is_empty() {
                case.missing.push(Missing {
                    name: setup.name(),
                    machine: setup.machine.clone(),
                    runs: [even.len(), 0],
                    why: "1 run; expected 2 at least, to stand against each other".into(),
                });
                continue;
            }
            let pair = Evidence::of_runs(setup.name(), (given, &even), (given, &odd))?;
            case.pairs.push(pair);
        }
        Ok(case)
    }

    /// One comparison; its runs in two halves where there are enough.
    #[must_use]
    pub fn of_comparison(name: &str, comparison: Comparison) -> Self {
        let fewest = comparison.sides.iter().map(|side| side.runs).min();
        let halved = comparison.clock != "instructions"
            && fewest.is_some_and(|runs| runs >= 2 * Method::WALL.least_runs);
        let again = halved.then(|| comparison.half(1));
        Self {
            pairs: vec![Evidence {
                name: name.to_owned(),
                first: if halved {
                    comparison.half(0)
                } else {
                    comparison
                },
                again,
            }],
            ..Self::default()
        }
    }
}

impl Evidence {
    /// The runs of a set-up on both sides. On the wall clock, the odd runs of a side confirm
    /// the even ones where there are enough for both.
    fn of_runs(name: String, a: (&str, &[Run]), b: (&str, &[Run])) -> Result<Self, Unlike> {
        let wall = a.1.first().is_some_and(|run| run.clock != "instructions");
        let fewest = a.1.len().min(b.1.len());
        if !wall || fewest < 2 * Method::WALL.least_runs {
            return Ok(Self {
                name,
                first: compare(a, b)?,
                again: None,
            });
        }
        let side = |odd| compare((a.0, &half(a.1, odd)), (b.0, &half(b.1, odd)));
        Ok(Self {
            name,
            first: side(0)?,
            again: Some(side(1)?),
        })
    }
}

fn half(runs: &[Run], odd: usize) -> Vec<Run> {
    runs.iter().skip(odd).step_by(2).cloned().collect()
}

fn setups(runs: &[Run]) -> Setups {
    let mut setups = Setups::new();
    for (setup, run) in Setup::all(runs.iter()).into_iter().zip(runs) {
        setups.entry(setup).or_default().push(run.clone());
    }
    setups
}

/// What must be equal for two set-ups of a machine to belong together: system, which of its
/// kernels, command line.
const PARTS: [[bool; 3]; 8] = [
    [true, true, true],
    [false, true, true],
    [true, false, true],
    [false, false, true],
    [true, true, false],
    [false, true, false],
    [true, false, false],
    [false, false, false],
];

/// Set-ups of A and of B that are equal in `parts`, and of which each side has one.
fn partners(a: &Setups, b: &Setups, [system, kernel, words]: [bool; 3]) -> Vec<(Setup, Setup)> {
    let key = |setup: &Setup| {
        let part = |wanted: bool, text: &str| wanted.then(|| text.to_owned());
        (
            setup.machine.clone(),
            part(system, &setup.system),
            part(kernel, &setup.kernel),
            part(words, &setup.words),
        )
    };
    let mut alike: BTreeMap<_, [Vec<&Setup>; 2]> = BTreeMap::new();
    for setup in a.keys() {
        alike.entry(key(setup)).or_default()[0].push(setup);
    }
    for setup in b.keys() {
        alike.entry(key(setup)).or_default()[1].push(setup);
    }
    let pairs = alike.values().filter_map(|sides| match sides {
        [of_a, of_b] => match (of_a.as_slice(), of_b.as_slice()) {
            ([a], [b]) => Some(((*a).clone(), (*b).clone())),
            _ => None,
        },
    });
    pairs.collect()
}

/// The machine, and what differs of both.
fn names(a: &Setup, b: &Setup) -> String {
    if a == b {
        return a.name();
    }
    let mut parts = vec![a.machine.name()];
    let mut add = |a: &str, b: &str, none: &str| {
        if a != b {
            let or = |text: &str| if text.is_empty() { none } else { text }.to_owned();
            parts.push(format!("{} -> {}", or(a), or(b)));
        } else if !a.is_empty() {
            parts.push(a.to_owned());
        }
    };
    add(&a.system, &b.system, "unknown");
    add(&a.kernel, &b.kernel, "one kernel");
    add(&a.words, &b.words, "no words");
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(release: &str, words: &str, memory: u64, ns: u64) -> Run {
        Run::of(json!({
            "schema": "firstlight.run/1", "kind": "boot", "clock": "instructions",
            "source": {"kind": "linux", "command_line": words, "kernel": {"release": release}},
            "machine": {"asked": {"board": "q35", "memory_bytes": memory << 30, "nodes": 1, "cpus": 1}},
            "milestones": {}, "phases": [{"name": "kernel", "start_ns": 0, "end_ns": ns}],
        }))
        .unwrap()
    }

    fn folder(runs: &[Run]) -> Folder {
        Folder {
            runs: runs.to_vec(),
            ..Folder::default()
        }
    }

    fn case(a: &[Run], b: &[Run]) -> (Vec<String>, Vec<String>) {
        let case = Case::of_folders(("a", &folder(a)), ("b", &folder(b))).unwrap();
        let names = case.pairs.into_iter().map(|pair| pair.name);
        let missing = case
            .missing
            .into_iter()
            .map(|one| format!("{}: {}", one.name, one.why));
        (names.collect(), missing.collect())
    }

    #[test]
    fn set_ups_are_paired_by_what_they_have_in_common() {
        let old = [run("6.1", "", 1, 10), run("6.1", "quiet", 1, 20)];
        let new = [run("6.12", "", 1, 10), run("6.12", "quiet", 1, 20)];
        let (pairs, missing) = case(&old, &new);
        assert_eq!(pairs.len(), 2, "{pairs:?}");
        assert!(
            pairs
                .iter()
                .all(|name| name.contains("Linux 6.1 -> Linux 6.12")),
            "{pairs:?}"
        );
        assert_eq!(missing, [""; 0]);
        // Words that only one side has.
        let (pairs, missing) = case(&old[..1], &new[1..]);
        assert!(pairs[0].contains("no words -> quiet"), "{pairs:?}");
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn a_set_up_without_a_partner_is_named() {
        let (pairs, missing) = case(
            &[run("6.1", "", 1, 1), run("6.1", "", 2, 1)],
            &[run("6.1", "", 1, 1)],
        );
        assert_eq!((pairs.len(), missing.len()), (1, 1));
        assert!(
            missing[0].starts_with("2 GiB") && missing[0].contains("B has no run"),
            "{missing:?}"
        );
        let (_, missing) = case(
            &[run("6.1", "", 1, 1), run("6.1", "quiet", 1, 1)],
            &[run("6.1", "", 1, 1)],
        );
        assert!(
            missing[0].contains("B's runs of this machine stand beside another set-up"),
            "{missing:?}"
        );
        // Which of three is meant?
        let three = ["a", "b", "c"].map(|words| run("6.1", words, 1, 1));
        let (pairs, missing) = case(&three, &[run("6.12", "", 1, 1)]);
        assert_eq!((pairs.len(), missing.len()), (0, 4));
        assert!(
            missing[0].contains("B has several") || missing[0].contains("not known"),
            "{missing:?}"
        );
    }
}
