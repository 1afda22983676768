//! The store: which slabs there are, and what each may become.
//!
//! ```text
//!            begin          filled         allocate             lease ends
//!  (nothing) -----> filling ------> clean --------> allocated ---------------> dirty
//!                      |              |                                         | emptied
//!                      +---> gone <---+  shrink, drain, trouble         gone <--+--> clean
//!                                                                            (trusted only)
//! ```
//!
//! The store decides and keeps count; it never waits. What takes time (filling,
//! emptying, zeroing in place) is handed out as work ([`crate::fill`]) and comes
//! back as a call. Invariants S1 to S8 and the test of each: `docs/pool-safety.md`.
//!
//! - [`slab`]: one file and the mark on it; `adopt.rs`: those of an earlier daemon;
//! - [`mount`], `sources.rs`: where files come from;
//! - [`recover`]: what is clean after a crash;
//! - `reconfigure.rs`: other classes while the daemon serves;
//! - [`choose`]: which slab a client gets; `lacking.rs`: where there is none, and where the
//!   machine is short of memory.

mod adopt;
pub mod choose;
mod class;
mod error;
mod key;
mod lacking;
pub mod mount;
mod reconfigure;
pub mod recover;
pub mod slab;
mod sources;
#[cfg(test)]
mod tests;

pub use class::Spec;
pub use error::StoreError;
pub use key::Key;
pub(crate) use sources::make_passable;
pub use sources::{Prepared, available};

use crate::os::{hugepages, memory_file};
use crate::protocol::{PageSize, PoolRow};
use choose::{Candidate, Choice, NsPerGib, Want};
use class::{Class, Filling};
use slab::{Slab, SlabId};
use sources::Sources;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a class that could not be filled is left alone.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A slab to be filled by a worker.
#[derive(Debug)]
pub struct FillOrder {
    /// Which.
    pub id: SlabId,
    /// Its class.
    pub key: Key,
    /// Its file.
    pub file: Arc<OwnedFd>,
    /// Set when it is no longer wanted.
    pub cancel: Arc<AtomicBool>,
    /// Where the worker says how far it is.
    pub done_bytes: Arc<AtomicU64>,
}

/// The slab that a client would get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// Its class.
    pub key: Key,
    /// What it will have: more than its class says where it must grow.
    pub bytes: u64,
}

/// What there was when the daemon started.
#[derive(Debug, Default)]
pub struct Found {
    /// Clean slabs kept.
    pub kept: u32,
    /// Files emptied, and why.
    pub emptied: Vec<(String, &'static str)>,
    /// What the operator should know.
    pub notes: Vec<String>,
}

/// All slabs.
#[derive(Debug)]
pub struct Store {
    sources: Sources,
    classes: Vec<Class>,
    next_id: u64,
    one_node: bool,
    draining: bool,
    /// Every file in a mount, whoever has its slab now.
    files: Vec<Weak<OwnedFd>>,
}

impl Store {
    /// Takes the folder over, and of `mounts` of an earlier daemon whatever is
    /// known to be clean; `None` where nothing keeps mounts when the daemon ends.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(
        directory: &Path,
        specs: &[Spec],
        mounts: Option<Vec<(PageSize, OwnedFd)>>,
    ) -> Result<(Self, Found), StoreError> {
        let mut store = Self {
            sources: Sources::open(directory, mounts)?,
            classes: Vec::new(),
            next_id: 0,
            one_node: !hugepages::node_exists(Path::new(hugepages::SYS), 1),
            draining: false,
            files: Vec::new(),
        };
        let prepared = store.prepare(specs)?;
        let mut found = Found {
            notes: prepared.notes.clone(),
            ..Found::default()
        };
        store.apply(prepared);
        for recovered in store.sources.recover()? {
            found.emptied.extend(recovered.emptied);
            for (key, slab) in recovered.clean {
                store.take_over(key, slab, &mut found);
            }
        }
        Ok((store, found))
    }

    fn new_id(&mut self) -> SlabId {
        let id = SlabId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Begins one more slab on one of `nodes`, where one is wanted and there is
    /// room; the class that has least of what it wants comes first.
    pub fn begin_fill(&mut self, node: Option<u32>, now: Instant) -> Option<FillOrder> {
        if self.draining {
            return None;
        }
        let index = self.neediest(node, now)?;
        let id = self.new_id();
        let class = self.classes.get_mut(index)?;
        let key = class.spec.key;
        let lack = key.room(key.bytes).err().filter(|_| class.dirty_bytes == 0);
        let created = match lack {
            Some(text) => Err(io::Error::other(text)),
            None => self.sources.create(&class.spec, id),
        };
        match created {
            Ok(slab) => {
                let order = FillOrder {
                    id,
                    key: class.spec.key,
                    file: slab.file(),
                    cancel: Arc::default(),
                    done_bytes: Arc::default(),
                };
                remember(&mut self.files, &slab);
                class.filling.push(Filling {
                    slab,
                    cancel: Arc::clone(&order.cancel),
                    done_bytes: Arc::clone(&order.done_bytes),
                });
                Some(order)
            }
            Err(error) => {
                class.trouble = Some(error.to_string());
                class.retry_at = Some(now + RETRY_AFTER);
                None
            }
        }
    }

    fn neediest(&self, node: Option<u32>, now: Instant) -> Option<usize> {
        let lacking = self.classes.iter().enumerate().filter(|(_, class)| {
            class.spec.key.node == node
                && class.present() < class.wanted()
                && class.retry_at.is_none_or(|at| at <= now)
        });
        // The share that is there, in 2^-16 of what is wanted.
        let share = |class: &Class| (class.present() << 16) / class.wanted().max(1);
        lacking
            .min_by_key(|(index, class)| (share(class), *index))
            .map(|(index, _)| index)
    }

    /// Nodes that have classes; `None` for classes bound to none.
    #[must_use]
    pub fn nodes(&self) -> Vec<Option<u32>> {
        let mut nodes: Vec<_> = self.classes.iter().map(|c| c.spec.key.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// A worker is done with a slab: `Ok` where all of it is filled. Says
    /// whether it is clean now; a file without a name comes along, for whoever
    /// keeps those over a restart.
    pub fn filled(
        &mut self,
        id: SlabId,
        result: io::Result<()>,
        now: Instant,
    ) -> Option<(Key, &Slab)> {
        let draining = self.draining;
        let class = self.class_filling(id)?;
        let at = class.filling.iter().position(|f| f.slab.id() == id)?;
        let filling = class.filling.swap_remove(at);
        let wanted = !draining && !filling.cancel.load(Ordering::Relaxed);
        match result.and_then(|()| filling.slab.mark_clean()) {
            Ok(()) if wanted => {
                class.trouble = None;
                class.retry_at = None;
                class.clean.push(filling.slab);
                let key = class.spec.key;
                return class.clean.last().map(|slab| (key, slab));
            }
            Ok(()) => {}
            Err(error) if wanted => {
                class.trouble = Some(format!("filling stopped: {error}"));
                class.retry_at = Some(now + RETRY_AFTER);
            }
            Err(_) => {}
        }
        if let Err(error) = filling.slab.discard() {
            class.trouble = Some(format!("cannot give back a slab: {error}"));
        }
        None
    }

    fn class_filling(&mut self, id: SlabId) -> Option<&mut Class> {
        let has = |class: &&mut Class| class.filling.iter().any(|f| f.slab.id() == id);
        self.classes.iter_mut().find(has)
    }

    /// The slab that `want` would get; nothing is changed.
    #[must_use]
    pub fn choose(&self, want: &Want, speed: NsPerGib) -> Option<Pick> {
        if self.draining {
            return None;
        }
        let candidate = |class: &Class| Candidate {
            key: class.spec.key,
            ready: !class.clean.is_empty(),
            grows: !class.spec.trusted,
        };
        let candidates: Vec<_> = self.classes.iter().map(candidate).collect();
        let choice = choose::choose(&candidates, want, self.one_node, speed)?;
        let (Choice::Whole(index) | Choice::Grow(index, _)) = choice;
        let key = candidates.get(index)?.key;
        let bytes = match choice {
            Choice::Whole(_) => key.bytes,
            Choice::Grow(_, bytes) => bytes,
        };
        // Or all that is free would be drawn before it turns out not to do.
        key.room(bytes.saturating_sub(key.bytes)).ok()?;
        Some(Pick { key, bytes })
    }

    /// Takes out what [`Store::choose`] picked. It counts as allocated from here on, whatever
    /// happens; [`Slab::grow`], if it is to be longer than its class, and [`Slab::lend`] must
    /// follow before it leaves.
    pub fn take(&mut self, pick: &Pick) -> Option<Slab> {
        let mut classes = self.classes.iter_mut();
        let class = classes.find(|class| class.spec.key == pick.key)?;
        let slab = class.clean.pop()?;
        class.lent.push((slab.id(), pick.bytes));
        Some(slab)
    }

    /// An allocated slab is back: it is dirty until [`Store::cleaned`]. Says whether
    /// it may be zeroed in place.
    pub fn came_back(&mut self, id: SlabId) -> bool {
        let has = |class: &&mut Class| class.lent.iter().any(|(lent, _)| *lent == id);
        let Some(class) = self.classes.iter_mut().find(has) else {
            return false;
        };
        if let Some(at) = class.lent.iter().position(|(lent, _)| *lent == id) {
            class.dirty_bytes += class.lent.swap_remove(at).1;
        }
        class.spec.trusted && !self.draining && class.present() < class.wanted()
    }

    /// A dirty slab of class `key` is dirty no more: its bytes went back to the
    /// kernel, or `slab` is clean again.
    pub fn cleaned(&mut self, key: &Key, bytes: u64, slab: Option<Slab>) {
        let draining = self.draining;
        let class = self.classes.iter_mut().find(|class| class.spec.key == *key);
        let Some(class) = class else { return };
        class.dirty_bytes = class.dirty_bytes.saturating_sub(bytes);
        class.retry_at = None;
        if let Some(slab) = slab {
            if draining || class.present() >= class.wanted() {
                let _ = slab.discard();
            } else {
                class.clean.push(slab);
            }
        }
    }

    /// From now on nothing is filled or allocated; returns what is clean.
    pub fn drain(&mut self) -> Vec<Slab> {
        self.draining = true;
        let mut clean = Vec::new();
        for class in &mut self.classes {
            for filling in &class.filling {
                filling.cancel.store(true, Ordering::Relaxed);
            }
            clean.append(&mut class.clean);
        }
        clean
    }

    /// Whether [`Store::drain`] was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Classes that lack no slab.
    #[must_use]
    pub fn full(&self) -> Vec<Key> {
        let full = |class: &&Class| {
            class.filling.is_empty() && (self.draining || class.present() >= class.wanted())
        };
        let full = self.classes.iter().filter(full);
        full.map(|class| class.spec.key).collect()
    }

    /// Slabs that are allocated, unknown ones among them.
    #[must_use]
    pub fn lent_slabs(&self) -> usize {
        let lent = |class: &Class| class.lent.len() + class.unknown.len();
        self.classes.iter().map(lent).sum()
    }

    /// Slabs being filled, those that are no longer wanted among them.
    #[must_use]
    pub fn filling_slabs(&self) -> usize {
        self.classes.iter().map(|class| class.filling.len()).sum()
    }

    /// The names of all classes.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        self.classes.iter().map(|class| class.spec.key).collect()
    }

    /// Of what a guest on a slab of this class gives back, how much is to be
    /// kept ready for it.
    #[must_use]
    pub fn refill_bytes(&self, key: &Key) -> u64 {
        let class = self.classes.iter().find(|class| class.spec.key == *key);
        class.map_or(0, |class| class.spec.refill_bytes)
    }

    /// Why classes with such slabs do not grow, of the first that does not.
    #[must_use]
    pub fn trouble(&self, node: Option<u32>, page: Option<PageSize>) -> Option<&str> {
        let mut classes = self.classes.iter().filter(|class| {
            let key = class.spec.key;
            let here = node.is_none() || key.node.is_none() || key.node == node;
            here && page.is_none_or(|page| page == key.page)
        });
        classes.find_map(|class| class.trouble.as_deref())
    }

    /// Classes that do not grow, and why.
    pub fn troubles(&self) -> impl Iterator<Item = (Key, &str)> {
        let classes = self.classes.iter();
        classes.filter_map(|class| Some((class.spec.key, class.trouble.as_deref()?)))
    }

    /// A row for each class.
    #[must_use]
    pub fn rows(&self) -> Vec<PoolRow> {
        self.classes.iter().map(Class::row).collect()
    }

    /// Bytes in the mounts that are in none of the daemon's files: pinned by
    /// revoked clients, or drawn into private copies. A page a worker is just
    /// being given shows here too.
    #[must_use]
    pub fn stray_bytes(&mut self) -> u64 {
        // Used first: what is filled in between is known, not stray.
        let used = |mount: &Arc<mount::Mount>| mount.used_bytes().ok().flatten();
        let used: u64 = self.sources.mounts().filter_map(used).sum();
        self.files.retain(|file| file.strong_count() > 0);
        let held = |file: &Weak<OwnedFd>| memory_file::held_bytes(file.upgrade()?).ok();
        let known: u64 = self.files.iter().filter_map(held).sum();
        used.saturating_sub(known)
    }

    /// The mounts, for the service manager to keep.
    pub fn mounts(&self) -> impl Iterator<Item = (PageSize, BorrowedFd<'_>)> {
        let mounts = self.sources.mounts();
        mounts.map(|mount| (mount.page(), mount.as_fd()))
    }
}

/// From here on the slab's pages are known to be the daemon's.
fn remember(files: &mut Vec<Weak<OwnedFd>>, slab: &Slab) {
    if slab.is_counted() {
        files.push(Arc::downgrade(&slab.file()));
    }
}
