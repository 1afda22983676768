//! Cells as array jobs of Slurm: [`Slurm`] submits and lists, [`Gather`] watches what comes
//! of it. Slurm decides where and when a run is made and repeats the runs of a node that
//! dies; all state is the queue's and the [`Store`]'s, so a lab that is stopped can go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::{Cell, Run, Store, StoreError};
use crate::boot::{Clock, shell_words};

/// What `squeue` is to print of a task. The comment is last: it holds a path.
const FORMAT: &str = "%F|%K|%T|%N|%r|%j|%k";
/// Looks at a task that is over before its run counts as lost: a task that is repeated may
/// be over for a moment.
const LOOKS: u32 = 2;
/// The same of a task that did its work: file systems of a network show files late.
const LOOKS_FOR_FILES: u32 = 30;

/// A Slurm, for one folder.
#[derive(Clone, Debug)]
pub struct Slurm {
    folder: PathBuf,
    more: Vec<String>,
}

/// A task of an array job: one run of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The job.
    pub job: u64,
    /// Its cell.
    pub cell: String,
    /// Its run.
    pub run: usize,
    /// `PENDING`, `RUNNING` and so on.
    pub state: String,
    /// The node it is on, or was.
    pub node: String,
    /// Why it waits.
    pub reason: String,
}

/// Why Slurm did not do it.
#[derive(Debug)]
pub enum SlurmError {
    /// A program of Slurm that cannot be started.
    Missing(&'static str, io::Error),
    /// A program of Slurm that failed, and what it printed.
    Refused(&'static str, String),
}

impl fmt::Display for SlurmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(program, error) => write!(
                f,
                "cannot start {program}: {error}; expected Slurm's client programs in PATH (Debian: slurm-client)"
            ),
            Self::Refused(program, why) => write!(f, "{program} failed: {why}"),
        }
    }
}

impl std::error::Error for SlurmError {}

impl Slurm {
    /// The Slurm of this host, for the folder of a store; `more` goes to `sbatch`.
    ///
    /// # Errors
    /// The folder has no absolute path.
    pub fn new(folder: &Path, more: Vec<String>) -> io::Result<Self> {
        let folder = folder.canonicalize()?;
        Ok(Self { folder, more })
    }

    /// Submits `runs` of a cell as one array job, each of which runs `command` with
    /// `CELL/RUN` as its last argument; returns the job.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub fn submit(
        &self,
        cell: &Cell,
        runs: &[usize],
        command: &[String],
    ) -> Result<u64, SlurmError> {
        let outputs = self.folder.join("slurm").display().to_string();
        let outputs = outputs.replace('%', "%%");
        let mut sbatch = Command::new("sbatch");
        sbatch
            .args(["--parsable", "--requeue", "--open-mode=append"])
            .arg(format!("--job-name={}", cell.name))
            .arg(format!("--comment={}", self.mark()))
            .arg(format!("--array={}", ranges(runs)))
            // A percent sign of the path is none of a pattern.
            .arg(format!("--output={}/{}-%4a.out", outputs, cell.name));
        if cell.request.machine.clock == Clock::Wall {
            // Another job on the node would be measured as well.
            sbatch.arg("--exclusive");
        }
        let script = format!(
            "#!/bin/sh\nexec {} --task \"{}/$SLURM_ARRAY_TASK_ID\"\n",
            shell_words(command),
            cell.name
        );
        let output = fed(sbatch.args(&self.more), "sbatch", &script)?;
        let text = text(&output.stdout);
        // With --parsable: the job, and the cluster where there are several.
        let job = text.split(';').next().and_then(|job| job.parse().ok());
        job.ok_or_else(|| {
            SlurmError::Refused(
                "sbatch",
                format!("it printed {text:?}; expected the number of a job"),
            )
        })
    }

    /// All tasks of this user for the folder that Slurm still knows.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub fn tasks(&self) -> Result<Vec<Task>, SlurmError> {
        let mut squeue = Command::new("squeue");
        squeue
            .args(["--me", "--array", "--noheader", "--states=all"])
            .arg(format!("--format={FORMAT}"));
        let output = fed(&mut squeue, "squeue", "")?;
        let mark = self.mark();
        let lines = text(&output.stdout);
        Ok(lines.lines().filter_map(|line| task(line, &mark)).collect())
    }

    /// The comment of its jobs, by which they are found again.
    fn mark(&self) -> String {
        format!("firstlight:{}", self.folder.display())
    }
}

impl Task {
    /// Whether it has ended and is not repeated.
    #[must_use]
    pub fn is_over(&self) -> bool {
        const ENDS: [&str; 10] = [
            "BOOT_FAIL",
            "CANCELLED",
            "COMPLETED",
            "DEADLINE",
            "FAILED",
            "NODE_FAIL",
            "OUT_OF_MEMORY",
            "PREEMPTED",
            "REVOKED",
            "TIMEOUT",
        ];
        ENDS.contains(&&*self.state)
    }
}

/// A line of `squeue`, if it is a task with that comment.
fn task(line: &str, mark: &str) -> Option<Task> {
    let mut fields = line.splitn(7, '|');
    let mut next = || fields.next();
    let (job, run) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let (state, node, reason, cell) = (next()?, next()?, next()?, next()?);
    (next()? == mark).then(|| Task {
        job,
        cell: cell.to_owned(),
        run,
        state: state.to_owned(),
        node: node.to_owned(),
        reason: reason.to_owned(),
    })
}

/// Numbers in order as `sbatch` reads them, such as `0-2,7`.
fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let parts: Vec<String> = parts
        .iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    parts.join(",")
}

/// Runs a program of Slurm with that input.
fn fed(command: &mut Command, name: &'static str, input: &str) -> Result<Output, SlurmError> {
    let missing = |error| SlurmError::Missing(name, error);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read says why below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(missing)?;
    if output.status.success() {
        Ok(output)
    } else {
        let words = text(&output.stderr);
        let words = words
            .strip_prefix(&format!("{name}: error: "))
            .unwrap_or(&words);
        Err(SlurmError::Refused(name, words.to_owned()))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Runs that were submitted and whose results are awaited.
#[derive(Debug, Default)]
pub struct Gather {
    /// By cell and run.
    open: BTreeMap<(String, usize), Open>,
}

#[derive(Debug)]
struct Open {
    job: u64,
    /// Looks since it is over.
    looks: u32,
}

/// Tasks by job and run.
fn by_number(tasks: &[Task]) -> BTreeMap<(u64, usize), &Task> {
    let numbered = tasks.iter().map(|task| ((task.job, task.run), task));
    numbered.collect()
}

impl Gather {
    /// Adds a run.
    pub fn add(&mut self, cell: &str, run: usize, job: u64) {
        let open = Open { job, looks: 0 };
        self.open.insert((cell.to_owned(), run), open);
    }

    /// Whether a run is awaited.
    #[must_use]
    pub fn has(&self, cell: &str, run: usize) -> bool {
        self.open.contains_key(&(cell.to_owned(), run))
    }

    /// Runs that are awaited.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether all results are there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// What runs and what waits, and why, in words.
    #[must_use]
    pub fn words(&self, tasks: &[Task]) -> String {
        let tasks = by_number(tasks);
        let (mut nodes, mut reasons) = (BTreeSet::new(), BTreeSet::new());
        let (mut running, mut waiting) = (0, 0);
        for ((_, run), open) in &self.open {
            let Some(task) = tasks.get(&(open.job, *run)) else {
                continue;
            };
            if task.state == "PENDING" {
                waiting += 1;
                reasons.insert(&*task.reason);
            } else if !task.is_over() {
                running += 1;
                nodes.insert(&*task.node);
            }
        }
        let list = |set: BTreeSet<&str>| set.into_iter().collect::<Vec<_>>().join(",");
        match (running, waiting) {
            (0, 0) => String::new(),
            (0, _) => format!("{waiting} pending ({})", list(reasons)),
            (_, 0) => format!("{running} on {}", list(nodes)),
            _ => format!(
                "{running} on {}, {waiting} pending ({})",
                list(nodes),
                list(reasons)
            ),
        }
    }

    /// Drops runs whose result is there. A run whose task is over without one is marked
    /// as failed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn look(&mut self, tasks: &[Task], store: &Store) -> Result<(), StoreError> {
        let tasks = by_number(tasks);
        let mut lost = Vec::new();
        self.open.retain(|(cell, run), open| {
            if store.run(cell, *run) != Run::Missing {
                return false;
            }
            let task = tasks.get(&(open.job, *run)).copied();
            let looks = match task {
                Some(task) if !task.is_over() => {
                    open.looks = 0;
                    return true;
                }
                Some(task) if task.state == "COMPLETED" => LOOKS_FOR_FILES,
                _ => LOOKS,
            };
            open.looks += 1;
            let waits = open.looks < looks;
            if !waits {
                let why = why_lost(cell, *run, open.job, task);
                lost.push((cell.clone(), *run, why));
            }
            waits
        });
        for (cell, run, why) in lost {
            store.fail(&cell, run, &why, &[])?;
        }
        Ok(())
    }
}

fn why_lost(cell: &str, run: usize, job: u64, task: Option<&Task>) -> String {
    let end = match task {
        Some(task) => format!("ended on {} as {}", task.node, task.state),
        None => "is gone from its queue".into(),
    };
    format!(
        "task {job}_{run} of Slurm {end} and left no record; what it printed is in slurm/{cell}-{run:04}.out"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &str = "firstlight:/a|b";

    fn of(run: usize, state: &str) -> Task {
        task(&format!("7|{run}|{state}|n1|None|c|{MARK}"), MARK).unwrap()
    }

    #[test]
    fn lines_of_the_queue_are_read() {
        let line = "12|3|PENDING||Resources|image-256m-1n-1c-w0-wall|firstlight:/a|b";
        let pending = task(line, MARK).unwrap();
        assert_eq!((pending.job, pending.run), (12, 3));
        assert_eq!(pending.cell, "image-256m-1n-1c-w0-wall");
        assert_eq!((&*pending.reason, pending.is_over()), ("Resources", false));
        // Another folder's, no array, half a line.
        assert_eq!(task(line, "firstlight:/a"), None);
        assert_eq!(task(&line.replacen("|3|", "|N/A|", 1), MARK), None);
        assert_eq!(task("12|3|PENDING", MARK), None);
        assert_eq!(ranges(&[0, 1, 2, 7, 9, 10]), "0-2,7,9-10");
        assert_eq!(ranges(&[4]), "4");
    }

    #[test]
    fn a_task_that_left_nothing_is_marked_and_a_repeated_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let mut gather = Gather::default();
        for run in 0..4 {
            gather.add("c", run, 7);
        }
        assert!(gather.has("c", 3) && !gather.has("c", 4) && !gather.has("d", 0));
        // 0 is kept, 1 is seen as over once and repeated, 2 dies, 3 is unknown.
        let record = crate::record::Record::new("boot", "wall");
        store.keep("c", 0, &record).unwrap();
        let first = [of(1, "NODE_FAIL"), of(2, "NODE_FAIL"), of(3, "RUNNING")];
        gather.look(&first, &store).unwrap();
        assert_eq!(gather.len(), 3);
        assert_eq!(gather.words(&first), "1 on n1");
        let second = [of(1, "PENDING"), of(2, "NODE_FAIL")];
        gather.look(&second, &store).unwrap();
        assert_eq!(gather.words(&second), "1 pending (None)");
        let why = store.failure("c", 2).unwrap().message;
        assert!(
            why.contains("7_2") && why.contains("n1 as NODE_FAIL"),
            "{why}"
        );
        gather.look(&second[..1], &store).unwrap();
        assert!(store.failure("c", 3).unwrap().message.contains("is gone"));
        assert_eq!((gather.len(), store.run("c", 1)), (1, Run::Missing));
        // Done, but its file may still be on the way.
        let done = [of(1, "COMPLETED")];
        for _ in 1..LOOKS_FOR_FILES {
            gather.look(&done, &store).unwrap();
            assert_eq!(gather.len(), 1);
        }
        gather.look(&done, &store).unwrap();
        assert!(gather.is_empty());
        assert_eq!(store.run("c", 1), Run::Failed);
    }
}
