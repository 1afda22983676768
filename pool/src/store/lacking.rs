//! Where slabs are lacking: whether there will be one, when, and which are given back while
//! the machine is short of memory.

use super::Store;
use super::choose::{self, Candidate, Want};
use super::class::{Class, Filling};
use super::slab::Slab;
use std::sync::atomic::Ordering;

impl Store {
    /// Whether some class has slabs that are large enough, ready or not.
    #[must_use]
    pub fn has_class_for(&self, want: &Want) -> bool {
        let wanted = self.classes.iter().filter(|class| class.spec.wanted > 0);
        let candidates: Vec<_> = wanted
            .map(|class| Candidate {
                key: class.spec.key,
                ready: true,
                grows: false,
            })
            .collect();
        choose::choose(&candidates, want, self.one_node, 0).is_some()
    }

    /// Bytes that the first slab that will do for `want` lacks yet; `None` where none is
    /// being filled.
    #[must_use]
    pub fn lacking_bytes(&self, want: &Want) -> Option<u64> {
        let lacking = |class: &Class, filling: &Filling| {
            let done = filling.done_bytes.load(Ordering::Relaxed);
            class.spec.key.bytes.saturating_sub(done)
        };
        let classes = self.classes.iter().filter(|class| {
            let key = class.spec.key;
            let one = [Candidate {
                key,
                ready: true,
                grows: false,
            }];
            choose::choose(&one, want, self.one_node, 0).is_some()
        });
        let each = classes.flat_map(|class| class.filling.iter().map(move |one| (class, one)));
        each.map(|(class, filling)| lacking(class, filling)).min()
    }

    /// One clean slab of each class that has more of them than it keeps while the machine is
    /// short of memory: to be given back.
    pub fn above_the_floor(&mut self) -> Vec<Slab> {
        let above = self.classes.iter_mut().filter_map(|class| {
            let floor = usize::try_from(class.spec.floor?).ok()?;
            (class.clean.len() > floor).then(|| class.clean.pop())?
        });
        above.collect()
    }
}
