//! After a crash: whether the file in a mount is known to be clean.
//!
//! Known clean is a file that was marked clean when the kernel had filled it,
//! that was never marked allocated, has all its pages, and that no other process holds.
//! Any other is emptied and loses its name.

use super::key::Key;
use super::mount::Mount;
use super::slab::{Slab, SlabId, mode};
use crate::os::memory_file;
use rustix::fs::FileType;
use std::io;
use std::os::fd::OwnedFd;

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

/// The clean slab in a mount that a service manager kept, and its class; it has the number `id` from now on. Any other
/// file is emptied.
///
/// # Errors
/// Why there is none; the operating system's refusal to read the folder or to remove a name.
pub(super) fn recover(folder: OwnedFd, id: SlabId) -> io::Result<(Key, Slab)> {
    let mount = Mount::adopt(folder)?;
    let mut why = "it has no file: the slab was allocated";
    let mut names = mount.names()?;
    if let [name] = &names[..] {
        match examine(&mount, name) {
            Ok((key, file)) => {
                let at = (mount, names.remove(0));
                return Ok((key, Slab::named(id, key.page, key.bytes, file, at)));
            }
            Err(unclean) => why = unclean,
        }
    }
    if names.len() > 1 {
        why = "it has another file than a slab's, or more than one";
    }
    for name in names {
        // Emptied first: the name is what finds it again after a crash here.
        if let Ok(file) = mount.open(&name) {
            memory_file::set_length(&file, 0)?;
        }
        mount.remove(&name)?;
    }
    Err(io::Error::other(why))
}

fn examine(mount: &Mount, name: &str) -> Result<(Key, OwnedFd), &'static str> {
    let (node, _) = parse(name).ok_or("no name of a slab")?;
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
    Ok((key, file))
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
