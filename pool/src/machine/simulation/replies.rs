//! What each reply may be.

use super::life::{Life, M, Pending};
use crate::machine::ConnectionId;
use crate::protocol::{GrantId, Lease, RefusalCode, Reply, Status, Take};

/// The largest slab of any class: what a client gets at most for less.
const LARGEST: u64 = 8 * M;

impl Life {
    /// Whether a clean slab is there that will do.
    pub(super) fn is_ready(&self, grant: Option<GrantId>, take: &Take) -> bool {
        let mut clean = self.machine.core.slabs.clean();
        if let Some(grant) = grant.and_then(|id| self.granted.get(&id)) {
            return clean.any(|(_, key)| key == grant.key()) && !self.machine.is_draining();
        }
        let will_do = |node, page, bytes| {
            bytes >= take.bytes
                && take.page.is_none_or(|wanted| wanted == page)
                && self.is_on(take.node, node)
        };
        clean.any(|(_, key)| will_do(key.node, key.page, key.bytes)) && !self.machine.is_draining()
    }

    fn is_on(&self, wanted: Option<u32>, node: Option<u32>) -> bool {
        wanted.is_none() || wanted == node || (wanted == Some(0) && self.nodes.len() == 1)
    }

    pub(super) fn is_what_was_requested(&self, pending: &Pending, lease: &Lease) {
        let Some(take) = &pending.take else {
            panic!("{lease:?} was not requested");
        };
        assert!(pending.is_client(), "{pending:?}: {lease:?}");
        if let Some(grant) = pending.grant.and_then(|id| self.granted.get(&id)) {
            let of_class = (lease.page, lease.node, lease.bytes);
            assert_eq!(of_class, (grant.page, grant.node, grant.class_bytes));
        }
        let is_it = lease.bytes >= take.bytes
            && take.page.is_none_or(|page| page == lease.page)
            && self.is_on(take.node, lease.node);
        assert!(is_it, "{take:?}: {lease:?}");
    }

    pub(super) fn hears(&self, connection: ConnectionId, pending: &Pending, reply: &Reply) {
        let Reply::Refused(refusal) = reply else {
            return match reply {
                Reply::Status(status) => self.sees(connection, pending, status),
                _ => assert!(pending.is_client(), "{pending:?}: {reply:?}"),
            };
        };
        assert!(!refusal.message.is_empty());
        match refusal.code {
            RefusalCode::Denied => assert!(!pending.is_client(), "{pending:?}"),
            RefusalCode::Quota => assert!(self.exceeds(pending), "{pending:?}: {refusal:?}"),
            // Of what may be out by a grant some is on its way back.
            RefusalCode::Busy if pending.grant.is_some() && self.exceeds(pending) => {}
            RefusalCode::BadRequest if pending.take.is_some() => {
                let grant = pending.grant.and_then(|id| self.granted.get(&id));
                let is_other = pending.take.as_ref().zip(grant);
                let is_other = is_other.is_some_and(|(take, grant)| grant.take(take).is_err());
                assert!(is_other, "{pending:?}: {refusal:?}");
            }
            RefusalCode::Empty | RefusalCode::Busy => {
                assert!(!pending.was_ready, "{pending:?}: {refusal:?}");
            }
            RefusalCode::Draining => assert!(self.machine.is_draining()),
            _ => {}
        }
    }

    /// Whether what it may get at most is too much for some account.
    fn exceeds(&self, pending: &Pending) -> bool {
        if let Some(grant) = pending.grant.and_then(|id| self.granted.get(&id)) {
            let charged = self.books.charged(&grant.account());
            return charged + grant.class_bytes > grant.most_bytes();
        }
        let most = pending.take.as_ref().map_or(0, |take| take.bytes);
        let most = most.next_multiple_of(2 * M).max(LARGEST);
        let mut accounts = pending.accounts().into_iter();
        accounts.any(|account| self.books.charged(&account) + most > self.quota(&account))
    }

    /// Its own user's leases, or all; names of those alone that it may end.
    fn sees(&self, connection: ConnectionId, pending: &Pending, status: &Status) {
        let (user, grant) = (pending.user, pending.grant);
        let sees_all = user.sees_all() && grant.is_none();
        assert!(pending.is_client() || sees_all, "{user:?}: {status:?}");
        for row in &status.leases {
            let is_own = row.grant == grant && (grant.is_some() || row.uid == user.uid());
            assert!(sees_all || is_own, "{user:?}, {grant:?}: {row:?}");
            let Some(name) = &row.lease else { continue };
            let mut held = self.clients.iter().flat_map(|client| &client.leases);
            let is_own = held.any(|held| held.name == *name && held.connection == Some(connection));
            assert!(
                (user.is_root() && grant.is_none()) || is_own,
                "{user:?} sees the name of {row:?}"
            );
        }
        for row in &status.grants {
            assert!(sees_all || grant == Some(row.grant), "{user:?}: {row:?}");
        }
    }
}
