//! Memory that this process' cgroup may still use: where it is less than the machine has, a
//! process that goes on is killed.

use std::fs;
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

/// The least of what this process' cgroup and those above it may still use; `None` where
/// none has a limit that can be read.
#[must_use]
pub fn space() -> Option<Space> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    space_in(Path::new(ROOT), &own)
}

/// Names of the figures, in the unified hierarchy and in the memory controller's own.
struct Names {
    limit: &'static str,
    used: &'static str,
    dropped: &'static str,
}

const UNIFIED: Names = Names {
    limit: "memory.max",
    used: "memory.current",
    dropped: "inactive_file ",
};

const MEMORY: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    dropped: "total_inactive_file ",
};

fn space_in(root: &Path, own: &str) -> Option<Space> {
    let mut least: Option<Space> = None;
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (top, names) = match controllers {
            "" => (root.to_owned(), UNIFIED),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), MEMORY)
            }
            _ => continue,
        };
        let folder = top.join(path.trim_start_matches('/'));
        let folders = folder
            .ancestors()
            .take_while(|folder| folder.starts_with(&top));
        for space in folders.filter_map(|folder| of(folder, &names)) {
            if least
                .as_ref()
                .is_none_or(|least| space.left_bytes < least.left_bytes)
            {
                least = Some(space);
            }
        }
    }
    least
}

fn of(folder: &Path, names: &Names) -> Option<Space> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(folder.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    // A word, `max`, where there is none.
    let limit_bytes = number(names.limit)?;
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let dropped = stat
        .lines()
        .find_map(|line| line.strip_prefix(names.dropped));
    let dropped = dropped
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    let used = number(names.used)?.saturating_sub(dropped);
    Some(Space {
        cgroup: folder.to_owned(),
        limit_bytes,
        left_bytes: limit_bytes.saturating_sub(used),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let space =
            |own| space_in(root.path(), own).map(|space| (space.limit_bytes, space.left_bytes));
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
}
