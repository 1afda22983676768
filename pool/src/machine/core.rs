//! What both services share: slabs, leases, accounts, and the actions to be carried out.

use super::action::{Action, ConnectionId};
use super::leases::Leases;
use super::slabs::Slabs;
use super::speed::Speed;
use crate::lease::quota::{Charge, Ledger, Rules};
use crate::lease::{Owed, Serial, Whose};
use crate::protocol::{Counters, Filling, Refusal, RefusalCode, Reply};
use crate::store::slab::SlabId;

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

    /// Whether the daemon is on its way out, and a request refused for that.
    pub(super) fn refuses_as_draining(&mut self, to: ConnectionId) -> bool {
        let is_draining = self.slabs.is_draining();
        if is_draining {
            self.refuse(to, RefusalCode::Draining, "the daemon is on its way out");
        }
        is_draining
    }

    /// Nothing is left of a lease, for a later daemon either.
    pub(super) fn lease_is_over(&mut self, serial: Serial) {
        self.forget_lease(serial);
        // Not written, the next daemon finds neither pipe nor file.
        self.act(Action::RecordOver(serial));
    }

    /// A lease has neither memory nor pipe any more.
    pub(super) fn forget_lease(&mut self, serial: Serial) {
        self.act(Action::UnkeepLease(serial));
        self.act(Action::RemovePipe(serial));
    }

    pub(super) fn credit(&mut self, charges: impl IntoIterator<Item = Charge>) {
        for charge in charges {
            self.ledger.credit(charge);
        }
    }

    /// What was owed is credited, and nothing is left of its leases.
    pub(super) fn settle(&mut self, owed: impl IntoIterator<Item = Owed>) {
        for owed in owed {
            self.ledger.credit(owed.charge);
            if let Some(serial) = owed.lease {
                self.act(Action::RecordOver(serial));
            }
        }
    }

    /// The service manager keeps a clean slab.
    pub(super) fn keep_clean(&mut self, slab: SlabId) {
        self.act(Action::KeepClean(slab));
    }

    /// A slab is no longer clean.
    pub(super) fn unkeep_clean(&mut self, slab: SlabId) {
        self.act(Action::UnkeepClean(slab));
    }

    /// No process can reach a slab any more.
    pub(super) fn forget(&mut self, slab: SlabId, whose: Whose) {
        self.act(Action::Forget { slab, whose });
    }

    /// Whether filling is neither turned off nor paused.
    pub(super) fn fills_now(&self) -> bool {
        self.filling.on && !self.is_paused
    }
}
