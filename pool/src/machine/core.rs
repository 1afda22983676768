//! What both services share: slabs, leases, accounts, and the actions to be carried out.

use super::action::{Action, ConnectionId};
use super::leases::Leases;
use super::slabs::Slabs;
use super::speed::Speed;
use crate::lease::Serial;
use crate::lease::quota::{Charge, Ledger, Rules};
use crate::protocol::{Counters, Filling, Refusal, RefusalCode, Reply};
use crate::store::slab::SlabId;
use std::collections::BTreeSet;

/// Slabs, leases, accounts.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) slabs: Slabs,
    pub(super) leases: Leases,
    pub(super) rules: Rules,
    pub(super) ledger: Ledger,
    pub(super) counters: Counters,
    pub(super) speed: Speed,
    pub(super) filling: Filling,
    /// Whether filling pauses for memory pressure.
    pub(super) is_paused: bool,
    /// Slabs in files that never had a name in a mount.
    pub(super) memfds: BTreeSet<SlabId>,
    pub(super) actions: Vec<Action>,
}

impl Core {
    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(super) fn reply(&mut self, to: ConnectionId, reply: Reply) {
        self.act(Action::Reply { to, reply });
    }

    pub(super) fn refuse(&mut self, to: ConnectionId, code: RefusalCode, text: impl Into<String>) {
        self.reply(to, Reply::Refused(Refusal::new(code, text)));
    }

    /// Nothing is left of a lease, for a later daemon either.
    pub(super) fn lease_is_over(&mut self, serial: Serial) {
        self.act(Action::UnkeepLease(serial));
        self.act(Action::RemovePipe(serial));
        // Not written, the next daemon finds neither pipe nor file.
        self.act(Action::RecordOver(serial));
    }

    pub(super) fn credit(&mut self, charges: impl IntoIterator<Item = Charge>) {
        for charge in charges {
            self.ledger.credit(charge);
        }
    }

    /// The service manager keeps a clean slab where its file has no name.
    pub(super) fn keep_clean(&mut self, slab: SlabId) {
        if self.memfds.contains(&slab) {
            self.act(Action::KeepClean(slab));
        }
    }

    /// A slab is no longer clean.
    pub(super) fn unkeep_clean(&mut self, slab: SlabId) {
        if self.memfds.contains(&slab) {
            self.act(Action::UnkeepClean(slab));
        }
    }

    /// No process can reach a slab any more.
    pub(super) fn forget(&mut self, slab: SlabId) {
        self.memfds.remove(&slab);
        self.act(Action::Forget(slab));
    }

    /// Whether filling is neither turned off nor paused.
    pub(super) fn fills_now(&self) -> bool {
        self.filling.on && !self.is_paused
    }
}
