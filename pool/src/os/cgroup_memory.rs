//! Memory that this process' cgroup may still use: where it is less than the machine has, a
//! process that goes on is killed.

use super::kept::KeptFile;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where cgroups are.
const ROOT: &str = "/sys/fs/cgroup";

/// A cgroup that has a limit, and what may be used up to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Its folder.
    pub cgroup: PathBuf,
    /// Its limit.
    pub limit_bytes: u64,
    /// What is left of it, files that the kernel can drop at once counted in.
    pub left_bytes: u64,
}

/// Names of the figures, in the unified hierarchy and in the memory controller's own.
struct Names {
    limit: &'static str,
    used: &'static str,
    dropped: &'static str,
}

static UNIFIED: Names = Names {
    limit: "memory.max",
    used: "memory.current",
    dropped: "inactive_file ",
};

static MEMORY: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    dropped: "total_inactive_file ",
};

/// A cgroup's files, kept open.
#[derive(Debug)]
struct Kept {
    cgroup: PathBuf,
    limit: KeptFile,
    used: KeptFile,
    stat: Option<KeptFile>,
    /// The name of what the kernel can drop, in `stat`.
    dropped: &'static str,
}

impl Kept {
    fn open(cgroup: &Path, names: &Names) -> io::Result<Self> {
        let path = |name: &str| cgroup.join(name);
        Ok(Self {
            cgroup: cgroup.to_owned(),
            limit: KeptFile::open(&path(names.limit))?,
            used: KeptFile::open(&path(names.used))?,
            stat: KeptFile::open_if_there(&path("memory.stat"))?,
            dropped: names.dropped,
        })
    }

    /// `None` where it has no limit.
    fn space(&self) -> Option<Space> {
        // A word, `max`, where there is none.
        let limit_bytes = self.limit.number().ok()?;
        let stat = self.stat.as_ref().and_then(|stat| stat.read().ok());
        let mut lines = stat.iter().flat_map(|text| text.lines());
        let dropped = lines.find_map(|line| line.strip_prefix(self.dropped));
        let dropped: Option<u64> = dropped.and_then(|text| text.trim().parse().ok());
        let used_bytes = self.used.number().ok()?;
        let used_bytes = used_bytes.saturating_sub(dropped.unwrap_or(0));
        Some(Space {
            cgroup: self.cgroup.clone(),
            limit_bytes,
            left_bytes: limit_bytes.saturating_sub(used_bytes),
        })
    }
}

/// The cgroup that this process was in when its files were opened, and those above it: they stay open.
#[derive(Debug, Default)]
pub struct Limits(Vec<Kept>);

impl Limits {
    /// Those of this process; none where nothing says in which cgroup it is.
    ///
    /// # Errors
    /// Files that are there and cannot be opened.
    pub fn open() -> io::Result<Self> {
        Self::open_all(&own(Path::new(ROOT)))
    }

    /// Those of this process, where they are other ones by now than these.
    ///
    /// # Errors
    /// Files that are there and cannot be opened.
    pub fn open_others(than: &[PathBuf]) -> io::Result<Option<Self>> {
        let own = own(Path::new(ROOT));
        let is_other = !own.iter().map(|(cgroup, _)| cgroup).eq(than);
        is_other.then(|| Self::open_all(&own)).transpose()
    }

    fn open_all(cgroups: &[Cgroup]) -> io::Result<Self> {
        let kept = cgroups
            .iter()
            .map(|(folder, names)| Kept::open(folder, names));
        kept.collect::<io::Result<_>>().map(Self)
    }

    /// The cgroups, from the lowest up.
    #[must_use]
    pub fn cgroups(&self) -> Vec<PathBuf> {
        self.0.iter().map(|kept| kept.cgroup.clone()).collect()
    }

    /// The descriptors, to be closed by a thread that may wait.
    pub fn into_descriptors(self) -> impl Iterator<Item = OwnedFd> {
        let kept = self.0.into_iter();
        let files = kept.flat_map(|kept| [Some(kept.limit), Some(kept.used), kept.stat]);
        files.flatten().map(KeptFile::into_descriptor)
    }

    /// The least of what these cgroups may still use; `None` where none has a limit that can be read.
    #[must_use]
    pub fn space(&self) -> Option<Space> {
        let spaces = self.0.iter().filter_map(Kept::space);
        spaces.min_by_key(|space| space.left_bytes)
    }
}

/// A cgroup whose memory may be limited.
type Cgroup = (PathBuf, &'static Names);

/// Those of this process that may have a limit, from the lowest up.
fn own(root: &Path) -> Vec<Cgroup> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limited(root, &own)
}

fn limited(root: &Path, own: &str) -> Vec<Cgroup> {
    let all = own.lines().flat_map(|line| of_line(root, line));
    all.filter(|(folder, names)| folder.join(names.limit).exists())
        .collect()
}

/// The cgroups of a line of `/proc/self/cgroup`, from the lowest up, in a hierarchy that may limit memory.
fn of_line(root: &Path, line: &str) -> Vec<Cgroup> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (top, names) = match controllers {
        "" => (root.to_owned(), &UNIFIED),
        _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), &MEMORY),
        _ => return Vec::new(),
    };
    let folder = top.join(path.trim_start_matches('/'));
    let folders = folder.ancestors().take_while(|at| at.starts_with(&top));
    folders.map(|folder| (folder.to_owned(), names)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_least_of_a_cgroup_and_those_above_it() {
        let root = tempfile::tempdir().unwrap();
        let set = |folder: &str, figures: [(&str, &str); 3]| {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in figures {
                fs::write(folder.join(name), text).unwrap();
            }
        };
        let unified = |limit, used, stat| {
            [
                ("memory.max", limit),
                ("memory.current", used),
                ("memory.stat", stat),
            ]
        };
        set(
            "a",
            unified("1000\n", "900\n", "anon 5\ninactive_file 50\n"),
        );
        set("a/b", unified("max\n", "800\n", ""));
        set("a/b/c", unified("500\n", "100\n", ""));
        let limits = |own| Limits::open_all(&limited(root.path(), own)).unwrap();
        let space = |own| {
            let space = limits(own).space();
            space.map(|space| (space.limit_bytes, space.left_bytes))
        };
        let a = root.path().join("a");
        assert_eq!(limits("0::/a/b\n").cgroups(), [a.join("b"), a]);
        assert_eq!(space("0::/a/b/c\n"), Some((1000, 150)));
        assert_eq!(space("0::/a/b\n"), Some((1000, 150)));
        assert_eq!(space("0::/\n"), None);
        assert_eq!(space("0::/gone\n1:cpu:/a\nnonsense"), None);
        let v1 = [
            ("memory.limit_in_bytes", "300"),
            ("memory.usage_in_bytes", "400"),
            ("memory.stat", "total_inactive_file 150\n"),
        ];
        set("memory/x", v1);
        assert_eq!(space("4:cpu,memory:/x\n0::/a/b/c\n"), Some((300, 50)));
    }
    #[test]
    fn they_are_opened_again_where_they_are_other_ones() {
        let own = Limits::open().unwrap().cgroups();
        assert!(Limits::open_others(&own).unwrap().is_none());
        let none = Limits::open_others(&["/nonexistent".into()]).unwrap();
        assert_eq!(none.unwrap().cgroups(), own);
    }
}
