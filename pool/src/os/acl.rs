//! Access control lists of files: users and groups by number, besides owner and group.

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// Where the kernel keeps a file's list, and the version of its form.
const NAME: &str = "system.posix_acl_access";
const VERSION: u32 = 2;

/// Entries, in the order in which the kernel wants them.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

const READ_WRITE: u16 = 6;
const NOTHING: u16 = 0;
/// Of entries without a number.
const NO_ID: u32 = u32::MAX;

/// Whom a file is for, besides its owner.
#[derive(Debug, Clone, Default)]
pub struct Others<'a> {
    /// Whether the file's group is among them.
    pub group: bool,
    /// Users.
    pub users: &'a [u32],
    /// Groups.
    pub groups: &'a [u32],
}

/// Has a file read and written by its owner and by `others`, and by no other, whatever was allowed
/// before.
///
/// # Errors
/// The operating system's refusal: a file system without such lists, for example.
pub fn read_write(path: &Path, others: &Others<'_>) -> io::Result<()> {
    let list = list(others);
    rustix::fs::setxattr(path, NAME, &list, XattrFlags::empty())?;
    Ok(())
}

/// Leaves a file its mode alone: a list that is there would keep its group out, whatever the mode says of it.
///
/// # Errors
/// The operating system's refusal.
pub fn clear(path: &Path) -> io::Result<()> {
    match rustix::fs::removexattr(path, NAME) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn list(others: &Others<'_>) -> Vec<u8> {
    let Others {
        group,
        users,
        groups,
    } = *others;
    let sorted = |ids: &[u32]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    let named = |tag, ids: &[u32]| sorted(ids).into_iter().map(move |id| (tag, READ_WRITE, id));
    let mut entries = vec![(OWNER, READ_WRITE, NO_ID)];
    entries.extend(named(USER, users));
    entries.push((
        OWNING_GROUP,
        if group { READ_WRITE } else { NOTHING },
        NO_ID,
    ));
    entries.extend(named(GROUP, groups));
    // Without names the list is a file's mode, which has no mask.
    if !users.is_empty() || !groups.is_empty() {
        entries.push((MASK, READ_WRITE, NO_ID));
    }
    entries.push((OTHERS, NOTHING, NO_ID));
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_list_names_each_once_and_is_gone_with_the_last_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let mode = || std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
        let others = Others {
            group: true,
            users: &[70_002, 70_001, 70_002],
            groups: &[70_003],
        };
        if let Err(error) = read_write(path, &others) {
            return crate::os::need::skip("acl", error);
        }
        assert_eq!(mode(), 0o660);
        let mut seen = [0; 256];
        let bytes = rustix::fs::getxattr(path, NAME, &mut seen).unwrap();
        let sorted = Others {
            users: &[70_001, 70_002],
            ..others
        };
        assert_eq!(seen[..bytes], list(&sorted));
        let mut nobody = Others {
            group: true,
            ..Others::default()
        };
        read_write(path, &nobody).unwrap();
        assert_eq!(mode(), 0o660);
        nobody.group = false;
        read_write(path, &nobody).unwrap();
        assert_eq!(mode(), 0o600, "nor by its group");
        rustix::fs::getxattr(path, NAME, &mut seen).unwrap_err();

        nobody.groups = &[70_003];
        read_write(path, &nobody).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
        rustix::fs::getxattr(path, NAME, &mut seen).unwrap();
        for _ in 0..2 {
            clear(path).unwrap();
            rustix::fs::getxattr(path, NAME, &mut seen).unwrap_err();
            assert_eq!(mode(), 0o666);
        }
        clear(Path::new("/no/such/file")).unwrap_err();
    }
}
