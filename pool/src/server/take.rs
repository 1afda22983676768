//! `take`: a slab is chosen, charged, topped up if need be, marked, and allocated.

use super::broker::{Answer, Broker};
use super::connections::ConnectionId;
use super::restore;
use super::workers::{Ticket, Waiting};
use crate::config::Size;
use crate::fill::{Job, Work};
use crate::lease::journal::Record;
use crate::lease::quota::Charge;
use crate::lease::{Lease, Serial};
use crate::os::peer::Peer;
use crate::protocol::{Counters, Lease as LeaseReply, Refusal, RefusalCode, Reply, Take};
use crate::store::Key;
use crate::store::choose::{NsPerGib, Want};
use crate::store::slab::Slab;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a GiB of zeroing is assumed to take before any was measured.
const ASSUMED_NS_PER_GIB: NsPerGib = 100_000_000;

/// Whatever is lacking: clients that wait are not to ask in a loop.
const LEAST_RETRY_MS: u32 = 20;

/// Slabs that are topped up at the same time at most: each by a thread of its own.
const MOST_TOP_UPS: usize = 64;

/// Of these, for one user.
const MOST_TOP_UPS_OF_A_USER: usize = 16;

/// A slab that is being topped up for a client.
#[derive(Debug)]
pub(super) struct TopUp {
    user: u32,
    /// Set when its client is gone.
    cancel: Arc<AtomicBool>,
}

/// What a later daemon must know of a lease that begins.
fn record(serial: Serial, key: Key, slab: &Slab, charge: &Charge, peer: &Peer) -> Record {
    Record {
        serial,
        page: key.page,
        node: key.node,
        class_bytes: key.bytes,
        bytes: slab.bytes(),
        memfd: slab.is_memfd(),
        uid: peer.uid,
        pid: peer.pid,
        charge: charge.clone(),
        since_ms: restore::now_ms(),
        revoked: false,
    }
}

impl Broker {
    pub(super) fn take(&mut self, from: ConnectionId, peer: &Peer, take: Take) -> Answer {
        let since = Instant::now();
        if self.store.is_draining() {
            self.counters.misses.draining += 1;
            return Answer::refuse(RefusalCode::Draining, "the daemon is on its way out");
        }
        // Charged before a slab is touched, for at least what is asked.
        let charge = match self.ledger.charge(&self.rules, peer, take.bytes) {
            Ok(charge) => charge,
            Err(text) => return self.over_quota(text),
        };
        let want = Want {
            bytes: take.bytes,
            node: take.node,
            page: take.page,
            top_up: Duration::from_millis(take.max_topup_ms.into()),
            if_faster: take.topup_if_faster,
        };
        let Some(pick) = self.store.choose(&want, self.ns_per_gib()) else {
            self.ledger.credit(charge);
            return self.nothing_ready(&take, &want);
        };
        self.ledger.credit(charge);
        if pick.bytes > pick.key.bytes && !self.may_top_up(peer.user) {
            let text = "as many slabs are being topped up as may be at once";
            let refusal = Refusal::new(RefusalCode::Busy, text).retry_after(Some(LEAST_RETRY_MS));
            return Answer::Reply(Reply::Refused(refusal));
        }
        // What it gets may be more than it asked for, and that is what counts.
        let charge = match self.ledger.charge(&self.rules, peer, pick.bytes) {
            Ok(charge) => charge,
            Err(text) => return self.over_quota(text),
        };
        let Some(slab) = self.store.take(&pick) else {
            self.ledger.credit(charge);
            return Answer::refuse(RefusalCode::Internal, "a slab that was ready is not");
        };
        let waiting = Waiting {
            connection: from,
            peer: peer.clone(),
            take,
            key: pick.key,
            slab,
            charge,
            since,
            topped_up_bytes: pick.bytes - pick.key.bytes,
        };
        if waiting.topped_up_bytes == 0 {
            self.lend(waiting)
        } else {
            self.top_up(waiting)
        }
    }

    fn over_quota(&mut self, text: String) -> Answer {
        self.counters.denied += 1;
        self.counters.misses.quota += 1;
        Answer::refuse(RefusalCode::Quota, text)
    }

    fn nothing_ready(&mut self, take: &Take, want: &Want) -> Answer {
        let (code, text) = if self.is_waking(want) {
            let text = "the daemon has just been started and zeroes its first memory";
            (RefusalCode::Busy, text.into())
        } else {
            self.counters.starved += 1;
            if self.store.has_class_for(want) {
                self.counters.misses.empty += 1;
            } else {
                self.counters.misses.no_class += 1;
            }
            (RefusalCode::Empty, self.nothing_for(take))
        };
        let refusal = Refusal::new(code, text).retry_after(self.next_in_ms(want));
        Answer::Reply(Reply::Refused(refusal))
    }

    /// Whether memory for `want` comes soon, because a client has just started the daemon.
    fn is_waking(&self, want: &Want) -> bool {
        self.wakes_until.is_some_and(|until| Instant::now() < until)
            && self.store.has_class_for(want)
            && self.store.filling_slabs() > 0
            && self.fills_now()
            && self.store.trouble(want.node, want.page).is_none()
    }

    fn count_take(&mut self, since: Instant, topped_up_bytes: u64) {
        self.counters.takes += 1;
        self.counters.top_ups += u64::from(topped_up_bytes > 0);
        let spent_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.times.record(spent_ns);
    }

    /// Has what a smaller slab lacks zeroed. It is not clean any more, so whatever goes wrong,
    /// it is taken back and stays charged until a clean one has taken its place.
    fn top_up(&mut self, mut waiting: Waiting) -> Answer {
        let node = waiting.key.node;
        let (start, end) = (
            waiting.key.bytes,
            waiting.key.bytes + waiting.topped_up_bytes,
        );
        let grown = waiting.slab.grow(end);
        let worker = match grown.and_then(|()| self.workers.prompt(node)) {
            Ok(worker) => worker,
            Err(error) => {
                let Waiting {
                    key, slab, charge, ..
                } = waiting;
                self.take_back(key, slab, charge, None);
                return Answer::refuse(RefusalCode::Internal, error.to_string());
            }
        };
        let budget = Duration::from_millis(waiting.take.max_topup_ms.into());
        let work = Work::Fill {
            page: waiting.key.page,
            start,
            end,
            deadline: Some(waiting.since + budget),
        };
        let file = waiting.slab.file();
        let (connection, user) = (waiting.connection, waiting.peer.user);
        let job = Job::new(Ticket::TopUp(Box::new(waiting)), file, work);
        let cancel = Arc::clone(&job.cancel);
        match worker.send(job) {
            Ok(()) => {
                let top_up = TopUp { user, cancel };
                self.topping_up.insert(connection, top_up);
                Answer::Later
            }
            Err(_) => Answer::refuse(RefusalCode::Internal, "a worker ended"),
        }
    }

    /// Whether one more slab may be topped up for this user.
    fn may_top_up(&self, user: u32) -> bool {
        let all = self.topping_up.values();
        let own = all.filter(|top_up| top_up.user == user).count();
        self.topping_up.len() < MOST_TOP_UPS && own < MOST_TOP_UPS_OF_A_USER
    }

    /// A client hung up: nothing is zeroed for it any more.
    pub(super) fn hung_up(&mut self, connection: ConnectionId) {
        if let Some(top_up) = self.topping_up.get(&connection) {
            top_up.cancel.store(true, Ordering::Relaxed);
        }
    }

    /// Marks, then allocates; what cannot be allocated is taken back, never kept.
    fn lend(&mut self, waiting: Waiting) -> Answer {
        let Waiting {
            connection,
            peer,
            key,
            mut slab,
            charge,
            since,
            topped_up_bytes,
            ..
        } = waiting;
        let serial = self.leases.new_serial();
        let parts = slab.lend().and_then(|memory| {
            self.keeper.forget(&slab);
            self.keeper.keep_lease(serial, &slab);
            let (ours, theirs) = self.pipes.make(serial)?;
            let id = self.leases.id(serial).map_err(io::Error::other)?;
            // Before the client has anything, so that no lease is ever forgotten.
            self.journal
                .begin(record(serial, key, &slab, &charge, &peer))?;
            Ok((memory, ours, theirs, id))
        });
        let (memory, ours, theirs, lease) = match parts {
            Ok(parts) => parts,
            Err(error) => {
                self.lease_is_over(serial);
                self.take_back(key, slab, charge, None);
                return Answer::refuse(RefusalCode::Internal, error.to_string());
            }
        };
        let reply = Reply::Take(LeaseReply {
            lease,
            bytes: slab.bytes(),
            page: key.page,
            node: key.node,
            align_bytes: key.page.bytes(),
            topped_up_bytes,
        });
        let lease = Lease {
            bytes: slab.bytes(),
            slab_id: slab.id(),
            slab: Some(slab),
            key,
            charge,
            uid: peer.uid,
            pid: peer.pid,
            connection: Some(connection),
            pipe: ours,
            since: Instant::now(),
        };
        let budget_bytes = self.store.refill_bytes(&key);
        self.refills.begin(serial, &lease, budget_bytes);
        self.leases.insert(serial, lease);
        self.workers.allocated();
        self.count_take(since, topped_up_bytes);
        Answer::Lend {
            reply,
            serial,
            memory,
            lease_pipe: theirs,
        }
    }

    pub(super) fn topped_up(&mut self, waiting: Waiting, result: io::Result<()>) -> Answer {
        self.topping_up.remove(&waiting.connection);
        if let Err(error) = result {
            self.counters.starved += 1;
            self.counters.misses.top_up += 1;
            let text = format!("{}: {error}", self.nothing_for(&waiting.take));
            let Waiting {
                key, slab, charge, ..
            } = waiting;
            self.take_back(key, slab, charge, None);
            return Answer::refuse(RefusalCode::Empty, text);
        }
        self.lend(waiting)
    }

    /// That there is nothing for `take`, and why, where that is known.
    fn nothing_for(&self, take: &Take) -> String {
        let place = take
            .node
            .map_or(String::new(), |node| format!(" on node {node}"));
        let pages = take
            .page
            .map_or(String::new(), |page| format!(" of {page} pages"));
        let size = Size::new(take.bytes);
        let why = self.store.trouble(take.node, take.page);
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        format!("no slab of {size}{pages} is ready{place}{why}")
    }

    /// Whether filling is neither turned off nor paused.
    fn fills_now(&self) -> bool {
        self.workers.filling_now().on && !self.workers.is_paused()
    }

    /// Until a slab that will do is expected, at the speed and the rate of filling; `None`
    /// while nothing says when filling goes on.
    fn next_in_ms(&self, want: &Want) -> Option<u32> {
        let filling = self.workers.filling_now();
        let bytes = self.store.lacking_bytes(want);
        let bytes = u128::from(bytes.filter(|_| self.fills_now())?);
        let zeroing_ns = (bytes * u128::from(self.ns_per_gib())) >> 30;
        let paced_ns = (bytes * 1_000_000_000)
            .checked_div(filling.rate.into())
            .unwrap_or(0);
        let ms = zeroing_ns.max(paced_ns).div_ceil(1_000_000);
        Some(u32::try_from(ms).unwrap_or(u32::MAX).max(LEAST_RETRY_MS))
    }

    /// What a GiB of zeroing takes, as measured so far.
    fn ns_per_gib(&self) -> NsPerGib {
        let Counters {
            zeroed_bytes,
            zeroing_ns,
            ..
        } = self.counters;
        let measured = (u128::from(zeroing_ns) << 30).checked_div(u128::from(zeroed_bytes));
        measured
            .and_then(|ns| u64::try_from(ns).ok())
            .unwrap_or(ASSUMED_NS_PER_GIB)
    }
}
