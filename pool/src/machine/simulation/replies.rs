//! What each reply may be.

use super::life::{Life, M, Pending};
use crate::machine::ConnectionId;
use crate::protocol::{Lease, RefusalCode, Reply, Status, Take};

/// The largest slab of any class: what a client gets at most for less.
const LARGEST: u64 = 8 * M;

impl Life {
    /// Whether a clean slab is there that will do.
    pub(super) fn is_ready(&self, take: &Take) -> bool {
        let mut clean = self.machine.core.slabs.clean();
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
        assert!(pending.user.is_client(), "{pending:?}: {lease:?}");
        let is_it = lease.bytes >= take.bytes
            && take.page.is_none_or(|page| page == lease.page)
            && self.is_on(take.node, lease.node);
        assert!(is_it, "{take:?}: {lease:?}");
    }

    pub(super) fn hears(&self, connection: ConnectionId, pending: &Pending, reply: &Reply) {
        let Reply::Refused(refusal) = reply else {
            return match reply {
                Reply::Status(status) => self.sees(connection, pending, status),
                _ => assert!(pending.user.is_client(), "{pending:?}: {reply:?}"),
            };
        };
        assert!(!refusal.message.is_empty());
        match refusal.code {
            RefusalCode::Denied => assert!(!pending.user.is_client(), "{pending:?}"),
            RefusalCode::Quota => assert!(self.exceeds(pending), "{pending:?}: {refusal:?}"),
            RefusalCode::Empty | RefusalCode::Busy => {
                assert!(!pending.was_ready, "{pending:?}: {refusal:?}");
            }
            RefusalCode::Draining => assert!(self.machine.is_draining()),
            _ => {}
        }
    }

    /// Whether what it may get at most is too much for some account.
    fn exceeds(&self, pending: &Pending) -> bool {
        let most = pending.take.as_ref().map_or(0, |take| take.bytes);
        let most = most.next_multiple_of(2 * M).max(LARGEST);
        let mut accounts = pending.user.accounts().into_iter();
        accounts.any(|account| self.books.charged(&account) + most > self.quota(&account))
    }

    /// Its own user's leases, or all; names of those alone that it may end.
    fn sees(&self, connection: ConnectionId, pending: &Pending, status: &Status) {
        let user = pending.user;
        assert!(user.is_client() || user.sees_all(), "{user:?}: {status:?}");
        for row in &status.leases {
            assert!(
                user.sees_all() || row.uid == user.uid(),
                "{user:?}: {row:?}"
            );
            let Some(name) = &row.lease else { continue };
            let mut held = self.clients.iter().flat_map(|client| &client.leases);
            let is_own = held.any(|held| held.name == *name && held.connection == Some(connection));
            assert!(
                user.is_root() || is_own,
                "{user:?} sees the name of {row:?}"
            );
        }
    }
}
