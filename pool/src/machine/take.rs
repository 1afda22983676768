//! The way out: a slab is chosen, charged, topped up if need be, and allocated.

use super::action::{Action, Allocation, ConnectionId, NotGrown, Now};
use super::choose::Want;
use super::core::Core;
use super::leases::Lease;
use super::returns::{Returned, Returns};
use super::slabs::Pick;
use super::times::Times;
use crate::config::Size;
use crate::lease::journal::Record;
use crate::lease::quota::{Charge, Exceeded};
use crate::lease::{Grant, Serial, Whose};
use crate::os::peer::Peer;
use crate::protocol::{Lease as LeaseReply, Refusal, RefusalCode, Reply, Take};
use crate::store::Key;
use crate::store::slab::SlabId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Whatever is lacking: clients that wait are not to request in a loop.
const LEAST_RETRY_MS: u32 = 20;

/// How long after it was started on a service manager's socket with no clean slab the daemon has
/// clients wait for memory that is being zeroed, instead of having nothing for them.
const WAKES: Duration = Duration::from_secs(30);

/// Slabs that are topped up at the same time at most: each by a thread of its own.
const MOST_TOP_UPS: usize = 64;

/// Of these, for one user.
const MOST_TOP_UPS_OF_A_USER: usize = 16;

/// A client that waits for its slab.
#[derive(Debug)]
struct Waiting {
    connection: ConnectionId,
    peer: Peer,
    /// For whom it counts.
    whose: Whose,
    take: Take,
    key: Key,
    bytes: u64,
    charge: Charge,
    since: Instant,
}

/// An allocation that is being carried out.
#[derive(Debug)]
struct Sending {
    to: ConnectionId,
    since: Instant,
    topped_up_bytes: u64,
}

/// The service that takes slabs out.
#[derive(Debug, Default)]
pub(super) struct Takes {
    waiting: BTreeMap<SlabId, Waiting>,
    sending: BTreeMap<Serial, Sending>,
    /// The daemon began with no clean slab: until then clients are to wait for the first.
    wakes_until: Option<Instant>,
    times: Times,
}

fn want(take: &Take) -> Want {
    Want {
        bytes: take.bytes,
        node: take.node,
        page: take.page,
        top_up: Duration::from_millis(take.max_topup_ms.into()),
        if_faster: take.topup_if_faster,
    }
}

impl Takes {
    /// The daemon was started by a client that came to the service manager's socket. One that
    /// was started again has clean slabs from before, and its clients need not wait.
    pub(super) fn activated(&mut self, core: &Core, now: Instant) {
        let rows = core.slabs.rows();
        let is_empty = rows.iter().all(|row| row.clean_slabs == 0);
        self.wakes_until = is_empty.then(|| now + WAKES);
    }

    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    /// The connection that a slab is topped up for, for a simulation.
    #[cfg(test)]
    pub(super) fn connection(&self, slab: SlabId) -> Option<ConnectionId> {
        self.waiting.get(&slab).map(|waiting| waiting.connection)
    }

    /// Slabs that clients wait for, for a check from outside.
    #[cfg(test)]
    pub(super) fn slabs(&self) -> impl Iterator<Item = SlabId> {
        self.waiting.keys().copied()
    }

    pub(super) fn take(
        &mut self,
        core: &mut Core,
        returns: &Returns,
        now: Now,
        from: ConnectionId,
        peer: Peer,
        take: Take,
    ) {
        if core.refuses_as_draining(from) {
            core.counters.misses.draining += 1;
            return;
        }
        // A client with less left than it requests learns nothing of what is ready.
        if let Err(exceeded) = core.ledger.allows(&core.rules, &peer, take.bytes) {
            return over_quota(core, returns, from, &exceeded);
        }
        let Some(pick) = core.slabs.choose(&want(&take), core.speed.ns_per_gib()) else {
            return self.nothing_ready(core, now, from, &take);
        };
        let whose = Whose::User(peer.user);
        if pick.bytes > pick.key.bytes && !self.may_top_up(whose) {
            let text = "as many slabs are being topped up as may be at once";
            return refuse_busy(core, from, text);
        }
        // Before a slab is touched. What it gets may be more than it requests, and that counts.
        let charge = match core.ledger.charge(&core.rules, &peer, pick.bytes) {
            Ok(charge) => charge,
            Err(exceeded) => return over_quota(core, returns, from, &exceeded),
        };
        let Some(slab) = core.slabs.take(&pick) else {
            core.credit([charge]);
            let text = "a slab that was ready is not";
            return core.refuse(from, RefusalCode::Internal, text);
        };
        let waiting = Waiting {
            connection: from,
            peer,
            whose,
            take,
            key: pick.key,
            bytes: pick.bytes,
            charge,
            since: now.instant,
        };
        self.begin(core, now, slab, &pick, waiting);
    }

    /// As [`Takes::take`], by a grant: a slab of its class, as it is.
    pub(super) fn take_granted(
        &mut self,
        core: &mut Core,
        returns: &Returns,
        now: Now,
        (from, peer): (ConnectionId, Peer),
        grant: &Grant,
        take: Take,
    ) {
        if core.refuses_as_draining(from) {
            core.counters.misses.draining += 1;
            return;
        }
        let Ok(charge) = core.ledger.charge_grant(grant) else {
            return uses_are_out(core, returns, from, grant, &take);
        };
        let key = grant.key();
        let bytes = key.bytes;
        let pick = Pick { key, bytes };
        let Some(slab) = core.slabs.take(&pick) else {
            core.credit([charge]);
            return self.nothing_ready(core, now, from, &take);
        };
        let waiting = Waiting {
            connection: from,
            peer,
            whose: Whose::Grant(grant.id),
            take,
            key,
            bytes,
            charge,
            since: now.instant,
        };
        self.allocate(core, now, slab, waiting);
    }

    fn begin(&mut self, core: &mut Core, now: Now, slab: SlabId, pick: &Pick, waiting: Waiting) {
        if pick.bytes == pick.key.bytes {
            return self.allocate(core, now, slab, waiting);
        }
        let budget = Duration::from_millis(waiting.take.max_topup_ms.into());
        core.act(Action::Grow {
            slab,
            key: pick.key,
            bytes: pick.bytes,
            deadline: now.instant + budget,
        });
        self.waiting.insert(slab, waiting);
    }

    /// Slabs that clients wait for.
    pub(super) fn topping_up(&self) -> usize {
        self.waiting.len()
    }

    /// Whether one more slab may be topped up for this user.
    fn may_top_up(&self, whose: Whose) -> bool {
        let own = self
            .waiting
            .values()
            .filter(|waiting| waiting.whose == whose);
        self.waiting.len() < MOST_TOP_UPS && own.count() < MOST_TOP_UPS_OF_A_USER
    }

    /// A client hung up: nothing is zeroed for it any more.
    pub(super) fn hung_up(&self, core: &mut Core, connection: ConnectionId) {
        for (slab, waiting) in &self.waiting {
            if waiting.connection == connection {
                core.act(Action::Cancel(*slab));
            }
        }
    }

    /// A slab was not made longer. It is as it was where nothing was done to it; else it is not
    /// clean any more.
    pub(super) fn not_grown(
        &mut self,
        core: &mut Core,
        returns: &mut Returns,
        now: Now,
        slab: SlabId,
        why: NotGrown,
    ) {
        let Some(waiting) = self.waiting.remove(&slab) else {
            return;
        };
        let to = waiting.connection;
        match why {
            NotGrown::NoPages | NotGrown::NoThread => {
                if !core.slabs.untake(slab, waiting.key) {
                    returns.discard(core, vec![(slab, waiting.key.bytes)]);
                }
                core.credit([waiting.charge]);
                if matches!(why, NotGrown::NoThread) {
                    return refuse_busy(core, to, "no thread is ready that could fill a slab");
                }
                self.nothing_ready(core, now, to, &waiting.take);
            }
            NotGrown::Failed(error) => {
                returns.take_back(core, returned(slab, waiting));
                core.refuse(to, RefusalCode::Internal, error);
            }
        }
    }

    /// A slab is as long as its client wants it. Where it is not, it is taken back, and stays
    /// charged until a clean one has taken its place.
    pub(super) fn topped_up(
        &mut self,
        core: &mut Core,
        returns: &mut Returns,
        now: Now,
        slab: SlabId,
        error: Option<String>,
    ) {
        let Some(waiting) = self.waiting.remove(&slab) else {
            return;
        };
        let Some(error) = error else {
            return self.allocate(core, now, slab, waiting);
        };
        core.counters.misses.top_up += 1;
        let text = format!("{}: {error}", nothing_for(core, &waiting.take));
        let to = waiting.connection;
        returns.take_back(core, returned(slab, waiting));
        core.refuse(to, RefusalCode::Empty, text);
    }

    /// The lease begins here: whatever fails from now on ends it.
    fn allocate(&mut self, core: &mut Core, now: Now, slab: SlabId, waiting: Waiting) {
        let Waiting {
            connection,
            peer,
            whose,
            key,
            bytes,
            charge,
            since,
            take,
        } = waiting;
        let serial = core.leases.new_serial();
        let id = match core.leases.id(serial) {
            Ok(id) => id,
            Err(text) => return core.refuse(connection, RefusalCode::Internal, text),
        };
        let topped_up_bytes = bytes - key.bytes;
        let reply = LeaseReply {
            lease: id,
            bytes,
            page: key.page,
            node: key.node,
            align_bytes: key.page.bytes(),
            topped_up_bytes,
        };
        let record = Record {
            serial,
            page: key.page,
            node: key.node,
            class_bytes: key.bytes,
            bytes,
            uid: peer.uid,
            pid: peer.pid,
            charge: charge.clone(),
            since_ms: now.wall_ms,
            revoked: false,
            owed: false,
            lost: false,
            label: take.label.clone(),
            grant: whose.grant(),
        };
        let lease = Lease {
            slab,
            has_memory: true,
            bytes,
            key,
            charge,
            uid: peer.uid,
            whose,
            pid: peer.pid,
            connection: Some(connection),
            since: now.instant,
            label: take.label,
        };
        core.leases.insert(serial, lease);
        let sending = Sending {
            to: connection,
            since,
            topped_up_bytes,
        };
        self.sending.insert(serial, sending);
        core.act(Action::Allocate(Box::new(Allocation {
            to: connection,
            reply,
            slab,
            record,
            refill_bytes: core.slabs.refill_bytes(key),
        })));
    }

    /// The client has its memory.
    pub(super) fn allocated(&mut self, core: &mut Core, now: Instant, serial: Serial) {
        let Some(sending) = self.sending.remove(&serial) else {
            return;
        };
        core.counters.takes += 1;
        core.counters.top_ups += u64::from(sending.topped_up_bytes > 0);
        let spent = now.saturating_duration_since(sending.since);
        let spent_ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        self.times.record(spent_ns);
    }

    /// A lease is over; its reply may not have got through.
    pub(super) fn not_sent(&mut self, serial: Serial) {
        self.sending.remove(&serial);
    }

    /// What cannot be allocated is taken back, never kept.
    pub(super) fn not_allocated(
        &mut self,
        core: &mut Core,
        returns: &mut Returns,
        serial: Serial,
        error: String,
    ) {
        let (Some(sending), Some(lease)) = (self.sending.remove(&serial), core.leases.end(serial))
        else {
            return;
        };
        core.act(Action::EndTenure(serial));
        core.lease_is_over(serial);
        returns.take_back(
            core,
            Returned {
                slab: lease.slab,
                key: lease.key,
                bytes: lease.bytes,
                charge: lease.charge,
                whose: lease.whose,
                lease: None,
            },
        );
        core.refuse(sending.to, RefusalCode::Internal, error);
    }

    fn nothing_ready(&self, core: &mut Core, now: Now, to: ConnectionId, take: &Take) {
        let want = want(take);
        let (code, text) = if self.is_waking(core, now.instant, &want) {
            let text = "the daemon has just been started and zeroes its first memory";
            (RefusalCode::Busy, text.into())
        } else {
            // One that is topped up is of a smaller class, of which more than half is there.
            let largest = core.slabs.largest_for(&want).unwrap_or(0);
            let may_grow = take.max_topup_ms > 0 && largest.saturating_mul(2) > take.bytes;
            if may_grow || core.slabs.has_class_for(&want) {
                core.counters.misses.empty += 1;
                (RefusalCode::Empty, nothing_for(core, take))
            } else {
                core.counters.misses.no_class += 1;
                (RefusalCode::Empty, no_class_for(core, take))
            }
        };
        let refusal = Refusal::new(code, text).retry_after(next_in_ms(core, &want));
        core.reply(to, Reply::Refused(refusal));
    }

    /// Whether memory for `want` comes soon, because a client has just started the daemon.
    fn is_waking(&self, core: &Core, now: Instant, want: &Want) -> bool {
        self.wakes_until.is_some_and(|until| now < until)
            && core.slabs.has_class_for(want)
            && core.slabs.filling().next().is_some()
            && core.fills_now()
            && core.slabs.trouble(want.node, want.page).is_none()
    }
}

/// Soon it may be granted.
fn refuse_busy(core: &mut Core, to: ConnectionId, text: &str) {
    let refusal = Refusal::new(RefusalCode::Busy, text).retry_after(Some(LEAST_RETRY_MS));
    core.reply(to, Reply::Refused(refusal));
}

fn returned(slab: SlabId, waiting: Waiting) -> Returned {
    Returned {
        slab,
        key: waiting.key,
        bytes: waiting.bytes,
        charge: waiting.charge,
        whose: waiting.whose,
        lease: None,
    }
}

/// More than a client may have; with the reason where part of that waits for a clean slab.
fn over_quota(core: &mut Core, returns: &Returns, to: ConnectionId, exceeded: &Exceeded) {
    core.counters.denied += 1;
    core.counters.misses.quota += 1;
    let mut text = exceeded.to_string();
    if let Some(why) = exceeded
        .account()
        .and_then(|account| returns.why_charged(core, account))
    {
        text += &why;
    }
    core.refuse(to, RefusalCode::Quota, text);
}

/// As many slabs are charged to a grant as it is for: again later, where one is on its way back that no process can
/// reach.
fn uses_are_out(core: &mut Core, returns: &Returns, to: ConnectionId, grant: &Grant, take: &Take) {
    core.counters.denied += 1;
    core.counters.misses.quota += 1;
    let (id, uses, account) = (grant.id, grant.uses, grant.account());
    let held = core.leases.by_grant(id);
    let mut text = format!("slabs out by {id}: {held} of {uses}");
    if held < uses {
        text += ", and others are on their way back";
        text += &returns.why_charged(core, &account).unwrap_or_default();
    }
    if held >= uses || returns.reachable_bytes(&account) > 0 {
        return core.refuse(to, RefusalCode::Quota, text);
    }
    let soon = next_in_ms(core, &want(take)).unwrap_or(LEAST_RETRY_MS);
    let refusal = Refusal::new(RefusalCode::Busy, text).retry_after(Some(soon));
    core.reply(to, Reply::Refused(refusal));
}

/// That there is nothing for `take`, and why, where that is known.
fn nothing_for(core: &Core, take: &Take) -> String {
    let (pages, place) = restrictions(take);
    let size = Size::new(take.bytes);
    let why = core.slabs.trouble(take.node, take.page);
    let why = why.map_or(String::new(), |why| format!(": {why}"));
    format!("no slab of {size}{pages} is ready{place}{why}")
}

/// That no class has slabs for `take`, however long it waits.
fn no_class_for(core: &Core, take: &Take) -> String {
    let (pages, place) = restrictions(take);
    let size = Size::new(take.bytes);
    let largest = core.slabs.largest_for(&want(take));
    let largest = largest.map_or(String::new(), |largest| {
        format!(", the largest are of {}", Size::new(largest))
    });
    format!("no slabs of {size} or more{pages} are configured{place}{largest}")
}

/// The pages and the node that `take` is restricted to, in words.
fn restrictions(take: &Take) -> (String, String) {
    let pages = take.page.map(|page| format!(" of {page} pages"));
    let place = take.node.map(|node| format!(" on node {node}"));
    (pages.unwrap_or_default(), place.unwrap_or_default())
}

/// Until a slab that will do is expected, at the speed and the rate of filling; `None`
/// while nothing says when filling goes on.
fn next_in_ms(core: &Core, want: &Want) -> Option<u32> {
    let bytes = core.slabs.lacking_bytes(want);
    let bytes = u128::from(bytes.filter(|_| core.fills_now())?);
    let zeroing_ns = (bytes * u128::from(core.speed.ns_per_gib())) >> 30;
    let paced_ns = (bytes * 1_000_000_000)
        .checked_div(core.filling.rate.into())
        .unwrap_or(0);
    let ms = zeroing_ns.max(paced_ns).div_ceil(1_000_000);
    Some(u32::try_from(ms).unwrap_or(u32::MAX).max(LEAST_RETRY_MS))
}
