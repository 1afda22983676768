//! Records in files: [`read`] takes a file or a folder of them, whatever made them. What is no
//! record and no other document of this program is named: a verdict without it is none.
//!
//! | file | holds |
//! |---|---|
//! | `*.json` | a record, as `--json` prints it |
//! | `*.jsonl` | one a line, as `history` and `matrix` keep them |
//! | `*.failed` | why a boot of a matrix failed |
//! | `*.log`, `*.txt`, `*.dmesg`, packed (`.gz`, `.xz`, `.zst`) or not | a kernel log, each boot of it a record |

mod names;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::boot_log;
use crate::file::{self, FileError};
use crate::matrix::Failed;
use crate::record::SCHEMA;
use crate::run::Run;
use names::{Kind, beside, is_a_boot, is_of_a_matrix, is_outdated, kind};

/// Folders within folders that are looked into.
const MOST_DEPTH: usize = 4;

/// What is in a file or a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folder {
    /// Boots that went well, in the order of their files' names.
    pub runs: Vec<Run>,
    /// Boots that failed and were not made again.
    pub failed: Vec<FailedBoot>,
    /// What is no record.
    pub left_out: Vec<LeftOut>,
}

/// A boot that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedBoot {
    /// The file that says so.
    pub file: String,
    /// The cell of the matrix.
    pub cell: String,
    /// Why.
    pub message: String,
}

/// A file, or a line of one, that is no record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// The file.
    pub file: String,
    /// What is in it, and what was expected.
    pub why: String,
}

/// A file that cannot be read, or holds something else.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The system says so, it is too large or damaged.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is no record.
    #[error("{0}: {1}")]
    NoRecord(PathBuf, String),
    /// There is none.
    #[error(
        "no record in {0}: expected *.json or *.jsonl as `firstlight boot --json` prints them, or kernel logs *.log"
    )]
    Nothing(PathBuf),
    /// A folder without a log.
    #[error(
        "no kernel log in {0}: expected *.log, packed or not; `report` and `gate` read records (*.json)"
    )]
    NoLog(PathBuf),
}

/// All runs in `path`, a file or a folder, in the order of their names; other documents of
/// this program are passed over, and what is none is left out by name.
///
/// # Errors
/// [`Unreadable`]: a folder that cannot be read, or one without any run.
pub fn read(path: &Path) -> Result<Folder, Unreadable> {
    let mut folder = Folder::default();
    each(path, &mut folder, &mut |_, _| ())?;
    Ok(folder)
}

/// Run records as they stand, each with its file.
///
/// # Errors
/// [`Unreadable`]; so is a folder in which something is no record.
pub fn values(path: &Path) -> Result<Vec<(PathBuf, Value)>, Unreadable> {
    let mut values = Vec::new();
    let mut folder = Folder::default();
    each(path, &mut folder, &mut |run, value| {
        values.push((PathBuf::from(&run.file), value.clone()));
    })?;
    match folder.left_out.into_iter().next() {
        Some(file) => Err(Unreadable::NoRecord(file.file.into(), file.why)),
        None => Ok(values),
    }
}

/// What is done with a run and the record it was read from.
type Take<'t> = dyn FnMut(&Run, &Value) + 't;

fn each(path: &Path, folder: &mut Folder, take: &mut Take<'_>) -> Result<(), Unreadable> {
    let (mut files, mut deep) = (Vec::new(), Vec::new());
    collect(path, MOST_DEPTH, &mut files, &mut deep)?;
    files.sort();
    deep.sort();
    for path in deep {
        let why = format!("it is more than {MOST_DEPTH} folders deep");
        folder.leave_out(&path, None, why);
    }
    let alone = path.is_file();
    for file in files {
        one(&file, alone, folder, take)?;
    }
    if folder.runs.is_empty() && folder.failed.is_empty() {
        return Err(match folder.left_out.first() {
            Some(first) => Unreadable::NoRecord(PathBuf::from(&first.file), first.why.clone()),
            None => Unreadable::Nothing(path.to_owned()),
        });
    }
    Ok(())
}

/// Documents of another schema in `path`, a file or a folder; files that are none are passed over.
///
/// # Errors
/// [`Unreadable`].
pub fn documents<D: DeserializeOwned>(path: &Path, schema: &str) -> Result<Vec<D>, Unreadable> {
    let mut files = Vec::new();
    collect(path, MOST_DEPTH, &mut files, &mut Vec::new())?;
    files.sort();
    let mut documents = Vec::new();
    for file in files.iter().filter(|file| kind(file) == Kind::Json) {
        let value: Option<Value> = serde_json::from_slice(&file::read(file)?).ok();
        let value = value.filter(|value| value["schema"] == schema);
        documents.extend(value.and_then(|value| serde_json::from_value(value).ok()));
    }
    Ok(documents)
}

/// Kernel logs in `path`, a file or a folder, in the order of their names.
///
/// # Errors
/// [`Unreadable`].
pub fn logs(path: &Path) -> Result<Vec<PathBuf>, Unreadable> {
    let mut files = Vec::new();
    collect(path, MOST_DEPTH, &mut files, &mut Vec::new())?;
    files.retain(|file| file == path || kind(file) == Kind::Log);
    files.sort();
    if files.is_empty() {
        return Err(Unreadable::NoLog(path.to_owned()));
    }
    Ok(files)
}

/// A JSON document of any schema, where `path` is one.
///
/// # Errors
/// [`Unreadable`].
pub fn document(path: &Path) -> Result<Option<Value>, Unreadable> {
    if !path.is_file() {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&file::read(path)?).ok())
}

/// Files in `path`, and folders in it that are not looked into.
fn collect(
    path: &Path,
    depth: usize,
    files: &mut Vec<PathBuf>,
    deep: &mut Vec<PathBuf>,
) -> Result<(), Unreadable> {
    let io = |error| FileError::Io(path.to_owned(), error);
    if !fs::metadata(path).map_err(io)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(io)? {
        let inner = entry.map_err(io)?.path();
        let hidden = inner
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if inner.is_dir() {
            match (hidden, depth.checked_sub(1)) {
                (true, _) => {}
                (false, Some(depth)) => collect(&inner, depth, files, deep)?,
                (false, None) => deep.push(inner),
            }
        } else if !hidden {
            files.push(inner);
        }
    }
    Ok(())
}

fn one(
    path: &Path,
    alone: bool,
    folder: &mut Folder,
    take: &mut Take<'_>,
) -> Result<(), Unreadable> {
    let kind = kind(path);
    let passed_over = match kind {
        // Beside a record of its own a log would count twice.
        Kind::Log => !alone && beside(path, "json").is_some(),
        Kind::Json => !alone && is_outdated(path, "failed"),
        Kind::Failed => is_outdated(path, "json"),
        Kind::Lines => false,
        Kind::Other if alone => false,
        Kind::Other => {
            if is_a_boot(path) {
                let why = "its name ends with neither .json nor .jsonl nor .log, .txt or .dmesg, and there is a boot in it";
                folder.leave_out(path, None, why.into());
            }
            true
        }
    };
    if passed_over || is_of_a_matrix(path) {
        return Ok(());
    }
    let text = file::read(path)?;
    match kind {
        Kind::Json => folder.add(path, None, &text, alone, take),
        Kind::Lines => {
            let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            for (line, text) in (1..).zip(lines).filter(|(_, text)| !text.is_empty()) {
                folder.add(path, Some(line), text, alone, take);
            }
        }
        Kind::Failed => folder.add_failed(path, &text),
        Kind::Log | Kind::Other => folder.add_log(path, &text, take),
    }
    Ok(())
}

impl Folder {
    /// Adds the record in `text`, a file or the line of one.
    fn add(
        &mut self,
        path: &Path,
        line: Option<usize>,
        text: &[u8],
        alone: bool,
        take: &mut Take<'_>,
    ) {
        let value: Value = match serde_json::from_slice(text) {
            Ok(value) => value,
            Err(error) => return self.leave_out(path, line, format!("it is no JSON: {error}")),
        };
        let schema = value["schema"].as_str().unwrap_or("none");
        if schema != SCHEMA || value["kind"] == "up" {
            let (family, _) = schema.rsplit_once('/').unwrap_or_default();
            let another = family.starts_with("firstlight.") && family != "firstlight.run";
            if alone || !(another || value["kind"] == "up") {
                let why = format!("its schema is {schema:?}; expected {SCHEMA:?} of a boot");
                self.leave_out(path, line, why);
            }
            return;
        }
        self.take(path, line, &value, take);
    }

    fn take(&mut self, path: &Path, line: Option<usize>, value: &Value, take: &mut Take<'_>) {
        match Run::of(value.clone()) {
            Ok(mut run) => {
                run.file = path.display().to_string();
                take(&run, value);
                self.runs.push(run);
            }
            Err(error) => self.leave_out(path, line, error.to_string()),
        }
    }

    fn add_failed(&mut self, path: &Path, text: &[u8]) {
        match serde_json::from_slice::<Failed>(text) {
            Ok(failed) => self.failed.push(FailedBoot {
                file: path.display().to_string(),
                cell: failed.cell,
                message: failed.message,
            }),
            Err(error) => {
                let why = format!("it does not say why a boot failed: {error}");
                self.leave_out(path, None, why);
            }
        }
    }

    /// Adds each boot in a log.
    fn add_log(&mut self, path: &Path, text: &[u8], take: &mut Take<'_>) {
        let name = path.display().to_string();
        let before = self.runs.len();
        for record in boot_log::records(&name, text) {
            if !record.has_times() {
                continue;
            }
            if let Ok(value) = serde_json::to_value(&record) {
                self.take(path, None, &value, take);
            }
        }
        if self.runs.len() == before {
            let why = "no boot with times in it; expected a kernel log with stamps in their order";
            self.leave_out(path, None, why.into());
        }
    }

    fn leave_out(&mut self, path: &Path, line: Option<usize>, why: String) {
        let at = line.map_or(String::new(), |line| format!("line {line}: "));
        self.left_out.push(LeftOut {
            file: path.display().to_string(),
            why: format!("{at}{why}"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn folders_hold_records_of_every_kind_and_what_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let record = serde_json::to_string(&Record::new("boot", "wall")).unwrap();
        write("a.json", &record);
        write(
            "b/c.jsonl",
            &format!("{record}\n\n{record}\n{}", &record[..30]),
        );
        write("d.log", "[    1.000000] a\n[    2.000000] b\n");
        // Another document, another kind, a log with its record, what is none of these.
        write("e.json", "{\"schema\": \"firstlight.matrix/1\"}");
        write(
            "f.json",
            &serde_json::to_string(&Record::new("up", "wall")).unwrap(),
        );
        write("a.log", "[    1.000000] a\n");
        write("g.toml", "x");
        write("cells.json", "{}");
        write("slurm/w-0.json", "{}");
        // A boot that failed, and one that was made again.
        let failed = "{\"schema\": \"firstlight.failed/1\", \"cell\": \"c\", \"message\": \"hung\", \"log\": []}";
        write("c-0001.failed", failed);
        write("a.failed", failed);
        // One that went well before it failed; a log that was packed.
        write("k.json", &record);
        write("k.failed", failed);
        write("a.log.gz", "");
        let at = |name: &str, seconds| {
            let file = fs::File::options()
                .write(true)
                .open(folder.path().join(name))
                .unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.set_modified(time).unwrap();
        };
        at("a.failed", 1);
        at("k.json", 1);
        // What a verdict must not pass over.
        write("h.json", &record.replace("run/1", "run/2"));
        write("i.json", &record[..30]);
        write("j.txt", "no log");
        let read = read(folder.path()).unwrap();
        let name = |file: &str| {
            let name = Path::new(file).file_name().unwrap();
            name.to_string_lossy().into_owned()
        };
        let runs: Vec<_> = read.runs.iter().map(|run| name(&run.file)).collect();
        assert_eq!(runs, ["a.json", "c.jsonl", "c.jsonl", "d.log"]);
        let failed: Vec<_> = read.failed.iter().map(|boot| name(&boot.file)).collect();
        assert_eq!(failed, ["c-0001.failed", "k.failed"]);
        let left: Vec<_> = read
            .left_out
            .iter()
            .map(|left| (name(&left.file), &*left.why))
            .collect();
        for ((file, why), (wanted, part)) in left.iter().zip([
            ("c.jsonl", "line 4: it is no JSON"),
            ("h.json", "run/2"),
            ("i.json", "no JSON"),
            ("j.txt", "no boot with times"),
        ]) {
            assert!(file == wanted && why.contains(part), "{file}: {why}");
        }
        assert_eq!(left.len(), 4, "{left:?}");
    }

    #[test]
    fn what_is_no_record_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let message = |path: &Path| read(path).unwrap_err().to_string();
        assert!(message(folder.path()).contains("no record in"));
        assert!(message(&folder.path().join("none")).contains("cannot read"));
        let broken = folder.path().join("a.json");
        fs::write(&broken, "{").unwrap();
        assert!(message(folder.path()).contains("no JSON"));
        fs::write(&broken, "{\"schema\": \"x/1\"}").unwrap();
        assert!(message(&broken).contains("\"x/1\""));
    }
}
