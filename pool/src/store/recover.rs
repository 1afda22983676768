//! After a crash: what of the files in a mount is known to be clean.
//!
//! Known clean is a file that was marked clean when the kernel had filled it,
//! that was never marked allocated, has all its pages, and that no other process holds.
//! Everything else is emptied and loses its name.

use super::key::Key;
use super::mount::Mount;
use super::slab::{Slab, SlabId, mode};
use crate::os::memory_file;
use rustix::fs::FileType;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The name of a slab's file: its node and its number.
pub(super) fn name(key: &Key, id: SlabId) -> String {
    match key.node {
        Some(node) => format!("node{node}-{}", id.0),
        None => format!("any-{}", id.0),
    }
}

fn parse(name: &str) -> Option<(Option<u32>, SlabId)> {
    let (place, number) = name.split_once('-')?;
    let node = match place.strip_prefix("node") {
        Some(node) => Some(node.parse().ok()?),
        None if place == "any" => None,
        None => return None,
    };
    Some((node, SlabId(number.parse().ok()?)))
}

/// What was found.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Clean slabs, with their class.
    pub clean: Vec<(Key, Slab)>,
    /// Files that were emptied, and why.
    pub emptied: Vec<(String, &'static str)>,
}

/// Goes through the files of `mount`. Afterwards every file in it is one of
/// `clean`.
///
/// # Errors
/// The operating system's refusal to read the folder or to remove a name.
pub fn recover(mount: &Arc<Mount>) -> io::Result<Recovered> {
    let mut found = Recovered::default();
    for name in mount.names()? {
        match examine(mount, &name) {
            Ok((key, id, file)) => {
                let at = (Arc::clone(mount), name);
                let slab = Slab::named(id, key.page, key.bytes, file, at).found_clean();
                found.clean.push((key, slab));
            }
            Err(why) => {
                // Emptied first: the name is what finds it again after a crash here.
                if let Ok(file) = mount.open(&name) {
                    memory_file::set_length(&file, 0)?;
                }
                mount.remove(&name)?;
                found.emptied.push((name, why));
            }
        }
    }
    Ok(found)
}

fn examine(mount: &Mount, name: &str) -> Result<(Key, SlabId, OwnedFd), &'static str> {
    let (node, id) = parse(name).ok_or("no name of a slab")?;
    let file = mount.open(name).map_err(|_| "cannot be opened")?;
    let stat = rustix::fs::fstat(&file).map_err(|_| "cannot be read")?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink != 1 {
        return Err("not a plain file with one name");
    }
    match stat.st_mode & 0o7777 {
        mode::CLEAN => {}
        mode::FILLING => return Err("was being filled"),
        mode::ALLOCATED => return Err("was being allocated"),
        _ => return Err("not marked clean"),
    }
    let bytes = u64::try_from(stat.st_size).map_err(|_| "has no length")?;
    let held = memory_file::held_bytes(&file).map_err(|_| "cannot be read")?;
    if bytes == 0 || held != bytes {
        return Err("lacks pages");
    }
    if !memory_file::has_no_other_holder(&file).unwrap_or(false) {
        return Err("held by another process");
    }
    let key = Key {
        page: mount.page(),
        node,
        bytes,
    };
    Ok((key, id, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PageSize;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (node, id) in [(None, 0), (Some(0), 7), (Some(1023), u64::MAX)] {
            let key = Key {
                page: PageSize::Huge,
                node,
                bytes: 1,
            };
            let name = name(&key, SlabId(id));
            assert_eq!(parse(&name), Some((node, SlabId(id))), "{name}");
        }
        for name in [
            "", "any", "any-", "node-1", "nodex-1", "other-1", "any--1", "any-1-1",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
