//! Which leases there are, on file, so that the next daemon knows them.
//!
//! One line of JSON for each change, appended before its client is answered: a lease
//! that begins, that was revoked, that is over. The file is in the daemon's folder, which
//! does not outlive the machine's memory. A line that was not finished was not answered.

use super::Serial;
use super::quota::Charge;
use crate::protocol::{Label, PageSize};
use crate::store::Key;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The largest file that is read.
const MOST_BYTES: u64 = 256 << 20;

/// Lines besides one for each lease, before the file is rewritten.
const SPARE_LINES: usize = 4096;

/// What is known of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its number.
    pub serial: Serial,
    /// Its class: pages.
    pub page: PageSize,
    /// Its class: node.
    pub node: Option<u32>,
    /// Its class: bytes of a slab.
    pub class_bytes: u64,
    /// Bytes of its slab.
    pub bytes: u64,
    /// Whether its file is in no mount.
    pub memfd: bool,
    /// The user it was allocated for.
    pub uid: u32,
    /// The process that asked for it.
    pub pid: u32,
    /// What it is charged as.
    pub charge: Charge,
    /// When it began, in milliseconds of the machine's clock.
    pub since_ms: u64,
    /// Whether it is over, and its client may still reach the memory.
    #[serde(default)]
    pub revoked: bool,
    /// What its client calls the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
}

impl Record {
    /// The class.
    #[must_use]
    pub fn key(&self) -> Key {
        Key {
            page: self.page,
            node: self.node,
            bytes: self.class_bytes,
        }
    }
}

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    /// What names of leases begin with, and the number of the next.
    Names { prefix: u32, next: Serial },
    /// A lease begins.
    Lease(Record),
    /// Its client may still reach the memory.
    Revoked(Serial),
    /// Nothing is left of it.
    Over(Serial),
}

/// What stands in the way of a journal.
#[derive(Debug, Default)]
pub struct Unread {
    /// Lines that could not be read.
    pub lines: usize,
    /// Why it cannot be written to.
    pub unwritable: Option<io::Error>,
}

/// The file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// Where lines are appended; none after a failure: the file is rewritten first.
    file: Option<File>,
    prefix: u32,
    next: Serial,
    live: BTreeMap<Serial, Record>,
    lines: usize,
}

impl Journal {
    /// The journal in a folder; names of leases begin with `prefix` where there is none.
    /// Says how many lines could not be read, and why it cannot be written to at the moment:
    /// the leases that there are last all the same, and none begins until it can.
    ///
    /// # Errors
    /// The operating system's refusal to read it.
    pub fn open(folder: &Path, prefix: u32) -> io::Result<(Self, Unread)> {
        let path = folder.join("leases");
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(file) => {
                file.take(MOST_BYTES).read_to_end(&mut text)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut journal = Self {
            file: None,
            path,
            prefix,
            next: 1,
            live: BTreeMap::new(),
            lines: 0,
        };
        let mut unread = Unread::default();
        let whole = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        let lines = text.get(..whole).unwrap_or_default();
        for line in lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            match serde_json::from_slice(line) {
                Ok(line) => journal.heed(line),
                Err(_) => unread.lines += 1,
            }
        }
        unread.unwritable = journal.rewrite().err();
        Ok((journal, unread))
    }

    fn heed(&mut self, line: Line) {
        match line {
            Line::Names { prefix, next } => {
                self.prefix = prefix;
                self.next = self.next.max(next);
            }
            Line::Lease(record) => {
                self.next = self.next.max(record.serial.saturating_add(1));
                self.live.insert(record.serial, record);
            }
            Line::Revoked(serial) => {
                if let Some(record) = self.live.get_mut(&serial) {
                    record.revoked = true;
                }
            }
            Line::Over(serial) => {
                self.live.remove(&serial);
            }
        }
    }

    /// What names of leases begin with.
    #[must_use]
    pub fn prefix(&self) -> u32 {
        self.prefix
    }

    /// The number of the next lease.
    #[must_use]
    pub fn next(&self) -> Serial {
        self.next
    }

    /// All leases that are not over.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.live.values()
    }

    /// A lease that is not over.
    #[must_use]
    pub fn record(&self, serial: Serial) -> Option<&Record> {
        self.live.get(&serial)
    }

    /// A lease begins.
    ///
    /// # Errors
    /// It could not be written: the lease must not begin.
    pub fn begin(&mut self, record: Record) -> io::Result<()> {
        self.append(Line::Lease(record))
    }

    /// A lease is over, and its client may still reach the memory.
    ///
    /// # Errors
    /// It could not be written: the next daemon takes it for a lease that lasts.
    pub fn revoke(&mut self, serial: Serial) -> io::Result<()> {
        self.append(Line::Revoked(serial))
    }

    /// Nothing is left of a lease.
    ///
    /// # Errors
    /// It could not be written: the next daemon looks for it.
    pub fn end(&mut self, serial: Serial) -> io::Result<()> {
        self.append(Line::Over(serial))
    }

    fn append(&mut self, line: Line) -> io::Result<()> {
        let text = text(&line)?;
        self.heed(line);
        match self.file.take() {
            Some(mut file) if self.lines <= self.live.len() * 2 + SPARE_LINES => {
                // What is half a line now would spoil the next one.
                file.write_all(text.as_bytes())?;
                self.lines += 1;
                self.file = Some(file);
                Ok(())
            }
            _ => self.rewrite(),
        }
    }

    /// Writes the file with nothing but the leases there are.
    fn rewrite(&mut self) -> io::Result<()> {
        let names = Line::Names {
            prefix: self.prefix,
            next: self.next,
        };
        let mut all = text(&names)?;
        for record in self.live.values() {
            all += &text(&Line::Lease(record.clone()))?;
        }
        let new = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&new)?;
        let replaced = file
            .write_all(all.as_bytes())
            .and_then(|()| fs::rename(&new, &self.path));
        if replaced.is_err() {
            // Half of it, where there is no space for all.
            let _ = fs::remove_file(&new);
        }
        replaced?;
        self.file = Some(file);
        self.lines = self.live.len() + 1;
        Ok(())
    }
}

fn text(line: &Line) -> io::Result<String> {
    Ok(serde_json::to_string(line)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(serial: Serial) -> Record {
        Record {
            serial,
            page: PageSize::Huge,
            node: Some(1),
            class_bytes: 4 << 20,
            bytes: 6 << 20,
            memfd: false,
            uid: 7,
            pid: 8,
            charge: Charge::default(),
            since_ms: 9,
            revoked: false,
            label: Some(Label::new("web-1")),
        }
    }

    fn reopened(folder: &Path) -> (Journal, Vec<Record>) {
        let (journal, unread) = Journal::open(folder, 0xffff).unwrap();
        assert!(
            unread.lines == 0 && unread.unwritable.is_none(),
            "{unread:?}"
        );
        let records = journal.records().cloned().collect();
        (journal, records)
    }

    #[test]
    fn the_next_daemon_reads_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, unread) = Journal::open(folder.path(), 0xabc).unwrap();
        assert_eq!(
            (unread.lines, journal.next(), journal.prefix()),
            (0, 1, 0xabc)
        );
        for serial in [3, 4, 5] {
            journal.begin(record(serial)).unwrap();
        }
        journal.revoke(4).unwrap();
        journal.end(5).unwrap();
        let mut revoked = record(4);
        revoked.revoked = true;
        let (journal, records) = reopened(folder.path());
        assert_eq!(records, [record(3), revoked]);
        // No name is used twice, that of a lease that is over neither.
        assert_eq!((journal.next(), journal.prefix()), (6, 0xabc));
    }

    #[test]
    fn a_line_that_is_no_line_costs_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path(), 1).unwrap();
        journal.begin(record(1)).unwrap();
        let mut file = journal.file.as_ref().unwrap();
        file.write_all(b"{\"lease\":{\"serial\":-1}}\n").unwrap();
        journal.begin(record(2)).unwrap();
        // Killed in the middle of a line.
        let mut file = journal.file.as_ref().unwrap();
        file.write_all(b"{\"lease\":{\"ser").unwrap();
        let (journal, unread) = Journal::open(folder.path(), 1).unwrap();
        assert_eq!(unread.lines, 1);
        assert_eq!(journal.records().count(), 2);
        assert_eq!(reopened(folder.path()).1.len(), 2);
    }

    #[test]
    fn it_does_not_grow_with_leases_that_are_over() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path(), 1).unwrap();
        journal.begin(record(1)).unwrap();
        for serial in 2..10_000 {
            journal.begin(record(serial)).unwrap();
            journal.end(serial).unwrap();
        }
        let bytes = fs::metadata(folder.path().join("leases")).unwrap().len();
        assert!(bytes < 2 << 20, "{bytes}");
        let (journal, records) = reopened(folder.path());
        assert_eq!((records.len(), journal.next()), (1, 10_000));
    }

    #[test]
    fn where_there_is_no_space_leases_last_and_none_begins() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path(), 1).unwrap();
        journal.begin(record(1)).unwrap();
        drop(journal);
        // Nothing can be created: another file has the name, as where no space is left.
        let new = folder.path().join("leases.new");
        fs::create_dir(&new).unwrap();
        let (mut journal, unread) = Journal::open(folder.path(), 1).unwrap();
        assert!(unread.unwritable.is_some());
        assert_eq!(journal.records().cloned().collect::<Vec<_>>(), [record(1)]);
        journal.begin(record(2)).unwrap_err();
        journal.end(2).unwrap_err();
        fs::remove_dir(&new).unwrap();
        // There is space again.
        journal.begin(record(3)).unwrap();
        assert_eq!(reopened(folder.path()).1, [record(1), record(3)]);
    }
}
