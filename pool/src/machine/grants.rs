//! Grants: sockets of their own, each for slabs of one class. What comes by one counts for it alone.

use super::Machine;
use super::action::{Action, ConnectionId, Now};
use super::leases::Viewer;
use crate::lease::Grant;
use crate::os::peer::Peer;
use crate::protocol::{
    GrantId, GrantRequest, GrantRow, Granted, Refusal, RefusalCode, Reply, Request, Revoke, Revoked,
};
use std::collections::BTreeMap;

/// Those that have not ended.
#[derive(Debug, Default)]
pub(super) struct Grants {
    live: BTreeMap<GrantId, Grant>,
}

impl Machine {
    /// All grants.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.grants.live.values()
    }

    /// Takes a grant of an earlier daemon up.
    pub fn restore_grant(&mut self, grant: Grant) {
        self.grants.live.insert(grant.id, grant);
    }

    /// A client requests something by a grant: a slab of its class, or what its own leases need.
    pub(super) fn request_by_grant(
        &mut self,
        now: Now,
        from: ConnectionId,
        peer: Peer,
        id: GrantId,
        request: Request,
    ) {
        let core = &mut self.core;
        let Some(grant) = self.grants.live.get(&id) else {
            core.counters.denied += 1;
            return core.refuse(from, RefusalCode::Denied, format!("{id} has ended"));
        };
        let viewer = Viewer::Grant {
            grant: id,
            connection: from,
        };
        match request {
            Request::Take(take) => match grant.take(&take) {
                Ok(take) => {
                    self.takes
                        .take_granted(core, &self.returns, now, (from, peer), grant, take);
                }
                Err(text) => core.refuse(from, RefusalCode::BadRequest, text),
            },
            Request::Give(give) => self.give(from, viewer, &give),
            Request::Status(query) => {
                let status = self.status(viewer, query, now.instant);
                self.core.reply(from, Reply::Status(status.into()));
            }
            other => {
                core.counters.denied += 1;
                let text = format!("{id} is for slabs, and not for {}", other.operation());
                core.refuse(from, RefusalCode::Denied, text);
            }
        }
    }

    /// Makes a grant of slabs that are kept, if its socket can be had.
    pub(super) fn grant(&mut self, from: ConnectionId, request: GrantRequest) {
        let core = &mut self.core;
        if core.refuses_as_draining(from) {
            return;
        }
        let id = GrantId {
            prefix: core.leases.prefix(),
            number: core.leases.new_serial(),
        };
        let grant = Grant::new(id, request);
        let kept = core.slabs.specs().into_iter();
        let kept = kept.filter(|spec| spec.key == grant.key());
        let kept = kept.map(|spec| spec.wanted).sum::<u32>();
        if grant.uses > kept {
            let text = format!(
                "{kept} {} are kept, and the grant is for {}: `resize` keeps more",
                grant.slabs(),
                grant.uses
            );
            return core.refuse(from, RefusalCode::BadRequest, text);
        }
        core.act(Action::OpenGrant { from, grant });
    }

    /// A grant has its socket, and is on file; or why not.
    pub(super) fn granted(
        &mut self,
        from: ConnectionId,
        grant: Grant,
        opened: Result<Granted, Refusal>,
    ) {
        let reply = match opened {
            Ok(granted) => {
                self.grants.live.insert(grant.id, grant);
                Reply::Grant(granted)
            }
            Err(refusal) => Reply::Refused(refusal),
        };
        self.core.reply(from, reply);
    }

    pub(super) fn revoke(&mut self, from: ConnectionId, revoke: &Revoke) {
        let id = revoke.grant;
        if !self.grants.live.contains_key(&id) {
            let text = format!("there is no {id}, or it has ended: `status` lists all grants");
            return self.core.refuse(from, RefusalCode::UnknownGrant, text);
        }
        let held_slabs = self.core.leases.by_grant(id);
        self.end_grant(id);
        self.core.reply(from, Reply::Revoke(Revoked { held_slabs }));
    }

    /// No slab is taken by a grant any more; those that are out stay out until their leases end.
    pub(super) fn end_grant(&mut self, id: GrantId) {
        if self.grants.live.remove(&id).is_some() {
            self.core.act(Action::CloseGrant(id));
        }
    }

    /// Grants that `viewer` may see.
    pub(super) fn grants_seen(&self, viewer: Viewer) -> Vec<&Grant> {
        let seen = self.grants();
        seen.filter(|grant| viewer.sees_grant(grant.id)).collect()
    }

    /// A row for each of these.
    pub(super) fn grant_rows(&self, grants: &[&Grant]) -> Vec<GrantRow> {
        if grants.is_empty() {
            return Vec::new();
        }
        let held = self.core.leases.by_grants();
        let row = |grant: &&Grant| {
            let charged_bytes = self.core.ledger.used(&grant.account());
            let charged_slabs = charged_bytes / grant.class_bytes.max(1);
            GrantRow {
                grant: grant.id,
                label: grant.label.clone(),
                page: grant.page,
                node: grant.node,
                size_class_bytes: grant.class_bytes,
                uses: grant.uses,
                charged_slabs: u32::try_from(charged_slabs).unwrap_or(u32::MAX),
                held_slabs: held.get(&grant.id).copied().unwrap_or(0),
            }
        };
        grants.iter().map(row).collect()
    }
}
