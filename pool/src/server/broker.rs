//! The broker: what each request means for slabs, leases and quotas.
//!
//! It knows nothing of sockets: a request comes with who asks, an [`Answer`]
//! goes back. Its only thread is the server's, so nothing here is locked; what
//! takes time is given to workers and comes back by [`Broker::work_done`].

use super::connections::ConnectionId;
use super::keeper::Keeper;
use super::metrics;
use super::times::Times;
use super::workers::{Returning, Ticket, Waiting, Workers};
use crate::fill::{Done, Job, Work};
use crate::lease::quota::{Charge, Ledger, Rules, Standing};
use crate::lease::{Former, Formers, Lease, Leases, Lifeline, Serial};
use crate::protocol::{
    Counters, Drained, Give, Lease as LeaseReply, MOST_STATUS_ROWS, PoolRow, Refusal, RefusalCode,
    Reply, Request, Resize, Resized, Status, StatusQuery, Take,
};
use crate::store::choose::{NsPerGib, Want};
use crate::store::slab::Slab;
use crate::store::{Key, Store};
use firstlight_host::peer::Peer;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// What a GiB of zeroing is assumed to take before any was measured.
const ASSUMED_NS_PER_GIB: NsPerGib = 100_000_000;

/// Slabs one pool may be asked to keep at run time.
const MOST_SLABS: u32 = 1 << 20;

/// What to answer.
#[derive(Debug)]
pub(super) enum Answer {
    /// This.
    Reply(Reply),
    /// This, with memory and lifeline. If it cannot be sent, the lease ends.
    Lend {
        reply: Reply,
        serial: Serial,
        memory: OwnedFd,
        lifeline: OwnedFd,
    },
    /// Nothing yet: it comes from [`Broker::work_done`].
    Later,
}

impl Answer {
    pub(super) fn refuse(code: RefusalCode, message: impl Into<String>) -> Self {
        Self::Reply(Reply::Refused(Refusal::new(code, message)))
    }
}

/// Slabs, leases, quotas, and the workers for what takes time.
#[derive(Debug)]
pub(super) struct Broker {
    pub(super) store: Store,
    pub(super) leases: Leases,
    pub(super) formers: Formers,
    pub(super) workers: Workers,
    keeper: Keeper,
    rules: Rules,
    ledger: Ledger,
    pub(super) counters: Counters,
    pub(super) times: Times,
    begin: Instant,
    /// Slabs being emptied; the daemon does not end before they are.
    returning: usize,
    /// Slabs of borrowers with a limit, to be emptied one after the other.
    to_empty: VecDeque<Box<Returning>>,
    /// What the mounts counted as stray before the one that is being emptied.
    stray_before: Option<u64>,
}

impl Broker {
    pub(super) fn new(store: Store, rules: Rules, workers: Workers, keeper: Keeper) -> Self {
        let begin = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        // Differs from daemon to daemon, so that their leases have other names.
        let prefix = std::process::id() ^ begin.subsec_nanos();
        Self {
            store,
            leases: Leases::new(prefix),
            formers: Formers::default(),
            workers,
            keeper,
            rules,
            ledger: Ledger::default(),
            counters: Counters::default(),
            times: Times::new(),
            begin: Instant::now(),
            returning: 0,
            to_empty: VecDeque::new(),
            stray_before: None,
        }
    }

    /// What a peer may do.
    pub(super) fn standing(&self, peer: &Peer) -> Standing {
        self.rules.standing(peer)
    }

    /// Does what is asked.
    pub(super) fn handle(&mut self, from: ConnectionId, peer: &Peer, request: Request) -> Answer {
        let standing = self.standing(peer);
        let owner_only = matches!(request, Request::Resize(_) | Request::Drain);
        if standing == Standing::Stranger || (owner_only && standing != Standing::Owner) {
            self.counters.denied += 1;
            let who = if owner_only {
                "only root and the daemon's user may do this".into()
            } else {
                format!(
                    "user {} is neither of the owner's group nor named by a quota",
                    peer.uid
                )
            };
            return Answer::refuse(RefusalCode::Denied, who);
        }
        match request {
            Request::Take(take) => self.take(from, peer, take),
            Request::Give(give) => self.give(peer, &standing, &give),
            Request::Status(query) => {
                let uid = (standing != Standing::Owner).then_some(peer.uid);
                Answer::Reply(Reply::Status(self.status(uid, query)))
            }
            Request::Resize(resize) => self.resize(&resize),
            Request::Drain => self.drain(),
        }
    }

    fn take(&mut self, from: ConnectionId, peer: &Peer, take: Take) -> Answer {
        let since = Instant::now();
        if self.store.is_draining() {
            return Answer::refuse(RefusalCode::Draining, "the daemon is on its way out");
        }
        // Charged before a slab is touched, for at least what is asked.
        let charge = match self.ledger.charge(&self.rules, peer, take.bytes) {
            Ok(charge) => charge,
            Err(text) => {
                self.counters.denied += 1;
                return Answer::refuse(RefusalCode::Quota, text);
            }
        };
        let want = Want {
            bytes: take.bytes,
            node: take.node,
            page: take.page,
            top_up: Duration::from_millis(take.max_topup_ms.into()),
        };
        let Some((key, slab, missing)) = self.store.take(&want, self.ns_per_gib()) else {
            self.ledger.credit(charge);
            self.counters.starved += 1;
            return Answer::refuse(RefusalCode::Empty, empty(&take));
        };
        // What it gets may be more than it asked for, and that is what counts.
        self.ledger.credit(charge);
        let charge = match self.ledger.charge(&self.rules, peer, slab.bytes()) {
            Ok(charge) => charge,
            Err(text) => {
                self.counters.denied += 1;
                self.untouched(key, slab);
                return Answer::refuse(RefusalCode::Quota, text);
            }
        };
        let waiting = Waiting {
            connection: from,
            peer: peer.clone(),
            take,
            key,
            slab,
            charge,
            since,
            topped_up_bytes: 0,
        };
        match missing {
            None => self.lend(waiting),
            Some(start) => self.top_up(waiting, start),
        }
    }

    /// A slab that was chosen and not lent: clean as it was, unless it grew.
    fn untouched(&mut self, key: Key, slab: Slab) {
        if slab.bytes() == key.bytes {
            self.store.put_back(&key, slab);
        } else {
            self.take_back(key, slab, Charge::default(), false);
        }
    }

    fn top_up(&mut self, mut waiting: Waiting, start: u64) -> Answer {
        let end = waiting.slab.bytes();
        let budget = Duration::from_millis(waiting.take.max_topup_ms.into());
        waiting.topped_up_bytes = end - start;
        let node = waiting.key.node;
        let job = Job {
            file: waiting.slab.file(),
            work: Work::Fill {
                page: waiting.key.page,
                start,
                end,
                deadline: Some(waiting.since + budget),
            },
            ticket: Ticket::TopUp(Box::new(waiting)),
            cancel: Arc::default(),
            done_bytes: Arc::default(),
        };
        match self.workers.promptly(node, job) {
            Ok(()) => Answer::Later,
            Err(error) => Answer::refuse(RefusalCode::Internal, error.to_string()),
        }
    }

    /// Marks, then lends; what cannot be lent is taken back, never kept.
    fn lend(&mut self, waiting: Waiting) -> Answer {
        let Waiting {
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
            let (ours, theirs) = Lifeline::new()?;
            let id = self.leases.id(serial).map_err(io::Error::other)?;
            Ok((memory, ours, theirs, id))
        });
        let (memory, ours, theirs, lease) = match parts {
            Ok(parts) => parts,
            Err(error) => {
                self.take_back(key, slab, charge, false);
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
            slab,
            key,
            charge,
            uid: peer.uid,
            pid: peer.pid,
            lifeline: ours,
            since: Instant::now(),
        };
        self.leases.insert(serial, lease);
        self.counters.takes += 1;
        self.counters.top_ups += u64::from(topped_up_bytes > 0);
        let spent_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.times.record(spent_ns);
        Answer::Lend {
            reply,
            serial,
            memory,
            lifeline: theirs,
        }
    }

    fn give(&mut self, peer: &Peer, standing: &Standing, give: &Give) -> Answer {
        let serial = self.leases.serial(&give.lease).filter(|serial| {
            let lease = self.leases.get(*serial);
            lease.is_some_and(|lease| *standing == Standing::Owner || lease.uid == peer.uid)
        });
        let Some(serial) = serial else {
            let text = format!("you have no lease {}", give.lease);
            return Answer::refuse(RefusalCode::UnknownLease, text);
        };
        self.end_lease(serial);
        Answer::Reply(Reply::Give)
    }

    /// A lease is over: its memory is taken away, whoever still holds it.
    pub(super) fn end_lease(&mut self, serial: Serial) {
        if let Some(lease) = self.leases.end(serial) {
            self.counters.returns += 1;
            self.take_back(lease.key, lease.slab, lease.charge, true);
        }
    }

    fn take_back(&mut self, key: Key, slab: Slab, charge: Charge, was_lent: bool) {
        let in_place = self.store.came_back(slab.id())
            && was_lent
            && slab.bytes() == key.bytes
            && slab.length().is_ok_and(|bytes| bytes == key.bytes)
            && slab.is_ours_alone().unwrap_or(false);
        let returning = Box::new(Returning { key, slab, charge });
        if in_place {
            self.zero_in_place(returning);
        } else {
            self.empty(returning);
        }
    }

    fn zero_in_place(&mut self, returning: Box<Returning>) {
        let (file, node) = (returning.slab.file(), returning.key.node);
        let bytes = returning.key.bytes;
        let job = Job {
            ticket: Ticket::ZeroInPlace(returning),
            file,
            work: Work::ZeroInPlace { bytes },
            cancel: Arc::default(),
            done_bytes: Arc::default(),
        };
        self.returning += 1;
        if self.workers.later(node, job).is_err() {
            self.returning -= 1;
        }
    }

    /// Has a slab emptied. Where it is to be seen what stays pinned of it, it is
    /// the only such one at the time.
    fn empty(&mut self, returning: Box<Returning>) {
        if returning.charge.is_free() || !returning.slab.is_counted() {
            return self.empty_now(returning);
        }
        self.to_empty.push_back(returning);
        self.empty_next();
    }

    fn empty_next(&mut self) {
        if self.stray_before.is_none()
            && let Some(returning) = self.to_empty.pop_front()
        {
            self.stray_before = Some(self.store.stray_bytes());
            self.empty_now(returning);
        }
    }

    fn empty_now(&mut self, returning: Box<Returning>) {
        let file = returning.slab.file();
        let job = Job {
            ticket: Ticket::Empty(returning),
            file,
            work: Work::Empty,
            cancel: Arc::default(),
            done_bytes: Arc::default(),
        };
        self.returning += 1;
        // Any node's worker can do it: nothing is allocated.
        if self.workers.promptly(None, job).is_err() {
            self.returning -= 1;
        }
    }

    fn discard(&mut self, slabs: Vec<Slab>) -> u64 {
        let mut bytes = 0;
        for slab in slabs {
            self.keeper.forget(&slab);
            bytes += slab.bytes();
            let job = Job {
                file: slab.file(),
                ticket: Ticket::Discard(slab),
                work: Work::Empty,
                cancel: Arc::default(),
                done_bytes: Arc::new(AtomicU64::new(0)),
            };
            self.returning += 1;
            if self.workers.promptly(None, job).is_err() {
                self.returning -= 1;
            }
        }
        bytes
    }

    /// A worker is done. Whoever waited for it gets an answer.
    pub(super) fn work_done(&mut self, done: Done<Ticket>) -> Option<(ConnectionId, Answer)> {
        self.counters.zeroed_bytes += done.zeroed_bytes;
        self.counters.zeroing_ns += done.zeroing_ns;
        match done.ticket {
            Ticket::Fill(_, id) => {
                if let Some(slab) = self.store.filled(id, done.result, Instant::now()) {
                    self.keeper.keep(slab);
                }
                None
            }
            Ticket::TopUp(waiting) => {
                let from = waiting.connection;
                Some((from, self.topped_up(*waiting, done.result)))
            }
            Ticket::Empty(returning) => {
                self.returning -= 1;
                self.emptied(*returning);
                None
            }
            Ticket::ZeroInPlace(returning) => {
                self.returning -= 1;
                self.zeroed_in_place(returning, done.result);
                None
            }
            Ticket::Discard(slab) => {
                self.returning -= 1;
                let _ = slab.discard();
                None
            }
        }
    }

    fn topped_up(&mut self, waiting: Waiting, result: io::Result<()>) -> Answer {
        if let Err(error) = result {
            self.counters.starved += 1;
            let text = format!("{}: {error}", empty(&waiting.take));
            let Waiting {
                key, slab, charge, ..
            } = waiting;
            self.take_back(key, slab, charge, false);
            return Answer::refuse(RefusalCode::Empty, text);
        }
        self.lend(waiting)
    }

    fn emptied(&mut self, returning: Returning) {
        let Returning { key, slab, charge } = returning;
        let bytes = slab.bytes();
        let mut pinned_bytes = 0;
        if !charge.is_free() && slab.is_counted() {
            let before = self.stray_before.take().unwrap_or(0);
            pinned_bytes = self.store.stray_bytes().saturating_sub(before).min(bytes);
        }
        self.store.cleaned(&key, bytes, None);
        let former = Former {
            slab,
            key,
            charge,
            pinned_bytes,
        };
        if let Some(free) = self.formers.add(former) {
            self.forget(free);
        }
        self.empty_next();
    }

    fn zeroed_in_place(&mut self, returning: Box<Returning>, result: io::Result<()>) {
        // Nobody may have come to hold it meanwhile either.
        if result.is_err() || !returning.slab.is_ours_alone().unwrap_or(false) {
            self.empty(returning);
            return;
        }
        let Returning { key, slab, charge } = *returning;
        self.ledger.credit(charge);
        self.store.cleaned(&key, key.bytes, Some(slab));
    }

    /// Nobody can reach it any more.
    fn forget(&mut self, former: Former) {
        self.ledger.credit(former.charge);
        let _ = former.slab.discard();
    }

    /// What is done from time to time: former slabs looked at, fills begun.
    pub(super) fn tick(&mut self) {
        if !self.formers.is_empty() {
            let stray_bytes = self.store.stray_bytes();
            for former in self.formers.sweep(stray_bytes).free {
                self.forget(former);
            }
        }
        self.begin_fills();
    }

    /// Gives every idle worker something to fill.
    pub(super) fn begin_fills(&mut self) {
        for node in self.store.nodes() {
            if !self.workers.is_free(node) {
                continue;
            }
            let Some(order) = self.store.begin_fill(node, Instant::now()) else {
                continue;
            };
            let id = order.id;
            let job = Job {
                ticket: Ticket::Fill(node, id),
                file: order.file,
                work: Work::Fill {
                    page: order.key.page,
                    start: 0,
                    end: order.key.bytes,
                    deadline: None,
                },
                cancel: order.cancel,
                done_bytes: order.done_bytes,
            };
            if let Err(error) = self.workers.later(node, job) {
                self.store.filled(id, Err(error), Instant::now());
            }
        }
    }

    fn resize(&mut self, resize: &Resize) -> Answer {
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
            return Answer::refuse(RefusalCode::BadRequest, text);
        }
        if self.store.is_draining() {
            return Answer::refuse(RefusalCode::Draining, "the daemon is on its way out");
        }
        match self.store.resize(key, resize.slabs) {
            Ok((before_slabs, excess)) => {
                self.discard(excess);
                self.begin_fills();
                Answer::Reply(Reply::Resize(Resized {
                    slabs: resize.slabs,
                    before_slabs,
                }))
            }
            Err(error) => Answer::refuse(RefusalCode::BadRequest, error.to_string()),
        }
    }

    fn drain(&mut self) -> Answer {
        let clean = self.store.drain();
        let released_bytes = self.discard(clean);
        let lent_slabs = u32::try_from(self.store.lent_slabs()).unwrap_or(u32::MAX);
        Answer::Reply(Reply::Drain(Drained {
            released_bytes,
            lent_slabs,
        }))
    }

    /// Whether it was drained and everything is back.
    pub(super) fn is_drained(&self) -> bool {
        let returning = self.returning + self.to_empty.len();
        self.store.is_draining() && self.store.lent_slabs() == 0 && returning == 0
    }

    /// What the pool holds, as far as `uid` may see it; everything for `None`.
    pub(super) fn status(&self, uid: Option<u32>, query: StatusQuery) -> Status {
        let (pools, more_pools) = part(self.rows(), query.skip_pools);
        let (leases, more_leases) = part(self.leases.rows(uid, Instant::now()), query.skip_leases);
        let mut counters = self.counters.clone();
        counters.take_times = self.times.summary();
        Status {
            daemon_pid: std::process::id(),
            uptime_ms: u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX),
            draining: self.store.is_draining(),
            pools,
            more_pools,
            leases,
            more_leases,
            counters,
        }
    }

    /// All figures, for Prometheus.
    pub(super) fn metrics(&mut self, connections: usize) -> String {
        let rows = self.rows();
        let stray_bytes = self.store.stray_bytes();
        metrics::text(&metrics::Snapshot {
            rows: &rows,
            counters: &self.counters,
            times: &self.times,
            connections,
            leases: self.leases.len(),
            formers: self.formers.len(),
            former_bytes: self.formers.bytes(),
            pinned_bytes: self.formers.pinned_bytes(),
            stray_bytes,
            paused: self.workers.is_paused(),
        })
    }

    /// Ends: what is clean goes back to the kernel, or stays for the next
    /// daemon. What is lent stays with its borrowers either way.
    pub(super) fn stop(mut self, keep: bool) {
        let clean = self.store.drain();
        for slab in clean {
            if keep {
                slab.leave();
            } else {
                self.keeper.forget(&slab);
                let _ = slab.discard();
            }
        }
        if !keep {
            self.store.unmount();
        }
    }

    fn rows(&self) -> Vec<PoolRow> {
        let mut rows = self.store.rows();
        for row in &mut rows {
            if row.trouble.is_none() && row.filling_slabs > 0 && self.workers.is_paused() {
                row.trouble = Some("paused: somebody waits for memory".into());
            }
        }
        rows
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

fn empty(take: &Take) -> String {
    let place = take
        .node
        .map_or(String::new(), |node| format!(" on node {node}"));
    let pages = take
        .page
        .map_or(String::new(), |page| format!(" of {page} pages"));
    format!("no slab of {} bytes{pages} is ready{place}", take.bytes)
}

/// Rows from `skip` on, as many as go into one reply, and how many follow.
fn part<T>(rows: Vec<T>, skip: u32) -> (Vec<T>, u32) {
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    let left = rows.len().saturating_sub(skip);
    let part: Vec<T> = rows.into_iter().skip(skip).take(MOST_STATUS_ROWS).collect();
    let more = u32::try_from(left - part.len()).unwrap_or(u32::MAX);
    (part, more)
}
