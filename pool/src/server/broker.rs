//! The broker: what each request means for slabs, leases and quotas.
//!
//! It knows nothing of sockets: a request comes with who asks, an [`Answer`]
//! goes back. Its only thread is the server's, so nothing here is locked; what
//! takes time is given to workers and comes back by [`Broker::work_done`].

use super::connections::ConnectionId;
use super::keeper::Keeper;
use super::refills::Refills;
use super::returns::Measured;
use super::take::TopUp;
use super::times::Times;
use super::workers::{Returning, Ticket, Workers};
use crate::fill::{Done, Job, Work};
use crate::lease::journal::Journal;
use crate::lease::quota::{Ledger, Rules, Standing};
use crate::lease::{Formers, Leases, Pipes, Replacements, Serial, Viewer};
use crate::os::peer::Peer;
use crate::os::subids::SubordinateIds;
use crate::protocol::{
    Counters, Drained, FillChange, Give, Refusal, RefusalCode, Reply, Request, Resize, Resized,
};
use crate::store::{Key, Store};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long after it was started on a service manager's socket with no clean slab the daemon has
/// clients wait for memory that is being zeroed, instead of having nothing for them.
const WAKES: Duration = Duration::from_secs(30);

/// Slabs one pool may be asked to keep at run time.
const MOST_SLABS: u32 = 1 << 20;

/// What to answer.
#[derive(Debug)]
pub(super) enum Answer {
    /// This.
    Reply(Reply),
    /// This, with memory and lease pipe. If it cannot be sent, the lease ends.
    Lend {
        reply: Reply,
        serial: Serial,
        memory: OwnedFd,
        lease_pipe: OwnedFd,
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
    pub(super) rules: Rules,
    pub(super) subids: SubordinateIds,
    pub(super) ledger: Ledger,
    pub(super) replacements: Replacements,
    pub(super) counters: Counters,
    pub(super) times: Times,
    pub(super) begin: Instant,
    /// The daemon began with no clean slab: until then clients are to wait for the first.
    pub(super) wakes_until: Option<Instant>,
    /// Connections at the last tick.
    pub(super) connections: usize,
    /// What the mounts counted as stray at the last tick.
    pub(super) stray_bytes: u64,
    /// Slabs that clients wait for, by connection.
    pub(super) topping_up: BTreeMap<ConnectionId, TopUp>,
    /// Slabs being emptied; the daemon does not end before they are.
    pub(super) returning: usize,
    /// Slabs of clients with a limit, to be emptied one after the other.
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
            subids: SubordinateIds::of_machine(&[0, rustix::process::geteuid().as_raw()]),
            ledger: Ledger::default(),
            replacements: Replacements::default(),
            counters: Counters::default(),
            times: Times::new(),
            begin: Instant::now(),
            wakes_until: None,
            connections: 0,
            stray_bytes: 0,
            topping_up: BTreeMap::new(),
            returning: 0,
            to_empty: VecDeque::new(),
            measured: None,
            shortening: BTreeSet::new(),
        }
    }

    /// The daemon was started by a client that came to the service manager's socket. One that
    /// was started anew has clean slabs from before, and its clients need not wait.
    pub(super) fn activated(&mut self, now: Instant) {
        let rows = self.store.rows();
        let is_empty = rows.iter().all(|row| row.clean_slabs == 0);
        self.wakes_until = is_empty.then(|| now + WAKES);
    }

    /// The process at the other end, as far as the rules need to know it.
    pub(super) fn peer_of(&mut self, socket: &OwnedFd) -> io::Result<Peer> {
        let mut peer = if self.rules.has_cgroups() {
            Peer::of(socket)?
        } else {
            Peer::without_cgroup(socket)?
        };
        peer.user = self.subids.user_of(peer.uid);
        Ok(peer)
    }

    /// What a peer may do.
    pub(super) fn standing(&self, peer: &Peer) -> Standing {
        self.rules.standing(peer)
    }

    /// Does what is asked; a `give` may come with a copy of its lease pipe.
    pub(super) fn handle(
        &mut self,
        from: ConnectionId,
        peer: &Peer,
        request: Request,
        pipe: Option<OwnedFd>,
    ) -> Answer {
        self.counters.requests += 1;
        let standing = self.standing(peer);
        let observes = matches!(request, Request::Status(_)) && standing == Standing::Observer;
        let owner_only = matches!(
            request,
            Request::Resize(_) | Request::Fill(_) | Request::Drain
        );
        let may = match standing {
            Standing::Owner => true,
            Standing::Borrower => !owner_only,
            Standing::Observer => observes,
            Standing::Stranger => false,
        };
        if !may {
            self.counters.denied += 1;
            let who = if owner_only {
                "only root and the daemon's user may do this".into()
            } else {
                denied(peer)
            };
            return Answer::refuse(RefusalCode::Denied, who);
        }
        let viewer = match standing {
            Standing::Owner => Viewer::Owner,
            Standing::Observer => Viewer::Observer,
            Standing::Borrower | Standing::Stranger => Viewer::User {
                uid: peer.uid,
                connection: from,
            },
        };
        match request {
            Request::Take(take) => self.take(from, peer, take),
            Request::Give(give) => self.give(viewer, &give, pipe),
            Request::Status(query) => {
                Answer::Reply(Reply::Status(self.status(viewer, query).into()))
            }
            Request::Resize(resize) => self.resize(&resize),
            Request::Fill(change) => self.change_filling(&change),
            Request::Drain => self.drain(),
        }
    }

    /// Nothing is left of a lease, for a later daemon either.
    pub(super) fn lease_is_over(&mut self, serial: Serial) {
        self.keeper.forget_lease(serial);
        self.pipes.remove(serial);
        // Not written, the next daemon finds neither pipe nor file.
        let _ = self.journal.end(serial);
    }

    fn give(&mut self, viewer: Viewer, give: &Give, pipe: Option<OwnedFd>) -> Answer {
        let serial = self.leases.serial(&give.lease).filter(|serial| {
            self.leases.get(*serial).is_some_and(|lease| {
                let shown = pipe.is_some_and(|end| lease.pipe.has_end(end).unwrap_or(false));
                shown || viewer.may_end(lease)
            })
        });
        let Some(serial) = serial else {
            let text = format!(
                "no lease {} was taken on this connection; from another one a `give` comes with a \
                 copy of its lease pipe",
                give.lease
            );
            return Answer::refuse(RefusalCode::UnknownLease, text);
        };
        self.end_lease(serial);
        Answer::Reply(Reply::Give)
    }

    /// A worker is done. Whoever waited for it gets an answer.
    pub(super) fn work_done(&mut self, done: Done<Ticket>) -> Option<(ConnectionId, Answer)> {
        self.counters.zeroed_bytes += done.zeroed_bytes;
        self.counters.zeroed_twice_bytes += done.zeroed_twice_bytes;
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

    /// What is done from time to time: revoked slabs looked at, fills begun.
    pub(super) fn tick(&mut self) {
        self.workers.read_pressure();
        self.stray_bytes = self.store.stray_bytes();
        self.sweep_formers();
        self.empty_next();
        self.look_for_holes();
        self.credit_full_classes();
        if self.workers.is_paused() {
            let released = self.store.above_the_floor();
            self.discard(released);
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

    fn change_filling(&mut self, change: &FillChange) -> Answer {
        if let Some(rate) = change.rate {
            self.workers.set_rate((rate > 0).then_some(rate));
        }
        if let Some(on) = change.on {
            self.workers.turn_filling(on);
        }
        Answer::Reply(Reply::Fill(self.workers.filling_now()))
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
    /// daemon. What is allocated stays with its clients either way.
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
}
