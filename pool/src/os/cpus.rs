//! CPUs that a thread may run on: lists such as `0-3,8`, and those of a node.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;
use std::io;
use std::path::Path;

/// The CPUs of a list as the kernel writes it; `None` for anything else.
///
/// ```
/// use firstlight_pool::os::cpus::parse;
/// assert_eq!(parse("0-2,8\n"), Some(vec![0, 1, 2, 8]));
/// assert_eq!(parse(""), Some(vec![]));
/// assert_eq!(parse("3-1"), None);
/// ```
#[must_use]
pub fn parse(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CpuSet::MAX_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The CPUs of a node; none for one that has memory only.
///
/// # Errors
/// The node's file in `sys` cannot be read, or is no list.
pub fn of_node(sys: &Path, node: u32) -> io::Result<Vec<usize>> {
    let path = sys.join(format!("devices/system/node/node{node}/cpulist"));
    let text = fs::read_to_string(&path)?;
    parse(&text).ok_or_else(|| {
        let text = format!("{}: {:?} is no list of CPUs", path.display(), text.trim());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// Nodes of the machine, those without memory among them.
#[must_use]
pub fn nodes(sys: &Path) -> Vec<u32> {
    let text = fs::read_to_string(sys.join("devices/system/node/has_memory"));
    let nodes = text.ok().as_deref().and_then(parse).unwrap_or_default();
    nodes
        .into_iter()
        .filter_map(|node| u32::try_from(node).ok())
        .collect()
}

/// This thread runs on these CPUs only from now on.
///
/// # Errors
/// None of them may be used.
pub fn stay_on(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_anything_else_is_refused() {
        assert_eq!(parse("7"), Some(vec![7]));
        assert_eq!(parse("0-1,4-5"), Some(vec![0, 1, 4, 5]));
        for wrong in ["a", "1-", "-1", "1,x", "0-99999"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nodes_and_their_cpus_are_those_of_the_files() {
        let sys = tempfile::tempdir().unwrap();
        let node = sys.path().join("devices/system/node");
        fs::create_dir_all(node.join("node1")).unwrap();
        fs::write(node.join("has_memory"), "0-1\n").unwrap();
        fs::write(node.join("node1/cpulist"), "2-3\n").unwrap();
        assert_eq!(nodes(sys.path()), [0, 1]);
        assert_eq!(of_node(sys.path(), 1).unwrap(), [2, 3]);
        of_node(sys.path(), 0).unwrap_err();
        fs::write(node.join("node1/cpulist"), "many\n").unwrap();
        let error = of_node(sys.path(), 1).unwrap_err().to_string();
        assert!(error.contains("\"many\" is no list of CPUs"), "{error}");
    }

    #[test]
    fn a_thread_stays_where_it_is_told_to() {
        std::thread::spawn(|| {
            let allowed = rustix::thread::sched_getaffinity(None).unwrap();
            let first = (0..CpuSet::MAX_CPU)
                .find(|cpu| allowed.is_set(*cpu))
                .unwrap();
            stay_on(&[first]).unwrap();
            assert_eq!(rustix::thread::sched_getaffinity(None).unwrap().count(), 1);
            stay_on(&[]).unwrap_err();
        })
        .join()
        .unwrap();
    }
}
