//! Other classes, or another number of slabs, while the daemon serves: all that may fail
//! comes first and changes nothing; what is prepared is then applied as a whole.

use super::Store;
use super::class::{Class, Spec};
use super::error::StoreError;
use super::key::Key;
use super::slab::Slab;
use super::sources::Prepared;
use std::sync::atomic::Ordering;

impl Store {
    /// Looks whether this machine has what `specs` name and makes the mounts they need.
    /// Nothing has changed until [`Store::apply`].
    ///
    /// # Errors
    /// A class that cannot be had on this machine.
    pub fn prepare(&self, specs: &[Spec]) -> Result<Prepared, StoreError> {
        self.sources.prepare(specs, specs)
    }

    /// Keeps what was prepared from now on, and no slab of any other class. Returns the
    /// slabs to give back; those that are allocated stay as they are.
    pub fn apply(&mut self, prepared: Prepared) -> Vec<Slab> {
        let mut excess = Vec::new();
        for class in &mut self.classes {
            if !prepared.specs.iter().any(|spec| spec.key == class.spec.key) {
                excess.append(&mut class.want(0));
            }
        }
        excess.append(&mut self.install(prepared));
        excess
    }

    /// Keeps `wanted` slabs of a class from now on; one that is not there yet
    /// is made. Returns how many were wanted before, and the slabs to give back.
    ///
    /// # Errors
    /// A class that cannot be had on this machine.
    pub fn resize(&mut self, key: Key, wanted: u32) -> Result<(u32, Vec<Slab>), StoreError> {
        let mut specs: Vec<Spec> = self.classes.iter().map(|class| class.spec).collect();
        let before = specs.iter().find(|spec| spec.key == key).copied();
        let spec = Spec {
            wanted,
            ..before.unwrap_or(Spec::none(key))
        };
        specs.retain(|spec| spec.key != key);
        specs.push(spec);
        let prepared = self.sources.prepare(&[spec], &specs)?;
        Ok((before.map_or(0, |spec| spec.wanted), self.install(prepared)))
    }

    fn install(&mut self, prepared: Prepared) -> Vec<Slab> {
        let specs = self.sources.install(prepared);
        let mut excess = Vec::new();
        for spec in specs {
            let at = self
                .classes
                .iter()
                .position(|class| class.spec.key == spec.key);
            let at = at.unwrap_or_else(|| {
                self.classes.push(Class::new(Spec::none(spec.key)));
                self.classes.len() - 1
            });
            if let Some(class) = self.classes.get_mut(at) {
                class.spec = spec;
                excess.append(&mut class.want(spec.wanted));
            }
        }
        excess
    }
}

impl Class {
    /// Keeps so many slabs from now on; returns those to give back.
    fn want(&mut self, slabs: u32) -> Vec<Slab> {
        self.spec.wanted = slabs;
        self.retry_at = None;
        self.trouble = None;
        let mut excess = self.present().saturating_sub(self.wanted());
        for filling in self.filling.iter().rev().take(excess) {
            filling.cancel.store(true, Ordering::Relaxed);
            excess -= 1;
        }
        let keep = self.clean.len().saturating_sub(excess);
        self.clean.split_off(keep)
    }
}
