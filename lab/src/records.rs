//! Records in files: [`read`] takes a file or a folder of them, whatever made them.
//!
//! | file | holds |
//! |---|---|
//! | `*.json` | a record, as `--json` prints it |
//! | `*.jsonl` | one a line, as `history` and `matrix` keep them |
//! | `*.log`, `*.txt`, `*.dmesg`, packed (`.gz`, `.xz`, `.zst`) or not | a kernel log, each boot of it a record |

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::boot::linux;
use crate::compare::{NoRecord, Told};
use crate::file::{self, FileError};
use crate::record::SCHEMA;

/// Folders within folders that are looked into.
const MOST_DEPTH: usize = 4;

/// A record and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The file.
    pub path: PathBuf,
    /// The record.
    pub value: Value,
}

impl Stored {
    /// What is compared of it.
    ///
    /// # Errors
    /// [`NoRecord`].
    pub fn told(&self) -> Result<Told, NoRecord> {
        Told::of(self.value.clone())
    }
}

/// A file that cannot be read, or holds something else.
#[derive(Debug)]
pub enum Unreadable {
    /// The system says so, it is too large or damaged.
    File(FileError),
    /// It is no record.
    NoRecord(PathBuf, String),
    /// There is none.
    Nothing(PathBuf),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::NoRecord(path, why) => write!(f, "{}: {why}", path.display()),
            Self::Nothing(path) => write!(
                f,
                "no record in {}: expected *.json or *.jsonl as `firstlight boot --json` prints them, or kernel logs *.log",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Unreadable {}

impl From<FileError> for Unreadable {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// All run records in `path`, a file or a folder, in the order of their names. What is JSON
/// of another schema in a folder is passed over.
///
/// # Errors
/// [`Unreadable`].
pub fn read(path: &Path) -> Result<Vec<Stored>, Unreadable> {
    let mut files = Vec::new();
    collect(path, MOST_DEPTH, &mut files)?;
    files.sort();
    let alone = path.is_file();
    let mut records = Vec::new();
    for file in files {
        one(&file, alone, &mut records)?;
    }
    if records.is_empty() {
        return Err(Unreadable::Nothing(path.to_owned()));
    }
    Ok(records)
}

/// Documents of another schema in `path`, a file or a folder; files that are none are passed over.
///
/// # Errors
/// [`Unreadable`].
pub fn documents<D: DeserializeOwned>(path: &Path, schema: &str) -> Result<Vec<D>, Unreadable> {
    let mut files = Vec::new();
    collect(path, MOST_DEPTH, &mut files)?;
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
    collect(path, MOST_DEPTH, &mut files)?;
    files.retain(|file| file == path || kind(file) == Kind::Log);
    files.sort();
    if files.is_empty() {
        return Err(Unreadable::Nothing(path.to_owned()));
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

fn collect(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Unreadable> {
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
            if depth > 0 && !hidden {
                collect(&inner, depth - 1, files)?;
            }
        } else if !hidden && kind(&inner) != Kind::Other {
            files.push(inner);
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Json,
    Lines,
    Log,
    Other,
}

fn kind(path: &Path) -> Kind {
    let ending = |path: &Path| path.extension()?.to_str().map(str::to_owned);
    let outer = ending(path);
    let inner = matches!(outer.as_deref(), Some("gz" | "xz" | "zst"))
        .then(|| ending(&path.with_extension("")));
    match inner.unwrap_or(outer).as_deref() {
        Some("json") => Kind::Json,
        Some("jsonl") => Kind::Lines,
        Some("log" | "txt" | "dmesg") => Kind::Log,
        _ => Kind::Other,
    }
}

fn one(path: &Path, alone: bool, records: &mut Vec<Stored>) -> Result<(), Unreadable> {
    let text = file::read(path)?;
    let mut add = |value: Value| {
        let stored = Stored {
            path: path.to_owned(),
            value,
        };
        records.push(stored);
    };
    match kind(path) {
        Kind::Json => {
            let value = parse(path, &text)?;
            if is_run(&value) {
                add(value);
            } else if alone {
                let schema = value["schema"].as_str().unwrap_or("none").to_owned();
                let why = format!("its schema is {schema:?}; expected {SCHEMA:?}");
                return Err(Unreadable::NoRecord(path.to_owned(), why));
            }
        }
        Kind::Lines => {
            let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            for line in lines.filter(|line| !line.is_empty()) {
                // The last line of a process that died may be half a record.
                match serde_json::from_slice::<Value>(line) {
                    Ok(value) if is_run(&value) => add(value),
                    _ => {}
                }
            }
        }
        // Beside a record of its own a log would count twice.
        Kind::Log if path.with_extension("json").is_file() && !alone => {}
        Kind::Log | Kind::Other => {
            let name = path.display().to_string();
            for record in linux::records(&name, &text) {
                if let Ok(value) = serde_json::to_value(&record) {
                    add(value);
                }
            }
        }
    }
    Ok(())
}

fn parse(path: &Path, text: &[u8]) -> Result<Value, Unreadable> {
    let why = |error: serde_json::Error| {
        Unreadable::NoRecord(path.to_owned(), format!("it is no JSON: {error}"))
    };
    serde_json::from_slice(text).map_err(why)
}

fn is_run(value: &Value) -> bool {
    value["schema"] == SCHEMA && (value["kind"] == "boot" || value["kind"] == "log")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn folders_hold_records_of_every_kind() {
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
        // Another schema, another kind, a log with its record, what is none of these.
        write("e.json", "{\"schema\": \"firstlight.matrix/1\"}");
        write(
            "f.json",
            &serde_json::to_string(&Record::new("up", "wall")).unwrap(),
        );
        write("a.log", "[    1.000000] a\n");
        write("g.toml", "x");
        let records = read(folder.path()).unwrap();
        let names: Vec<_> = records
            .iter()
            .map(|stored| stored.path.file_name().unwrap())
            .collect();
        assert_eq!(names, ["a.json", "c.jsonl", "c.jsonl", "d.log"]);
        assert!(records.iter().all(|stored| stored.told().is_ok()));
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
