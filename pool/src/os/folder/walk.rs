//! A whole path, looked up name by name: each folder on the way is one in which no other user puts another in its place.
//!
//! A link is followed where it is root's or this process's user's, and no other user can have moved it there. All is done by descriptors, so that what was looked at
//! is what is used.

use super::{is_trusted, make};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Links that are followed on one path: as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// What every user may pass and none may list.
pub const PASSABLE: Mode = Mode::from_raw_mode(0o711);

const FOUND: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What becomes of folders that are missing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Missing {
    /// They are not found.
    Stays,
    /// They are made, passed by all, and the last one with this mode.
    Made(Mode),
}

/// Where a walk is.
struct Walk {
    at: OwnedFd,
    /// Its name, to be shown.
    path: PathBuf,
    /// What is to be looked up, the last first.
    names: Vec<OsString>,
}

/// Opens a folder at a path, of which no link and no folder on the way is another user's. The folder itself may be; what
/// its name is looked up in is not.
///
/// # Errors
/// What another user may change, and what to do; the operating system's refusal.
pub(super) fn walk(path: &Path, missing: Missing) -> io::Result<OwnedFd> {
    walk_with(path, missing, None)
}

/// As [`walk`], where one more user's folders and links are as good as ours, but where any user makes names.
pub(super) fn walk_with(path: &Path, missing: Missing, also: Option<u32>) -> io::Result<OwnedFd> {
    // Of the folder that this process is in nothing is asked where the path does not begin there.
    let begin = if path.is_absolute() { "/" } else { "." };
    let mut walk = Walk {
        at: top(Path::new(begin))?,
        path: PathBuf::new(),
        names: Vec::new(),
    };
    walk.begin(path)?;
    let mut links = 0;
    while let Some(name) = walk.names.pop() {
        let folder = check_with(&walk.at, &walk.path, also)?;
        let found = match (look_up(&walk.at, &name), missing) {
            (Err(Errno::NOENT), Missing::Made(last)) => {
                let mode = if walk.names.is_empty() {
                    last
                } else {
                    PASSABLE
                };
                walk.at = make(&walk.at, Path::new(&name), mode)?;
                walk.path.push(name);
                continue;
            }
            (found, _) => found?,
        };
        let stat = fstat(&found)?;
        let shown = walk.path.join(&name);
        // There any user makes names, or moves to what is another's: links, and folders that it may write to.
        let is_made_by_any = folder.st_mode & 0o022 != 0 && name != "..";
        let kind = FileType::from_raw_mode(stat.st_mode);
        if is_made_by_any && kind == FileType::Symlink {
            return Err(io::Error::other(format!(
                "{} is a link where any user makes files: name the folder that it leads to",
                shown.display()
            )));
        }
        if is_made_by_any && kind == FileType::Directory {
            no_other_writes(&stat, &shown)?;
        }
        let is_to_be_trusted = is_made_by_any || kind == FileType::Symlink;
        let is_theirs = !is_made_by_any && also == Some(stat.st_uid);
        if is_to_be_trusted && !is_theirs && !is_trusted(stat.st_uid, is_made_by_any) {
            return Err(another_users(&shown, stat.st_uid));
        }
        match kind {
            FileType::Directory => (walk.at, walk.path) = (found, shown),
            FileType::Symlink if links < MOST_LINKS => {
                links += 1;
                let target = readlinkat(&found, "", Vec::new())?;
                walk.begin(Path::new(OsStr::from_bytes(target.as_bytes())))?;
            }
            FileType::Symlink => return Err(Errno::LOOP.into()),
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(walk.at)
}

impl Walk {
    /// Goes on with a path: of a link, from the folder that it is in.
    fn begin(&mut self, path: &Path) -> io::Result<()> {
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.names.push(name.into()),
                Component::ParentDir => self.names.push("..".into()),
                Component::RootDir => {
                    self.at = top(Path::new("/"))?;
                    self.path = "/".into();
                }
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
        Ok(())
    }
}

/// A folder, which is mounted first where that is due, or what else is there.
fn look_up(at: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    match openat(at, name, FOUND | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => openat(at, name, FOUND, Mode::empty()),
        found => found,
    }
}

fn top(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, FOUND | OFlags::DIRECTORY, Mode::empty())?)
}

/// Refuses a folder in which another user may put a file in the place of ours; what is known of it.
///
/// # Errors
/// What was found, and what to do.
pub(super) fn check(folder: impl AsFd, path: &Path) -> io::Result<Stat> {
    check_with(folder, path, None)
}

fn check_with(folder: impl AsFd, path: &Path, also: Option<u32>) -> io::Result<Stat> {
    let stat = fstat(folder)?;
    if also != Some(stat.st_uid) && !is_trusted(stat.st_uid, false) {
        return Err(another_users(path, stat.st_uid));
    }
    // In a sticky one a file is its owner's alone to remove.
    if stat.st_mode & 0o1000 == 0 {
        no_other_writes(&stat, path)?;
    }
    Ok(stat)
}

/// Refuses a folder that others may write to.
pub(super) fn no_other_writes(folder: &Stat, path: &Path) -> io::Result<()> {
    let mode = folder.st_mode & 0o7777;
    if mode & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "others may write to {}, which has mode {mode:03o}: `chmod go-w` it, or choose another folder",
        path.display()
    )))
}

fn another_users(path: &Path, user: u32) -> io::Error {
    io::Error::other(format!(
        "{} is user {user}'s, where root's or the daemon's is expected: choose another folder",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

    const STRANGER: u32 = 65_061;

    fn open(path: impl AsRef<Path>) -> Result<u64, String> {
        let found = walk(path.as_ref(), Missing::Stays);
        let found = found.and_then(|found| Ok(fstat(&found)?.st_ino));
        found.map_err(|error| error.to_string())
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn refused(path: impl AsRef<Path>, text: &str) {
        let error = open(path).unwrap_err();
        assert!(error.contains(text), "{error}");
    }

    #[test]
    fn links_slashes_and_dots_are_what_they_are_to_the_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir_all(path.join("a/b")).unwrap();
        let number = |name: &str| {
            fs::metadata(path.join(name))
                .map(|file| file.ino())
                .unwrap()
        };
        symlink("a/b", path.join("near")).unwrap();
        symlink(path.join("near/"), path.join("far")).unwrap();
        symlink("../far/..", path.join("a/up")).unwrap();
        for name in [
            "a/b",
            "a//./b/",
            "near",
            "far/",
            "a/up/b",
            "near/../../far",
            "a/b/..",
        ] {
            assert_eq!(open(path.join(name)), Ok(number(name)), "{name}");
        }
        symlink("circle", path.join("circle")).unwrap();
        fs::write(path.join("file"), "").unwrap();
        refused(path.join("circle"), "symbolic links");
        refused(path.join("file"), "a directory");
        refused(path.join("missing/a"), "No such file");
        assert_eq!(open("/"), Ok(fs::metadata("/").unwrap().ino()));
        assert_eq!(open("."), Ok(fs::metadata(".").unwrap().ino()));
        let made = walk(&path.join("far/x/y/"), Missing::Made(Mode::RWXU)).unwrap();
        assert_eq!(fstat(&made).unwrap().st_ino, number("a/b/x/y"));
        let mode = |name| fs::metadata(path.join(name)).unwrap().mode() & 0o777;
        assert_eq!((mode("a/b/x"), mode("a/b/x/y")), (0o711, 0o700));
    }

    #[test]
    fn no_folder_on_the_way_is_one_that_others_write_to() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        let own = top.join("on/own");
        fs::create_dir_all(&own).unwrap();
        for (open_to, is_used) in [
            (0o777, false),
            (0o775, false),
            (0o1777, true),
            (0o755, true),
        ] {
            mode(&top, open_to);
            let text = format!("others may write to {}", top.display());
            match is_used {
                true => drop(open(&own).unwrap()),
                false => refused(&own, &text),
            }
        }
        // What the folder itself is, is for the caller to see.
        mode(&own, 0o777);
        open(&own).unwrap();
    }

    #[test]
    fn no_folder_and_no_link_on_the_way_is_a_strangers() {
        if !rustix::process::geteuid().is_root() {
            return crate::os::need::skip("root", "only root can make files of others");
        }
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        let [own, link] = ["on/own", "link"].map(|name| top.join(name));
        fs::create_dir_all(&own).unwrap();
        symlink("on/own", &link).unwrap();
        open(&link).unwrap();
        chown(top.join("on"), Some(STRANGER), None).unwrap();
        let text = format!("{} is user {STRANGER}'s", top.join("on").display());
        refused(&own, &text);
        refused(&link, &text);
        // Nothing is looked up in it.
        open(top.join("on")).unwrap();
        mode(&top, 0o1777);
        refused(top.join("on"), &text);
        chown(top.join("on"), Some(0), None).unwrap();
        open(top.join("on")).unwrap();
        // A stranger may have moved it there.
        refused(&link, &format!("{} is a link", link.display()));
        lchown(&link, Some(STRANGER), None).unwrap();
        refused(&link, &format!("{} is a link", link.display()));
        mode(&top, 0o755);
        refused(&link, &format!("{} is user {STRANGER}'s", link.display()));
        // So may one of ours be that a stranger writes to.
        let shared = top.join("shared");
        fs::create_dir(&shared).unwrap();
        for shared_by in [0o1777, 0o2775] {
            mode(&shared, shared_by);
            mode(&top, 0o755);
            open(&shared).unwrap();
            mode(&top, 0o1777);
            refused(
                &shared,
                &format!("others may write to {}", shared.display()),
            );
        }
        // One that a stranger has made where a folder would be.
        mode(&top, 0o1777);
        fs::create_dir(top.join("first")).unwrap();
        chown(top.join("first"), Some(STRANGER), None).unwrap();
        let made = walk(&top.join("first/own"), Missing::Made(Mode::RWXU)).unwrap_err();
        assert!(made.to_string().contains("first is user"), "{made}");
        assert!(!top.join("first/own").exists());
    }
}
