//! Cells as array jobs of Slurm: [`Slurm`] submits and lists, [`Gather`] watches what comes
//! of it. Slurm decides where and when a run is made and repeats the runs of a node that
//! dies; all state is the queue's and the [`Store`]'s, so a lab that is stopped can go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Cell, Run, Store, StoreError};
use crate::boot::{Clock, Machine, shell_words};

/// What `squeue` is to print of a task.
const FORMAT: &str = "%F|%K|%T|%N|%r|%j|%k";
/// Looks at a task that Slurm ended before its run counts as lost: a task that is repeated
/// may be over for a moment.
const LOOKS: u32 = 2;
/// Looks at a task that may have done its work before its run counts as lost: file systems of a network show files
/// late.
const LOOKS_FOR_FILES: u32 = 30;
/// Runs of an array job: Slurm's default allows numbers up to 1,000 (`MaxArraySize`).
const MOST_TASKS: usize = 1000;
/// The file in `slurm/` of the clusters that have jobs, one a line.
const CLUSTERS: &str = "clusters";

/// A Slurm, for one folder.
#[derive(Clone, Debug)]
pub struct Slurm {
    folder: PathBuf,
    /// The comment of its jobs, by which they are found again.
    mark: String,
    more: Vec<String>,
    /// Clusters that have jobs; an empty name is the one of this host.
    clusters: BTreeSet<String>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    /// Its cluster, where `sbatch` names one; else empty.
    pub cluster: String,
    /// Its number.
    pub number: u64,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.cluster {
            "" => write!(f, "{}", self.number),
            cluster => write!(f, "{} of cluster {cluster}", self.number),
        }
    }
}

/// A task of an array job: one run of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The job.
    pub job: Job,
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
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// A program of Slurm that cannot be started.
    #[error(
        "cannot start {0}: {1}; expected Slurm's client programs in PATH (Debian: slurm-client)"
    )]
    Missing(&'static str, io::Error),
    /// A program of Slurm that failed, and what it printed.
    #[error("{0} failed: {1}")]
    Refused(&'static str, String),
    /// The file of clusters.
    #[error("cannot use {0}: {1}")]
    Io(PathBuf, io::Error),
}

impl Slurm {
    /// The Slurm of this host, for the folder of a store; `more` goes to `sbatch`.
    ///
    /// # Errors
    /// The folder has no absolute path, or its files cannot be read.
    pub fn new(folder: &Path, more: Vec<String>) -> io::Result<Self> {
        let mark = mark(&folder.canonicalize()?);
        let folder = std::path::absolute(folder)?.join("slurm");
        let clusters = match fs::read_to_string(folder.join(CLUSTERS)) {
            Ok(text) => text.lines().map(str::to_owned).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        Ok(Self {
            folder,
            mark,
            more,
            clusters,
        })
    }

    /// Submits `runs` of a cell, in order, as array jobs of up to 1,000, each task of which
    /// runs `command` with `CELL/RUN` as its last argument; returns the job of each run.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub fn submit(
        &mut self,
        cell: &Cell,
        runs: &[usize],
        command: &[String],
    ) -> Result<Vec<(usize, Job)>, SlurmError> {
        let mut jobs = Vec::new();
        for runs in runs.chunk_by(|a, b| a / MOST_TASKS == b / MOST_TASKS) {
            let job = self.submit_array(cell, runs, command)?;
            jobs.extend(runs.iter().map(|run| (*run, job.clone())));
        }
        Ok(jobs)
    }

    /// One array job of runs of the same thousand.
    fn submit_array(
        &mut self,
        cell: &Cell,
        runs: &[usize],
        command: &[String],
    ) -> Result<Job, SlurmError> {
        let thousand = runs.first().map_or(0, |run| run / MOST_TASKS);
        let offset = thousand * MOST_TASKS;
        let numbers: Vec<usize> = runs.iter().map(|run| run % MOST_TASKS).collect();
        // A percent sign of the path is none of a pattern.
        let outputs = self.folder.display().to_string().replace('%', "%%");
        let mut sbatch = Command::new("sbatch");
        sbatch
            .args(["--parsable", "--requeue", "--open-mode=append"])
            .arg(format!("--job-name={}", cell.name))
            .arg(format!("--comment={}:{offset}", self.mark))
            .arg(format!("--array={}", ranges(&numbers)))
            .arg(format!(
                "--output={outputs}/{}-{thousand}%3a.out",
                cell.name
            ))
            .args(resources(&cell.request.machine, &self.more))
            .args(&self.more);
        let script = format!(
            "#!/bin/sh\nexec {} --task \"{}/$((SLURM_ARRAY_TASK_ID + {offset}))\"\n",
            shell_words(command),
            cell.name
        );
        let output = fed(&mut sbatch, "sbatch", &script)?;
        let job = job(&output).ok_or_else(|| {
            let why = format!("it printed {output:?}; expected the number of a job");
            SlurmError::Refused("sbatch", why)
        })?;
        if self.clusters.insert(job.cluster.clone()) {
            let path = self.folder.join(CLUSTERS);
            let text: Vec<&str> = self.clusters.iter().map(|name| &**name).collect();
            let kept = fs::write(&path, text.join("\n") + "\n");
            kept.map_err(|error| SlurmError::Io(path, error))?;
        }
        Ok(job)
    }

    /// All tasks of this user for the folder that Slurm still knows.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub fn tasks(&self) -> Result<Vec<Task>, SlurmError> {
        let here = BTreeSet::from([String::new()]);
        let clusters = match self.clusters.is_empty() {
            true => &here,
            false => &self.clusters,
        };
        let mut tasks = Vec::new();
        for cluster in clusters {
            let mut squeue = Command::new("squeue");
            squeue
                .args(["--me", "--array", "--noheader", "--states=all"])
                .arg(format!("--format={FORMAT}"));
            if !cluster.is_empty() {
                squeue.arg(format!("--clusters={cluster}"));
            }
            let output = fed(&mut squeue, "squeue", "")?;
            let of_line = |line| task(line, cluster, &self.mark);
            tasks.extend(output.lines().filter_map(of_line));
        }
        Ok(tasks)
    }
}

/// What a task takes of its node, but for what `more` says.
fn resources(machine: &Machine, more: &[String]) -> Vec<String> {
    let wall = machine.clock == Clock::Wall;
    // On the instruction clock one thread runs all CPUs.
    let cpus = if wall { machine.cpus } else { 1 };
    let mut words = vec![
        "--nodes=1".into(),
        "--ntasks=1".into(),
        format!("--cpus-per-task={cpus}"),
    ];
    // --mem beside --mem-per-cpu is refused.
    if !more.iter().any(|word| word.starts_with("--mem")) {
        // QEMU, its translated code, tables of the guest's pages; what the lab keeps of a log.
        let overhead = 512 + machine.memory_mib / 64;
        words.push(format!("--mem={}M", machine.memory_mib + overhead));
    }
    if wall {
        // Another job on the node would be measured as well.
        words.push("--exclusive".into());
    }
    words
}

/// The comment for a folder: its path, in which all but plain characters stand as `%0A`, so
/// that it comes back from the queue as it was and in one field of one line.
fn mark(folder: &Path) -> String {
    let mut mark = String::from("firstlight:");
    for byte in folder.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => mark.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => mark.push(char::from(*byte)),
            byte => mark.push_str(&format!("%{byte:02X}")),
        }
    }
    mark
}

/// What `sbatch --parsable` prints: the job, and the cluster where there are several.
fn job(output: &str) -> Option<Job> {
    let line = output.lines().next()?;
    let (number, cluster) = line.split_once(';').unwrap_or((line, ""));
    Some(Job {
        number: number.parse().ok()?,
        cluster: cluster.to_owned(),
    })
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
fn task(line: &str, cluster: &str, mark: &str) -> Option<Task> {
    let mut fields = line.splitn(7, '|');
    let mut next = || fields.next();
    let (number, index): (_, usize) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let (state, node, reason, cell) = (next()?, next()?, next()?, next()?);
    let offset = next()?.strip_prefix(mark)?.strip_prefix(':')?;
    Some(Task {
        job: Job {
            cluster: cluster.to_owned(),
            number,
        },
        cell: cell.to_owned(),
        run: offset.parse::<usize>().ok()?.checked_add(index)?,
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

/// Runs a program of Slurm with that input; what it prints.
fn fed(command: &mut Command, name: &'static str, input: &str) -> Result<String, SlurmError> {
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
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let words = words.trim();
    let error = format!("{name}: error: ");
    let words = words.strip_prefix(&error).unwrap_or(words);
    Err(SlurmError::Refused(name, words.to_owned()))
}

/// Runs that were submitted and whose results are awaited.
#[derive(Debug, Default)]
pub struct Gather {
    /// By cell and run.
    open: BTreeMap<(String, usize), Open>,
}

#[derive(Debug)]
struct Open {
    job: Job,
    /// Looks since it is over.
    looks: u32,
}

/// Tasks by job and run.
fn by_number(tasks: &[Task]) -> BTreeMap<(&Job, usize), &Task> {
    let numbered = tasks.iter().map(|task| ((&task.job, task.run), task));
    numbered.collect()
}

impl Gather {
    /// Adds a run.
    pub fn add(&mut self, cell: &str, run: usize, job: Job) {
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
            let Some(task) = tasks.get(&(&open.job, *run)) else {
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
            let task = tasks.get(&(&open.job, *run)).copied();
            let looks = match task {
                Some(task) if !task.is_over() => {
                    open.looks = 0;
                    return true;
                }
                // Its record, or why it has none, may be on the way.
                Some(task) if !["COMPLETED", "FAILED"].contains(&&*task.state) => LOOKS,
                _ => LOOKS_FOR_FILES,
            };
            open.looks += 1;
            let waits = open.looks < looks;
            if !waits {
                let why = why_lost(cell, *run, &open.job, task);
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

fn why_lost(cell: &str, run: usize, job: &Job, task: Option<&Task>) -> String {
    let end = match task {
        Some(task) => format!("ended on {} as {}", task.node, task.state),
        None => "is gone from its queue".into(),
    };
    let cluster = match &*job.cluster {
        "" => String::new(),
        name => format!(" in cluster {name}"),
    };
    format!(
        "task {}_{}{cluster} of Slurm {end} and left no record; what it printed is in slurm/{cell}-{run:04}.out",
        job.number,
        run % MOST_TASKS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &str = "firstlight:/a%7Cb";

    fn of(run: usize, state: &str) -> Task {
        task(&format!("7|{run}|{state}|n1|None|c|{MARK}:0"), "", MARK).unwrap()
    }

    fn seven() -> Job {
        job("7\n").unwrap()
    }

    #[test]
    fn lines_of_the_queue_are_read() {
        assert_eq!(mark(Path::new("/a|b")), MARK);
        assert_eq!(mark(Path::new("/a\n ")), "firstlight:/a%0A%20");
        let line = "12|3|PENDING||Resources|image-256m-1n-1c-w0-wall|firstlight:/a%7Cb:2000";
        let pending = task(line, "far", MARK).unwrap();
        assert_eq!(Some(&pending.job), job("12;far\n").as_ref());
        assert_eq!(pending.run, 2003);
        assert_eq!(pending.cell, "image-256m-1n-1c-w0-wall");
        assert_eq!((&*pending.reason, pending.is_over()), ("Resources", false));
        // Another folder's, no array, half a line.
        assert_eq!(task(line, "", "firstlight:/a"), None);
        assert_eq!(task(&line.replacen("|3|", "|N/A|", 1), "", MARK), None);
        assert_eq!(task("12|3|PENDING", "", MARK), None);
        assert_eq!(job("no"), None);
        assert_eq!(ranges(&[0, 1, 2, 7, 9, 10]), "0-2,7,9-10");
        assert_eq!(ranges(&[4]), "4");
    }

    #[test]
    fn a_task_that_left_nothing_is_marked_and_a_repeated_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let mut gather = Gather::default();
        for run in 0..4 {
            gather.add("c", run, seven());
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
        // A number of another cluster is another job.
        let mut elsewhere = of(3, "RUNNING");
        elsewhere.job.cluster = "far".into();
        for _ in 1..LOOKS_FOR_FILES {
            assert_eq!(store.run("c", 3), Run::Missing);
            let tasks = [second[0].clone(), elsewhere.clone()];
            gather.look(&tasks, &store).unwrap();
        }
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
    #[test]
    fn a_task_takes_what_its_machine_needs_unless_the_user_says_otherwise() {
        let machine = Machine {
            memory_mib: 6400,
            cpus: 4,
            ..Machine::default()
        };
        let words = resources(&machine, &[]).join(" ");
        let expected = "--nodes=1 --ntasks=1 --cpus-per-task=4 --mem=7012M --exclusive";
        assert_eq!(words, expected);
        let exact = Machine {
            clock: Clock::Instructions,
            ..machine
        };
        let words = resources(&exact, &["--mem-per-cpu=9G".into()]).join(" ");
        assert_eq!(words, "--nodes=1 --ntasks=1 --cpus-per-task=1");
    }
}
