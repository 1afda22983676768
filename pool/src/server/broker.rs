//! The broker: what each request means for slabs, leases and quotas.
//!
//! It knows nothing of sockets: a request comes with who asks, an [`Answer`]
//! goes back. Its only thread is the server's, so nothing here is locked; what
//! takes time is given to workers and comes back by [`Broker::work_done`].

use super::connections::ConnectionId;
use super::keeper::Keeper;
use super::refills::Refills;
use super::restore;
use super::returns::Measured;
use super::times::Times;
use super::workers::{Returning, Ticket, Waiting, Workers};
use crate::config::Size;
use crate::fill::{Done, Job, Work};
use crate::lease::journal::{Journal, Record};
use crate::lease::quota::{Charge, Ledger, Rules, Standing};
use crate::lease::{Formers, Lease, Leases, Pipes, Replacements, Serial};
use crate::os::peer::Peer;
use crate::protocol::{
    Counters, Drained, Give, Lease as LeaseReply, Refusal, RefusalCode, Reply, Request, Resize,
    Resized, Take,
};
use crate::store::choose::{NsPerGib, Want};
use crate::store::slab::Slab;
use crate::store::{Key, Store};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
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

/// Why a user that no rule names is refused.
pub(super) fn denied(peer: &Peer) -> String {
    format!(
        "user {} is neither of the owner's group nor named by a quota",
        peer.uid
    )
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

/// Slabs, leases, quotas, and the workers for what takes time.
#[derive(Debug)]
pub(super) struct Broker {
    pub(super) store: Store,
    pub(super) leases: Leases,
    pub(super) journal: Journal,
    pub(super) pipes: Pipes,
    pub(super) formers: Formers,
    pub(super) workers: Workers,
    pub(super) keeper: Keeper,
    pub(super) refills: Refills,
    rules: Rules,
    pub(super) ledger: Ledger,
    pub(super) replacements: Replacements,
    pub(super) counters: Counters,
    pub(super) times: Times,
    pub(super) begin: Instant,
    /// Slabs being emptied; the daemon does not end before they are.
    pub(super) returning: usize,
    /// Slabs of borrowers with a limit, to be emptied one after the other.
    pub(super) to_empty: VecDeque<Box<Returning>>,
    /// The one of these that is being emptied.
    pub(super) measured: Option<Measured>,
    /// Leases whose slab is being made as long as it was.
    pub(super) shortening: BTreeSet<Serial>,
}

impl Broker {
    pub(super) fn new(
        store: Store,
        rules: Rules,
        workers: Workers,
        keeper: Keeper,
        refills: Refills,
        (journal, pipes): (Journal, Pipes),
    ) -> Self {
        Self {
            store,
            leases: Leases::new(journal.prefix(), journal.next()),
            journal,
            pipes,
            formers: Formers::default(),
            workers,
            keeper,
            refills,
            rules,
            ledger: Ledger::default(),
            replacements: Replacements::default(),
            counters: Counters::default(),
            times: Times::new(),
            begin: Instant::now(),
            returning: 0,
            to_empty: VecDeque::new(),
            measured: None,
            shortening: BTreeSet::new(),
        }
    }

    /// The process at the other end, as far as the rules need to know it.
    pub(super) fn peer_of(&self, socket: &OwnedFd) -> io::Result<Peer> {
        if self.rules.has_cgroups() {
            Peer::of(socket)
        } else {
            Peer::without_cgroup(socket)
        }
    }

    /// What a peer may do.
    pub(super) fn standing(&self, peer: &Peer) -> Standing {
        self.rules.standing(peer)
    }

    /// Does what is asked.
    pub(super) fn handle(&mut self, from: ConnectionId, peer: &Peer, request: Request) -> Answer {
        self.counters.requests += 1;
        let standing = self.standing(peer);
        let owner_only = matches!(request, Request::Resize(_) | Request::Drain);
        if standing == Standing::Stranger || (owner_only && standing != Standing::Owner) {
            self.counters.denied += 1;
            let who = if owner_only {
                "only root and the daemon's user may do this".into()
            } else {
                denied(peer)
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
            return Answer::refuse(RefusalCode::Empty, self.nothing_for(&take));
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
            self.take_back(key, slab, Charge::default(), None);
        }
    }

    fn top_up(&mut self, mut waiting: Waiting, start: u64) -> Answer {
        let end = waiting.slab.bytes();
        let budget = Duration::from_millis(waiting.take.max_topup_ms.into());
        waiting.topped_up_bytes = end - start;
        let node = waiting.key.node;
        if let Err(error) = self.workers.has_prompt(node) {
            let Waiting {
                key, slab, charge, ..
            } = waiting;
            self.take_back(key, slab, charge, None);
            return Answer::refuse(RefusalCode::Internal, error.to_string());
        }
        let work = Work::Fill {
            page: waiting.key.page,
            start,
            end,
            deadline: Some(waiting.since + budget),
        };
        let file = waiting.slab.file();
        let job = Job::new(Ticket::TopUp(Box::new(waiting)), file, work);
        match self.workers.promptly(node, job) {
            Ok(()) => Answer::Later,
            Err(error) => Answer::refuse(RefusalCode::Internal, error.to_string()),
        }
    }

    /// Marks, then lends; what cannot be lent is taken back, never kept.
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

    /// Nothing is left of a lease, for a later daemon either.
    pub(super) fn lease_is_over(&mut self, serial: Serial) {
        self.keeper.forget_lease(serial);
        self.pipes.remove(serial);
        // Not written, the next daemon finds neither pipe nor file.
        let _ = self.journal.end(serial);
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

    /// A worker is done. Whoever waited for it gets an answer.
    pub(super) fn work_done(&mut self, done: Done<Ticket>) -> Option<(ConnectionId, Answer)> {
        self.counters.zeroed_bytes += done.zeroed_bytes;
        self.counters.zeroing_ns += done.zeroing_ns;
        match done.ticket {
            Ticket::Fill(_, id) => {
                let filled = self.store.filled(id, done.result, Instant::now());
                if let Some((key, slab)) = filled {
                    self.keeper.keep(slab);
                    self.became_clean(key);
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
            Ticket::EmptyAgain(id) => {
                self.formers.emptied(id);
                None
            }
            Ticket::Shorten(serial) => {
                self.shortening.remove(&serial);
                None
            }
            Ticket::Discard(slab) => {
                self.returning -= 1;
                let _ = slab.discard();
                None
            }
            Ticket::Refill(_, serial) => {
                self.refilled(serial, &done.refilled_pages, done.result);
                None
            }
        }
    }

    fn topped_up(&mut self, waiting: Waiting, result: io::Result<()>) -> Answer {
        if let Err(error) = result {
            self.counters.starved += 1;
            let text = format!("{}: {error}", self.nothing_for(&waiting.take));
            let Waiting {
                key, slab, charge, ..
            } = waiting;
            self.take_back(key, slab, charge, None);
            return Answer::refuse(RefusalCode::Empty, text);
        }
        self.lend(waiting)
    }

    /// What is done from time to time: former slabs looked at, fills begun.
    pub(super) fn tick(&mut self) {
        self.sweep_formers();
        self.empty_next();
        self.look_for_holes();
        self.credit_full_classes();
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
            let work = Work::Fill {
                page: order.key.page,
                start: 0,
                end: order.key.bytes,
                deadline: None,
            };
            let job = Job {
                cancel: order.cancel,
                done_bytes: order.done_bytes,
                ..Job::new(Ticket::Fill(node, id), order.file, work)
            };
            if let Err(error) = self.workers.later(node, job) {
                self.store.filled(id, Err(error), Instant::now());
            }
        }
        self.begin_refills();
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
        let mounts = self.store.mounts().count();
        match self.store.resize(key, resize.slabs) {
            Ok((before_slabs, excess)) => {
                if self.store.mounts().count() > mounts {
                    self.keeper.keep_mounts(&self.store);
                }
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
        // A slab that is being filled has a name, under which it would stay.
        let under_way = self.returning + self.to_empty.len() + self.store.filling_slabs();
        self.store.is_draining() && self.store.lent_slabs() == 0 && under_way == 0
    }

    /// Ends: what is clean goes back to the kernel, or stays for the next
    /// daemon. What is lent stays with its borrowers either way.
    pub(super) fn stop(mut self, keep: bool) {
        let clean = self.store.drain();
        // Those that can be reached no more; the next daemon watches the others.
        self.sweep_formers();
        for slab in clean {
            if keep {
                slab.leave();
            } else {
                self.keeper.forget(&slab);
                let _ = slab.discard();
            }
        }
        if self.store.lent_slabs() == 0 && self.formers.is_empty() && !keep {
            self.keeper.forget_mounts(&self.store);
        }
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
