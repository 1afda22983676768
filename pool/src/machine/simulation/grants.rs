//! Grants in a life: the owner makes and revokes some, folders of some are removed, and clients come by them.

use super::life::{Client, Life, Pending};
use crate::lease::quota::Account;
use crate::lease::{Grant, Whose};
use crate::machine::Event;
use crate::protocol::{GrantId, GrantRequest, Granted, Refusal, RefusalCode, Request, Revoke};

impl Client {
    /// Whose limits hold for what it allocates.
    pub(super) fn accounts(&self) -> Vec<Account> {
        accounts(self.grant, || self.user.accounts())
    }
}

impl Pending {
    /// Whose limits hold for what it allocates.
    pub(super) fn accounts(&self) -> Vec<Account> {
        accounts(self.grant, || self.user.accounts())
    }

    /// For whom it counts.
    pub(super) fn whose(&self) -> Whose {
        self.grant.map_or_else(|| self.user.whose(), Whose::Grant)
    }

    /// Whether its sender may allocate and give back.
    pub(super) fn is_client(&self) -> bool {
        self.grant.is_some() || self.user.is_client()
    }
}

fn accounts(grant: Option<GrantId>, of_user: impl FnOnce() -> Vec<Account>) -> Vec<Account> {
    grant.map_or_else(of_user, |id| vec![Account::Grant(id)])
}

impl Life {
    /// One of those that there are.
    pub(super) fn some_grant(&mut self) -> Option<GrantId> {
        let all: Vec<_> = self.world.grants.keys().copied().collect();
        let at = self.random.below(all.len().max(1));
        all.get(at).copied()
    }

    /// The owner makes one: now and then for more slabs than are kept.
    pub(super) fn the_owner_grants(&mut self) {
        let specs = self.machine.core.slabs.specs();
        let key = specs[self.random.below(specs.len())].key;
        let uses = [1, 2, 3][self.random.below(3)];
        self.as_owner(Request::Grant(GrantRequest {
            page: key.page,
            node: key.node,
            size_class_bytes: key.bytes,
            uses,
            label: None,
        }));
    }

    /// The owner revokes one, or its folder is removed.
    pub(super) fn a_grant_ends(&mut self) {
        let Some(grant) = self.some_grant() else {
            return;
        };
        if self.random.below(2) == 0 {
            self.as_owner(Request::Revoke(Revoke { grant }));
        } else {
            self.world.grants.remove(&grant);
            self.happens(Event::GrantGone(grant));
        }
        assert!(
            self.is_killed || self.machine.grants().all(|one| one.id != grant),
            "{grant} was ended, and is there"
        );
    }

    /// Its folder is made and it is written down, or neither.
    pub(super) fn open_grant(&mut self, grant: &Grant) -> Result<Granted, Refusal> {
        if self.world.is_full {
            return Err(Refusal::new(RefusalCode::Internal, "no space left"));
        }
        // Its number is in the journal.
        self.world.next_serial = self.world.next_serial.max(grant.id.number + 1);
        self.world.grants.insert(grant.id, grant.clone());
        self.granted.insert(grant.id, grant.clone());
        Ok(Granted {
            grant: grant.id,
            folder: "/grants".into(),
            socket: "/grants/pool.sock".into(),
        })
    }

    /// Clients that came by grants that have ended are hung up on.
    pub(super) fn hang_up_on_ended_grants(&mut self) {
        for at in 0..self.clients.len() {
            let grant = self.clients[at].grant;
            if grant.is_some_and(|id| !self.world.grants.contains_key(&id)) {
                self.hangs_up(at);
                self.clients[at].connection = None;
            }
        }
    }

    /// The next daemon takes up those that have their folders.
    pub(super) fn take_over_grants(&mut self) {
        for grant in self.world.grants.values() {
            self.machine.restore_grant(grant.clone());
        }
    }

    /// As many slabs are charged to each as are out or owed, and never more than it is for.
    pub(super) fn grants_are_for_so_many(&self) {
        for (id, grant) in &self.granted {
            let account = grant.account();
            let used = self.machine.core.ledger.used(&account);
            assert_eq!(used, self.books.charged(&account), "{id}");
            assert!(used <= grant.most_bytes(), "{id}: {used} of {grant:?}");
            let since = self.books.since_clean(&account);
            assert!(since <= grant.most_bytes(), "{id} used up {since}");
        }
    }
}
