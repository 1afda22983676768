//! Where new slabs come from on this machine: mounts in the daemon's folder,
//! or files without a name.

use super::error::StoreError;
use super::key::Key;
use super::mount::Mount;
use super::recover::{self, Recovered};
use super::slab::{Slab, SlabId, mode};
use crate::config::Source;
use crate::machine::Spec;
use crate::os::{hugepages, memory_file};
use crate::protocol::{MOST_NUMBER, PageSize};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// Makes a folder that every user may pass, whatever mask we have: clients reach
/// the socket through it. None may list it: one that does may keep all who change it waiting. Those that are there stay
/// as they are.
pub(crate) fn make_passable(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_passable(above)?;
    }
    DirBuilder::new().mode(0o711).create(folder)?;
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o711))
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
    // A user that may put names into it could have us mount anywhere.
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
        return Err(io::Error::other(
            "it is another user's, or others may write to it; `directory` must be the daemon's own",
        ));
    }
    Ok(())
}

/// Whether this machine has such a node, and such pages.
///
/// # Errors
/// [`StoreError::NoSuchNode`] and [`StoreError::NoSuchPages`].
pub fn available(key: &Key) -> Result<(), StoreError> {
    let sys = Path::new(hugepages::SYS);
    if let Some(node) = key.node
        && !hugepages::node_exists(sys, node)
    {
        return Err(StoreError::NoSuchNode(node));
    }
    let reserved = key.page != PageSize::Transparent;
    if reserved && !hugepages::exist(sys, key.page.bytes(), None) {
        return Err(StoreError::NoSuchPages(key.page.word()));
    }
    Ok(())
}

/// Classes that can be had, and what they need besides what there is. Dropped, it leaves
/// nothing behind.
#[derive(Debug, Default)]
pub struct Prepared {
    pub(super) specs: Vec<Spec>,
    /// Where a new one is needed.
    mounts: BTreeMap<PageSize, Arc<Mount>>,
    /// Why a source is not what would have been best.
    pub notes: Vec<String>,
}

/// The daemon's folder and its mounts.
#[derive(Debug)]
pub(super) struct Sources {
    /// The newest last: that is where new files go.
    mounts: BTreeMap<PageSize, Vec<Arc<Mount>>>,
    /// Whether the mounts outlive a daemon that is killed. Where they do not, a file with
    /// a name would be lost with its pages, as long as another one keeps the mount.
    outlive: bool,
    /// Pages and nodes that classes have or had: this machine has them, which is not looked for again.
    known: BTreeSet<(PageSize, Option<u32>)>,
    /// Held while the daemon lives: one daemon a folder.
    _lock: OwnedFd,
}

impl Sources {
    /// Takes the folder over, and `mounts` of an earlier daemon, if they are kept at all.
    pub(super) fn open(
        directory: &Path,
        mounts: Option<Vec<(PageSize, OwnedFd)>>,
    ) -> Result<Self, StoreError> {
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
        let mut adopted: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let outlive = mounts.is_some();
        for (page, folder) in mounts.unwrap_or_default() {
            let mount = Mount::adopt(page, folder)?;
            adopted.entry(page).or_default().push(Arc::new(mount));
        }
        Ok(Self {
            mounts: adopted,
            outlive,
            known: BTreeSet::new(),
            _lock: lock,
        })
    }

    /// Decides where the files of `specs` come from, and makes the mounts they need beside those
    /// that there are; `all` are the classes that are to share them.
    pub(super) fn prepare(&self, specs: &[Spec], all: &[Spec]) -> Result<Prepared, StoreError> {
        let mut prepared = Prepared::default();
        for spec in specs {
            if !self.known.contains(&(spec.key.page, spec.key.node)) {
                available(&spec.key)?;
            }
            let mut spec = *spec;
            if spec.source != Source::Memfd {
                let page = spec.key.page;
                let of_page = all.iter().filter(|other| other.key.page == page);
                let bytes = of_page.map(Spec::wanted_bytes).fold(0, u64::saturating_add);
                spec.source = match self.prepare_mount(page, bytes, &mut prepared) {
                    Ok(()) => Source::Mount,
                    Err(error) if spec.source == Source::Auto => {
                        let note = format!("files without a name for {page} pages: {error}");
                        if !prepared.notes.contains(&note) {
                            prepared.notes.push(note);
                        }
                        Source::Memfd
                    }
                    Err(error) => return Err(error),
                };
            }
            prepared.specs.push(spec);
        }
        Ok(prepared)
    }

    /// A mount that has room for all classes of such pages. One that was made for
    /// less stays for the files it has.
    fn prepare_mount(
        &self,
        page: PageSize,
        bytes: u64,
        prepared: &mut Prepared,
    ) -> Result<(), StoreError> {
        // Each slab may be pinned by a revoked client while another takes its place.
        let needed = bytes.saturating_mul(2).clamp(page.bytes(), MOST_NUMBER);
        let room = |mount: &Arc<Mount>| mount.most_bytes().is_ok_and(|most| most >= needed);
        let newest = self.mounts.get(&page).and_then(|mounts| mounts.last());
        if !newest.is_some_and(room) && !prepared.mounts.contains_key(&page) {
            let mount = Arc::new(Mount::new(page, needed)?);
            prepared.mounts.insert(page, mount);
        }
        Ok(())
    }

    /// Uses the mounts that were prepared from now on; returns the classes.
    pub(super) fn install(&mut self, prepared: Prepared) -> Vec<Spec> {
        for (page, mount) in prepared.mounts {
            self.mounts.entry(page).or_default().push(mount);
        }
        let places = prepared
            .specs
            .iter()
            .map(|spec| (spec.key.page, spec.key.node));
        self.known.extend(places);
        prepared.specs
    }

    /// What an earlier daemon left in the mounts.
    pub(super) fn recover(&self) -> Result<Vec<Recovered>, StoreError> {
        let recover = |mount: &Arc<Mount>| {
            recover::recover(mount)
                .map_err(|error| StoreError::mount("go through", mount.page(), error))
        };
        self.mounts().map(recover).collect()
    }

    /// A new slab without a page, as long as its class says.
    pub(super) fn create(&self, spec: &Spec, id: SlabId) -> io::Result<Slab> {
        let Key { page, bytes, .. } = spec.key;
        let newest = self.mounts.get(&page).and_then(|mounts| mounts.last());
        let slab = match newest {
            Some(mount) if spec.source == Source::Mount => {
                let name = recover::name(&spec.key, id);
                let file = mount.create(&name, mode::FILLING)?;
                if self.outlive {
                    Slab::named(id, page, bytes, file, (Arc::clone(mount), name))
                } else {
                    mount.remove(&name)?;
                    Slab::unnamed(id, page, bytes, file)
                }
            }
            _ => {
                let huge = (page != PageSize::Transparent).then(|| page.bytes());
                let first = memory_file::unnamed(c"firstlight-slab", huge)?;
                Slab::memfd(id, page, bytes, memory_file::own_opening(first)?)
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
        self.mounts.values().flatten()
    }
}
