//! Where new slabs come from on this machine: mounts in the daemon's folder,
//! or files without a name.

use super::class::{Key, Spec};
use super::error::StoreError;
use super::mount::Mount;
use super::recover::{self, Recovered};
use super::slab::{Slab, SlabId, mode};
use crate::config::Source;
use crate::os::{hugepages, memory_file};
use crate::protocol::PageSize;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes a folder that anybody may pass, whatever mask we have: borrowers reach
/// the socket through it. Those that are there stay as they are.
pub(crate) fn make_passable(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_passable(above)?;
    }
    DirBuilder::new().mode(0o755).create(folder)?;
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755))
}

/// Makes the folder, which only we may enter, and the folders above it, which
/// the socket may lie in. One that is there must be such.
fn make_private(directory: &Path) -> io::Result<()> {
    if let Some(above) = directory.parent() {
        make_passable(above)?;
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        done => done?,
    }
    let stat = rustix::fs::lstat(directory)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    // Whoever may put names into it could have us mount anywhere.
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
        return Err(io::Error::other(
            "it is another user's, or others may write to it; `directory` must be the daemon's own",
        ));
    }
    Ok(())
}

/// The daemon's folder and what is mounted in it.
#[derive(Debug)]
pub(super) struct Sources {
    directory: PathBuf,
    mounts: BTreeMap<PageSize, Arc<Mount>>,
    /// Held while the daemon lives: one daemon a folder.
    _lock: OwnedFd,
}

impl Sources {
    pub(super) fn open(directory: &Path) -> Result<Self, StoreError> {
        let failed = |what: &'static str, path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| StoreError::Directory { what, path, error }
        };
        make_private(directory).map_err(failed("make the folder", directory))?;
        let path = directory.join("lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let lock = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))
            .map_err(|error| failed("write", &path)(error.into()))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| StoreError::Taken(directory.to_owned()))?;
        Ok(Self {
            directory: directory.to_owned(),
            mounts: BTreeMap::new(),
            _lock: lock,
        })
    }

    /// Decides where the files of a class come from; a note says why it is not
    /// what would have been best.
    pub(super) fn prepare(&mut self, spec: &mut Spec) -> Result<Option<String>, StoreError> {
        let key = spec.key;
        let sys = Path::new(hugepages::SYS);
        if let Some(node) = key.node
            && !hugepages::node_exists(sys, node)
        {
            return Err(StoreError::NoSuchNode(node));
        }
        let reserved = key.page != PageSize::Transparent;
        if reserved && !matches!(hugepages::counts(sys, key.page.bytes(), None), Ok(Some(_))) {
            return Err(StoreError::NoSuchPages(key.page.word()));
        }
        if spec.source == Source::Memfd {
            return Ok(None);
        }
        match self.mount(key.page) {
            Ok(()) => {
                spec.source = Source::Mount;
                Ok(None)
            }
            Err(error) if spec.source == Source::Auto => {
                spec.source = Source::Memfd;
                Ok(Some(format!(
                    "files without a name for {} pages: {error}",
                    key.page
                )))
            }
            Err(error) => Err(error),
        }
    }

    fn mount(&mut self, page: PageSize) -> Result<(), StoreError> {
        if !self.mounts.contains_key(&page) {
            let mount = Mount::open_or_make(&self.directory, page)?;
            self.mounts.insert(page, Arc::new(mount));
        }
        Ok(())
    }

    /// Mounts of an earlier daemon that no class asks for any more: taken over,
    /// so that what lies in them is not lost.
    pub(super) fn adopt_leftovers(&mut self) -> Result<(), StoreError> {
        for page in PageSize::ALL {
            if !self.mounts.contains_key(&page) && Mount::is_left(&self.directory, page) {
                self.mount(page)?;
            }
        }
        Ok(())
    }

    /// What an earlier daemon left in the mounts.
    pub(super) fn recover(&self) -> Result<Vec<Recovered>, StoreError> {
        let recover = |mount: &Arc<Mount>| {
            recover::recover(mount).map_err(|error| StoreError::Mount {
                what: "go through",
                path: mount.path().to_owned(),
                error,
            })
        };
        self.mounts.values().map(recover).collect()
    }

    /// A new slab without a page, as long as its class says.
    pub(super) fn create(&self, spec: &Spec, id: SlabId) -> io::Result<Slab> {
        let Key { page, bytes, .. } = spec.key;
        let slab = match self.mounts.get(&page) {
            Some(mount) if spec.source == Source::Mount => {
                let name = recover::name(&spec.key, id);
                let file = mount.create(&name, mode::FILLING)?;
                Slab::named(id, page, bytes, file, (Arc::clone(mount), name))
            }
            _ => {
                let huge = (page != PageSize::Transparent).then(|| page.bytes());
                let file = memory_file::unnamed(c"firstlight-slab", huge)?;
                Slab::memfd(id, page, bytes, file)
            }
        };
        if let Err(error) = memory_file::set_length(&slab, bytes) {
            // Or its name would stay in the mount.
            let _ = slab.discard();
            return Err(error);
        }
        Ok(slab)
    }

    pub(super) fn mounts(&self) -> impl Iterator<Item = &Arc<Mount>> {
        self.mounts.values()
    }
}
