//! Where new slabs come from on this machine: a mount each, or files without a name.

use super::directory::Directory;
use super::error::StoreError;
use super::key::Key;
use super::mount::Mount;
use super::recover;
use super::slab::{Slab, SlabId, mode};
use crate::config::Source;
use crate::machine::Spec;
use crate::os::{hugepages, memory_file};
use crate::protocol::{MOST_NUMBER, PageSize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

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
    /// Bytes that a mount of such pages may hold from now on.
    most: BTreeMap<PageSize, u64>,
    /// Why a source is not what would have been best.
    pub notes: Vec<String>,
}

/// The daemon's folder, and how new mounts are to be.
#[derive(Debug)]
pub(super) struct Sources {
    /// Bytes that a new mount may hold: those of a slab, and of one that is made longer for a client.
    most: BTreeMap<PageSize, u64>,
    /// Whether mounts outlive a daemon that is killed. Where they do not, none need be found again by a name.
    outlive: bool,
    /// Pages and nodes that classes have or had: this machine has them, which is not looked for again.
    known: BTreeSet<(PageSize, Option<u32>)>,
    /// This daemon's as long as it lives.
    directory: Directory,
}

impl Sources {
    /// In the daemon's folder.
    pub(super) fn new(directory: Directory, outlive: bool) -> Self {
        Self {
            most: BTreeMap::new(),
            outlive,
            known: BTreeSet::new(),
            directory,
        }
    }

    /// The daemon's folder.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Decides where the files of `specs` come from, and whether mounts can be had; `all` are all classes.
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

    /// Whether mounts of such pages can be had, for as much as all classes of them keep: so long a slab may become.
    fn prepare_mount(
        &self,
        page: PageSize,
        bytes: u64,
        prepared: &mut Prepared,
    ) -> Result<(), StoreError> {
        // Pages that a client pinned and gave back count beside those that take their place.
        let needed = bytes.saturating_mul(2).clamp(page.bytes(), MOST_NUMBER);
        if !self.most.contains_key(&page) && !prepared.most.contains_key(&page) {
            Mount::new(page, needed)?;
        }
        let most = prepared.most.entry(page).or_default();
        *most = needed.max(*most);
        Ok(())
    }

    /// New mounts are so from now on; returns the classes.
    pub(super) fn install(&mut self, prepared: Prepared) -> Vec<Spec> {
        self.most.extend(prepared.most);
        let places = prepared
            .specs
            .iter()
            .map(|spec| (spec.key.page, spec.key.node));
        self.known.extend(places);
        prepared.specs
    }

    /// Its file, and its mount where that is found again.
    pub(super) fn descriptors_of_ready(&self) -> usize {
        1 + usize::from(self.outlive)
    }

    /// How a new slab is made.
    pub(super) fn new_slab(&self, spec: &Spec, id: SlabId) -> NewSlab {
        let most = self.most.get(&spec.key.page).copied();
        NewSlab {
            id,
            key: spec.key,
            most: most.filter(|_| spec.source == Source::Mount),
            outlives: self.outlive,
        }
    }
}

/// A slab that is to be made: where none that clients wait for does it, since a mount waits for all that is mounted
/// anywhere at that moment.
#[derive(Debug, Clone, Copy)]
pub struct NewSlab {
    id: SlabId,
    key: Key,
    /// Bytes that its mount may hold; none for a file without a name.
    most: Option<u64>,
    outlives: bool,
}

impl NewSlab {
    /// Makes it, without a page, as long as its class says.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn make(self) -> io::Result<Slab> {
        let (id, key) = (self.id, self.key);
        let Key { page, bytes, .. } = key;
        let slab = match self.most {
            Some(most) => {
                let mount = Mount::new(page, most).map_err(io::Error::other)?;
                let name = recover::name(&key, id);
                let file = mount.create(&name, mode::FILLING)?;
                if self.outlives {
                    Slab::named(id, page, bytes, file, (mount, name))
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
}
