//! Kernels times shapes times command lines times clocks: a [`Matrix`] is read from TOML, its
//! [`Cell`]s are booted in turns, and what came of each boot is kept in a [`Store`].
//!
//! | file | concept |
//! |---|---|
//! | `store` | the folder of records: locked, resumed, written whole |
//! | [`slurm`] | cells as array jobs of Slurm |
//! | [`initrd`] | the initial file system for a Linux |

pub mod initrd;
pub mod slurm;
mod store;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::boot::{Board, Clock, Firmware, MOST_CPUS, MOST_NODES, Machine, Request};
pub use store::{Failed, Run, Store, StoreError};

/// Cells times runs, at most.
pub const MOST_RUNS: usize = 100_000;

/// What is to be booted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// Boots of each cell on the wall clock; one is enough on the instruction clock.
    #[serde(default = "three")]
    pub runs: usize,
    /// Kernels.
    pub kernel: Vec<Kernel>,
    /// Machines.
    pub shape: Vec<Shape>,
    /// Words for command lines; each is tried.
    #[serde(default = "no_words")]
    pub words: Vec<String>,
    /// `wall`, `instructions`.
    #[serde(default = "wall")]
    pub clocks: Vec<String>,
}

fn three() -> usize {
    3
}

fn no_words() -> Vec<String> {
    vec![String::new()]
}

fn wall() -> Vec<String> {
    vec!["wall".into()]
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// What it is called in results.
    pub name: String,
    /// A Linux kernel; without one it is our image.
    #[serde(default)]
    pub path: Option<PathBuf>,
    /// Its initial file system; without one the lab builds its own.
    #[serde(default)]
    pub initrd: Option<PathBuf>,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Nodes.
    #[serde(default = "one")]
    pub nodes: u32,
    /// CPUs: a number, or a list of which each is tried.
    #[serde(default = "one_cpu")]
    pub cpus: Cpus,
}

/// Numbers of CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Cpus {
    /// One machine.
    One(u32),
    /// A machine for each.
    Each(Vec<u32>),
}

impl Cpus {
    fn numbers(&self) -> &[u32] {
        match self {
            Self::One(cpus) => std::slice::from_ref(cpus),
            Self::Each(list) => list,
        }
    }
}

fn one_cpu() -> Cpus {
    Cpus::One(1)
}

fn one() -> u32 {
    1
}

/// One combination.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its name, also of its files.
    pub name: String,
    /// Boots of it.
    pub runs: usize,
    /// What is booted; the initial file system that the lab builds is still to come.
    pub request: Request,
    /// It wants that file system.
    pub needs_initrd: bool,
}

impl Cell {
    /// What its name does not say, in words: its files, each with its length and the time of
    /// its last change, and its command line. `None` while one of the files is missing, with
    /// which the boot fails.
    fn definition(&self) -> Option<String> {
        let request = &self.request;
        let file = |path: &Option<PathBuf>| match path {
            Some(path) => content(path).ok(),
            None => Some("the lab's own".into()),
        };
        let initrd = match self.needs_initrd {
            true => "the lab's own".into(),
            false => file(&request.initrd)?,
        };
        let system = match &request.kernel {
            Some(_) => format!("kernel {}, initrd {initrd}", file(&request.kernel)?),
            None => format!("image {}", file(&request.image)?),
        };
        Some(format!("{system}, words {:?}", request.append))
    }
}

/// A file and what tells its content from another one.
fn content(path: &Path) -> io::Result<String> {
    // One path for the file, wherever the command runs.
    let path = path.canonicalize()?;
    let about = fs::metadata(&path)?;
    let changed = about.modified()?.duration_since(UNIX_EPOCH);
    let changed = changed.unwrap_or_default();
    Ok(format!(
        "{} ({} bytes of {}.{:09})",
        path.display(),
        about.len(),
        changed.as_secs(),
        changed.subsec_nanos()
    ))
}

/// A combination that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Impossible {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
}

impl Matrix {
    /// This matrix with absolute paths, for use in another folder. Paths are taken from `base`.
    ///
    /// # Errors
    /// There is no current folder.
    pub fn absolute(mut self, base: &Path) -> io::Result<Self> {
        for kernel in &mut self.kernel {
            for path in [&mut kernel.path, &mut kernel.initrd].into_iter().flatten() {
                *path = std::path::absolute(base.join(&*path))?;
            }
        }
        Ok(self)
    }

    /// All cells, and the combinations that cannot be. Paths are taken from `base`.
    ///
    /// # Errors
    /// What makes no sense in the matrix, and what was expected.
    pub fn cells(&self, base: &Path) -> Result<(Vec<Cell>, Vec<Impossible>), String> {
        let lists = [
            self.kernel.len(),
            self.shape
                .iter()
                .map(|shape| shape.cpus.numbers().len())
                .sum(),
            self.words.len(),
            self.clocks.len(),
        ];
        let count = lists
            .iter()
            .try_fold(self.runs, |all, count| all.checked_mul(*count));
        match count {
            Some(1..=MOST_RUNS) => {}
            Some(0) => {
                return Err(
                    "nothing to boot: expected runs, a kernel, a shape, words and clocks".into(),
                );
            }
            _ => {
                return Err(format!(
                    "more than {MOST_RUNS} boots; expected a smaller matrix"
                ));
            }
        }
        let (mut cells, mut impossible) = (Vec::new(), Vec::new());
        for (number, kernel) in self.kernel.iter().enumerate() {
            if self
                .kernel
                .iter()
                .take(number)
                .any(|other| slug(&other.name) == slug(&kernel.name))
            {
                return Err(format!(
                    "two kernels are called {:?}; expected different names",
                    kernel.name
                ));
            }
            for (shape, cpus) in self.machines() {
                for (words_at, words) in self.words.iter().enumerate() {
                    for clock in &self.clocks {
                        let cell =
                            self.cell(base, kernel, (shape, cpus), (words_at, words), clock)?;
                        if cells.iter().any(|other: &Cell| other.name == cell.name) {
                            return Err(format!(
                                "two cells are called {}; expected each shape, number of CPUs and clock once",
                                cell.name
                            ));
                        }
                        let system_is_linux = kernel.path.is_some();
                        if system_is_linux && clock == "instructions" && cpus > 1 {
                            let why =
                                "a Linux does not start other CPUs on the instruction clock".into();
                            impossible.push(Impossible {
                                name: cell.name,
                                why,
                            });
                        } else {
                            cells.push(cell);
                        }
                    }
                }
            }
        }
        Ok((cells, impossible))
    }

    /// Every shape with each of its numbers of CPUs.
    fn machines(&self) -> impl Iterator<Item = (&Shape, u32)> {
        self.shape.iter().flat_map(|shape| {
            let numbers = shape.cpus.numbers().iter();
            numbers.map(move |cpus| (shape, *cpus))
        })
    }

    fn cell(
        &self,
        base: &Path,
        kernel: &Kernel,
        (shape, cpus): (&Shape, u32),
        (words_at, words): (usize, &str),
        clock: &str,
    ) -> Result<Cell, String> {
        let (clock, runs) = match clock {
            "wall" => (Clock::Wall, self.runs),
            "instructions" => (Clock::Instructions, 1),
            other => {
                return Err(format!(
                    "clock {other:?}; expected \"wall\" or \"instructions\""
                ));
            }
        };
        if !(1..=MOST_NODES).contains(&shape.nodes) || !(1..=MOST_CPUS).contains(&cpus) {
            return Err(format!(
                "a shape of {} nodes and {} CPUs; expected at least one, at most {MOST_NODES} and {MOST_CPUS}",
                shape.nodes, cpus
            ));
        }
        let name = format!(
            "{}-{}m-{}n-{}c-w{words_at}-{}",
            slug(&kernel.name),
            shape.memory_mib,
            shape.nodes,
            cpus,
            clock.name()
        );
        let request = Request {
            machine: Machine {
                board: Board::Q35,
                memory_mib: shape.memory_mib,
                nodes: shape.nodes,
                cpus,
                firmware: Firmware::Loader,
                clock,
                balloon: false,
                hotplug: None,
            },
            kernel: kernel.path.as_ref().map(|path| base.join(path)),
            initrd: kernel.initrd.as_ref().map(|path| base.join(path)),
            append: words.to_owned(),
            ..Request::default()
        };
        Ok(Cell {
            name,
            runs,
            needs_initrd: kernel.path.is_some() && kernel.initrd.is_none(),
            request,
        })
    }
}

/// A name as it stands in names of files.
fn slug(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '_'
        }
    };
    name.chars().take(40).map(plain).collect()
}

/// All boots in the order in which they are made: each round takes every cell once, every
/// second one backwards, so that what drifts is in all of them.
#[must_use]
pub fn order(cells: &[Cell]) -> Vec<(usize, usize)> {
    let rounds = cells.iter().map(|cell| cell.runs).max().unwrap_or(0);
    let mut order = Vec::new();
    for round in 0..rounds {
        let mut turns: Vec<usize> = (0..cells.len()).collect();
        turns.retain(|at| cells.get(*at).is_some_and(|cell| round < cell.runs));
        if round % 2 == 1 {
            turns.reverse();
        }
        order.extend(turns.into_iter().map(|at| (at, round)));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matrix(value: serde_json::Value) -> Matrix {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn every_combination_is_a_cell_and_takes_its_turn() {
        let matrix = matrix(json!({
            "runs": 2, "clocks": ["wall", "instructions"], "words": ["", "quiet"],
            "kernel": [{"name": "our image"}, {"name": "6.12", "path": "vmlinuz"}],
            "shape": [{"memory_mib": 256}, {"memory_mib": 512, "cpus": 2}],
        }));
        let (cells, impossible) = matrix.cells(Path::new("/base")).unwrap();
        assert_eq!((cells.len(), impossible.len()), (14, 2));
        let names: std::collections::BTreeSet<&str> =
            cells.iter().map(|cell| &*cell.name).collect();
        assert_eq!(names.len(), 14);
        assert!(names.contains("our_image-256m-1n-1c-w0-wall"));
        let linux = cells.iter().find(|cell| cell.needs_initrd).unwrap();
        assert_eq!(
            linux.request.kernel.as_deref(),
            Some(Path::new("/base/vmlinuz"))
        );
        let order = order(&cells);
        assert_eq!(order.len(), 8 * 2 + 6);
        assert_eq!((order[0], order[14]), ((0, 0), (13, 1)));
    }

    #[test]
    fn each_number_of_cpus_is_a_machine() {
        let matrix = matrix(json!({
            "kernel": [{"name": "a"}],
            "shape": [{"memory_mib": 256, "cpus": [1, 2, 4]}, {"memory_mib": 512, "cpus": 3}],
        }));
        let (cells, _) = matrix.cells(Path::new("/")).unwrap();
        let cpus: Vec<u32> = cells.iter().map(|cell| cell.request.machine.cpus).collect();
        assert_eq!(cpus, [1, 2, 4, 3]);
        assert_eq!(cells[2].name, "a-256m-1n-4c-w0-wall");
        // As tasks of Slurm read it.
        let copy: Matrix = serde_json::from_value(json!(matrix)).unwrap();
        assert_eq!(copy, matrix);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let kernel = json!([{"name": "a"}]);
        let shape = json!([{"memory_mib": 256}]);
        for (value, part) in [
            (json!({"kernel": [], "shape": shape}), "nothing to boot"),
            (
                json!({"kernel": kernel, "shape": shape, "runs": 999_999}),
                "smaller matrix",
            ),
            (
                json!({"kernel": kernel, "shape": shape, "clocks": ["sun"]}),
                "\"sun\"",
            ),
            (
                json!({"kernel": kernel, "shape": [{"memory_mib": 256, "cpus": [2, 2]}]}),
                "two cells are called a-256m-1n-2c-w0-wall",
            ),
            (
                json!({"kernel": kernel, "shape": [{"memory_mib": 1, "nodes": 0}]}),
                "0 nodes",
            ),
            (
                json!({"kernel": kernel, "shape": [{"memory_mib": 1, "cpus": []}]}),
                "nothing to boot",
            ),
            (
                json!({"kernel": [{"name": "a b"}, {"name": "a/b"}], "shape": shape}),
                "two kernels",
            ),
        ] {
            let why = matrix(value).cells(Path::new("/")).unwrap_err();
            assert!(why.contains(part), "{part} in {why}");
        }
    }
}
