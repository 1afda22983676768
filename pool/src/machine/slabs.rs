//! Which slabs there are, and what each may become: counts alone, without their files.
//!
//! ```text
//!            begin          filled         allocate             lease ends
//!  (nothing) -----> filling ------> clean --------> allocated ---------------> dirty
//!                      |              |                                         | emptied
//!                      +---> gone <---+  shrink, drain, trouble         gone <--+--> clean
//!                                                                            (trusted only)
//! ```

use super::choose::{self, Candidate, Choice, Want};
use super::class::{Class, Filling, Spec};
use super::speed::NsPerGib;
use crate::protocol::{PageSize, PoolRow};
use crate::store::Key;
use crate::store::slab::SlabId;
use std::time::{Duration, Instant};

/// How long a class that could not be filled is not tried again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The slab that a client would get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pick {
    /// Its class.
    pub(super) key: Key,
    /// What it will have: more than its class says where it must grow.
    pub(super) bytes: u64,
}

/// A slab to be filled.
#[derive(Debug, Clone, Copy)]
pub(super) struct FillOrder {
    pub(super) id: SlabId,
    pub(super) spec: Spec,
}

/// A class of which slabs are to be filled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lacking {
    pub(super) key: Key,
    pub(super) slabs: u64,
    /// Whether one may be filled with pages that are promised to nobody: for a while after that failed it may not.
    pub(super) may_take_any: bool,
}

/// What became of a slab that a worker is done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    /// It is clean.
    Clean(Key),
    /// It is to be given back.
    Unwanted,
    /// There is no such slab.
    Unknown,
}

/// All slabs.
#[derive(Debug)]
pub(super) struct Slabs {
    classes: Vec<Class>,
    next_id: u64,
    one_node: bool,
    draining: bool,
}

impl Slabs {
    /// None yet; `one_node` says that the machine has one node only.
    pub(super) fn new(one_node: bool) -> Self {
        Self {
            classes: Vec::new(),
            next_id: 0,
            one_node,
            draining: false,
        }
    }

    pub(super) fn new_id(&mut self) -> SlabId {
        let id = SlabId(self.next_id);
        self.next_id += 1;
        id
    }

    fn class(&mut self, key: Key) -> Option<&mut Class> {
        self.classes.iter_mut().find(|class| class.spec.key == key)
    }

    fn class_or_new(&mut self, key: Key) -> Option<&mut Class> {
        if self.class(key).is_none() {
            self.classes.push(Class::new(Spec::none(key)));
        }
        self.class(key)
    }

    /// A clean slab of an earlier daemon: whether it is wanted.
    pub(super) fn found(&mut self, id: SlabId, key: Key) -> bool {
        self.next_id = self.next_id.max(id.0.saturating_add(1));
        let class = self.class(key);
        let wanted = class.filter(|class| class.present() < class.wanted());
        wanted.map(|class| class.clean.push(id)).is_some()
    }

    /// A slab that an earlier daemon allocated, whose memory `is_here` or was not found. A
    /// class that is kept no more is there for it.
    pub(super) fn allocated_before(&mut self, key: Key, bytes: u64, is_here: bool) -> SlabId {
        let id = self.new_id();
        if let Some(class) = self.class_or_new(key) {
            if is_here {
                class.allocated.push((id, bytes));
            } else {
                class.unknown.push(id);
            }
        }
        id
    }

    /// A class that is kept no more is there, too: it lacks nothing.
    pub(super) fn know(&mut self, key: Key) {
        self.class_or_new(key);
    }

    /// The lease of a slab that was not found again is over.
    pub(super) fn forget_unknown(&mut self, id: SlabId) {
        for class in &mut self.classes {
            class.unknown.retain(|unknown| *unknown != id);
        }
    }

    /// Classes of `node` of which slabs are to be filled now; the one that has least of what
    /// it wants comes first, one whose last slab could not be filled after all others.
    pub(super) fn lacking(&self, node: Option<u32>, now: Instant) -> Vec<Lacking> {
        let lacking = self.classes.iter().filter(|class| {
            class.spec.key.node == node
                && class.present() < class.wanted()
                && class.retry_at.is_none_or(|at| at <= now)
        });
        let mut lacking: Vec<_> = lacking.filter(|_| !self.draining).collect();
        // The share that is there, in 2^-16 of what is wanted.
        lacking.sort_by_key(|class| {
            let share = (class.present() << 16) / class.wanted().max(1);
            (class.trouble.is_some(), share)
        });
        let lacking = lacking.into_iter().map(|class| Lacking {
            key: class.spec.key,
            slabs: (class.wanted() - class.present()) as u64,
            may_take_any: class.any_retry_at.is_none_or(|at| at <= now),
        });
        lacking.collect()
    }

    /// Begins one more slab of a class.
    pub(super) fn begin_fill(&mut self, key: Key) -> Option<FillOrder> {
        let id = self.new_id();
        let class = self.class(key)?;
        class.filling.push(Filling {
            id,
            is_wanted: true,
            done_bytes: 0,
        });
        Some(FillOrder {
            id,
            spec: class.spec,
        })
    }

    /// Nodes that have classes; `None` for classes bound to none.
    pub(super) fn nodes(&self) -> Vec<Option<u32>> {
        let mut nodes: Vec<_> = self.classes.iter().map(|c| c.spec.key.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// A slab that is being filled has so many bytes.
    pub(super) fn progress(&mut self, id: SlabId, bytes: u64) {
        let mut filling = self.classes.iter_mut().flat_map(|class| &mut class.filling);
        if let Some(filling) = filling.find(|filling| filling.id == id) {
            filling.done_bytes = bytes;
        }
    }

    /// Slabs that are being filled.
    pub(super) fn filling(&self) -> impl Iterator<Item = SlabId> {
        let filling = self.classes.iter().flat_map(|class| &class.filling);
        filling.map(|filling| filling.id)
    }

    /// A slab is filled from end to end and marked so, or why it is not; whether pages were there for it that came back.
    pub(super) fn filled(
        &mut self,
        id: SlabId,
        error: Option<String>,
        had_pages: bool,
        now: Instant,
    ) -> Filled {
        let draining = self.draining;
        let is_it = |filling: &Filling| filling.id == id;
        let mut classes = self.classes.iter_mut();
        let Some(class) = classes.find(|class| class.filling.iter().any(is_it)) else {
            return Filled::Unknown;
        };
        let wanted = class.filling.iter().any(|one| is_it(one) && one.is_wanted) && !draining;
        class.filling.retain(|filling| filling.id != id);
        match error {
            None if wanted => {
                class.clean.push(id);
                class.retry_at = None;
                // What else is lacking may lack pages as before.
                if !had_pages || class.present() >= class.wanted() {
                    class.any_retry_at = None;
                }
                if class.any_retry_at.is_none() {
                    class.trouble = None;
                }
                return Filled::Clean(class.spec.key);
            }
            Some(error) if wanted => {
                class.trouble = Some(error);
                class.any_retry_at = Some(now + RETRY_AFTER);
                if had_pages {
                    class.retry_at = class.any_retry_at;
                }
            }
            _ => {}
        }
        Filled::Unwanted
    }

    /// The slab that `want` would get; nothing is changed.
    pub(super) fn choose(&self, want: &Want, speed: NsPerGib) -> Option<Pick> {
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
        Some(Pick { key, bytes })
    }

    /// Takes out what [`Slabs::choose`] picked: it counts as allocated from here on, whatever
    /// happens.
    pub(super) fn take(&mut self, pick: &Pick) -> Option<SlabId> {
        let class = self.class(pick.key)?;
        let id = class.clean.pop()?;
        class.allocated.push((id, pick.bytes));
        Some(id)
    }

    /// A slab that was taken out is clean as before: nothing was done to it. Whether it is still
    /// wanted, and kept.
    pub(super) fn untake(&mut self, id: SlabId, key: Key) -> bool {
        let draining = self.draining;
        let Some(class) = self.class(key) else {
            return false;
        };
        class.allocated.retain(|(allocated, _)| *allocated != id);
        let is_kept = !draining && class.present() < class.wanted();
        class.clean.extend(is_kept.then_some(id));
        is_kept
    }

    /// An allocated slab is back: it is dirty until [`Slabs::emptied`]. Says whether it may be
    /// zeroed in place.
    pub(super) fn came_back(&mut self, id: SlabId, key: Key) -> bool {
        let draining = self.draining;
        let Some(class) = self.class(key) else {
            return false;
        };
        let place = class
            .allocated
            .iter()
            .position(|(allocated, _)| *allocated == id);
        let Some(place) = place else { return false };
        class.dirty_bytes += class.allocated.swap_remove(place).1;
        class.spec.trusted && !draining && class.present() < class.wanted()
    }

    /// One that may be is zeroed in place: until [`Slabs::zeroed`] or [`Slabs::not_zeroed`] none is filled instead.
    pub(super) fn begin_zeroing(&mut self, id: SlabId, key: Key) {
        if let Some(class) = self.class(key) {
            class.zeroing.push(id);
        }
    }

    /// Slabs that are being zeroed in place.
    pub(super) fn zeroing(&self) -> Vec<SlabId> {
        let zeroing = self.classes.iter().flat_map(|class| &class.zeroing);
        zeroing.copied().collect()
    }

    /// It is to be emptied after all.
    pub(super) fn not_zeroed(&mut self, id: SlabId, key: Key) {
        if let Some(class) = self.class(key) {
            class.zeroing.retain(|zeroing| *zeroing != id);
        }
    }

    /// A dirty slab's bytes went back to the kernel.
    pub(super) fn emptied(&mut self, key: Key, bytes: u64) {
        if let Some(class) = self.class(key) {
            class.dirty_bytes = class.dirty_bytes.saturating_sub(bytes);
            class.retry_at = None;
            class.any_retry_at = None;
        }
    }

    /// A dirty slab was zeroed in place: whether it is kept as a clean one.
    pub(super) fn zeroed(&mut self, id: SlabId, key: Key) -> bool {
        self.emptied(key, key.bytes);
        self.not_zeroed(id, key);
        let draining = self.draining;
        let is_kept = |class: &&mut Class| {
            class.spec.trusted && !draining && class.present() < class.wanted()
        };
        let class = self.class(key).filter(is_kept);
        class.map(|class| class.clean.push(id)).is_some()
    }

    /// Keeps the slabs of `specs` from now on; returns those to give back, clean and being
    /// filled.
    pub(super) fn want(&mut self, specs: &[Spec]) -> (Vec<(SlabId, u64)>, Vec<SlabId>) {
        let (mut clean, mut filling) = (Vec::new(), Vec::new());
        for spec in specs {
            if let Some(class) = self.class_or_new(spec.key) {
                if class.spec.trusted && !spec.trusted {
                    // A revoked client may reach those that were zeroed in place.
                    clean.extend(class.clean.drain(..).map(|id| (id, spec.key.bytes)));
                }
                class.spec = *spec;
                let (mut excess, mut cancelled) = class.want(spec.wanted);
                clean.append(&mut excess);
                filling.append(&mut cancelled);
            }
        }
        (clean, filling)
    }

    /// The classes as they are wanted.
    pub(super) fn specs(&self) -> Vec<Spec> {
        self.classes.iter().map(|class| class.spec).collect()
    }

    /// One clean slab of each class that has more of them than it keeps while the machine is
    /// short of memory: to be given back.
    pub(super) fn above_the_floor(&mut self) -> Vec<(SlabId, u64)> {
        let above = self.classes.iter_mut().filter_map(|class| {
            let floor = usize::try_from(class.spec.floor?).ok()?;
            let bytes = class.spec.key.bytes;
            let id = (class.clean.len() > floor).then(|| class.clean.pop())?;
            id.map(|id| (id, bytes))
        });
        above.collect()
    }

    /// From now on nothing is filled or allocated; returns what is clean and being filled.
    pub(super) fn drain(&mut self) -> (Vec<(SlabId, u64)>, Vec<SlabId>) {
        self.draining = true;
        let (mut clean, mut filling) = (Vec::new(), Vec::new());
        for class in &mut self.classes {
            filling.extend(class.filling.iter().map(|filling| filling.id));
            let bytes = class.spec.key.bytes;
            clean.extend(class.clean.drain(..).map(|id| (id, bytes)));
        }
        (clean, filling)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Classes that lack no slab.
    pub(super) fn full(&self) -> Vec<Key> {
        let full = |class: &&Class| {
            let is_still = class.filling.is_empty() && class.zeroing.is_empty();
            is_still && (self.draining || class.present() >= class.wanted())
        };
        let full = self.classes.iter().filter(full);
        full.map(|class| class.spec.key).collect()
    }

    /// Slabs that are allocated, unknown ones among them.
    pub(super) fn allocated(&self) -> usize {
        let allocated = |class: &Class| class.allocated.len() + class.unknown.len();
        self.classes.iter().map(allocated).sum()
    }

    /// Slabs that are clean or on the way to it.
    pub(super) fn ready(&self) -> usize {
        let ready = |class: &Class| class.clean.len() + class.filling.len() + class.zeroing.len();
        self.classes.iter().map(ready).sum()
    }

    /// Bytes of slabs that are to be filled yet, and of those that are clean.
    pub(super) fn fill_bytes(&self) -> (u64, u64) {
        let of_class = |class: &Class| {
            let there = class.present() - class.filling.len() - class.zeroing.len();
            let lacking = class.wanted().saturating_sub(there) as u64;
            let bytes = class.spec.key.bytes;
            let clean = class.clean.len() as u64;
            (bytes.saturating_mul(lacking), bytes.saturating_mul(clean))
        };
        let add = |(a, b): (u64, u64), (c, d)| (a.saturating_add(c), b.saturating_add(d));
        self.classes.iter().map(of_class).fold((0, 0), add)
    }

    /// Of what a guest on a slab of this class gives back, how much is to be kept ready for it.
    pub(super) fn refill_bytes(&self, key: Key) -> u64 {
        let class = self.classes.iter().find(|class| class.spec.key == key);
        class.map_or(0, |class| class.spec.refill_bytes)
    }

    /// Why classes with such slabs do not grow, of the first that does not.
    pub(super) fn trouble(&self, node: Option<u32>, page: Option<PageSize>) -> Option<&str> {
        let mut classes = self.classes.iter().filter(|class| {
            let key = class.spec.key;
            let here = node.is_none() || key.node.is_none() || key.node == node;
            here && page.is_none_or(|page| page == key.page)
        });
        classes.find_map(|class| class.trouble.as_deref())
    }

    /// Whether a slab of a class is being filled.
    pub(super) fn fills(&self, key: Key) -> bool {
        let class = self.classes.iter().find(|class| class.spec.key == key);
        class.is_some_and(|class| !class.filling.is_empty())
    }

    /// Why a class does not grow.
    pub(super) fn trouble_of(&self, key: Key) -> Option<&str> {
        let class = self.classes.iter().find(|class| class.spec.key == key);
        class.and_then(|class| class.trouble.as_deref())
    }

    /// Classes that do not grow, and why.
    pub(super) fn troubles(&self) -> impl Iterator<Item = (Key, &str)> {
        let classes = self.classes.iter();
        classes.filter_map(|class| Some((class.spec.key, class.trouble.as_deref()?)))
    }

    /// A row for each class.
    pub(super) fn rows(&self) -> Vec<PoolRow> {
        self.classes.iter().map(Class::row).collect()
    }

    /// Whether some class has slabs that are large enough, ready or not.
    pub(super) fn has_class_for(&self, want: &Want) -> bool {
        self.largest_for(want)
            .is_some_and(|bytes| bytes >= want.bytes)
    }

    /// The largest slabs of the classes that have such pages on such a node, ready or not.
    pub(super) fn largest_for(&self, want: &Want) -> Option<u64> {
        let want = Want { bytes: 0, ..*want };
        let wanted = self.classes.iter().filter(|class| class.spec.wanted > 0);
        let fit = wanted.map(|class| class.spec.key).filter(|key| {
            let one = [would_be_ready(*key)];
            choose::choose(&one, &want, self.one_node, 0).is_some()
        });
        fit.map(|key| key.bytes).max()
    }

    /// Bytes that the first slab that will do for `want` lacks yet; `None` where none is
    /// being filled.
    pub(super) fn lacking_bytes(&self, want: &Want) -> Option<u64> {
        let classes = self.classes.iter().filter(|class| {
            let one = [would_be_ready(class.spec.key)];
            choose::choose(&one, want, self.one_node, 0).is_some()
        });
        let lacking = classes.flat_map(|class| {
            let bytes = class.spec.key.bytes;
            let filling = class.filling.iter();
            filling.map(move |filling| bytes.saturating_sub(filling.done_bytes))
        });
        lacking.min()
    }

    /// Whether a slab of a class could not be filled though pages were there for it, for a check from outside.
    #[cfg(test)]
    pub(super) fn fails_with_pages(&self, key: Key) -> bool {
        let class = self.classes.iter().find(|class| class.spec.key == key);
        class.is_some_and(|class| class.retry_at.is_some())
    }

    /// Every clean slab, for a check from outside.
    #[cfg(test)]
    pub(super) fn clean(&self) -> impl Iterator<Item = (SlabId, Key)> {
        let classes = self.classes.iter();
        classes.flat_map(|class| class.clean.iter().map(|id| (*id, class.spec.key)))
    }
}

fn would_be_ready(key: Key) -> Candidate {
    Candidate {
        key,
        ready: true,
        grows: false,
    }
}
