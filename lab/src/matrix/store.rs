//! The folder of a matrix: [`Store`]. One lab at a time works in it; what is finished stays,
//! whatever comes after.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Cell;
use crate::record::Record;

/// The file that says what cells are.
const CELLS: &str = "cells.json";

/// A folder of records, locked as long as this lives.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    /// None for a task of a job: the lab that submitted it has the lock.
    _lock: Option<File>,
}

/// What became of a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// It is still to come.
    Missing,
    /// Its record is there.
    Done,
    /// It failed; its reason is there.
    Failed,
}

/// A boot that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failed {
    /// `firstlight.failed/1`.
    pub schema: String,
    /// Its cell.
    pub cell: String,
    /// Why.
    pub message: String,
    /// The last lines of its log.
    pub log: Vec<String>,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another lab works in it.
    #[error("another lab works in {0}; expected one at a time, or another folder")]
    Busy(PathBuf),
    /// A cell of this name is of something else: what it was, what it is now.
    #[error(
        "the folder has runs of {0} with {1}, the matrix now has {2}; expected another folder for what has changed"
    )]
    Changed(String, String, String),
    /// The system says why; a full disk, as a rule.
    #[error(
        "cannot write {0}: {1}; --output names another folder. What is finished is kept, the same command goes on from there"
    )]
    Io(PathBuf, io::Error),
}

impl Store {
    /// Opens or makes the folder.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let io = |error| StoreError::Io(folder.to_owned(), error);
        fs::create_dir_all(folder).map_err(io)?;
        let path = folder.join(".lock");
        let lock = File::create(&path).map_err(io)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => StoreError::Busy(folder.to_owned()),
            error => StoreError::Io(path, error.into()),
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            _lock: Some(lock),
        })
    }

    /// The folder of a lab on another host, for a task that it submitted: without a lock,
    /// because tasks write different runs.
    #[must_use]
    pub fn of_a_task(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            _lock: None,
        }
    }

    /// Makes a folder within it.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn subfolder(&self, name: &str) -> Result<PathBuf, StoreError> {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).map_err(|error| StoreError::Io(path.clone(), error))?;
        Ok(path)
    }

    /// Forgets that a run failed: it is made again.
    pub fn forget_failure(&self, cell: &str, run: usize) {
        let _ = fs::remove_file(self.path(cell, run, "failed"));
    }

    /// Keeps what cells are, so that runs of something else are not taken for theirs later.
    ///
    /// # Errors
    /// [`StoreError::Changed`], [`StoreError::Io`].
    pub fn define(&self, cells: &[Cell]) -> Result<(), StoreError> {
        let mut known = self.cells();
        for cell in cells {
            same(cell, &known)?;
            if let Some(is) = cell.definition() {
                known.insert(cell.name.clone(), is);
            }
        }
        let text = serde_json::to_vec_pretty(&known).map_err(|error| self.broken(error))?;
        self.write(&self.folder.join(CELLS), &text)
    }

    /// Whether a cell is still what it was when the lab kept it.
    ///
    /// # Errors
    /// [`StoreError::Changed`].
    pub fn check(&self, cell: &Cell) -> Result<(), StoreError> {
        same(cell, &self.cells())
    }

    /// What each cell is, by its name.
    fn cells(&self) -> BTreeMap<String, String> {
        let text = fs::read(self.folder.join(CELLS)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// What became of run `run` of a cell. A record that was cut by a crash is none.
    #[must_use]
    pub fn run(&self, cell: &str, run: usize) -> Run {
        let parses = |path: PathBuf| {
            let text = fs::read(path).ok()?;
            serde_json::from_slice::<serde_json::Value>(&text).ok()
        };
        if parses(self.path(cell, run, "json")).is_some() {
            Run::Done
        } else if parses(self.path(cell, run, "failed")).is_some() {
            Run::Failed
        } else {
            Run::Missing
        }
    }

    /// Keeps a record, and its log as it came.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn keep(&self, cell: &str, run: usize, record: &Record) -> Result<(), StoreError> {
        let mut record = record.clone();
        record.source.cell = Some(cell.to_owned());
        self.keep_alone(cell, run, &record)
    }

    /// Keeps a record that is of no cell.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn keep_alone(&self, cell: &str, run: usize, record: &Record) -> Result<(), StoreError> {
        let log = record.log.join("\n") + "\n";
        self.write(&self.path(cell, run, "log"), log.as_bytes())?;
        let text = serde_json::to_vec(record).map_err(|error| self.broken(error))?;
        self.write(&self.path(cell, run, "json"), &text)?;
        self.forget_failure(cell, run);
        Ok(())
    }

    /// Keeps why a boot failed.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn fail(
        &self,
        cell: &str,
        run: usize,
        message: &str,
        log: &[String],
    ) -> Result<(), StoreError> {
        let failed = Failed {
            schema: "firstlight.failed/1".into(),
            cell: cell.to_owned(),
            message: message.to_owned(),
            log: log.to_vec(),
        };
        let text = serde_json::to_vec(&failed).map_err(|error| self.broken(error))?;
        self.write(&self.path(cell, run, "failed"), &text)
    }

    /// Keeps `content` as `NAME-0.json`, or under the next number where that is something
    /// else: what is there may still be read.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn file_of_its_own(&self, name: &str, content: &[u8]) -> Result<PathBuf, StoreError> {
        let mut paths = (0_u32..).map(|number| self.folder.join(format!("{name}-{number}.json")));
        let free = |path: &PathBuf| fs::read(path).map_or(true, |there| there == content);
        let path = paths.find(free).unwrap_or_default();
        self.write(&path, content)?;
        Ok(path)
    }

    /// Keeps another file, such as an initial file system, and says where.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn file(&self, name: &str, content: &[u8]) -> Result<PathBuf, StoreError> {
        let path = self.folder.join(name);
        self.write(&path, content)?;
        Ok(path)
    }

    /// Why run `run` of a cell failed, if it did. One that was made all the same, as by a
    /// task that was taken for lost, has not.
    #[must_use]
    pub fn failure(&self, cell: &str, run: usize) -> Option<Failed> {
        if self.run(cell, run) == Run::Done {
            self.forget_failure(cell, run);
            return None;
        }
        let text = fs::read(self.path(cell, run, "failed")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// What the files of run `run` of a cell are called, without an ending.
    #[must_use]
    pub fn name(cell: &str, run: usize) -> String {
        format!("{cell}-{run:04}")
    }

    fn path(&self, cell: &str, run: usize, ending: &str) -> PathBuf {
        self.folder
            .join(format!("{}.{ending}", Self::name(cell, run)))
    }

    fn broken(&self, error: serde_json::Error) -> StoreError {
        StoreError::Io(self.folder.clone(), io::Error::other(error))
    }

    /// Whole or not at all, also where a task that is repeated on another node writes the same.
    fn write(&self, path: &Path, content: &[u8]) -> Result<(), StoreError> {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        let unfinished = path.with_extension(format!("{host}-{}.unfinished", std::process::id()));
        let written = File::create(&unfinished).and_then(|mut file| {
            file.write_all(content)?;
            file.sync_data()
        });
        let renamed = written.and_then(|()| fs::rename(&unfinished, path));
        renamed.map_err(|error| {
            let _ = fs::remove_file(&unfinished);
            StoreError::Io(path.to_owned(), error)
        })
    }
}

/// A cell against those that are known; one whose files are missing fails when it is booted.
fn same(cell: &Cell, known: &BTreeMap<String, String>) -> Result<(), StoreError> {
    match (known.get(&cell.name), cell.definition()) {
        (Some(was), Some(is)) if *was != is => {
            Err(StoreError::Changed(cell.name.clone(), was.clone(), is))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_finished_is_kept_and_what_was_cut_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.run("a", 0), Run::Missing);
        store.fail("a", 0, "it hangs", &["last".into()]).unwrap();
        assert_eq!(store.run("a", 0), Run::Failed);
        assert_eq!(store.failure("a", 0).unwrap().message, "it hangs");
        store.keep("a", 0, &Record::new("boot", "wall")).unwrap();
        let kept = fs::read_to_string(folder.path().join("a-0000.json")).unwrap();
        assert!(kept.contains("\"cell\":\"a\""), "{kept}");
        assert_eq!(
            (store.run("a", 0), store.failure("a", 0)),
            (Run::Done, None)
        );
        // Taken for lost while its record was on the way.
        store.fail("a", 0, "lost", &[]).unwrap();
        assert_eq!(store.failure("a", 0), None);
        assert!(!folder.path().join("a-0000.failed").exists());
        fs::write(folder.path().join("a-0001.json"), "{\"sch").unwrap();
        assert_eq!(store.run("a", 1), Run::Missing);
        let busy = Store::open(folder.path()).unwrap_err();
        assert!(busy.to_string().contains("another lab"), "{busy}");
        drop(store);
        assert!(Store::open(folder.path()).is_ok());
    }

    #[test]
    fn a_file_that_changes_is_refused_by_a_lab_and_by_its_tasks() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = folder.path().join("kernel");
        let matrix = serde_json::json!({
            "kernel": [{"name": "k", "path": "kernel"}], "shape": [{"memory_mib": 256}],
        });
        let matrix: super::super::Matrix = serde_json::from_value(matrix).unwrap();
        let (cells, _) = matrix.cells(folder.path()).unwrap();
        let store = Store::open(&folder.path().join("runs")).unwrap();
        // Not there yet: the boot fails, and it may come.
        store.define(&cells).unwrap();
        fs::write(&kernel, "one").unwrap();
        store.define(&cells).unwrap();
        let task = Store::of_a_task(&folder.path().join("runs"));
        task.check(&cells[0]).unwrap();
        fs::write(&kernel, "longer").unwrap();
        for refused in [store.define(&cells), task.check(&cells[0])] {
            let why = refused.unwrap_err().to_string();
            assert!(why.contains("3 bytes") && why.contains("6 bytes"), "{why}");
        }
        // Copies of what is submitted do not replace each other.
        let copy = |text: &str| store.file_of_its_own("copy", text.as_bytes()).unwrap();
        let paths = [copy("a"), copy("b"), copy("a")];
        assert!(paths[0] == paths[2] && paths[0] != paths[1], "{paths:?}");
        assert_eq!(fs::read_to_string(&paths[1]).unwrap(), "b");
    }

    #[test]
    fn a_disk_that_is_full_says_so_and_leaves_nothing_half_done() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let error = store.write(Path::new("/dev/full/x"), b"x").unwrap_err();
        assert!(
            error.to_string().contains("What is finished is kept"),
            "{error}"
        );
    }
}
