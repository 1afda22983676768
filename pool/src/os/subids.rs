//! The user behind another one's number: ranges that users may use in user namespaces
//! (`/etc/subuid`).
//!
//! A user with such a range is as many users as the range is long, all with its groups. What
//! is counted by user is counted for the range's owner.

use super::peer::user_id;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long names that could not be looked up are left alone.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// A range, and the user that all of it counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u32,
    count: u32,
    user: u32,
}

/// What the file was like when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

/// All ranges, as they were when the file was last read.
///
/// ```
/// use firstlight_pool::os::subids::SubordinateIds;
/// let file = tempfile::NamedTempFile::new()?;
/// std::fs::write(&file, "1000:100000:65536\n")?;
/// let mut ids = SubordinateIds::of_file(file.path(), &[]);
/// assert!(!ids.is_current() && ids.read() && ids.is_current());
/// assert_eq!(ids.user_of(165_535), 1000);
/// assert_eq!(ids.user_of(165_536), 165_536);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SubordinateIds {
    path: PathBuf,
    /// Users whose ranges do not count as theirs: the daemon's owners, which have no limits.
    apart: Vec<u32>,
    version: Option<Version>,
    /// What the file was like when one of these, or of those that it was cloned from, last looked.
    seen: Arc<Mutex<Option<Version>>>,
    /// When owners that could not be looked up are looked up again.
    again: Option<Instant>,
    ranges: Vec<Range>,
}

impl SubordinateIds {
    /// Of this machine, not read yet. A range of one of `apart` counts as a user of its own.
    #[must_use]
    pub fn of_machine(apart: &[u32]) -> Self {
        Self::of_file("/etc/subuid", apart)
    }

    /// Of a file in the place of `/etc/subuid`.
    pub fn of_file(path: impl Into<PathBuf>, apart: &[u32]) -> Self {
        let ids = Self {
            path: path.into(),
            apart: apart.to_vec(),
            version: None,
            seen: Arc::default(),
            again: None,
            ranges: Vec::new(),
        };
        ids.look();
        ids
    }

    /// The user that `uid` counts as: the owner of its range, else itself.
    #[must_use]
    pub fn user_of(&self, uid: u32) -> u32 {
        let within = |range: &&Range| {
            uid.checked_sub(range.first)
                .is_some_and(|at| at < range.count)
        };
        self.ranges
            .iter()
            .find(within)
            .map_or(uid, |range| range.user)
    }

    fn seen(&self) -> MutexGuard<'_, Option<Version>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the file, for all clones, and does not open it. Any process can keep all waiting that look for a file.
    pub fn look(&self) {
        let version = fs::metadata(&self.path).ok().map(|file| Version {
            inode: file.ino(),
            bytes: file.len(),
            changed: (file.ctime(), file.ctime_nsec()),
        });
        *self.seen() = version;
    }

    fn is_version(&self, version: Option<Version>) -> bool {
        let is_due = self.again.is_some_and(|at| Instant::now() >= at);
        version == self.version && !is_due
    }

    /// Whether there was nothing new to read when the file was last looked at.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let seen = *self.seen();
        self.is_version(seen)
    }

    /// Reads the file if there is something new; whether it was read. Locks on the file, and the service that knows the names
    /// of users, may have to be waited for.
    pub fn read(&mut self) -> bool {
        self.look();
        let version = *self.seen();
        if self.is_version(version) {
            return false;
        }
        self.again = None;
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            // Out of descriptors, say: what was known holds, and it is read with the next client.
            Err(_) => return false,
        };
        // A name that is no text is as unknown as others, and takes no other range with it.
        let text = String::from_utf8_lossy(&text);
        let mut are_known = true;
        let ranges = text.lines();
        let ranges = ranges.filter_map(|line| self.range(line, &mut are_known));
        self.ranges = ranges.collect();
        self.version = version;
        // Not with each client: a name service may take its time to fail.
        self.again = (!are_known).then(|| Instant::now() + AGAIN_AFTER);
        true
    }

    /// The range of a line; `are_known` becomes false where its owner could not be looked up.
    fn range(&self, line: &str, are_known: &mut bool) -> Option<Range> {
        let mut fields = line.split(':');
        let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        let first = first.trim().parse().ok()?;
        let owner = match owner.parse() {
            Ok(number) => Some(number),
            Err(_) => user_id(owner).unwrap_or_else(|_| {
                *are_known = false;
                let mut before = self.ranges.iter();
                let before = before.find(|range| range.first == first && range.user != first);
                before.map(|range| range.user)
            }),
        };
        // Of an owner without a number, all of the range is one user all the same.
        let owner = owner.filter(|owner| !self.apart.contains(owner));
        Some(Range {
            first,
            count: count.trim().parse().ok()?,
            user: owner.unwrap_or(first),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_user_also_where_its_owner_has_no_number_or_no_limits() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "1000:100000:10\nroot:200000:10\nno such user:300000:10\n900:400000:10\n\
                    1001:no:number\n:::\n1002:4294967290:100\n";
        fs::write(&file, text).unwrap();
        let mut ids = SubordinateIds::of_file(file.path(), &[0, 900]);
        let mut user_of = |uid| {
            ids.read();
            ids.user_of(uid)
        };
        for (uid, user) in [
            (0, 0),
            (1000, 1000),
            (99_999, 99_999),
            (100_000, 1000),
            (100_009, 1000),
            (100_010, 100_010),
            (200_007, 200_000),
            (300_007, 300_000),
            (400_007, 400_000),
            (u32::MAX, 1002),
        ] {
            assert_eq!(user_of(uid), user, "{uid}");
        }
        fs::write(&file, "1001:100000:10\n# longer than nothing\n").unwrap();
        assert_eq!(user_of(100_000), 1001, "read again");
        drop(file);
        assert_eq!(user_of(100_000), 100_000);
    }

    #[test]
    fn a_file_that_cannot_be_read_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subuid");
        fs::write(&path, "1000:100000:10\n").unwrap();
        let mut ids = SubordinateIds::of_file(&path, &[]);
        let mut user_of = |uid| {
            ids.read();
            ids.user_of(uid)
        };
        assert_eq!(user_of(100_001), 1000);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(user_of(100_001), 1000, "what was known holds");
        fs::remove_dir(&path).unwrap();
        assert_eq!(user_of(100_001), 100_001, "there is none");
        fs::write(&path, "1001:100000:10\n").unwrap();
        assert_eq!(user_of(100_001), 1001);
    }
}
