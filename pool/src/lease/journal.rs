//! Which leases and grants there are, on file, so that the next daemon knows them.
//!
//! One line of JSON for each change, appended before its client is answered: a lease
//! that begins, that was revoked, that waits for a slab in the place of its own, that is over; a grant that is made, that
//! has ended. The file is in the daemon's folder, which does not outlive the machine's memory. A line that was not
//! finished was not answered.

use super::quota::Charge;
use super::{Grant, Serial};
use crate::protocol::{GrantId, Label, PageSize};
use crate::store::Key;
use crate::store::directory::{JOURNAL, NEW_JOURNAL};
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

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
    /// Whether no process can reach its memory any more, and it is charged until a clean slab is in its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub owed: bool,
    /// Of one that is owed, whether its memory was not found.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// What its client calls the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// The grant that it was taken by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantId>,
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
    /// Nothing is left of it but its charge.
    Owed(Serial),
    /// Nor is, and its memory was not found.
    Lost(Serial),
    /// Nothing is left of it.
    Over(Serial),
    /// A grant is made.
    Grant(Grant),
    /// A grant has ended.
    Ended(GrantId),
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
    folder: OwnedFd,
    /// Where lines are appended; none after a failure: the file is rewritten first.
    file: Option<File>,
    prefix: u32,
    next: Serial,
    live: BTreeMap<Serial, Record>,
    grants: BTreeMap<GrantId, Grant>,
    lines: usize,
}

impl Journal {
    /// The journal in a folder; names of leases begin with `prefix` where there is none.
    /// Says how many lines could not be read, and why it cannot be written to at the moment:
    /// the leases that there are last all the same, and none begins until it can.
    ///
    /// # Errors
    /// The operating system's refusal to read it.
    pub fn open(folder: OwnedFd, prefix: u32) -> io::Result<(Self, Unread)> {
        let mut text = Vec::new();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(&folder, JOURNAL, flags, Mode::empty()) {
            Ok(file) => {
                File::from(file).take(MOST_BYTES).read_to_end(&mut text)?;
            }
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let mut journal = Self {
            file: None,
            folder,
            prefix,
            next: 1,
            live: BTreeMap::new(),
            grants: BTreeMap::new(),
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
            Line::Owed(serial) => {
                if let Some(record) = self.live.get_mut(&serial) {
                    record.owed = true;
                }
            }
            Line::Lost(serial) => {
                if let Some(record) = self.live.get_mut(&serial) {
                    (record.owed, record.lost) = (true, true);
                }
            }
            Line::Over(serial) => {
                self.live.remove(&serial);
            }
            Line::Grant(grant) => {
                self.next = self.next.max(grant.id.number.saturating_add(1));
                self.grants.insert(grant.id, grant);
            }
            Line::Ended(id) => {
                self.grants.remove(&id);
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

    /// All leases of which something is left.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.live.values()
    }

    /// A lease of which something is left.
    #[must_use]
    pub fn record(&self, serial: Serial) -> Option<&Record> {
        self.live.get(&serial)
    }

    /// All grants that have not ended.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.grants.values()
    }

    /// A grant is made.
    ///
    /// # Errors
    /// It could not be written: there must be no such grant.
    pub fn grant(&mut self, grant: Grant) -> io::Result<()> {
        let id = grant.id;
        let made = self.append(Line::Grant(grant));
        if made.is_err() {
            self.grants.remove(&id);
        }
        made
    }

    /// A grant has ended.
    ///
    /// # Errors
    /// It could not be written: the next daemon takes it up where it finds its folder.
    pub fn end_grant(&mut self, id: GrantId) -> io::Result<()> {
        self.append(Line::Ended(id))
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

    /// Nothing is left of a lease but its charge, until a clean slab is in the place of its own, whose pages are back or
    /// were not seen.
    ///
    /// # Errors
    /// It could not be written: the next daemon looks for it.
    pub fn owe(&mut self, serial: Serial, has_pages: bool) -> io::Result<()> {
        let line = if has_pages { Line::Owed } else { Line::Lost };
        self.append(line(serial))
    }

    /// Nothing is left of a lease.
    ///
    /// # Errors
    /// It could not be written: the next daemon looks for it.
    pub fn end(&mut self, serial: Serial) -> io::Result<()> {
        self.append(Line::Over(serial))
    }

    /// As after a failure: the file is written as a whole next.
    #[cfg(test)]
    pub fn break_off(&mut self) {
        self.file = None;
    }

    /// Writes what could not be written before, if there is anything.
    pub fn catch_up(&mut self) {
        if self.file.is_none() {
            let _ = self.rewrite();
        }
    }

    fn append(&mut self, line: Line) -> io::Result<()> {
        let text = text(&line)?;
        self.heed(line);
        match self.file.take() {
            Some(mut file) if self.lines <= self.kept_lines() * 2 + SPARE_LINES => {
                // What is half a line now would spoil the next one.
                file.write_all(text.as_bytes())?;
                self.lines += 1;
                self.file = Some(file);
                Ok(())
            }
            _ => self.rewrite(),
        }
    }

    /// Lines that there have to be.
    fn kept_lines(&self) -> usize {
        self.live.len() + self.grants.len() + 1
    }

    /// Writes the file with nothing but the leases and grants there are.
    fn rewrite(&mut self) -> io::Result<()> {
        let names = Line::Names {
            prefix: self.prefix,
            next: self.next,
        };
        let mut all = text(&names)?;
        for grant in self.grants.values() {
            all += &text(&Line::Grant(grant.clone()))?;
        }
        for record in self.live.values() {
            all += &text(&Line::Lease(record.clone()))?;
        }
        let remove = || unlinkat(&self.folder, NEW_JOURNAL, AtFlags::empty());
        // What a daemon that was killed left of one, or whatever else has the name: nothing that is there is written to.
        let _ = remove();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(openat(&self.folder, NEW_JOURNAL, flags, mode)?);
        let replaced = file.write_all(all.as_bytes()).and_then(|()| {
            let here = &self.folder;
            Ok(renameat(here, NEW_JOURNAL, here, JOURNAL)?)
        });
        if replaced.is_err() {
            // Half of it, where there is no space for all.
            let _ = remove();
        }
        replaced?;
        self.file = Some(file);
        self.lines = self.kept_lines();
        Ok(())
    }
}

fn text(line: &Line) -> io::Result<String> {
    Ok(serde_json::to_string(line)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn open(folder: &Path, prefix: u32) -> io::Result<(Journal, Unread)> {
        Journal::open(File::open(folder).unwrap().into(), prefix)
    }

    #[test]
    fn nothing_is_written_to_a_file_that_has_its_name_already() {
        let folder = tempfile::tempdir().unwrap();
        let [secret, new] = ["secret", "leases.new"].map(|name| folder.path().join(name));
        fs::write(&secret, "root's").unwrap();
        std::os::unix::fs::symlink(&secret, &new).unwrap();
        let (mut journal, unread) = open(folder.path(), 1).unwrap();
        assert!(unread.unwritable.is_none(), "{unread:?}");
        fs::hard_link(&secret, &new).unwrap();
        journal.break_off();
        journal.begin(record(1)).unwrap();
        // What waits for a process at the other end.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &new,
            rustix::fs::FileType::Fifo,
            Mode::RWXU,
            0,
        )
        .unwrap();
        journal.break_off();
        journal.begin(record(2)).unwrap();
        assert_eq!(fs::read(&secret).unwrap(), b"root's");
        assert_eq!(reopened(folder.path()).1.len(), 2);
        fs::remove_file(folder.path().join("leases")).unwrap();
        std::os::unix::fs::symlink(&secret, folder.path().join("leases")).unwrap();
        open(folder.path(), 1).unwrap_err();
    }

    #[test]
    fn it_is_written_in_its_folder_whatever_has_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let [own, away] = ["own", "away"].map(|name| folder.path().join(name));
        fs::create_dir(&own).unwrap();
        let (mut journal, _) = open(&own, 1).unwrap();
        fs::rename(&own, &away).unwrap();
        fs::create_dir(&own).unwrap();
        journal.break_off();
        journal.begin(record(1)).unwrap();
        assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
        assert_eq!(reopened(&away).1, [record(1)]);
    }

    #[test]
    fn what_could_not_be_written_is_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        let mut journal = open(place, 1).unwrap().0;
        let id = GrantId {
            prefix: journal.prefix(),
            number: 1,
        };
        let request = crate::protocol::GrantRequest {
            page: PageSize::Huge,
            node: None,
            size_class_bytes: 2 << 20,
            uses: 1,
            label: None,
        };
        journal.grant(Grant::new(id, request)).unwrap();
        journal.break_off();
        let new = place.join("leases.new");
        fs::create_dir(&new).unwrap();
        journal.end_grant(id).unwrap_err();
        let left = || open(place, 1).unwrap().0.grants().count();
        assert_eq!(left(), 1);
        fs::remove_dir(&new).unwrap();
        journal.catch_up();
        assert_eq!(left(), 0);
    }

    fn record(serial: Serial) -> Record {
        Record {
            serial,
            page: PageSize::Huge,
            node: Some(1),
            class_bytes: 4 << 20,
            bytes: 6 << 20,
            uid: 7,
            pid: 8,
            charge: Charge::default(),
            since_ms: 9,
            revoked: false,
            owed: false,
            lost: false,
            label: Some(Label::new("web-1")),
            grant: None,
        }
    }

    fn reopened(folder: &Path) -> (Journal, Vec<Record>) {
        let (journal, unread) = open(folder, 0xffff).unwrap();
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
        let (mut journal, unread) = open(folder.path(), 0xabc).unwrap();
        assert_eq!(
            (unread.lines, journal.next(), journal.prefix()),
            (0, 1, 0xabc)
        );
        for serial in [3, 4, 5, 6, 7] {
            journal.begin(record(serial)).unwrap();
        }
        journal.revoke(4).unwrap();
        journal.owe(5, true).unwrap();
        journal.owe(6, false).unwrap();
        journal.end(7).unwrap();
        let (mut revoked, mut owed, mut lost) = (record(4), record(5), record(6));
        (revoked.revoked, owed.owed) = (true, true);
        (lost.owed, lost.lost) = (true, true);
        let expected = [record(3), revoked, owed, lost];
        // Read from lines, then from a file that was written as a whole.
        for _ in 0..2 {
            let (journal, records) = reopened(folder.path());
            assert_eq!(records, expected);
            // No name is used twice, that of a lease that is over neither.
            assert_eq!((journal.next(), journal.prefix()), (8, 0xabc));
        }
    }

    #[test]
    fn the_next_daemon_knows_grants_and_uses_no_number_twice() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(folder.path(), 0xabc).unwrap();
        let grant = |number| Grant {
            id: GrantId {
                prefix: 0xabc,
                number,
            },
            page: PageSize::Huge,
            node: Some(1),
            class_bytes: 4 << 20,
            uses: 2,
            label: Some(Label::new("ns/pod")),
        };
        for number in [1, 2] {
            journal.grant(grant(number)).unwrap();
        }
        let by_grant = Record {
            grant: Some(grant(1).id),
            ..record(3)
        };
        journal.begin(by_grant.clone()).unwrap();
        journal.grant(grant(4)).unwrap();
        journal.end_grant(grant(2).id).unwrap();
        journal.end_grant(grant(4).id).unwrap();
        // Read from lines, then from a file that was written as a whole.
        for _ in 0..2 {
            let (journal, records) = reopened(folder.path());
            assert_eq!(journal.grants().cloned().collect::<Vec<_>>(), [grant(1)]);
            assert_eq!((records, journal.next()), (vec![by_grant.clone()], 5));
        }
        // A grant of which the next daemon would not know is none for this one.
        let (mut journal, _) = open(folder.path(), 0xabc).unwrap();
        journal.break_off();
        fs::create_dir(folder.path().join("leases.new")).unwrap();
        journal.grant(grant(5)).unwrap_err();
        assert!(journal.grants().all(|one| one.id != grant(5).id));
    }

    #[test]
    fn a_line_that_is_no_line_costs_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(folder.path(), 1).unwrap();
        journal.begin(record(1)).unwrap();
        let mut file = journal.file.as_ref().unwrap();
        file.write_all(b"{\"lease\":{\"serial\":-1}}\n").unwrap();
        journal.begin(record(2)).unwrap();
        // Killed in the middle of a line.
        let mut file = journal.file.as_ref().unwrap();
        file.write_all(b"{\"lease\":{\"ser").unwrap();
        let (journal, unread) = open(folder.path(), 1).unwrap();
        assert_eq!(unread.lines, 1);
        assert_eq!(journal.records().count(), 2);
        assert_eq!(reopened(folder.path()).1.len(), 2);
    }

    #[test]
    fn it_does_not_grow_with_leases_that_are_over() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(folder.path(), 1).unwrap();
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
        let (mut journal, _) = open(folder.path(), 1).unwrap();
        journal.begin(record(1)).unwrap();
        drop(journal);
        // Nothing can be created: another file has the name, as where no space is left.
        let new = folder.path().join("leases.new");
        fs::create_dir(&new).unwrap();
        let (mut journal, unread) = open(folder.path(), 1).unwrap();
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
