//! The daemon's decisions: a value without sockets, threads, clock or files.
//!
//! [`Machine::step`] is told what happened and when, and returns what is to be done, in order.
//! Its owner carries that out, and reports what came of it as the next events: the server with
//! real files and processes, `simulation/` with made-up ones, a clock that jumps and all faults
//! that there are, from one seed.
//!
//! - `action.rs`: events and actions; the order of the steps of an allocation;
//! - `take.rs`: the way out; `returns.rs`: the way back; `restart.rs`: what an earlier daemon
//!   left; `view.rs`: what is to be seen;
//! - `slabs.rs`, `class.rs`, [`choose`]: which slabs there are, and which one a client gets; `fills.rs`: whose slab is
//!   filled next;
//! - `leases.rs`: leases and their clients; `grants.rs`: grants, and what may be requested by one;
//! - `times.rs`: how long a take took; `core.rs`: what all share.

mod action;
pub mod choose;
mod class;
mod core;
mod fills;
mod grants;
mod leases;
mod restart;
mod returns;
#[cfg(test)]
mod simulation;
mod slabs;
mod speed;
mod take;
#[cfg(test)]
mod tests;
mod times;
mod view;

pub use action::{Action, Allocation, ConnectionId, Event, NotGrown, Now, Reach, Seen, Step};
pub use class::Spec;
pub use leases::{Lease, Leases, Viewer};
pub use restart::{Before, Restored};

use crate::lease::quota::{Ledger, Rules, Standing};
use crate::lease::{Serial, Whose};
use crate::os::peer::Peer;
use crate::protocol::{
    Counters, Drained, FillChange, Filling, Give, RefusalCode, Reply, Request, Resize, Resized,
};
use crate::store::Key;
use crate::store::slab::SlabId;
use core::Core;
use fills::Fills;
use grants::Grants;
use returns::Returns;
use slabs::{Filled, Slabs};
use std::time::Instant;
use take::Takes;

/// Slabs one pool may be asked to keep at run time.
pub const MOST_SLABS: u32 = 1 << 20;

/// Why a user that no rule names is refused.
#[must_use]
pub fn denied(peer: &Peer) -> String {
    format!(
        "user {} is neither of the owner's group nor named by a quota",
        peer.uid
    )
}

/// What the machine begins with.
#[derive(Debug)]
pub struct Start {
    /// What each client may do.
    pub rules: Rules,
    /// The classes, all of which can be kept.
    pub specs: Vec<Spec>,
    /// Whether the machine has one node only.
    pub one_node: bool,
    /// What names of leases begin with, and the number of the next.
    pub names: (u32, Serial),
    /// Bytes a second of filling, 0 for as fast as it goes.
    pub rate: u64,
    /// The moment.
    pub now: Now,
}

/// Slabs, leases, quotas: what becomes of them.
#[derive(Debug)]
pub struct Machine {
    core: Core,
    takes: Takes,
    returns: Returns,
    fills: Fills,
    grants: Grants,
    begin: Instant,
}

impl Machine {
    /// One that serves from now on, with nothing yet.
    #[must_use]
    pub fn new(start: Start) -> Self {
        let mut slabs = Slabs::new(start.one_node);
        slabs.want(&start.specs);
        let (prefix, next) = start.names;
        Self {
            core: Core {
                slabs,
                leases: Leases::new(prefix, next),
                rules: start.rules,
                ledger: Ledger::default(),
                counters: Counters::default(),
                speed: speed::Speed::default(),
                filling: Filling {
                    on: true,
                    rate: start.rate,
                },
                is_paused: false,
                actions: Vec::new(),
            },
            takes: Takes::default(),
            returns: Returns::default(),
            fills: Fills::default(),
            grants: Grants::default(),
            begin: start.now.instant,
        }
    }

    /// What is to be done about something that happened.
    pub fn step(&mut self, now: Now, event: Event) -> Vec<Action> {
        let core = &mut self.core;
        match event {
            Event::Request {
                from,
                peer,
                grant,
                request,
            } => {
                self.core.counters.requests += 1;
                match grant {
                    Some(grant) => self.request_by_grant(now, from, peer, grant, request),
                    None => self.request(now, from, peer, request),
                }
            }
            Event::HungUp(connection) => self.takes.hung_up(core, connection),
            Event::Allocated(serial) => self.takes.allocated(core, now.instant, serial),
            Event::NotAllocated { serial, error } => {
                self.takes
                    .not_allocated(core, &mut self.returns, serial, error);
            }
            Event::PipeClosed(serial) => {
                self.takes.not_sent(serial);
                self.returns.end_lease(core, serial);
            }
            Event::NotGrown { slab, why } => {
                self.takes
                    .not_grown(core, &mut self.returns, now, slab, why);
            }
            Event::ToppedUp { slab, error } => {
                self.takes
                    .topped_up(core, &mut self.returns, now, slab, error);
            }
            Event::Filled { slab, error } => self.filled(now, slab, error),
            Event::Emptied {
                slab,
                is_alone,
                used_bytes,
            } => {
                self.returns.emptied(core, slab, is_alone, used_bytes);
                self.begin_fills(now.instant);
            }
            Event::Zeroed { slab, is_clean } => self.returns.zeroed(core, slab, is_clean),
            Event::EmptiedAgain(slab) => self.returns.emptied_again(slab),
            Event::Discarded(slab) => self.returns.discarded(slab),
            Event::Prepared { from, spec } => self.prepared(now, from, spec),
            Event::Granted {
                from,
                grant,
                opened,
            } => self.granted(from, grant, opened),
            Event::GrantGone(grant) => self.end_grant(grant),
            Event::Tick(seen) => self.tick(now, &seen),
            Event::Configured { rules, specs, rate } => self.configure(now, rules, specs, rate),
            Event::Stop { keep, seen } => self.stop(keep, &seen),
        }
        std::mem::take(&mut self.core.actions)
    }

    fn request(&mut self, now: Now, from: ConnectionId, peer: Peer, request: Request) {
        let standing = self.core.rules.standing(&peer);
        let observes = matches!(request, Request::Status(_)) && standing == Standing::Observer;
        let owner_only = matches!(
            request,
            Request::Resize(_)
                | Request::Fill(_)
                | Request::Drain
                | Request::Grant(_)
                | Request::Revoke(_)
        );
        let may = match standing {
            Standing::Owner => true,
            Standing::Client => !owner_only,
            Standing::Observer => observes,
            Standing::Stranger => false,
        };
        if !may {
            self.core.counters.denied += 1;
            let text = if owner_only {
                "only root and the daemon's user may do this".into()
            } else {
                denied(&peer)
            };
            return self.core.refuse(from, RefusalCode::Denied, text);
        }
        let viewer = match standing {
            Standing::Owner => Viewer::Owner,
            Standing::Observer => Viewer::Observer,
            Standing::Client | Standing::Stranger => Viewer::User {
                uid: peer.uid,
                connection: from,
            },
        };
        match request {
            Request::Take(take) => {
                self.takes
                    .take(&mut self.core, &self.returns, now, from, peer, take);
            }
            Request::Give(give) => self.give(from, viewer, &give),
            Request::Status(query) => {
                let status = self.status(viewer, query, now.instant);
                self.core.reply(from, Reply::Status(status.into()));
            }
            Request::Resize(resize) => self.resize(from, &resize),
            Request::Fill(change) => self.change_filling(from, &change),
            Request::Drain => self.drain(from),
            Request::Grant(grant) => self.grant(from, grant),
            Request::Revoke(revoke) => self.revoke(from, &revoke),
        }
    }

    fn give(&mut self, from: ConnectionId, viewer: Viewer, give: &Give) {
        let core = &mut self.core;
        let serial = core.leases.serial(&give.lease).filter(|serial| {
            let lease = core.leases.get(*serial);
            lease.is_some_and(|lease| viewer.may_end(lease))
        });
        let Some(serial) = serial else {
            let text = format!(
                "no lease {} was taken on this connection; without it a lease is ended by writing \
                 to its pipe",
                give.lease
            );
            return core.refuse(from, RefusalCode::UnknownLease, text);
        };
        self.returns.end_lease(core, serial);
        core.reply(from, Reply::Give);
    }

    /// A worker is done with a slab.
    fn filled(&mut self, now: Now, slab: SlabId, error: Option<String>) {
        let next = self.fills.done(slab);
        let had_pages = next.is_some_and(|next| next.has_pages);
        let core = &mut self.core;
        match core.slabs.filled(slab, error, had_pages, now.instant) {
            Filled::Clean(key) => {
                core.keep_clean(slab);
                if let Some(whose) = next.and_then(|next| next.turn) {
                    self.returns.became_clean(core, key, whose, had_pages);
                }
            }
            // What was filled of it takes time to take back.
            Filled::Unwanted => self.returns.discard_one(core, slab),
            Filled::Unknown => {}
        }
        self.begin_fills(now.instant);
    }

    /// What is done from time to time.
    fn tick(&mut self, now: Now, seen: &Seen) {
        self.core.is_paused = seen.is_paused;
        self.returns.look(&mut self.core, seen);
        self.returns.credit_full_classes(&mut self.core);
        if self.core.is_paused {
            let released = self.core.slabs.above_the_floor();
            self.discard(released);
        }
        self.begin_fills(now.instant);
    }

    /// Gives every idle worker something to fill.
    fn begin_fills(&mut self, now: Instant) {
        for node in self.core.slabs.nodes() {
            if self.fills.is_busy(node) {
                continue;
            }
            let lacking = self.core.slabs.lacking(node, now);
            let Some(next) = self.fills.next(node, &lacking, &self.returns) else {
                continue;
            };
            let Some(order) = self.core.slabs.begin_fill(next.key) else {
                continue;
            };
            self.fills.begin(node, order.id, next);
            self.core.act(Action::Fill {
                slab: order.id,
                spec: order.spec,
                has_pages: next.has_pages,
            });
        }
    }

    fn discard(&mut self, slabs: Vec<(SlabId, u64)>) -> u64 {
        self.returns.discard(&mut self.core, slabs)
    }

    /// Keeps the slabs of these classes from now on.
    fn want(&mut self, now: Instant, specs: &[Spec]) {
        let (clean, filling) = self.core.slabs.want(specs);
        for slab in filling {
            self.core.act(Action::Cancel(slab));
        }
        self.discard(clean);
        self.begin_fills(now);
    }

    fn resize(&mut self, from: ConnectionId, resize: &Resize) {
        let key = Key {
            page: resize.page,
            node: resize.node,
            bytes: resize.size_class_bytes,
        };
        if !key.bytes.is_multiple_of(key.page.bytes()) || resize.slabs > MOST_SLABS {
            let text = format!(
                "a slab is a multiple of {} bytes, a pool keeps at most {MOST_SLABS}",
                key.page.bytes()
            );
            return self.core.refuse(from, RefusalCode::BadRequest, text);
        }
        if self.core.refuses_as_draining(from) {
            return;
        }
        let mut all = self.core.slabs.specs();
        let before = all.iter().find(|spec| spec.key == key).copied();
        let spec = Spec {
            wanted: resize.slabs,
            ..before.unwrap_or(Spec::none(key))
        };
        all.retain(|spec| spec.key != key);
        all.push(spec);
        self.core.act(Action::Prepare { from, spec, all });
    }

    fn prepared(&mut self, now: Now, from: ConnectionId, spec: Result<Spec, String>) {
        let spec = match spec {
            Ok(spec) => spec,
            Err(text) => return self.core.refuse(from, RefusalCode::BadRequest, text),
        };
        let before = self.core.slabs.specs().into_iter();
        let before = before.filter(|before| before.key == spec.key);
        let before_slabs = before.map(|before| before.wanted).sum();
        self.want(now.instant, &[spec]);
        self.core.reply(
            from,
            Reply::Resize(Resized {
                slabs: spec.wanted,
                before_slabs,
            }),
        );
    }

    /// Other rules; leases, and slabs that are allocated, stay as they are. A class that is
    /// named no more keeps no slab.
    fn configure(&mut self, now: Now, rules: Rules, mut specs: Vec<Spec>, rate: u64) {
        self.core.rules = rules;
        let filling = Filling {
            rate,
            ..self.core.filling.clone()
        };
        self.set_filling(filling);
        if self.core.slabs.is_draining() {
            return;
        }
        for old in self.core.slabs.specs() {
            if !specs.iter().any(|spec| spec.key == old.key) {
                specs.push(Spec { wanted: 0, ..old });
            }
        }
        self.want(now.instant, &specs);
    }

    fn change_filling(&mut self, from: ConnectionId, change: &FillChange) {
        let filling = Filling {
            on: change.on.unwrap_or(self.core.filling.on),
            rate: change.rate.unwrap_or(self.core.filling.rate),
        };
        self.set_filling(filling.clone());
        if !filling.on {
            self.returns.credit_all(&mut self.core);
            self.empty_what_is_zeroed();
        }
        self.core.reply(from, Reply::Fill(filling));
    }

    /// What zeroes slabs in place may wait for as long as nothing is filled: they are emptied instead.
    fn empty_what_is_zeroed(&mut self) {
        for slab in self.core.slabs.zeroing() {
            self.core.act(Action::Cancel(slab));
        }
    }

    fn set_filling(&mut self, filling: Filling) {
        self.core.filling = filling.clone();
        self.core.act(Action::SetFilling(filling));
    }

    fn drain(&mut self, from: ConnectionId) {
        let (clean, filling) = self.core.slabs.drain();
        for slab in filling {
            self.core.act(Action::Cancel(slab));
        }
        self.empty_what_is_zeroed();
        let released_bytes = self.discard(clean);
        let allocated = self.core.slabs.allocated();
        self.core.reply(
            from,
            Reply::Drain(Drained {
                released_bytes,
                allocated_slabs: u32::try_from(allocated).unwrap_or(u32::MAX),
            }),
        );
    }

    /// In whose turn a slab is being filled.
    #[must_use]
    pub fn turn(&self, slab: SlabId) -> Option<crate::lease::Whose> {
        self.fills.turn(slab)
    }

    /// Whether it was drained and everything is back.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let slabs = &self.core.slabs;
        let under_way = self.returns.under_way() + slabs.filling().count();
        slabs.is_draining() && slabs.allocated() == 0 && under_way == 0
    }

    /// What is clean goes back to the kernel, or stays for the next daemon. What is allocated
    /// stays with its clients either way.
    fn stop(&mut self, keep: bool, seen: &Seen) {
        let (clean, _) = self.core.slabs.drain();
        // Those that can be reached no more; the next daemon watches the others.
        self.returns.look(&mut self.core, seen);
        for (slab, _) in clean {
            if keep {
                self.core.act(Action::Leave(slab));
            } else {
                self.core.unkeep_clean(slab);
                self.core.forget(slab, Whose::Nobody);
            }
        }
    }
}
